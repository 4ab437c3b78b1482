/**
 * Prints what test runs have cost: `node test/harness/cost-table.mjs REPORT…` reads reports that TOLLGATE_REPORT named.
 * Without one it reads those of the gate. Prints the suites, the folders and the twenty slowest files. `--write REPORT`
 * writes the seconds of each file to test/harness/file-costs.yaml instead, by which files are ordered and chosen.
 */
import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';

const GATE = path.join(import.meta.dirname, '..', '..', 'node_modules', '.tollgate', 'reports');
const MOST_FILES = 20;

const isWriting = process.argv[2] === '--write';
const given = process.argv.slice(isWriting ? 3 : 2);
const reports =
  given.length > 0 || !existsSync(GATE)
    ? given
    : readdirSync(GATE)
        .sort()
        .map((name) => path.join(GATE, name));
const missing = reports.find((file) => !existsSync(file));
if (missing !== undefined) {
  process.stderr.write(`There is no report ${missing}. Make one: TOLLGATE_REPORT=${missing} npm test\n`);
  process.exit(2);
}
if (reports.length === 0) {
  process.stderr.write('Name a report: TOLLGATE_REPORT=FILE npm test, then node test/harness/cost-table.mjs FILE\n');
  process.exit(2);
}

const sum = (numbers) => numbers.reduce((total, number) => total + number, 0);
const processesOf = ({ processes = {} }) => sum(Object.values(processes));
const seconds = (ms) => (ms / 1000).toFixed(1);

/** Prints rows of cells in columns. The first column is to the left, numbers are to the right. */
function print(head, rows) {
  const widths = head.map((_, at) => Math.max(...[head, ...rows].map((row) => String(row[at]).length)));
  for (const row of [head, ...rows])
    process.stdout.write(
      `${row.map((cell, at) => (at === 0 ? String(cell).padEnd(widths[at]) : String(cell).padStart(widths[at]))).join('  ')}\n`,
    );
  process.stdout.write('\n');
}

/** The lines of file-costs.yaml: seconds of a worker, for files that take at least one. */
function costsOf(files) {
  const lines = files
    .map(({ file, wallMs }) => [file, Math.round(wallMs / 1000)])
    .filter(([, cost]) => cost >= 1)
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([file, cost]) => `${file}: ${cost}\n`);
  return `# Seconds that a worker needs for a file, if it needs one or more: node test/harness/cost-table.mjs --write REPORT\n${lines.join('')}`;
}

const HEAD = ['tests', 'processor s', 'of it in processes', 'processes'];
const cellsOf = (files) => [
  sum(files.map(({ tests }) => tests)),
  seconds(sum(files.map(({ ownMs = 0, startedMs = 0 }) => ownMs + startedMs))),
  seconds(sum(files.map(({ startedMs = 0 }) => startedMs))),
  sum(files.map(processesOf)),
];
const costOf = ({ ownMs = 0, startedMs = 0 }) => ownMs + startedMs;

const all = reports.map((file) => ({ suite: path.basename(file, '.json'), ...JSON.parse(readFileSync(file, 'utf8')) }));
if (isWriting) {
  writeFileSync(path.join(import.meta.dirname, 'file-costs.yaml'), costsOf(all.flatMap((report) => report.files)));
  process.exit(0);
}
print(
  ['suite', ...HEAD],
  all.map(({ suite, files }) => [suite, ...cellsOf(files)]),
);
const files = all.flatMap((report) => report.files);
const folders = new Map();
for (const one of files) {
  const folder = path.dirname(one.file);
  folders.set(folder, [...(folders.get(folder) ?? []), one]);
}
const byCost = (a, b) => sum(b[1].map(costOf)) - sum(a[1].map(costOf));
print(
  ['folder', ...HEAD],
  [...folders].sort(byCost).map(([folder, inside]) => [folder, ...cellsOf(inside)]),
);
const slowest = [...files].sort((a, b) => costOf(b) - costOf(a)).slice(0, MOST_FILES);
print(
  ['file', ...HEAD],
  slowest.map((one) => [one.file, ...cellsOf([one])]),
);
