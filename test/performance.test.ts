/** Tests the numbers that docs/performance.md records: speed is measured by the benchmark, and this holds what it found to the promise. */
import { describe, expect, it } from 'vitest';
import { readPage, rowsOf, sectionOf } from './docs/markdown.ts';
import { verifies } from './verifies.ts';

const PAGE = 'docs/performance.md';
/** What the facade may add to a call at the 95th percentile, in µs. */
const PROMISE = 10_000;

/** The p95 of a target in µs: columns are target, p50, p95, p99, CPU and ratio. */
function p95(transport: 'stdio' | 'http', target: string): number {
  const heading = new RegExp(`^## ${transport}: one call at a time.*$`, 'm').exec(readPage(PAGE))?.[0];
  const row = rowsOf(heading === undefined ? '' : sectionOf(PAGE, heading)).find(
    ([name]) => name?.replaceAll(/[*`]/g, '') === target,
  );
  const value = Number(row?.[2]?.replaceAll(/[^\d.]/g, '') || Number.NaN);
  expect(value, `p95 of ${target} over ${transport}`).toBeGreaterThan(0);
  return value;
}

/** Microseconds of a line of the block of decisions. */
function decision(what: string, column: 'p50' | 'p99' | 'least processor time'): number {
  const line =
    readPage(PAGE)
      .split('\n')
      .find((one) => one.startsWith(`${what}  `)) ?? '';
  const value = Number(new RegExp(`${column} +(\\d+) µs`).exec(line)?.[1]);
  expect(value, `${column} of ${what}`).toBeGreaterThan(0);
  return value;
}

describe('the recorded numbers', () => {
  it('over stdio the facade adds less than 10 ms at p95' + verifies('HE-11'), () => {
    expect(p95('stdio', 'tollgate') - p95('stdio', 'direct')).toBeLessThan(PROMISE);
  });

  it('over HTTP a whole call through the facade takes less than 10 ms at p95' + verifies('HE-11'), () => {
    expect(p95('http', 'tollgate')).toBeLessThan(PROMISE);
  });

  it('a decision does not grow with rules that are none of its business, in YAML or Rego', () => {
    expect(
      decision('10000 rules, 8 candidates', 'p50') / decision('10 rules, 8 candidates', 'p50'),
    ).toBeLessThanOrEqual(1.25);
    expect(
      decision('1000 rules of Rego: one decision', 'p50') / decision('10 rules of Rego: one decision', 'p50'),
    ).toBeLessThanOrEqual(3);
  });

  it('a decision over 1,000 rules takes 500 µs at p99, the verdicts of 1,000 tools 20 ms', () => {
    expect(decision('1000 rules, 16 candidates', 'p99')).toBeLessThanOrEqual(500);
    expect(decision('list of 1000 tools, 1000 rules', 'least processor time')).toBeLessThanOrEqual(20_000);
  });

  it.each(['direct', 'sandbox'])(
    'five real servers are ready within 1.3 times of the same five started bare: %s' + verifies('PF-16'),
    (level) => {
      const row = rowsOf(sectionOf(PAGE, '## Start: five real servers until all are listed')).find(
        ([name]) => name === level,
      );
      expect(Number(row?.[2])).toBeGreaterThan(0);
      expect(Number(row?.[2])).toBeLessThanOrEqual(1.3);
    },
  );

  it('the egress proxy adds less than 5 ms to a request at p95' + verifies('PF-16'), () => {
    const [, goal, reached] = rowsOf(readPage(PAGE)).find(([name]) => name === 'egress, added to a request, p95') ?? [];
    expect(goal).toBe('5 ms');
    expect(Number(/^[\d.]+ to ([\d.]+) ms/.exec(reached ?? '')?.[1])).toBeLessThan(5);
  });
});
