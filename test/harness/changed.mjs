/**
 * `npm run test:changed [-- --since COMMIT]`: runs the test files that are nearest to the changed files, for about a
 * minute. Near is who imports a changed file through few others, or names its folder after `Covers:`, as files do that
 * start the built program. It says how many more files depend on the change: `npm test` runs them too.
 */
import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { parseArgs } from 'node:util';
import { parse } from 'yaml';

const ROOT = path.join(import.meta.dirname, '..', '..');
/** The most processor time of the chosen files, and what a file costs that is not in the list, seconds. */
const MOST_SECONDS = 60;
const USUAL_SECONDS = 0.5;
/** Loading the modules that all of them import, seconds. */
const START_SECONDS = 5;

const { values } = parseArgs({ options: { since: { type: 'string', default: 'HEAD' } } });
const git = (...words) =>
  execFileSync('git', words, { cwd: ROOT, encoding: 'utf8' })
    .split('\n')
    .filter((line) => line !== '');
const changed = new Set([
  ...git('diff', '--name-only', values.since),
  ...git('ls-files', '--others', '--exclude-standard'),
]);
if (changed.size === 0) {
  process.stderr.write(`No file differs from ${values.since}.\n`);
  process.exit(0);
}

const costs = parse(readFileSync(path.join(import.meta.dirname, 'file-costs.yaml'), 'utf8')) ?? {};
const texts = new Map();
const textOf = (file) => {
  if (!texts.has(file))
    texts.set(file, existsSync(path.join(ROOT, file)) ? readFileSync(path.join(ROOT, file), 'utf8') : '');
  return texts.get(file);
};
const importsOf = (file) =>
  [...textOf(file).matchAll(/(?:from|import)\s*\(?\s*'(\.[^']+)'/g)].map(([, name]) =>
    path.join(path.dirname(file), name),
  );
const coversChange = (file) => {
  const covered = /\bCovers: ([^\n*]+)/.exec(textOf(file))?.[1]?.replace(/\.$/, '').split(', ') ?? [];
  return covered.some((folder) => [...changed].some((one) => one === folder || one.startsWith(`${folder}/`)));
};

/** Returns the number of imports from a file to the nearest changed one; undefined if there is no way. */
function distanceOf(test) {
  if (changed.has(test)) return 0;
  if (coversChange(test)) return 1;
  let level = [test];
  const seen = new Set(level);
  for (let distance = 0; level.length > 0; distance += 1) {
    if (level.some((file) => changed.has(file))) return distance;
    level = level.flatMap(importsOf).filter((file) => !seen.has(file) && seen.add(file));
  }
  return undefined;
}

const tests = readdirSync(path.join(ROOT, 'test'), { recursive: true, encoding: 'utf8' })
  .filter((name) => name.endsWith('.test.ts') && !name.endsWith('.full.test.ts') && !/(^|\/)(node_modules|servers|corpora|package)\//.test(name))
  .map((name) => `test/${name}`);
const depending = tests
  .map((file) => ({ file, distance: distanceOf(file), seconds: costs[file] ?? USUAL_SECONDS }))
  .filter(({ distance }) => distance !== undefined)
  .sort((a, b) => a.distance - b.distance || a.seconds - b.seconds);
let left = MOST_SECONDS - START_SECONDS;
const chosen = depending.filter(({ seconds }) => (left -= seconds) >= 0).map(({ file }) => file);
const more = depending.length - chosen.length;
process.stderr.write(
  `${changed.size} files changed. The nearest ${chosen.length} of the ${depending.length} test files that depend on ` +
    `them run now${more > 0 ? `; \`npm test\` runs the other ${more} too` : ''}.\n`,
);
if (chosen.length === 0) process.exit(0);
const { status } = spawnSync('npx', ['--no-install', 'vitest', 'run', ...chosen], { cwd: ROOT, stdio: 'inherit' });
process.exit(status ?? 1);
