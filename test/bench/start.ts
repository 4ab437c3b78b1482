/** Measures the start of five real servers until all are listed, bare and under the supervisor, and a restart. */
import { chownSync, mkdirSync, mkdtempSync, readFileSync, realpathSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import type { ServerEvent } from '../../adapters/port.ts';
import { ServerPool } from '../../adapters/supervisor/server-pool.ts';
import type { ServerSettings } from '../../adapters/supervisor/server-settings.ts';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { installServers } from '../servers/install.ts';
import { startAll } from '../stdio/misbehaving-server.ts';
import { openStdio, ROOT } from './client.ts';
import { median, pairedRatio, takeTurns } from './measure.ts';
import type { Part } from './tables.ts';

type Isolation = 'direct' | 'sandbox';

const modules = path.join(ROOT, 'test', 'servers', 'node_modules');

/** The part of the benchmark about the start of servers. The ratio compares with the bare start of the same round. */
export const START_PART: Part = {
  name: 'start',
  tables: [
    {
      title: 'Start: five real servers until all are listed',
      head: ['start', 'ms', 'ratio'],
      rows: ['bare', 'direct', 'sandbox', 'one restart, after its pause'],
    },
  ],
  measure: async ({ quick, say }) => {
    say('start: five servers');
    return { cells: [await measureStarts(quick ? 3 : 9)] };
  },
};

/** Five servers: two, two and one of three programs. */
function serversIn(folder: string): readonly (readonly [string, readonly string[]])[] {
  const everything = path.join(modules, '@modelcontextprotocol/server-everything/dist/index.js');
  const filesystem = path.join(modules, '@modelcontextprotocol/server-filesystem/dist/index.js');
  const desktop = path.join(modules, '@wonderwhy-er/desktop-commander/dist/index.js');
  return [
    ['everything-one', [everything]],
    ['everything-two', [everything]],
    ['filesystem-one', [filesystem, folder]],
    ['filesystem-two', [filesystem, folder]],
    ['desktop', [desktop]],
  ];
}

function settingsOf(folder: string, isolation: Isolation): readonly ServerSettings[] {
  const limits = { memoryMb: 1024, processes: 128, fileMb: 1024 };
  const sandbox = {
    filesystem: { allowRead: [], allowWrite: [folder], denyRead: [] },
    network: { allowedDomains: [] },
    limits,
  };
  return serversIn(folder).map(([name, args]) => ({
    name,
    transport: 'stdio',
    command: process.execPath,
    args,
    env: { HOME: folder },
    cwd: folder,
    headers: {},
    isolation,
    connectTimeoutMs: 60_000,
    maxRetries: 3,
    reconnectBackoffMs: 1000,
    ...(isolation === 'sandbox' ? { sandbox } : {}),
  }));
}

function openPool(folder: string, onEvent: (event: ServerEvent) => void = () => undefined): ServerPool {
  const host = { workspace: folder, hidden: [], secrets: () => Promise.reject(new TollgateError('SECRET_MISSING')) };
  return new ServerPool(
    { servers: 5, connections: 5 },
    { host, onStderr: () => undefined, onEvent, grace: { closeMs: 1000, termMs: 500 } },
  );
}

async function startBare(folder: string): Promise<number> {
  const began = performance.now();
  // The environment of the supervisor, because a variable for certificates alone doubles the start time of Node.
  const env = { PATH: process.env.PATH, LANG: process.env.LANG, HOME: folder };
  const opened = await Promise.all(
    serversIn(folder).map(async ([name, args]) => {
      // A new session, as the supervisor makes it, which Linux schedules separately (sched_autogroup).
      const target = await openStdio(name, args, { cwd: folder, env, detached: true });
      await target.ask('tools/list', {});
      return target;
    }),
  );
  const ms = performance.now() - began;
  await Promise.all(opened.map((target) => target.close()));
  return ms;
}

async function startPool(folder: string, isolation: Isolation): Promise<number> {
  const pool = openPool(folder);
  const servers = pool.sync(settingsOf(folder, isolation)).values();
  const began = performance.now();
  const outcomes = await startAll(servers);
  const ms = performance.now() - began;
  await pool.stopAll();
  for (const [name, error] of outcomes) if (error !== undefined) throw new Error(`${name}: ${error.message}`);
  return ms;
}

/** Measures from the death of a keep-alive server to its new handshake, without the pause of a second. */
async function restart(folder: string): Promise<number> {
  const events: ServerEvent[] = [];
  const pool = openPool(folder, (event) => events.push(event));
  const [first] = settingsOf(folder, 'direct');
  const servers = pool.sync([
    {
      ...(first as ServerSettings),
      lifetime: 'keep-alive',
      env: { HOME: folder },
      command: 'sh',
      args: ['-c', 'echo $$ >pid; exec "$0" "$1"', process.execPath, ...(first as ServerSettings).args],
    },
  ]);
  await [...servers.values()][0]?.listTools();
  process.kill(Number(readFileSync(path.join(folder, 'pid'), 'utf8')), 'SIGKILL');
  while (!events.some(({ event }) => event === 'restarted')) await new Promise((resolve) => setTimeout(resolve, 5));
  const done = events.find((event) => event.event === 'restarted') as ServerEvent & { ms: number };
  await pool.stopAll();
  return done.ms;
}

async function measureStarts(rounds: number): Promise<readonly (readonly string[])[]> {
  await installServers(() => undefined);
  const folder = realpathSync(mkdtempSync(path.join(tmpdir(), 'tollgate-starts-')));
  mkdirSync(path.join(folder, 'work'));
  // As root, sandboxed servers run as the owner of the folder.
  if (process.getuid?.() === 0) chownSync(folder, 4711, 4711);
  try {
    const runs = [startBare, (at: string) => startPool(at, 'direct'), (at: string) => startPool(at, 'sandbox')];
    for (const run of runs) await run(folder);
    const times = await takeTurns(runs, rounds, (run) => run(folder));
    const [bare = []] = times;
    const [again = []] = await takeTurns([restart], rounds, (run) => run(folder));
    return [
      ...times.map((all) => [median(all).toFixed(0), pairedRatio(all, bare, (ms) => ms).toFixed(2)]),
      [median(again).toFixed(0), ''],
    ];
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
