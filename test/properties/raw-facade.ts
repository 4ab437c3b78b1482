/** Opens a facade with servers that keep every received byte, for tests of what is sent and answered. */
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { jsonMembers } from '../../adapters/rpc/message-parser.ts';
import { isOwnKey } from '../../catalogs/tools/own-meta-keys.ts';
import type { RawTool } from '../../catalogs/tools/tool-definition.ts';
import { type StartOptions, startFacade, type TestFacade } from '../stories/facade.ts';

const program = path.join(import.meta.dirname, '..', 'fixtures', 'raw-server.mjs');

/** The instructions for test/fixtures/raw-server.mjs. The tool `act` accepts the same as arguments. */
export interface Act {
  readonly raw?: string;
  readonly error?: string;
  readonly line?: string;
  readonly before?: readonly string[];
  readonly delayMs?: number;
  readonly notify?: boolean;
  readonly mute?: boolean;
  readonly exit?: boolean;
}

/** A server with one list of tools, or several that alternate. `yaml`: more keys of its entry, in flow style. */
export interface RawServer {
  readonly tools?: readonly RawTool[];
  readonly lists?: readonly (readonly RawTool[])[];
  readonly answers?: Readonly<Record<string, Act>>;
  readonly settings?: Readonly<Record<string, unknown>>;
}

/** A call as a server received it. `args`: the text between the colon and the comma. */
export interface Got {
  readonly id: number;
  readonly name: string;
  readonly args: string;
  readonly line: string;
}

/** A facade with raw servers. */
export interface RawFacade extends TestFacade {
  /** The lines that a server received, in order. */
  lines(server: string): readonly string[];
  calls(server: string): readonly Got[];
  /** The largest number of calls that a server had at the same time. */
  mostAtOnce(server: string): number;
  /** Changes the answer of a server to its next tools/list. */
  redefine(server: string, definition: RawServer): void;
}

/** A schema that accepts any object. */
export const OPEN = { type: 'object' } as const;
/** A tool with an open schema. */
export const tool = (name: string, more: Readonly<Record<string, unknown>> = {}): RawTool => ({
  name,
  description: `The tool ${name}.`,
  inputSchema: OPEN,
  ...more,
});
/** The tool that does what its arguments say. */
export const ACT = tool('act');
/** Rules that allow every tool of these servers. */
export const allow = (...servers: readonly string[]): unknown => ({ id: 'all', outcome: 'allow', when: { servers } });

/** The rest of tollgate.yaml as a value, because JSON is YAML. Default principal: `me`, which sees all tools. */
export async function startRaw(
  servers: Readonly<Record<string, RawServer>>,
  rest: Readonly<Record<string, unknown>> = {},
  env: Record<string, string> = {},
  more: Pick<StartOptions, 'approved'> = {},
): Promise<RawFacade> {
  const folder = mkdtempSync(path.join(tmpdir(), 'tollgate-raw-'));
  const names = Object.keys(servers);
  const file = (name: string, kind: string): string => path.join(folder, `${name}.${kind}`);
  const redefine = (name: string, { tools = [], lists = [tools], answers = {} }: RawServer): void =>
    writeFileSync(file(name, 'jsonl'), JSON.stringify({ lists, answers }));
  for (const [name, server] of Object.entries(servers)) redefine(name, server);
  const entries = names.map((name) => [
    name,
    {
      command: process.execPath,
      args: [program, file(name, 'jsonl'), file(name, 'log')],
      isolation: 'direct',
      connectTimeoutMs: 30_000,
      ...servers[name]?.settings,
    },
  ]);
  const config = {
    version: 1,
    workspace: './workspace',
    state: './state',
    approvals: { waitMs: 0 },
    servers: Object.fromEntries(entries),
    limits: { connections: 32, servers: 64 },
    principals: [{ id: 'me', profiles: ['all'], stdio: true }],
    profiles: { all: { servers: names, expose: { primitives: {}, tools: names.map((name) => `${name}.*`) } } },
    // The isolation of commands is not tested here.
    bash: { isolation: 'direct' },
    rules: [allow(...names)],
    ...rest,
  };
  const facade = await startFacade(JSON.stringify(config), { folder, env, ...more });
  const log = (name: string): readonly string[] =>
    existsSync(file(name, 'log')) ? readFileSync(file(name, 'log'), 'utf8').split('\n').slice(0, -1) : [];
  const lines = (name: string): readonly string[] => log(name).filter((line) => !line.startsWith('#'));
  return {
    ...facade,
    lines,
    redefine,
    calls: (name) => lines(name).flatMap(callIn),
    mostAtOnce: (name) => mostOpen(log(name)),
    close: async () => {
      await facade.close();
      rmSync(folder, { recursive: true, force: true, maxRetries: 3 });
    },
  };
}

function callIn(line: string): readonly Got[] {
  const message = JSON.parse(line) as { method?: string; id?: number; params?: { name: string } };
  if (message.method !== 'tools/call') return [];
  return [
    {
      id: message.id ?? -1,
      name: message.params?.name ?? '',
      args: memberOf(memberOf(line, 'params'), 'arguments'),
      line,
    },
  ];
}

/** Returns the text of a member of an object's text. */
export function memberOf(text: string, key: string): string {
  const found = jsonMembers(text).find((member) => member.key === key);
  return found === undefined ? '' : text.slice(found.start, found.end);
}

/** Returns the members of a result except `_meta`, each with its text. */
export function without(text: string): readonly (readonly [string, string])[] {
  return jsonMembers(text)
    .filter(({ key }) => key !== '_meta')
    .map(({ key, start, end }) => [key, text.slice(start, end)]);
}

/** Returns the members of `_meta` that are not Tollgate's. A value that is not an object counts as empty. */
export function theirMeta(text: string): readonly (readonly [string, string])[] {
  const meta = memberOf(text, '_meta');
  return meta.startsWith('{')
    ? jsonMembers(meta)
        .filter(({ key }) => !isOwnKey(key))
        .map(({ key, start, end }) => [key, meta.slice(start, end)])
    : [];
}

function mostOpen(log: readonly string[]): number {
  let open = 0;
  let most = 0;
  for (const line of log) {
    if (line.startsWith('#')) open -= 1;
    else open += callIn(line).length;
    most = Math.max(most, open);
  }
  return most;
}
