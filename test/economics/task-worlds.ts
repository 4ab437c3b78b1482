/** The servers of the tasks: real ones, a server of orders, and catalogs of real servers with scripted answers. */
import { mkdirSync, mkdtempSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import { devNull, tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import type { RawTool } from '../../catalogs/tools/tool-definition.ts';
import { openStdio, ROOT, type Target } from '../bench/client.ts';
import { readCatalogs } from '../corpora/corpus.ts';
import { startFacade, type TestFacade } from '../stories/facade.ts';

/**
 * `few`: orders. `small`: files, everything and orders, about 30 tools. `hundred`: orders and three catalogs, about 100 tools. `all`:
 * orders and all catalogs.
 */
export type WorldName = 'few' | 'small' | 'hundred' | 'all';

/** The ways through Tollgate. Each is a profile and a principal. */
export const FACADE_WAYS = ['tollgate', 'search', 'code'] as const;

const PACKAGES = path.join(ROOT, 'test', 'servers', 'node_modules', '@modelcontextprotocol');
const ORDERS = path.join(ROOT, 'test', 'economics', 'orders-server.mjs');
const SCRIPTED = path.join(ROOT, 'test', 'fixtures', 'raw-server.mjs');
/** The catalogs of `hundred`. */
const THREE = ['s-modelcontextprotocol-server-github', 's-roychri-mcp-server-asana', 's-notionhq-notion-mcp-server'];

/** A world that runs. */
export interface World {
  readonly name: WorldName;
  /** The workspace: the folder of the agent. */
  readonly workspace: string;
  readonly facade: TestFacade;
  /** The text of a list of all tools of all servers, as they are. */
  readonly rawList: () => Promise<string>;
  /** Returns a direct connection to a server. */
  readonly rawServer: (name: string) => Promise<Target>;
  /** Writes the files of the workspace as they were at the start. */
  readonly reset: () => void;
  readonly close: () => Promise<void>;
}

/** Scripted answers of catalogs, by server and tool: the text of the answer. */
export type Scripts = Readonly<Record<string, Readonly<Record<string, string>>>>;

/** Starts a world. Throws if a file of the catalogs is missing. */
export async function openWorld(name: WorldName, scripts: Scripts): Promise<World> {
  const folder = realpathSync(mkdtempSync(path.join(tmpdir(), 'tollgate-economics-')));
  const workspace = path.join(folder, 'workspace');
  const reset = (): void => writeFiles(workspace);
  reset();
  const catalogs = catalogsOf(name);
  const programs = new Map<string, readonly string[]>([['orders', [ORDERS]]]);
  if (name === 'small') {
    programs.set('files', [path.join(PACKAGES, 'server-filesystem', 'dist', 'index.js'), workspace]);
    programs.set('everything', [path.join(PACKAGES, 'server-everything', 'dist', 'index.js'), 'stdio']);
  }
  for (const [server, tools] of catalogs) {
    const file = path.join(folder, `${server}.json`);
    const answers = Object.entries(scripts[server] ?? {}).map(([tool, text]) => [
      tool,
      { raw: JSON.stringify({ content: [{ type: 'text', text }] }) },
    ]);
    writeFileSync(file, JSON.stringify({ lists: [tools], answers: Object.fromEntries(answers) }));
    programs.set(server, [SCRIPTED, file, devNull]);
  }
  const open = new Map<string, Promise<Target>>();
  const rawServer = (server: string): Promise<Target> => {
    const target = open.get(server) ?? openStdio(server, programs.get(server) ?? [], { cwd: folder });
    open.set(server, target);
    return target;
  };
  const facade = await startFacade(configuration(programs), { folder });
  await settled(
    facade,
    [...programs.keys()].filter((server) => server !== 'files'),
  );
  return {
    name,
    workspace,
    facade,
    rawServer,
    rawList: async () => {
      const asked = [...programs.keys()].filter((server) => !catalogs.has(server));
      const lists = await Promise.all(
        asked.map(async (server) => toolsOf(await (await rawServer(server)).ask('tools/list', {}))),
      );
      return JSON.stringify({ tools: [...lists.flat(), ...[...catalogs.values()].flat()] });
    },
    reset,
    close: async () => {
      await facade.close();
      await Promise.all([...open.values()].map(async (target) => (await target).close()));
      rmSync(folder, { recursive: true, force: true, maxRetries: 3 });
    },
  };
}

function catalogsOf(name: WorldName): ReadonlyMap<string, readonly RawTool[]> {
  if (name === 'few' || name === 'small') return new Map();
  const all = readCatalogs();
  if (name === 'all') return all;
  return new Map(THREE.map((server) => [server, all.get(server) ?? []]));
}

function toolsOf(reply: Buffer): readonly RawTool[] {
  return (JSON.parse(reply.toString('utf8')) as { readonly result: { readonly tools: readonly RawTool[] } }).result
    .tools;
}

/** The primitives replace the server of files, so the profiles do not name it. */
function configuration(programs: ReadonlyMap<string, readonly string[]>): string {
  const servers = [...programs.keys()].filter((server) => server !== 'files');
  const tools = servers.map((server) => `${server}.*`);
  const exposed = { tollgate: {}, search: { search: true }, code: { search: true, code: true } };
  return JSON.stringify({
    version: 1,
    workspace: './workspace',
    state: './state',
    bash: { isolation: 'direct' },
    limits: { connections: 64, servers: 64 },
    servers: Object.fromEntries(
      servers.map((server) => [
        server,
        {
          command: process.execPath,
          args: programs.get(server),
          isolation: 'direct',
          connectTimeoutMs: 60_000,
          semantics: { 'get_*': 'read', 'list_*': 'read', 'get-*': 'read', echo: 'read', 'search*': 'read' },
        },
      ]),
    ),
    principals: FACADE_WAYS.map((id) => ({ id, profiles: [id], stdio: true })),
    profiles: Object.fromEntries(FACADE_WAYS.map((id) => [id, { servers, expose: { ...exposed[id], tools } }])),
    rules: [{ id: 'all', outcome: 'allow', when: { servers: ['workspace', ...servers] } }],
  });
}

/** Waits until each server has listed its tools, because a list does not wait for slow servers. */
async function settled({ open, list, assembled }: TestFacade, servers: readonly string[]): Promise<void> {
  const session = open('tollgate');
  for (let left = 600; servers.some((server) => assembled.catalog.entries(server).length === 0); left -= 1) {
    if (left === 0) throw new Error('A server did not list its tools within two minutes.');
    await list(session);
    await wait(200);
  }
}

/** A small project: 40 modules, notes, a long log. */
function writeFiles(workspace: string): void {
  rmSync(workspace, { recursive: true, force: true });
  mkdirSync(path.join(workspace, 'src'), { recursive: true });
  const write = (name: string, text: string): void => writeFileSync(path.join(workspace, name), text);
  for (let at = 1; at <= 40; at += 1) {
    const body = Array.from({ length: 30 }, (_, line) => `export const value${line} = ${at * 31 + line};`);
    const extra = at % 7 === 0 ? '// TODO: handle oldName here\nexport const oldName = 1;\n' : '';
    write(`src/module${at}.ts`, `/** Module ${at}. */\n${body.join('\n')}\n${extra}`);
  }
  write('package.json', '{\n  "name": "project",\n  "version": "4.7.1",\n  "license": "MIT"\n}\n');
  write('notes.md', '# Notes\n\nThe release is on Friday.\nAsk Kim about the budget.\n');
  for (const name of ['a', 'b', 'c']) write(`${name}.md`, `# Page ${name}\n\nVersion: VERSION\n`);
  write('long.log', Array.from({ length: 4_000 }, (_, at) => `${at} request done in ${at % 97} ms\n`).join(''));
}
