/** Counts for an overview of the log: calls over time by outcome, times by tool, and how often each rule decided. */
import type { AuditIndex } from './audit-index.ts';
import { rowAt } from './audit-index.ts';
import { termOf, tokenOf } from './record-terms.ts';

/** Outcomes, in the order of a chart. `unknown`: no end is recorded. The call still runs, or its process was killed. */
const OUTCOMES = ['allow', 'ask', 'deny', 'error', 'unknown'] as const;

/** How often a tool was called, how many calls had no result, and how long they took, ms. */
export interface ToolOverview {
  readonly name: string;
  readonly count: number;
  readonly errors: number;
  readonly p50?: number;
  readonly p95?: number;
}

/** Calls since a time. `times`: the beginning of each step, seconds since 1970; the other lists go along with it. */
export interface LogOverview {
  readonly times: readonly number[];
  readonly outcomes: Readonly<Record<(typeof OUTCOMES)[number], readonly number[]>>;
  readonly tools: readonly ToolOverview[];
}

/** How often a rule decided, and when it last did. */
export interface RuleHits {
  readonly rule: string;
  readonly hits: number;
  /** ISO time. */
  readonly last: string;
}

/** Steps of an overview. */
export interface OverviewSpan {
  /** ISO time at which the first step begins. */
  readonly since: string;
  readonly stepMs: number;
  readonly steps: number;
}

/** The most tools of an overview. */
const MAX_TOOLS = 200;
/** Calls that are read for an overview, the newest first. Counts of a busier hour are those of its end. */
const MAX_CALLS = 200_000;

/** Counts the calls of a span. The index must be up to date. */
export function overviewOf(index: AuditIndex, { since, stepMs, steps }: OverviewSpan): LogOverview {
  const start = rowAt(since);
  const step = rowAt(new Date(Date.parse(since) + stepMs).toISOString()) - start;
  const outcomes = Object.fromEntries(OUTCOMES.map((name) => [name, new Array<number>(steps).fill(0)])) as Record<
    (typeof OUTCOMES)[number],
    number[]
  >;
  const tools = new Map<string, { count: number; errors: number; readonly ms: number[] }>();
  const rows = index.rows<{ n: number; ms: number | null; call: string; ended: string }>(
    `SELECT n, ms, call.text AS call, ended.text AS ended FROM record
     JOIN term AS call ON call.id = record.call JOIN term AS ended ON ended.id = record.ended
     WHERE n >= ? AND last = 1 AND call.text <> 'call=' ORDER BY n DESC LIMIT ?`,
    [start, MAX_CALLS],
  );
  for (const { n, ms, call, ended } of rows) {
    const outcome = OUTCOMES.find((name) => ended.startsWith(`ended=${name}`));
    const at = Math.floor((n - start) / step);
    if (outcome === undefined || at >= steps) continue;
    const counts = outcomes[outcome];
    counts[at] = (counts[at] ?? 0) + 1;
    const name = call.slice('call='.length);
    const tool = tools.get(name) ?? { count: 0, errors: 0, ms: [] };
    tools.set(name, tool);
    tool.count += 1;
    if (outcome !== 'allow') tool.errors += 1;
    if (ms !== null) tool.ms.push(ms);
  }
  const first = Date.parse(since) / 1000;
  return {
    times: Array.from({ length: steps }, (_, at) => first + (at * stepMs) / 1000),
    outcomes,
    tools: [...tools]
      .map(([name, { count, errors, ms }]): ToolOverview => ({ name, count, errors, ...percentiles(ms) }))
      .sort((one, other) => other.count - one.count)
      .slice(0, MAX_TOOLS),
  };
}

/** By nearest rank. */
function percentiles(times: readonly number[]): Pick<ToolOverview, 'p50' | 'p95'> {
  const sorted = [...times].sort((one, other) => one - other);
  const rank = (share: number): number => sorted[Math.ceil(sorted.length * share) - 1] ?? 0;
  return sorted.length === 0 ? {} : { p50: rank(0.5), p95: rank(0.95) };
}

/** Counts the calls that each rule decided. `rules`: their ids. The index must be up to date. */
export function ruleHitsOf(index: AuditIndex, rules: readonly string[]): readonly RuleHits[] {
  return rules.flatMap((rule) => {
    const [found] = index.rows<{ hits: number; last: number | null }>(
      `SELECT count(*) AS hits, max(record.n) AS last FROM terms CROSS JOIN record ON record.n = terms.rowid
       WHERE terms MATCH ? AND record.last = 1`,
      [`"${tokenOf(termOf('rule', rule))}"`],
    );
    const { hits = 0, last = null } = found ?? {};
    return last === null ? [] : [{ rule, hits, last: new Date(timeOfRow(last)).toISOString() }];
  });
}

/** The inverse of `rowAt`. */
function timeOfRow(row: number): number {
  const slots = rowAt(new Date(1).toISOString());
  return Math.floor(row / slots);
}
