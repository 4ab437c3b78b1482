/** Starts `tollgate serve` in front of a server, with a policy that decides, and reads its audit log. */
import { type ChildProcess, spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { giveAway } from '../servers/system.ts';
import { saysIt, stopChild } from './fixture-server.ts';

const ROOT = path.join(import.meta.dirname, '..', '..').replace(/\/dist$/, '');
/** The built program. */
const MAIN = path.join(ROOT, 'dist', 'facade', 'main.js');
/** The token of the suite. It opens a gateway that lives for one run on loopback. */
export const TOKEN = 'the-conformance-suite-has-one-token';

/** A server that asks for more rights each time must not keep the owner busy forever. */
export const MOST_SIGN_INS = 3;

/** A record of the audit log; only what the comparison reads. */
export interface AuditRecord {
  readonly type: string;
  readonly kind?: string;
  readonly tool?: string;
  readonly outcome?: string;
  readonly code?: string;
}

/** How to start a gateway. */
export interface GatewaySettings {
  /** A new folder for its configuration, state and workspace. */
  readonly folder: string;
  /** The name of the server. */
  readonly server: string;
  /** tollgate.yaml as a value, because JSON is YAML. */
  readonly config: Readonly<Record<string, unknown>>;
  readonly env?: Readonly<Record<string, string>>;
}

/** A running gateway. */
export interface Gateway {
  readonly url: string;
  readonly token: string;
  /** The tools that are not offered, because their definitions are refused. */
  readonly quarantined: readonly string[];
  /** All records so far. */
  records(): readonly AuditRecord[];
  /** Signs in to the server again, with the rights that a refusal names. */
  signIn(refusal: string): Promise<void>;
  stop(): Promise<void>;
}

/** The principals of every gateway: an owner at the terminal, and the suite with its token. */
export const PRINCIPALS = [
  { id: 'owner', owner: true, stdio: true, profiles: ['suite'] },
  {
    id: 'suite',
    role: 'tester',
    profiles: ['suite'],
    token: `sha256:${createHash('sha256').update(TOKEN).digest('hex')}`,
  },
] as const;

/** Approves the server as an owner would, by the hashes that the screens show, and starts the gateway. */
export async function startGateway({ folder, server, config, env = {} }: GatewaySettings): Promise<Gateway> {
  for (const name of ['home', 'work']) mkdirSync(path.join(folder, name), { recursive: true });
  giveAway(path.join(folder, 'work'));
  writeFileSync(path.join(folder, 'tollgate.yaml'), JSON.stringify(config, undefined, 1));
  const place: Place = { folder, env };
  const quarantined = quarantinedIn(await approve(server, place));
  const child = startTollgate(['serve', '--json', '--port', '0'], place);
  const said = await saysIt(child, /"url":/);
  const { url } = JSON.parse(/^\{.*\}$/m.exec(said)?.[0] ?? '') as { readonly url: string };
  const audit = path.join(folder, 'state', 'audit');
  return {
    url,
    token: TOKEN,
    quarantined,
    records: () => readRecords(audit),
    signIn: (refusal) => signIn(server, place, refusal),
    stop: () => stopChild(child),
  };
}

/** Calls a tool once by revision 2026-07-28, so that its server has started. Throws with the answer if it fails. */
export async function callOnce({ url, token }: Gateway, tool: string): Promise<void> {
  const [key, version] = ['io.modelcontextprotocol/', '2026-07-28'];
  const _meta = { [`${key}protocolVersion`]: version, [`${key}clientCapabilities`]: {} };
  const response = await fetch(url, {
    method: 'POST',
    headers: {
      authorization: `Bearer ${token}`,
      'content-type': 'application/json',
      accept: 'application/json, text/event-stream',
      'mcp-protocol-version': version,
      'mcp-method': 'tools/call',
      'mcp-name': tool,
    },
    body: JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: tool, arguments: {}, _meta } }),
  });
  const answer = await response.text();
  if (!answer.includes('"result"')) throw new Error(`the first call failed: ${response.status} ${answer}`);
}

/** The folder of tollgate.yaml, and variables of its processes. */
export interface Place {
  readonly folder: string;
  readonly env: Readonly<Record<string, string>>;
}

/** Commands that run. */
const running = new Set<ChildProcess>();

/** Ends every command that still runs, at once. */
export function endAll(): void {
  for (const child of running) child.kill('SIGKILL');
}

/** Starts a command of Tollgate. */
export function startTollgate(args: readonly string[], { folder, env }: Place): ChildProcess {
  const child = spawn(process.execPath, [MAIN, ...args], {
    cwd: folder,
    env: { PATH: process.env.PATH ?? '', HOME: path.join(folder, 'home'), ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  running.add(child);
  child.on('close', () => running.delete(child));
  return child;
}

/** Runs a command of Tollgate to its end. Returns its output and messages. */
export function runTollgate(args: readonly string[], place: Place): Promise<{ code: number | null; said: string }> {
  return new Promise((resolve, reject) => {
    const child = startTollgate(args, place);
    let said = '';
    for (const stream of [child.stdout, child.stderr])
      stream?.on('data', (chunk: Buffer) => void (said += chunk.toString('utf8')));
    child.on('error', reject);
    child.on('close', (code) => resolve({ code, said }));
  });
}

/**
 * Approves the start, then everything that the server offers. A server that wants a sign-in first gets it. Returns the
 * screen of what it offers. Throws with the screen if it cannot.
 */
async function approve(server: string, place: Place): Promise<string> {
  const screen = async (...words: readonly string[]): Promise<string> =>
    (await runTollgate(['approve', server, ...words], place)).said;
  const start = hashIn(await screen(), 'start');
  let more: readonly string[] = [];
  let offered = await screen('--yes', start);
  // A server may want more rights with each request.
  for (let tries = 0; isRefused(offered) && tries < MOST_SIGN_INS; tries += 1) {
    await signIn(server, place, offered);
    more = ['--with-secrets'];
    offered = await screen(...more, '--yes', start);
  }
  const { code, said } = await runTollgate(
    ['approve', server, ...more, '--yes', start, hashIn(offered, 'tools')],
    place,
  );
  if (code !== 0) throw new Error(`the approval failed:\n${said}`);
  return offered;
}

function quarantinedIn(screen: string): readonly string[] {
  const found: string[] = [];
  let tool = '';
  for (const line of screen.split('\n')) {
    tool = /^ {0,2}[+~! ] "([^"]+)"/.exec(line)?.[1] ?? tool;
    if (line.includes('in quarantine')) found.push(tool);
  }
  return found;
}

/** True if a screen shows no tools, because the owner must sign in first. */
function isRefused(screen: string): boolean {
  return wantsSignIn(screen) && !/tools hash/.test(screen);
}

/** True if a refusal says that the owner must sign in. */
export function wantsSignIn(said: string): boolean {
  return /--with-secrets|tollgate login/.test(said);
}

function hashIn(screen: string, what: string): string {
  const hash = new RegExp(`${what} hash\\s+([0-9a-f]{64})`).exec(screen)?.[1];
  if (hash === undefined) throw new Error(`no ${what} hash to approve:\n${screen}`);
  return hash;
}

/**
 * Signs in as an owner would, who signs out first if the command says so: another issuer replaced the first. Throws
 * with the messages if it fails.
 */
async function signIn(server: string, place: Place, refusal: string): Promise<void> {
  let { code, said } = await login(server, place, refusal);
  if (code !== 0 && said.includes('tollgate logout')) {
    await runTollgate(['logout', server], place);
    ({ code, said } = await login(server, place, refusal));
  }
  if (code !== 0) throw new Error(`the sign-in failed:\n${said}`);
}

/** Runs the command as in a browser that consents at once, with the scopes that a refusal names. */
async function login(server: string, place: Place, refusal: string): ReturnType<typeof runTollgate> {
  // Rows of a screen break at blanks.
  const scopes = / --scope ([^`"]+)[`"]/.exec(refusal.replaceAll(/\s+/g, ' '))?.[1]?.split(' ') ?? [];
  const more = scopes.length === 0 ? [] : ['--scope', ...scopes];
  const child = startTollgate(['login', server, '--no-browser', ...more], place);
  let said = '';
  let isAsked = false;
  const take = (chunk: Buffer): void => {
    said += chunk.toString('utf8');
    // The rows of a long address are parts of it.
    const address = /machine:\n\n(\s*https?:[^]+?)\n\n/.exec(said)?.[1]?.replaceAll(/\s/g, '');
    if (address === undefined || isAsked) return;
    isAsked = true;
    // What the page answers is for a person. The command says whether the sign-in worked.
    fetch(address).catch(() => undefined);
  };
  child.stdout?.on('data', take);
  child.stderr?.on('data', take);
  const code = await new Promise<number | null>((resolve) => child.on('close', resolve));
  return { code, said };
}

function readRecords(folder: string): readonly AuditRecord[] {
  if (!existsSync(folder)) return [];
  return readdirSync(folder)
    .filter((name) => name.endsWith('.jsonl'))
    .sort()
    .flatMap((name) => readFileSync(path.join(folder, name), 'utf8').split('\n').filter(Boolean))
    .map((line) => JSON.parse(line) as AuditRecord);
}
