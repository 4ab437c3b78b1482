/**
 * Changes the source in small ways, and looks whether a test fails: `node test/harness/mutants.mjs --reach FOLDER`.
 * FOLDER has what TOLLGATE_REACH=FOLDER npm test wrote. Each mutant meets the tests of `npm test` that call its function,
 * until the first failure. A mutant that survives meets the same files under `npm run test:all`, and those that start the
 * built program. Prints one line for each mutant and the shares. It works in a copy of the commit.
 */
import { execFileSync, spawnSync } from 'node:child_process';
import { cpSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { parseArgs } from 'node:util';
import { transformSync } from 'esbuild';
import { parse } from 'yaml';

const ROOT = path.join(import.meta.dirname, '..', '..');
const FOLDERS = ['facade/call', 'policies', 'adapters/sandbox', 'facade/budget'];
/** A mutant that does not end is found by its time. */
const MOST_MS = 240_000;
/** Of the test files that start the built program, the nearest to the mutant. */
const MOST_PROGRAM_TESTS = 30;

const { values } = parseArgs({
  options: {
    reach: { type: 'string' },
    seed: { type: 'string', default: '39' },
    count: { type: 'string', default: '60' },
    from: { type: 'string', default: '0' },
    minutes: { type: 'string', default: '120' },
  },
});
if (values.reach === undefined) {
  process.stderr.write('Name the folder of TOLLGATE_REACH: node test/harness/mutants.mjs --reach FOLDER\n');
  process.exit(2);
}

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

/** The name of the function around a line: the nearest declaration above it that is indented less. */
function functionAt(lines, at) {
  let indent = lines[at].search(/\S/);
  for (let above = at - 1; above >= 0; above -= 1) {
    const line = lines[above];
    const depth = line.search(/\S/);
    if (depth < 0 || depth >= indent) continue;
    indent = depth;
    const name =
      /^\s*(?:export )?(?:async )?function\*? (\w+)/.exec(line)?.[1] ??
      /^\s*(?:(?:static|async|get|set) )*(#?\w+)\(.*\{$/.exec(line)?.[1] ??
      /^\s*(?:export )?const (\w+) = (?:async )?\(?.*=>/.exec(line)?.[1];
    if (name !== undefined && !['if', 'for', 'while', 'switch', 'catch'].includes(name)) return name;
  }
  return '';
}

function pickMutants(count) {
  const chance = numbers(Number(values.seed));
  const all = FOLDERS.flatMap(sourceFiles).flatMap((file) => {
    const lines = readFileSync(path.join(ROOT, file), 'utf8').split('\n');
    return lines.flatMap((line, at) =>
      Object.entries(KINDS).flatMap(([kind, change]) => {
        const after = change(line);
        return after === undefined ? [] : [{ file, at, kind, before: line, after, name: functionAt(lines, at) }];
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

const reaches = readdirSync(values.reach).map((name) =>
  JSON.parse(readFileSync(path.join(values.reach, name), 'utf8')),
);
const costs = parse(readFileSync(path.join(import.meta.dirname, 'file-costs.yaml'), 'utf8')) ?? {};

/** Returns the test files that call a mutant's function, those first that import its file or cost little. */
function testsOf({ file, name }) {
  const inFile = reaches.filter(({ reached }) => reached[file]?.some((one) => one !== ''));
  const inFunction = inFile.filter(({ reached }) => reached[file].includes(name));
  const tests = (inFunction.length > 0 ? inFunction : inFile).map(({ test }) => test);
  const isNear = (test) => readFileSync(path.join(ROOT, test), 'utf8').includes(`/${path.basename(file)}'`);
  const rank = (test) => (isNear(test) ? 0 : 1000) + (costs[test] ?? 0.5);
  return tests.sort((a, b) => rank(a) - rank(b));
}

const copy = mkdtempSync(path.join(tmpdir(), 'tollgate-mutants-'));
process.on('exit', () => {
  spawnSync('git', ['worktree', 'remove', '--force', copy], { cwd: ROOT, stdio: 'ignore' });
  rmSync(copy, { recursive: true, force: true });
});
execFileSync('git', ['worktree', 'add', '--detach', '--force', copy, 'HEAD'], { cwd: ROOT, stdio: 'ignore' });
for (const folder of ['node_modules', 'test/servers/node_modules'])
  symlinkSync(path.join(ROOT, folder), path.join(copy, folder));

/** Returns true if a test fails or does not end. */
function isKilled(tests, env = {}) {
  if (tests.length === 0) return false;
  const words = ['--no-install', 'vitest', 'run', '--bail=1', '--reporter=dot', ...tests];
  const { status } = spawnSync('npx', words, {
    cwd: copy,
    env: { ...process.env, ...env },
    stdio: 'ignore',
    timeout: MOST_MS,
    killSignal: 'SIGINT',
  });
  return status !== 0;
}

const startsProgram = (test) => /process\/child\.ts|'dist'|dist\//.test(readFileSync(path.join(ROOT, test), 'utf8'));
const programTests = reaches.map(({ test }) => test).filter(startsProgram);
const nearFirst = (file) => (a, b) =>
  Number(b.includes(`/${file.split('/')[1]}/`)) - Number(a.includes(`/${file.split('/')[1]}/`)) ||
  (costs[a] ?? 0.5) - (costs[b] ?? 0.5);
const buildCopy = () => spawnSync('npm', ['run', '-s', 'build'], { cwd: copy, stdio: 'ignore' }).status === 0;
const restoreBuild = () => {
  rmSync(path.join(copy, 'dist'), { recursive: true, force: true });
  cpSync(path.join(ROOT, 'dist'), path.join(copy, 'dist'), { recursive: true });
};

/** Returns what became of a mutant. */
function judge(mutant) {
  const tests = testsOf(mutant);
  // Most die at once in the nearest few, which need no second file of servers or programs.
  if (isKilled(tests.slice(0, 12)) || isKilled(tests.slice(12))) return 'killed by npm test';
  const programs = programTests.sort(nearFirst(mutant.file)).slice(0, MOST_PROGRAM_TESTS);
  try {
    if (!buildCopy()) return 'killed by the build';
    if (isKilled(programs)) return 'killed by npm test';
    if (isKilled(tests, { TOLLGATE_TESTS: 'all' })) return 'killed by test:all only';
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
  const fate = judge(mutant);
  writeFileSync(place, original);
  fates.set(fate, (fates.get(fate) ?? 0) + 1);
  const seconds = Math.round((Date.now() - began) / 1000);
  process.stdout.write(
    `${fate} (${seconds} s): ${mutant.file}:${mutant.at + 1} ${mutant.kind}: ${mutant.before.trim()}\n`,
  );
}
for (const [fate, count] of fates) process.stdout.write(`${count} ${fate}\n`);
