/** Measures what isolation adds to the start and end of a program: directly and in a sandbox, in turns. */
import { chownSync, mkdtempSync, realpathSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { type LaunchHost, launch } from '../../adapters/stdio/launch.ts';
import type { ServerSettings } from '../../adapters/supervisor/server-settings.ts';
import { median, takeTurns } from './measure.ts';
import type { Part } from './tables.ts';

const PROGRAMS = [
  ['true', []],
  [process.execPath, ['-e', '0']],
] as const;
const LEVELS = ['direct', 'sandbox'] as const;
/** A user other than root, whose folders are refused. */
const OWNER = 1000;

const CASES = PROGRAMS.flatMap(([command, args]) =>
  LEVELS.map((isolation) => ({
    what: `${path.basename(command)} ${args.join(' ')} (${isolation})`.replace('  ', ' '),
    command,
    args,
    isolation,
  })),
);

/** The part of the benchmark about the start of a program. */
export const SPAWN_PART: Part = {
  name: 'spawn',
  tables: [
    {
      title: 'What isolation adds to a start',
      head: ['program', 'min ms', 'p50 ms'],
      rows: CASES.map(({ what }) => what),
    },
  ],
  measure: async ({ quick, say }) => {
    say('spawn: programs in turns');
    const times = await measureSpawns(quick ? 10 : 40);
    return { cells: [times.map((all) => [Math.min(...all), median(all)].map((ms) => ms.toFixed(1)))] };
  },
};

/** Containers are not measured, because their time is that of the daemon. The first sandboxed start does not count. */
async function measureSpawns(rounds: number): Promise<readonly (readonly number[])[]> {
  const workspace = realpathSync(mkdtempSync(path.join(tmpdir(), 'tollgate-spawn-')));
  if (process.getuid?.() === 0) chownSync(workspace, OWNER, OWNER);
  const host: LaunchHost = { workspace, hidden: [], secrets: () => Promise.reject(new Error('no secrets here')) };
  const cases = CASES.map(({ command, args, isolation }) => settingsOf(command, args, { isolation, workspace }));
  try {
    for (const settings of cases) await runOnce(settings, host);
    return await takeTurns(cases, rounds, (settings) => runOnce(settings, host));
  } finally {
    rmSync(workspace, { recursive: true, force: true });
  }
}

function settingsOf(
  command: string,
  args: readonly string[],
  { isolation, workspace }: { isolation: 'direct' | 'sandbox'; workspace: string },
): ServerSettings {
  const sandbox = {
    filesystem: { allowRead: [], allowWrite: [workspace], denyRead: [] },
    network: { allowedDomains: [] },
    limits: { memoryMb: 256, processes: 64, fileMb: 64 },
  };
  return {
    name: 'spawn',
    transport: 'stdio',
    command,
    args,
    env: {},
    cwd: workspace,
    headers: {},
    isolation,
    connectTimeoutMs: 10_000,
    maxRetries: 0,
    reconnectBackoffMs: 1000,
    ...(isolation === 'sandbox' ? { sandbox } : {}),
  };
}

async function runOnce(settings: ServerSettings, host: LaunchHost): Promise<number> {
  const start = performance.now();
  const { child, release } = await launch(settings, host);
  child.stdout.resume();
  child.stderr.resume();
  if (child.exitCode === null && child.signalCode === null) await new Promise((resolve) => child.once('exit', resolve));
  const took = performance.now() - start;
  await release();
  return took;
}
