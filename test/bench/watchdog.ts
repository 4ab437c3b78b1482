/**
 * Measures the memory of the watchdog thread: the median difference of the resident size with and without it.
 * `npm run -s build && node dist/test/bench/watchdog.js`.
 */
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { startWatchdog } from '../../facade/runtime/watchdog.ts';
import { quantile } from './measure.ts';

const ROUNDS = 5;
/** The time in which the thread has loaded its modules and made several checks, ms. */
const SETTLED_MS = 3_000;

/** Prints the resident size of this process in MiB, with or without the watchdog. */
async function sizeOfThis(watched: boolean): Promise<number> {
  const folder = mkdtempSync(path.join(tmpdir(), 'tollgate-watchdog-'));
  if (watched)
    startWatchdog({ state: folder, audit: { folder, rotateBytes: 1_048_576 }, parentIsClient: false }, (line) => {
      throw new Error(line);
    });
  await sleep(SETTLED_MS);
  rmSync(folder, { recursive: true, force: true });
  return process.memoryUsage.rss() / 1_048_576;
}

function sizeOf(which: 'with' | 'without'): number {
  const { stdout, stderr, status } = spawnSync(process.execPath, [fileURLToPath(import.meta.url), which], {
    encoding: 'utf8',
  });
  if (status !== 0) throw new Error(stderr);
  return Number(stdout);
}

const which = process.argv[2];
if (which === undefined) {
  const sizes = Array.from({ length: ROUNDS }, () => ({ without: sizeOf('without'), with: sizeOf('with') }));
  const [without, withIt] = [
    quantile(
      sizes.map((size) => size.without),
      0.5,
    ),
    quantile(
      sizes.map((size) => size.with),
      0.5,
    ),
  ];
  process.stdout.write(
    `resident size, medians of ${ROUNDS}: ${without.toFixed(1)} MiB without the watchdog, ${withIt.toFixed(1)} ` +
      'MiB with it\n',
  );
} else {
  process.stdout.write(`${await sizeOfThis(which === 'with')}`);
}
