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
  const row = rowsOf(heading === undefined ? '' : sectionOf(PAGE, heading)).find(([name]) => name?.replaceAll(/[*`]/g, '') === target);
  const value = Number(row?.[2]?.replaceAll(/[^\d.]/g, '') || Number.NaN);
  expect(value, `p95 of ${target} over ${transport}`).toBeGreaterThan(0);
  return value;
}

describe('the recorded numbers', () => {
  it('over stdio the facade adds less than 10 ms at p95' + verifies('HE-11'), () => {
    expect(p95('stdio', 'tollgate') - p95('stdio', 'direct')).toBeLessThan(PROMISE);
  });

  it('over HTTP a whole call through the facade takes less than 10 ms at p95' + verifies('HE-11'), () => {
    expect(p95('http', 'tollgate')).toBeLessThan(PROMISE);
  });

  it.each(['direct', 'sandbox'])('five real servers are ready within 1.3 times of the same five started bare: %s' + verifies('PF-16'), (level) => {
    const row = rowsOf(sectionOf(PAGE, '## Start: five real servers until all are listed')).find(([name]) => name === level);
    expect(Number(row?.[2])).toBeGreaterThan(0);
    expect(Number(row?.[2])).toBeLessThanOrEqual(1.3);
  });
});
