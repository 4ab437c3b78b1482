/** The quick benchmark of the gate: what a call costs in counts, which do not depend on the machine. Never times. */

import { readFileSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { parse } from 'yaml';
import { groupInFull } from '../harness/full-tests.ts';
import { RUNS_ALL, roundsOf } from '../harness/slices.ts';
import { verifies } from '../verifies.ts';
import { AT_ONCE, COUNTED, type Counts, countAll } from './counts.ts';
import { BenchFleet } from './fleet-targets.ts';
import { runBlock } from './measure.ts';
import { KINDS } from './targets.ts';

/** The most of each count by row: alone, and together if that is limited. */
type Limits = Readonly<Record<string, Readonly<Record<keyof Counts, readonly number[]>>>>;

const limits = parse(readFileSync(path.join(import.meta.dirname, 'count-limits.yaml'), 'utf8')) as Limits;

const KEYS = ['promises', 'writes', 'statements', 'messages'] as const;

/** Returns what a row counts in excess of its limits. `index`: of AT_ONCE. */
function excessOf(counts: Counts | undefined, row: string, index: number): readonly string[] {
  return KEYS.flatMap((key) => {
    const [count, most] = [counts?.[key] ?? Number.NaN, limits[row]?.[key]?.[index]];
    return most === undefined || count <= most ? [] : [`${key}, ${AT_ONCE[index]} at once: ${count}, allowed ${most}`];
  });
}

/** The rows that `npm test` counts: each way of a call once. The others differ in their rules and arguments. */
const COMMON: readonly string[] = ['stdio: sdk', 'stdio: kept', 'stdio: read', 'http: kept'];
/** Fewer calls than in `npm run bench`, and a multiple of those sent at once. */
const FEW = { warm: 64, counted: 64 };

describe.each(['stdio', 'http'] as const)('a call over %s', (transport) => {
  const rows = COUNTED.filter((row) => row.transport === transport && (RUNS_ALL || COMMON.includes(row.name)));
  let found: readonly (readonly Counts[])[] = [];

  beforeAll(async () => {
    const isEnough = (counts: Counts, row: string, index: number): boolean =>
      limits[row] === undefined || excessOf(counts, row, index).length === 0;
    found = await countAll(transport, isEnough, { rows, ...(!RUNS_ALL && { numbers: FEW }) });
  }, 300_000);

  it.each(rows.filter(({ target }) => target === 'tollgate').map(({ name }) => name))(
    `makes no more promises, writes, statements and messages than allowed: %s${verifies('FP-18')}`,
    (name) => {
      const counts = found[rows.findIndex((row) => row.name === name)] ?? [];
      expect(Object.keys(limits[name] ?? {})).toEqual(KEYS);
      expect(limits[name]?.promises).toHaveLength(transport === 'stdio' ? AT_ONCE.length : 1);
      expect(AT_ONCE.flatMap((_, index) => excessOf(counts[index], name, index))).toEqual([]);
    },
  );

  // The same counters count over both transports.
  if (RUNS_ALL || transport === 'stdio')
    it('is counted at all: the SDK pass-through makes promises, two writes or more, and no statement', () => {
      const [alone] = found[0] ?? [];
      expect(alone?.promises).toBeGreaterThan(10);
      expect(alone?.writes).toBeGreaterThanOrEqual(2);
      expect(alone?.allocated).toBeGreaterThan(1000);
      expect(alone?.statements).toBe(0);
    });
});

groupInFull('a call that one of three replicas serves over Redis', () => {
  it(`makes no statement of the store mostly, because its budget is reserved ahead${verifies('FL-37')}`, async () => {
    const calls = roundsOf(2_000, 500);
    const fleet = await BenchFleet.start({ kind: 'redis', replicas: 3 });
    onTestFinished(() => fleet.close());
    const target = await fleet.open('fleet', { replicas: 3 });
    // What is reserved ahead grows over the first calls.
    await runBlock({ name: 'fleet', target, request: KINDS.kept }, 500, 32);
    const before = await fleet.statements();
    const began = performance.now();
    await runBlock({ name: 'fleet', target, request: KINDS.kept }, calls, 32);
    const took = performance.now() - began;
    const made = (await fleet.statements()) - before;
    // Polls do not count: a slow machine makes more of them per call. They go on without calls.
    const idle = await fleet.statements();
    await sleep(took);
    const polls = (await fleet.statements()) - idle;
    // With a request to reserve and one to settle, each call would make two.
    expect((made - polls) / calls).toBeLessThan(0.5);
    expect(made).toBeGreaterThan(0);
  }, 300_000);
});
