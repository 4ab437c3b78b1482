/** Tests that docs/performance.md has the tables that the benchmark prints, and that recorded numbers keep promises. */
import { describe, expect, it } from 'vitest';
import { PARTS } from './bench/bench.ts';
import { GOALS_TABLE } from './bench/goals.ts';
import { commandOf } from './bench/tables.ts';
import { codeIn, rowsOf, sectionOf } from './docs/markdown.ts';
import { verifies } from './verifies.ts';

const PAGE = 'docs/performance.md';
/** The most that the facade may add to a call at the 95th percentile, µs. */
const PROMISE = 10_000;
const TABLES = [
  { ...GOALS_TABLE, command: commandOf(undefined) },
  ...PARTS.flatMap(({ name, tables }) => tables.map((table) => ({ ...table, command: commandOf(name) }))),
];

/** Returns the number in a cell, without its ratio. */
function cell(title: string, row: string, column: string): number {
  const at = TABLES.find((table) => table.title === title)?.head.indexOf(column) ?? -1;
  const found = rowsOf(sectionOf(PAGE, `## ${title}`)).find(([name]) => name === row);
  const value = Number.parseFloat(found?.[at] ?? '');
  expect(value, `${column} of ${row} in ${title}`).toBeGreaterThan(0);
  return value;
}

describe('the page about performance', () => {
  it.each(TABLES)('has the table that the benchmark prints, and its command: $title' + verifies('FP-08'), (table) => {
    const section = sectionOf(PAGE, `## ${table.title}`);
    expect(codeIn(section)).toContain(table.command);
    expect(section).toContain(`\n| ${table.head.join(' | ')} |\n`);
    expect(rowsOf(section).map(([name]) => name)).toEqual(table.rows);
    expect(rowsOf(section).every((cells) => cells.length === table.head.length)).toBe(true);
  });

  it('shows every target and kind of call over both transports, and counts' + verifies('FP-08'), () => {
    for (const transport of ['stdio', 'http']) {
      const { rows } = TABLES.find(({ title }) => title === `${transport}: one call at a time`) ?? { rows: [] };
      expect(rows).toEqual(expect.arrayContaining(['direct', 'pipe', 'json', 'sdk', 'kept decision', 'file read']));
    }
    const counts = TABLES.find(({ title }) => title.startsWith('Counts'));
    expect(counts?.head.slice(1)).toEqual(['allocated kB', 'promises', 'writes', 'statements', 'messages']);
  });
});

describe('the table of a fleet', () => {
  it(`has each store at 1, 2 and 3 replicas, workers, and the balancer alone${verifies('FL-37')}`, () => {
    const { rows, head } = TABLES.find(({ title }) => title.startsWith('Fleet: a call')) ?? { rows: [], head: [] };
    const stores = ['Postgres', 'Redis'].flatMap((store) => [1, 2, 3].map((count) => `${store}: ${count}`));
    expect(rows).toEqual(expect.arrayContaining(['balancer', 'SQLite: 1', ...stores, 'workers: 1', 'workers: 2']));
    expect(head).toEqual(expect.arrayContaining(['p50 µs', 'p95 µs', 'CPU µs', 'statements']));
  });
});

describe('the recorded numbers', () => {
  it.each(['stdio', 'http'])(
    `show that the facade adds less than 10 ms at p95 over %s${verifies('HE-11')}`,
    (transport) => {
      const p95 = (row: string): number => cell(`${transport}: one call at a time`, row, 'p95 µs');
      expect(p95('kept decision') - p95('direct')).toBeLessThan(PROMISE);
      expect(p95('evaluated: regex') - p95('direct')).toBeLessThan(PROMISE);
    },
  );

  it('show that a decision does not become slower with unrelated rules, in YAML or Rego', () => {
    const p50 = (row: string): number => cell('Policy: one decision', row, 'p50 µs');
    expect(p50('10000 rules, 8 candidates') / p50('10 rules, 8 candidates')).toBeLessThanOrEqual(1.25);
    expect(p50('1000 rules of Rego: one decision') / p50('10 rules of Rego: one decision')).toBeLessThanOrEqual(3);
  });

  it('show at most 500 µs at p99 for a decision over 1,000 rules, and 20 ms for the verdicts of 1,000 tools', () => {
    expect(cell('Policy: one decision', '1000 rules, 16 candidates', 'p99 µs')).toBeLessThanOrEqual(500);
    const list = cell('Policy: one decision', 'list of 1000 tools, 1000 rules', 'least CPU µs');
    expect(list).toBeLessThanOrEqual(20_000);
  });

  it.each(['direct', 'sandbox'])(
    `show that five real servers are ready within 1.3 times the time without Tollgate: %s${verifies('PF-16')}`,
    (level) => {
      expect(cell('Start: five real servers until all are listed', level, 'ratio')).toBeLessThanOrEqual(1.3);
    },
  );

  it.each(['sandbox, preload (Node)', 'sandbox, CONNECT (others)'])(
    `show that the egress proxy adds less than 5 ms to a request at p95: %s${verifies('PF-16')}`,
    (way) => {
      for (const column of ['fresh p95 ms', 'kept p95 ms']) {
        const added =
          cell('What egress adds to a request', way, column) -
          cell('What egress adds to a request', 'direct, on the host', column);
        expect(added).toBeLessThan(5);
      }
    },
  );
});
