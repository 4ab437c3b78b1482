/** Measures what isolation adds to the start and end of a program: directly and in a sandbox, in turns. */
import { chownSync, mkdtempSync, realpathSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { type LaunchHost, launch } from '../../adapters/stdio/launch.ts';
import type { ServerSettings } from '../../adapters/supervisor/server-settings.ts';
import { quantile } from './measure.ts';

/** Milliseconds from the start of a program to its end. */
export interface SpawnFigures {
  readonly what: string;
  readonly min: number;
  readonly p50: number;
}

const PROGRAMS = [
  ['true', []],
  [process.execPath, ['-e', '0']],
] as const;
const LEVELS = ['direct', 'sandbox'] as const;
/** A user other than root, whose folders are refused. */
const OWNER = 1000;

/** Containers are not measured, because their time is that of the daemon. The first sandboxed start does not count. */
export async function measureSpawns(rounds: number): Promise<readonly SpawnFigures[]> {
  const workspace = realpathSync(mkdtempSync(path.join(tmpdir(), 'tollgate-spawn-')));
  if (process.getuid?.() === 0) chownSync(workspace, OWNER, OWNER);
  const host: LaunchHost = { workspace, hidden: [], secrets: () => Promise.reject(new Error('no secrets here')) };
  const cases = PROGRAMS.flatMap(([command, args]) =>
    LEVELS.map((isolation) => ({
      what: `${path.basename(command)} ${args.join(' ')} (${isolation})`.replace('  ', ' '),
      settings: settingsOf(command, args, { isolation, workspace }),
      times: [] as number[],
    })),
  );
  try {
    for (const { settings } of cases) await runOnce(settings, host);
    for (let round = 0; round < rounds; round += 1) {
      for (const one of round % 2 === 0 ? cases : [...cases].reverse())
        one.times.push(await runOnce(one.settings, host));
    }
    return cases.map(({ what, times }) => ({ what, min: Math.min(...times), p50: quantile(times, 0.5) }));
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

/** Returns a row for each program and level of isolation. */
export function formatSpawns(figures: readonly SpawnFigures[]): string {
  return [
    '| program | min ms | p50 ms |',
    '|---|---|---|',
    ...figures.map(({ what, min, p50 }) => `| ${what} | ${min.toFixed(1)} | ${p50.toFixed(1)} |`),
  ]
    .join('\n')
    .concat('\n');
}

if (process.argv[1] === fileURLToPath(import.meta.url)) process.stdout.write(formatSpawns(await measureSpawns(30)));
