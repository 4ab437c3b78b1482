/** Tests that the numbers recorded in docs/performance.md keep the promised limits. */
import { describe, expect, it } from 'vitest';
import { readPage, rowsOf, sectionOf } from './docs/markdown.ts';
import { verifies } from './verifies.ts';

const PAGE = 'docs/performance.md';
/** The most that the facade may add to a call at the 95th percentile, µs. */
const PROMISE = 10_000;

/** Returns the p95 of a target in µs. Columns: target, p50, p95, p99, CPU, ratio. */
function p95(transport: 'stdio' | 'http', target: string): number {
  const heading = new RegExp(`^## ${transport}: one call at a time.*$`, 'm').exec(readPage(PAGE))?.[0];
  const row = rowsOf(heading === undefined ? '' : sectionOf(PAGE, heading)).find(
    ([name]) => name?.replaceAll(/[*`]/g, '') === target,
  );
  const value = Number(row?.[2]?.replaceAll(/[^\d.]/g, '') || Number.NaN);
  expect(value, `p95 of ${target} over ${transport}`).toBeGreaterThan(0);
  return value;
}

/** Returns the microseconds in a line of the block of decisions. */
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
  it('show that the facade adds less than 10 ms at p95 over stdio' + verifies('HE-11'), () => {
    expect(p95('stdio', 'tollgate') - p95('stdio', 'direct')).toBeLessThan(PROMISE);
  });

  it('show that a whole call over HTTP takes less than 10 ms at p95' + verifies('HE-11'), () => {
    expect(p95('http', 'tollgate')).toBeLessThan(PROMISE);
  });

  it('show that a decision does not become slower with unrelated rules, in YAML or Rego', () => {
    expect(
      decision('10000 rules, 8 candidates', 'p50') / decision('10 rules, 8 candidates', 'p50'),
    ).toBeLessThanOrEqual(1.25);
    expect(
      decision('1000 rules of Rego: one decision', 'p50') / decision('10 rules of Rego: one decision', 'p50'),
    ).toBeLessThanOrEqual(3);
  });

  it('show at most 500 µs at p99 for a decision over 1,000 rules, and 20 ms for the verdicts of 1,000 tools', () => {
    expect(decision('1000 rules, 16 candidates', 'p99')).toBeLessThanOrEqual(500);
    expect(decision('list of 1000 tools, 1000 rules', 'least processor time')).toBeLessThanOrEqual(20_000);
  });

  it.each(['direct', 'sandbox'])(
    'show that five real servers are ready within 1.3 times the time without Tollgate: %s' + verifies('PF-16'),
    (level) => {
      const row = rowsOf(sectionOf(PAGE, '## Start: five real servers until all are listed')).find(
        ([name]) => name === level,
      );
      expect(Number(row?.[2])).toBeGreaterThan(0);
      expect(Number(row?.[2])).toBeLessThanOrEqual(1.3);
    },
  );

  it('show that the egress proxy adds less than 5 ms to a request at p95' + verifies('PF-16'), () => {
    const [, goal, reached] = rowsOf(readPage(PAGE)).find(([name]) => name === 'egress, added to a request, p95') ?? [];
    expect(goal).toBe('5 ms');
    expect(Number(/^[\d.]+ to ([\d.]+) ms/.exec(reached ?? '')?.[1])).toBeLessThan(5);
  });
});
