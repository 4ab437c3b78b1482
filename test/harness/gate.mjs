/**
 * Runs the suites of the gate after the demo: `node test/harness/gate.mjs`. The tests of the README run first and alone,
 * measured for coverage. The other suites run two at a time, and the output of each is printed when it ends. The last lines
 * are the table of costs and `N passed, N failed, N skipped`. Exits with 1 if a suite failed.
 */
import { spawn, spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, rmSync } from 'node:fs';
import path from 'node:path';

const ROOT = path.join(import.meta.dirname, '..', '..');
const REPORTS = path.join(ROOT, 'node_modules', '.tollgate', 'reports');
/** As many as the gate has processors. */
const AT_ONCE = 2;
/** A suite that hangs must not take the time of all, ms. */
const MOST_MS = 40 * 60_000;
const PARTS = 3;

/** The part of the divided tests that runs in full: each commit has one of three. */
function partOfCommit() {
  const { stdout } = spawnSync('git', ['rev-parse', 'HEAD'], { cwd: ROOT, encoding: 'utf8' });
  return `${(Number.parseInt(stdout.slice(0, 8), 16) % PARTS || 0) + 1}/${PARTS}`;
}

const vitest = ['npx', '--no-install', 'vitest', 'run'];
const TESTS = { name: '1 npm test, measured for coverage', command: ['npm', 'test', '--', '--coverage'] };
// The longest first. What the demo was built from is what these run on.
const part = partOfCommit();
const SUITES = [
  { name: `2 part ${part.replace('/', ' of ')} of npm run test:all`, command: vitest, env: { TOLLGATE_TESTS: part } },
  { name: '3 package and container image', command: [...vitest, '--config', 'vitest.package.config.ts'] },
  { name: '4 official conformance suite', command: ['node', 'dist/test/conformance/run.js', '--quick'] },
  { name: '5 corpora', command: [...vitest, '--config', 'vitest.corpora.config.ts'] },
  { name: '6 other corpora, also faulty ones', command: ['node', 'test/corpora/variant.mjs'] },
  { name: '7 types and style', command: ['npm', 'run', '-s', 'check'] },
];

/** The process groups of running suites. */
const running = new Set();

/** Runs a suite. Resolves to its counts, which are its last line of the form `N passed, N failed`. */
function run({ name, command, env = {} }, isAlone = false) {
  const began = Date.now();
  const report = path.join(REPORTS, `${name}.json`);
  process.stdout.write(`== ${name}: begins\n`);
  return new Promise((resolve) => {
    const child = spawn(command[0], command.slice(1), {
      cwd: ROOT,
      env: { ...process.env, TOLLGATE_GATE: '1', TOLLGATE_REPORT: report, ...env },
      stdio: ['ignore', 'pipe', 'pipe'],
      detached: true,
    });
    running.add(child.pid);
    let said = '';
    for (const stream of [child.stdout, child.stderr])
      stream.setEncoding('utf8').on('data', (text) => {
        said += text;
        if (isAlone) process.stdout.write(text);
      });
    const timer = setTimeout(() => process.kill(-child.pid, 'SIGTERM'), MOST_MS);
    child.on('close', (code, signal) => {
      clearTimeout(timer);
      running.delete(child.pid);
      const seconds = Math.round((Date.now() - began) / 1000);
      const [, passed = 0, failed = 0, skipped = 0] =
        [...said.matchAll(/^(\d+) passed, (\d+) failed(?:, (\d+) skipped)?$/gm)].at(-1) ?? [];
      const counts = { passed: Number(passed), failed: Number(failed), skipped: Number(skipped) };
      process.stdout.write(`${isAlone ? '' : said}\n== ${name}: ended with ${code ?? signal} after ${seconds} s\n`);
      resolve({ name, seconds, ...counts, failed: code === 0 ? counts.failed : Math.max(1, counts.failed) });
    });
  });
}

/** Runs suites, some at a time, in their order. */
async function runAll(suites) {
  const ended = [];
  const left = [...suites];
  const work = async () => {
    for (let next = left.shift(); next !== undefined; next = left.shift()) ended.push(await run(next));
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  return ended;
}

for (const signal of ['SIGINT', 'SIGTERM'])
  process.on(signal, () => {
    for (const pid of running) process.kill(-pid, 'SIGTERM');
    process.stderr.write(`The gate was ended by ${signal}, and its suites with it.\n`);
    process.exit(130);
  });
rmSync(REPORTS, { recursive: true, force: true });
rmSync(path.join(ROOT, 'coverage'), { recursive: true, force: true });
mkdirSync(REPORTS, { recursive: true });
const ended = [await run(TESTS, true), ...(await runAll(SUITES))].sort((a, b) => a.name.localeCompare(b.name));

process.stdout.write('\n');
spawnSync('node', ['test/harness/cost-table.mjs'], { cwd: ROOT, stdio: 'inherit' });
for (const { name, seconds, passed, failed, skipped } of ended)
  process.stdout.write(`${name}: ${seconds} s, ${passed} passed, ${failed} failed, ${skipped} skipped\n`);
const total = (key) => ended.reduce((sum, one) => sum + one[key], 0);
const summary = path.join(ROOT, 'coverage', 'coverage-summary.json');
if (existsSync(summary)) {
  const { lines, branches } = JSON.parse(readFileSync(summary, 'utf8')).total;
  process.stdout.write(`coverage: ${lines.pct} % of lines, ${branches.pct} % of branches\n`);
}
process.stdout.write(`\n${total('passed')} passed, ${total('failed')} failed, ${total('skipped')} skipped\n`);
process.exitCode = total('failed') === 0 ? 0 : 1;
