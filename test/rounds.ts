/**
 * Runs test files again and again, each time with a new seed, until the time is over: `npm run fuzz`, `npm run faults`.
 * Prints each seed and `N passed, N failed`, and exits with 1 if a test failed.
 */
import { spawnSync } from 'node:child_process';
import { randomInt } from 'node:crypto';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { parseArgs } from 'node:util';

const ROOT = path.join(import.meta.dirname, '..', '..');

/** The tests of the rounds. `name`: as in `npm run NAME`. `env`: the environment of one round. */
export interface Rounds {
  readonly name: string;
  readonly tests: readonly string[];
  readonly env: (seed: string) => Readonly<Record<string, string>>;
}

/** Runs rounds for `--minutes`, at least one. The last round is completed. */
export function runRounds({ name, tests, env }: Rounds): void {
  const minutes = minutesOf(name);
  const until = Date.now() + minutes * 60_000;
  const out = mkdtempSync(path.join(tmpdir(), `tollgate-${name}-`));
  const sum = { passed: 0, failed: 0 };
  do {
    const seed = String(randomInt(1, 2 ** 31 - 1));
    process.stdout.write(`seed ${seed}\n`);
    const { passed, failed, said } = runRound(tests, env(seed), path.join(out, 'result.json'));
    sum.passed += passed;
    sum.failed += failed;
    if (failed > 0) process.stdout.write(`seed ${seed} failed:\n${said}\n`);
  } while (Date.now() < until);
  rmSync(out, { recursive: true, force: true });
  process.stdout.write(`${sum.passed} passed, ${sum.failed} failed\n`);
  process.exitCode = sum.failed === 0 ? 0 : 1;
}

function minutesOf(name: string): number {
  const { values } = parseArgs({ options: { minutes: { type: 'string', default: '5' } } });
  const minutes = Number(values.minutes);
  if (minutes > 0) return minutes;
  process.stderr.write(`Give a number of minutes: npm run ${name} -- --minutes 5\n`);
  process.exit(2);
}

/** Runs one round. A round without a result file or with an exit code counts as failed. */
function runRound(
  tests: readonly string[],
  env: Readonly<Record<string, string>>,
  file: string,
): { readonly passed: number; readonly failed: number; readonly said: string } {
  rmSync(file, { force: true });
  const vitest = path.join(ROOT, 'node_modules', 'vitest', 'vitest.mjs');
  const run = spawnSync(
    process.execPath,
    [vitest, 'run', ...tests, '--reporter=default', '--reporter=json', `--outputFile.json=${file}`],
    {
      cwd: ROOT,
      // The rounds run everything, not the part of `npm test`.
      env: { ...process.env, TOLLGATE_TESTS: 'all', ...env },
      stdio: ['ignore', 'pipe', 'pipe'],
      encoding: 'utf8',
      maxBuffer: 1 << 28,
    },
  );
  const found = existsSync(file)
    ? (JSON.parse(readFileSync(file, 'utf8')) as { numPassedTests: number; numFailedTests: number })
    : { numPassedTests: 0, numFailedTests: 1 };
  return {
    passed: found.numPassedTests,
    failed: run.status === 0 ? found.numFailedTests : Math.max(1, found.numFailedTests),
    said: `${run.stdout}${run.stderr}`,
  };
}
