/**
 * Changes the source in small ways, and looks whether a test fails: `node test/harness/mutants.mjs`. Each mutant meets
 * the nearest tests of `npm test`, until the first failure. One that survives meets those that start the built program,
 * and then the same files under `npm run test:all`. Prints one line for each mutant, and the shares. It works in a copy of
 * the commit. Options: --count, --from, --seed, --minutes.
 */
import { execFileSync, spawnSync } from 'node:child_process';
import { cpSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { parseArgs } from 'node:util';
import { transformSync } from 'esbuild';
import { nearestTests, ROOT } from './nearest-tests.mjs';

const FOLDERS = ['facade/call', 'policies', 'adapters/sandbox', 'facade/budget'];
/** The time of one run. A mutant whose tests do not end in it is not decided: they may hang, or be many. */
const MOST_MS = 600_000;
/** The nearest tests run first: most mutants die in them. */
const NEAREST = 12;
const VITEST = path.join(ROOT, 'node_modules', 'vitest', 'vitest.mjs');

const { values } = parseArgs({
  options: {
    seed: { type: 'string', default: '39' },
    count: { type: 'string', default: '60' },
    from: { type: 'string', default: '0' },
    minutes: { type: 'string', default: '120' },
  },
});

/** Returns random numbers from 0 to 1 by a seed (mulberry32). */
function numbers(seed) {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };
}

/** Each kind changes one line, or returns undefined. */
const KINDS = {
  'deleted statement': (line) =>
    /^\s+(?:await |this\.|void )?[\w.#?[\]]+\(.*\);$|^\s+[\w.#[\]]+ [-+|&?]*= .*;$|^\s+throw .*;$/.test(line)
      ? ''
      : undefined,
  'negated condition': (line) => {
    const at = line.search(/\b(?:if|while) \(/);
    if (at < 0) return undefined;
    const open = line.indexOf('(', at);
    let depth = 0;
    for (let end = open; end < line.length; end += 1) {
      if (line[end] === '(') depth += 1;
      if (line[end] === ')' && (depth -= 1) === 0)
        return `${line.slice(0, open + 1)}!(${line.slice(open + 1, end)})${line.slice(end)}`;
    }
    return undefined;
  },
  'swapped outcome': (line) => {
    const swaps = [
      [/'allow'/, "'deny'"],
      [/'deny'/, "'allow'"],
      [/'ask'/, "'allow'"],
      [/\btrue\b/, 'false'],
      [/\bfalse\b/, 'true'],
      [/ && /, ' || '],
      [/ \|\| /, ' && '],
      [/ === /, ' !== '],
      [/ < /, ' >= '],
      [/ > /, ' <= '],
    ];
    const code = line.replace(/\/\/.*$/, '');
    const found = swaps.find(
      ([from]) => from.test(code) && !/^\s*(\*|\/\*|import|export (type|interface)|readonly)/.test(code),
    );
    return found === undefined ? undefined : line.replace(...found);
  },
};

function sourceFiles(folder) {
  return readdirSync(path.join(ROOT, folder), { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.ts'))
    .map((name) => `${folder}/${name}`)
    .sort();
}

function pickMutants(count) {
  const chance = numbers(Number(values.seed));
  const all = FOLDERS.flatMap(sourceFiles).flatMap((file) => {
    const lines = readFileSync(path.join(ROOT, file), 'utf8').split('\n');
    return lines.flatMap((line, at) =>
      Object.entries(KINDS).flatMap(([kind, change]) => {
        const after = change(line);
        return after === undefined ? [] : [{ file, at, kind, before: line, after }];
      }),
    );
  });
  const picked = [];
  while (picked.length < count && all.length > 0) {
    const [one] = all.splice(Math.floor(chance() * all.length), 1);
    const lines = readFileSync(path.join(ROOT, one.file), 'utf8').split('\n');
    lines[one.at] = one.after;
    try {
      transformSync(lines.join('\n'), { loader: 'ts' });
      picked.push({ ...one, text: lines.join('\n') });
    } catch {
      // Not a program.
    }
  }
  return picked;
}

/** The tests of one mutant take at most this time, seconds: the nearest ones. */
const MOST_SECONDS = 150;

/** Returns the nearest test files of `npm test`, those that start the built program apart. */
function testsOf(file) {
  let left = MOST_SECONDS;
  const tests = nearestTests(new Set([file]))
    .filter(({ seconds }) => (left -= seconds) >= 0)
    .map(({ file }) => file);
  const startsProgram = (test) => readFileSync(path.join(ROOT, test), 'utf8').includes('Covers: ');
  return { inside: tests.filter((test) => !startsProgram(test)), programs: tests.filter(startsProgram) };
}

const copy = mkdtempSync(path.join(tmpdir(), 'tollgate-mutants-'));
process.on('exit', () => {
  spawnSync('git', ['worktree', 'remove', '--force', copy], { cwd: ROOT, stdio: 'ignore' });
  rmSync(copy, { recursive: true, force: true });
});
execFileSync('git', ['worktree', 'add', '--detach', '--force', copy, 'HEAD'], { cwd: ROOT, stdio: 'ignore' });
for (const folder of ['node_modules', 'test/servers/node_modules'])
  symlinkSync(path.join(ROOT, folder), path.join(copy, folder));

/** Returns true if a test fails. Throws if the tests do not end in time. */
function isKilled(tests, env = {}) {
  if (tests.length === 0) return false;
  const words = [VITEST, 'run', '--bail=1', '--reporter=dot', ...tests];
  const { status } = spawnSync(process.execPath, words, {
    cwd: copy,
    env: { ...process.env, ...env },
    stdio: 'ignore',
    timeout: MOST_MS,
    killSignal: 'SIGINT',
  });
  if (status === null) throw new Error('undecided: the tests did not end in time');
  return status !== 0;
}

const buildCopy = () => spawnSync('npm', ['run', '-s', 'build'], { cwd: copy, stdio: 'ignore' }).status === 0;
const restoreBuild = () => {
  rmSync(path.join(copy, 'dist'), { recursive: true, force: true });
  cpSync(path.join(ROOT, 'dist'), path.join(copy, 'dist'), { recursive: true });
};

/** Returns what became of a mutant. */
function judge(mutant) {
  const { inside, programs } = testsOf(mutant.file);
  if (isKilled(inside.slice(0, NEAREST)) || isKilled(inside.slice(NEAREST))) return 'killed by npm test';
  try {
    if (!buildCopy()) return 'killed by the build';
    if (isKilled(programs)) return 'killed by npm test';
    if (isKilled([...inside, ...programs], { TOLLGATE_TESTS: 'all' })) return 'killed by test:all only';
    return 'survives';
  } finally {
    restoreBuild();
  }
}

restoreBuild();
const until = Date.now() + Number(values.minutes) * 60_000;
const mutants = pickMutants(Number(values.from) + Number(values.count)).slice(Number(values.from));
const fates = new Map();
for (const mutant of mutants) {
  if (Date.now() > until) break;
  const place = path.join(copy, mutant.file);
  const original = readFileSync(place, 'utf8');
  writeFileSync(place, mutant.text);
  const began = Date.now();
  let fate;
  try {
    fate = judge(mutant);
  } catch (thrown) {
    fate = thrown.message;
  }
  writeFileSync(place, original);
  fates.set(fate, (fates.get(fate) ?? 0) + 1);
  const seconds = Math.round((Date.now() - began) / 1000);
  process.stdout.write(
    `${fate} (${seconds} s): ${mutant.file}:${mutant.at + 1} ${mutant.kind}: ${mutant.before.trim()}\n`,
  );
}
for (const [fate, count] of fates) process.stdout.write(`${count} ${fate}\n`);
