/**
 * `npm run test:changed [-- --since COMMIT]`: runs the test files that are nearest to the changed files, for about a
 * minute. Near is who imports a changed file through few others, or names its folder after `Covers:`, as files do that
 * start the built program. It says how many more files depend on the change: `npm test` runs them too.
 */
import { execFileSync, spawnSync } from 'node:child_process';
import { parseArgs } from 'node:util';
import { nearestTests, ROOT } from './nearest-tests.mjs';

/** The most that the chosen files take, seconds. */
const MOST_SECONDS = 60;
/** Loading the modules that all of them import, seconds. */
const START_SECONDS = 5;

const { values } = parseArgs({ options: { since: { type: 'string', default: 'HEAD' } } });
const { status: unknown } = spawnSync('git', ['rev-parse', '--verify', '--quiet', `${values.since}^{commit}`], {
  cwd: ROOT,
});
if (unknown !== 0) {
  process.stderr.write(`There is no commit ${values.since}. Give one after --since, such as main or HEAD~1.\n`);
  process.exit(2);
}
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

const depending = nearestTests(changed);
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
