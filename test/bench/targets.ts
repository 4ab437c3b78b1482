/** Opens what the benchmark compares: the backend alone, four proxies without a guard, and Tollgate. */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { openHttp, openStdio, type Place, programOf, ROOT, type Target, type Transport } from './client.ts';
import type { Request } from './measure.ts';

/** The targets, cheapest first. */
export const TARGETS = ['direct', 'pipe', 'json', 'floor', 'sdk', 'tollgate'] as const;
export type TargetName = (typeof TARGETS)[number];

/** The size of a configuration. */
export interface Size {
  readonly tools?: number;
  readonly servers?: number;
  readonly rules?: number;
  /** The agent may run code. */
  readonly code?: boolean;
}

/** The kinds of calls that Tollgate is measured with. */
export const KINDS = {
  kept: call('echo', ({ text }) => ({ text })),
  number: call('number', ({ text, size }) => ({ text, size })),
  prefix: call('prefix', ({ text }) => ({ text })),
  regex: call('regex', ({ text }) => ({ text })),
  read: call('read', () => ({ path: 'file.txt' })),
  page: call('page', ({ text }) => ({ url: `https://docs.example.org/${text}`, limit: 20 })),
} satisfies Record<string, Request>;
export type Kind = keyof typeof KINDS;

/** A call whose result has about that many bytes. */
export function sizedCall(bytes: number): Request {
  return call('echo', () => ({ text: 'sized', size: bytes }));
}

function call(name: string, argumentsOf: (some: { text: string; size: number }) => unknown): Request {
  return (number) => [
    'tools/call',
    { name, arguments: argumentsOf({ text: `hello-${number}`, size: 10 + (number % 20) }) },
  ];
}

/** The tools of the backend that answer with text. */
const PLAIN = ['echo', 'number', 'prefix', 'regex'] as const;
const RULES_PER_FILE = 1000;
type ConfigModule = typeof import('../../facade/config/load-config.ts');
type ApprovalModule = typeof import('../consent/approve-servers.ts');

/** Rules of other tools. */
function ruleText(first: number, count: number): string {
  const rules = Array.from(
    { length: count },
    (_, index) =>
      `  - {id: other-${first + index}, outcome: deny, when: {tools: [bench.tool-${first + index}], ` +
      `args: {size: {min: ${400 + (index % 90)}}}}}\n`,
  );
  return `rules:\n${rules.join('')}`;
}

/**
 * Writes a configuration that uses every stage, with servers that the checkout `root` has approved. Returns its folder.
 */
export async function writeConfig(
  { tools = 10, servers = 1, rules = 20, code = false }: Size = {},
  root: string = ROOT,
): Promise<string> {
  const folder = mkdtempSync(path.join(tmpdir(), 'tollgate-bench-'));
  mkdirSync(path.join(folder, 'work'));
  writeFileSync(path.join(folder, 'work', 'file.txt'), 'one line of a file\n'.repeat(20));
  const files: string[] = [];
  for (let first = 0; first < rules; first += RULES_PER_FILE) {
    files.push(`rules-${first}.yaml`);
    writeFileSync(path.join(folder, `rules-${first}.yaml`), ruleText(first, Math.min(RULES_PER_FILE, rules - first)));
  }
  const names = Array.from({ length: servers }, (_, index) => (index === 0 ? 'bench' : `bench-${index}`));
  const serverOf = (name: string): string =>
    `  ${name}: {command: ${process.execPath}, args: [${programOf('backend.mjs')}, "${tools}"], isolation: direct, ` +
    `semantics: {${[...PLAIN, 'read', '"tool-*"'].map((tool) => `${tool}: read`).join(', ')}, ` +
    'page: {verb: read, urls: [url]}}}\n';
  const own = [...PLAIN, 'page'].map((name) => `{tool: bench.${name}, name: ${name}}`);
  const others = names.map((name) => `{tool: "${name}.*"}`);
  const exposed = `tools: [${[...own, ...others].join(', ')}]${code ? ', code: true' : ''}`;
  const file = path.join(folder, 'tollgate.yaml');
  writeFileSync(
    file,
    `version: 1
workspace: ./work
state: ./state
servers:
${names.map(serverOf).join('')}profiles:
  default: {servers: [${names.join(', ')}], expose: {${exposed}}}
principals: [{id: bench, role: agent, profiles: [default], stdio: true}]
policies: [${files.join(', ')}]
rules:
  - {id: all, outcome: allow, when: {servers: [${names.join(', ')}]}}
  - {id: inside, outcome: allow, when: {servers: [workspace], verbs: [read], insideWorkspace: true}}
  - {id: secrets, outcome: deny, when: {servers: [workspace], paths: ["**/.env", "**/*.pem"]}}
  - {id: large, outcome: deny, when: {tools: [bench.number], args: {size: {min: 400}}}}
  - {id: drops, outcome: deny, when: {tools: [bench.prefix], args: {text: {prefix: drop-}}}}
  - {id: words, outcome: deny, when: {tools: [bench.regex], args: {text: {pattern: "(rm|drop)\\\\s+-?[a-z]+"}}}}
  - {id: hosts, outcome: deny, when: {tools: [bench.page], hosts: ["*.internal.example"]}}
budgets: [{id: many, scope: session, calls: 100000000}]
caps: {bytes: 15000000, lines: 10000000, concurrent: 256}
limits: {servers: ${Math.max(20, servers)}, connections: ${Math.max(20, servers)}}
listen: {port: 0}
`,
  );
  const built = (module: string): string => pathToFileURL(path.join(root, 'dist', module)).href;
  const { loadConfig } = (await import(built('facade/config/load-config.js'))) as ConfigModule;
  const { approveAll } = (await import(built('test/consent/approve-servers.js'))) as ApprovalModule;
  await approveAll(loadConfig(file, { env: process.env, home: folder }));
  return folder;
}

/** Opens one target in the folder of a configuration, until its handshake. */
export function openTarget(
  name: TargetName,
  transport: Transport,
  place: { readonly folder: string; readonly tools?: number; readonly root?: string } & Place,
): Promise<Target> {
  const { folder, tools = 10, root = ROOT, ...rest } = place;
  const backend = [programOf('backend.mjs'), String(tools)];
  const main = [path.join(root, 'dist', 'facade', 'main.js'), transport === 'stdio' ? 'run' : 'serve'];
  const args = {
    direct: transport === 'stdio' ? backend : [...backend, 'http'],
    pipe: [programOf('pipe.mjs'), transport, ...backend],
    json: [programOf('json.mjs'), 'json', transport, ...backend],
    floor: [programOf('json.mjs'), 'floor', transport, ...backend],
    sdk: [programOf('sdk-pass.mjs'), transport, ...backend],
    tollgate: [...main, '--config', path.join(folder, 'tollgate.yaml')],
  }[name];
  const open = transport === 'stdio' ? openStdio : openHttp;
  return open(name, args, { cwd: path.join(folder, 'work'), ...rest });
}

/** Opens targets with one configuration, and lists their tools. `close` removes everything. */
export async function openTargets(
  names: readonly TargetName[],
  transport: Transport,
  size: Size & { readonly counted?: boolean } = {},
): Promise<{ readonly targets: readonly Target[]; close(): Promise<void> }> {
  const { counted, ...rest } = size;
  const folder = await writeConfig(rest);
  const targets: Target[] = [];
  for (const name of names) {
    const { tools } = rest;
    const target = await openTarget(name, transport, { folder, ...(tools && { tools }), ...(counted && { counted }) });
    targets.push(target);
    await target.ask('tools/list', {});
  }
  const close = async (): Promise<void> => {
    await Promise.all(targets.map((target) => target.close()));
    rmSync(folder, { recursive: true, force: true });
  };
  return { targets, close };
}
