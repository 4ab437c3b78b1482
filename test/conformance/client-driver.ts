/**
 * The program that the suite starts in client scenarios: uses everything that the server at the given address offers,
 * through Tollgate, or with `--direct` by the SDK alone. Writes what it did to `driver.json` in the working folder.
 */
import { mkdtempSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import type { Client, Tool } from '@modelcontextprotocol/client';
import { CLIENT_ERROR, type DriverReport } from './comparison.ts';
import { endAll, type Gateway, MOST_SIGN_INS, wantsSignIn } from './gateway.ts';
import type { Revision } from './official-suite.ts';
import { type Context, connectPeer, type Peer } from './peer-client.ts';
import { PEER, startPeerGateway } from './peer-gateway.ts';
import { digestOf, type Exchange } from './recording-injector.ts';

const url = process.argv.at(-1) ?? '';
const isDirect = process.argv.includes('--direct');
const scenario = process.env.MCP_CONFORMANCE_SCENARIO ?? '';
const revision = (process.env.MCP_CONFORMANCE_PROTOCOL_VERSION ?? '2025-11-25') as Revision;
const context = JSON.parse(process.env.MCP_CONFORMANCE_CONTEXT ?? '{}') as Context;

const TIMEOUT_MS = 50_000;

const exchanges: Exchange[] = [];

let gateway: Gateway | undefined;

/** Repeats what Tollgate refused because the owner must sign in. The owner then does. */
async function signedIn<T>(work: () => Promise<T>): Promise<T> {
  for (let tries = 1; ; tries += 1) {
    let refusal = '';
    try {
      const result = await work();
      refusal = (result as { readonly isError?: boolean }).isError === true ? JSON.stringify(result) : '';
      if (!wantsSignIn(refusal) || tries > MOST_SIGN_INS) return result;
    } catch (thrown) {
      refusal = (thrown as Error).message;
      if (!wantsSignIn(refusal) || tries > MOST_SIGN_INS) throw thrown;
    }
    await gateway?.signIn(refusal);
  }
}

/** Notes what a request gave. Returns undefined if it was refused. */
async function attempt<T>(method: string, about: string, work: () => Promise<T>): Promise<T | undefined> {
  const note = (answer: string, succeeded: boolean): void =>
    void exchanges.push({
      scenario,
      method,
      request: [method, about].filter(Boolean).join(' '),
      answer,
      succeeded,
      asks: [],
    });
  try {
    const result = await (isDirect ? work() : signedIn(work));
    note(`200 ${saidBy(result)}`, true);
    return result;
  } catch (thrown) {
    process.stderr.write(`${method} ${about}: ${(thrown as Error).stack}\n`);
    note(CLIENT_ERROR, false);
    return undefined;
  }
}

function saidBy(result: unknown): string {
  const { content, contents, messages } = result as Readonly<Record<string, unknown>>;
  // What Tollgate says about an argument that it repaired is not of the server.
  const said = Array.isArray(content) ? content.filter((item) => !isNote(item)) : (contents ?? messages);
  return said === undefined ? 'result' : `result content=${digestOf(said)}`;
}

function isNote(item: unknown): boolean {
  const { text } = item as { readonly text?: unknown };
  return typeof text === 'string' && text.startsWith('[tollgate: ');
}

/** The server lists its tools as `add_numbers`; Tollgate as `peer_add_numbers`. */
function ownName(exposed: string): string {
  return isDirect ? exposed : exposed.replace(`${PEER}_`, '');
}

async function useAll({ client, retried }: Peer): Promise<void> {
  const tools = (await attempt('tools/list', '', () => retried(() => client.listTools())))?.tools ?? [];
  for (const { name, args } of callsOf(tools)) {
    const tool = tools.find((one) => ownName(one.name) === name);
    if (tool !== undefined)
      await attempt('tools/call', name, () => retried(() => client.callTool({ name: tool.name, arguments: args })));
  }
  const offers = client.getServerCapabilities();
  if (offers?.resources !== undefined) await readOne({ client, retried });
  if (offers?.prompts !== undefined) await getOne({ client, retried });
}

/** An empty list is not noted: Tollgate has lists of everything, and a server may have none. */
async function readOne({ client, retried }: Peer): Promise<void> {
  const uri = (await retried(() => client.listResources())).resources[0]?.uri;
  if (uri !== undefined) await attempt('resources/read', uri, () => retried(() => client.readResource({ uri })));
}

async function getOne({ client, retried }: Peer): Promise<void> {
  const name = (await retried(() => client.listPrompts())).prompts[0]?.name;
  if (name !== undefined) await attempt('prompts/get', ownName(name), () => retried(() => client.getPrompt({ name })));
}

/** The calls that the suite names; else one call of each tool. */
function callsOf(tools: readonly Tool[]): readonly { readonly name: string; readonly args: Record<string, unknown> }[] {
  if (context.toolCalls !== undefined)
    return context.toolCalls.map((call) => ({ name: call.name, args: call.arguments }));
  return tools.map((tool) => ({ name: ownName(tool.name), args: argumentsOf(tool, tools) }));
}

/** Arguments that a schema accepts. A tool that echoes a schema gets that of the other tool. */
function argumentsOf({ name, inputSchema }: Tool, tools: readonly Tool[]): Record<string, unknown> {
  if (ownName(name) === 'json_schema_echo')
    return { schema: tools.find((other) => other.name !== name)?.inputSchema ?? {} };
  const properties = Object.entries((inputSchema.properties ?? {}) as Record<string, { readonly type?: string }>);
  const required = new Set(inputSchema.required);
  return Object.fromEntries(
    properties.flatMap(([key, { type = 'string' }]) => (required.has(key) ? [[key, SAMPLES.get(type) ?? 'text']] : [])),
  );
}

const SAMPLES: ReadonlyMap<string, unknown> = new Map<string, unknown>([
  ['number', 5],
  ['integer', 5],
  ['boolean', true],
  ['object', {}],
  ['array', []],
  ['null', null],
]);

async function main(): Promise<boolean> {
  let client: Client | undefined;
  try {
    if (!isDirect) {
      const folder = mkdtempSync(path.join(process.cwd(), 'gateway-'));
      gateway = await startPeerGateway({ folder, url, context, scenario });
    }
    const peer = await connectPeer(
      gateway === undefined ? { url, revision, context } : { url: gateway.url, revision, token: gateway.token },
    );
    client = peer.client;
    await useAll(peer);
    await client.close();
  } catch (thrown) {
    process.stderr.write(`${(thrown as Error).stack}\n`);
    exchanges.push({ scenario, method: '', request: 'connect', answer: CLIENT_ERROR, succeeded: false, asks: [] });
  }
  await gateway?.stop();
  const report: DriverReport = {
    exchanges,
    records: gateway?.records() ?? [],
    quarantined: gateway?.quarantined ?? [],
  };
  writeFileSync(path.join(process.cwd(), 'driver.json'), JSON.stringify(report));
  return exchanges.every(({ succeeded }) => succeeded);
}

// The suite gives a client a minute, and then ends only the shell that started it.
setTimeout(() => {
  process.stderr.write('took too long\n');
  endAll();
  process.exit(1);
}, TIMEOUT_MS);
process.exit((await main()) ? 0 : 1);
