/**
 * `npm run fuzz -- --minutes N`: runs test/fuzz and test/races with a new seed each time, until the time is over. Prints each seed, ends
 * with `N passed, N failed`, and exits with 1 when something failed. A failed seed is run again with TOLLGATE_FUZZ_SEED.
 */
import { spawnSync } from 'node:child_process';
import { randomInt } from 'node:crypto';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { parseArgs } from 'node:util';

const ROOT = path.join(import.meta.dirname, '..', '..', '..');
/** Shapes for each reader, and operations of the race test, of one round. */
const SHAPES = '20';
const RACE_OPERATIONS = '20000';

const { values } = parseArgs({ options: { minutes: { type: 'string', default: '5' } } });
const minutes = Number(values.minutes);
if (!(minutes > 0)) {
  process.stderr.write('Give a number of minutes: npm run fuzz -- --minutes 5\n');
  process.exit(2);
}

const folders = ['test/fuzz', 'test/races'].filter((folder) => existsSync(path.join(ROOT, folder)));
const until = Date.now() + minutes * 60_000;
const out = mkdtempSync(path.join(tmpdir(), 'tollgate-fuzz-'));
const file = path.join(out, 'result.json');
const sum = { passed: 0, failed: 0 };

do {
  const seed = String(randomInt(1, 2 ** 31 - 1));
  process.stdout.write(`seed ${seed}\n`);
  rmSync(file, { force: true });
  const env = { ...process.env, TOLLGATE_FUZZ_SEED: seed, TOLLGATE_FUZZ_SHAPES: process.env['TOLLGATE_FUZZ_SHAPES'] ?? SHAPES, TOLLGATE_RACE_OPERATIONS: process.env['TOLLGATE_RACE_OPERATIONS'] ?? RACE_OPERATIONS };
  const run = spawnSync(process.execPath, [path.join(ROOT, 'node_modules', 'vitest', 'vitest.mjs'), 'run', ...folders, '--reporter=default', '--reporter=json', `--outputFile.json=${file}`], { cwd: ROOT, env, stdio: ['ignore', 'pipe', 'pipe'], encoding: 'utf8', maxBuffer: 1 << 28 });
  const found = existsSync(file) ? (JSON.parse(readFileSync(file, 'utf8')) as { numPassedTests: number; numFailedTests: number }) : { numPassedTests: 0, numFailedTests: 1 };
  sum.passed += found.numPassedTests;
  // A round that could not be carried out has failed, whatever it says.
  sum.failed += run.status === 0 ? found.numFailedTests : Math.max(1, found.numFailedTests);
  if (run.status !== 0) process.stdout.write(`seed ${seed} failed:\n${run.stdout}${run.stderr}\n`);
} while (Date.now() < until);

rmSync(out, { recursive: true, force: true });
process.stdout.write(`${sum.passed} passed, ${sum.failed} failed\n`);
process.exitCode = sum.failed === 0 ? 0 : 1;
