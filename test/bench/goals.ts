/** The goals of the fast path, and whether a run has met them. */
import type { FilledTable, TableShape } from './tables.ts';

/** One wanted figure of a goal: the figures whose worst counts. */
interface Wanted {
  readonly limit: number;
  readonly of: readonly string[];
}

/** A goal, as its row names it. `least`: the figures must be at least the limit, not at most. */
export interface Goal {
  readonly goal: string;
  readonly least?: true;
  readonly wanted: readonly Wanted[];
}

const each = (figure: string, kinds: readonly string[]): readonly string[] => kinds.map((kind) => `${figure}.${kind}`);
const EVALUATED = ['number', 'prefix', 'regex'];

/** Ratios to the SDK pass-through, in the order of the table. */
export const GOALS: readonly Goal[] = [
  {
    goal: 'stdio, CPU per call at 32 in flight, kept / evaluated (number, prefix) / (regex)',
    wanted: [
      { limit: 0.6, of: ['stdio.cpu32.kept'] },
      { limit: 1.0, of: each('stdio.cpu32', ['number', 'prefix']) },
      { limit: 1.2, of: ['stdio.cpu32.regex'] },
    ],
  },
  {
    goal: 'stdio, p50 one at a time, kept / evaluated',
    wanted: [
      { limit: 0.9, of: ['stdio.p50.kept'] },
      { limit: 1.15, of: each('stdio.p50', EVALUATED) },
    ],
  },
  { goal: 'stdio, calls/s at 32, kept', least: true, wanted: [{ limit: 1.5, of: ['stdio.rate32.kept'] }] },
  {
    goal: 'HTTP, CPU per call at 32, kept / evaluated',
    wanted: [
      { limit: 0.28, of: ['http.cpu32.kept'] },
      { limit: 0.35, of: each('http.cpu32', EVALUATED) },
    ],
  },
  {
    goal: 'HTTP, p50, kept / evaluated',
    wanted: [
      { limit: 0.6, of: ['http.p50.kept'] },
      { limit: 0.75, of: each('http.p50', EVALUATED) },
    ],
  },
  { goal: 'HTTP, calls/s at 32, kept', least: true, wanted: [{ limit: 3, of: ['http.rate32.kept'] }] },
  { goal: '1 MB result, added time', wanted: [{ limit: 0.4, of: ['stdio.added1MB'] }] },
  { goal: 'the first 300 calls, p50', wanted: [{ limit: 1.3, of: ['stdio.first300'] }] },
  { goal: 'start to first list', wanted: [{ limit: 1.25, of: ['stdio.start'] }] },
  {
    goal: '10 → 10,000 tools, one call; 1 → 100 servers; 10 → 10,000 rules of YAML',
    wanted: [
      { limit: 1.05, of: ['growth.tools'] },
      { limit: 1.1, of: ['growth.servers'] },
      { limit: 1.25, of: ['growth.rules'] },
    ],
  },
  { goal: 'peak memory over stdio', wanted: [{ limit: 1.0, of: ['stdio.peak'] }] },
];

export const GOALS_TABLE: TableShape = {
  title: 'Goals, as ratios to the SDK pass-through',
  head: ['goal', 'wanted', 'measured', 'met'],
  rows: GOALS.map(({ goal }) => goal),
};

/** Returns the table of the goals that a run has measured. */
export function goalsTable(figures: Readonly<Record<string, number>>): FilledTable {
  const measured = GOALS.filter(({ wanted }) => wanted.some(({ of }) => of.some((name) => name in figures)));
  const cells = measured.map(({ least = false, wanted }) => {
    const worst = wanted.map(({ of }) => {
      const values = of.map((name) => figures[name] ?? Number.NaN);
      return least ? Math.min(...values) : Math.max(...values);
    });
    const isMet = wanted.map(({ limit }, index) => {
      const value = worst[index] ?? Number.NaN;
      return least ? value >= limit : value <= limit;
    });
    return [
      wanted.map(({ limit }) => `${least ? '≥' : '≤'} ${limit.toFixed(2)}`).join(' / '),
      worst.map((value) => value.toFixed(2)).join(' / '),
      isMet.map((met) => (met ? 'yes' : 'no')).join(' / '),
    ];
  });
  return { ...GOALS_TABLE, part: undefined, rows: measured.map(({ goal }) => goal), cells };
}
