/**
 * The last check before `npm publish`: refuses a release that no one could verify. `npm publish` runs it. Prints each
 * fault with what to do, and ends with 1.
 */
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import path from 'node:path';

const ROOT = path.join(import.meta.dirname, '..', '..');
const { version, repository } = JSON.parse(readFileSync(path.join(ROOT, 'package.json'), 'utf8'));
const changelog = readFileSync(path.join(ROOT, 'CHANGELOG.md'), 'utf8');
const git = (...words) => execFileSync('git', words, { cwd: ROOT, encoding: 'utf8' }).trim();

const faults = [
  ...(/^git\+https:\/\/(?!tollgate\.invalid\/)\S+\.git$/.test(repository.url)
    ? []
    : [`package.json:repository.url is ${repository.url}: write the public address, which the provenance must name`]),
  ...(changelog.includes(`\n## [${version}] - `)
    ? []
    : [`CHANGELOG.md has no section for ${version}: write "## [${version}] - YYYY-MM-DD" above its changes`]),
  ...(git('status', '--porcelain') === '' ? [] : ['the folder has changes that are not committed: commit them']),
  ...(git('tag', '--points-at', 'HEAD').split('\n').includes(`v${version}`)
    ? []
    : [`the commit has no tag v${version}: git tag -s v${version}`]),
];
for (const fault of faults) process.stderr.write(`${fault}\n`);
process.exitCode = faults.length === 0 ? 0 : 1;
