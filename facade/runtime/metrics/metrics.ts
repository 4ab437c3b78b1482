/** Counts calls and server events for Prometheus (HB-06). No client can increase the number of label values. */
import type { HealthState, ServerEvent } from '../../../adapters/port.ts';
import type { EndedCall } from '../../call/record.ts';
import { type CallTally, countKey, type Statistics } from '../../serve/host/call-statistics.ts';
import type { ContextAccounts, ContextSample } from './context-accounts.ts';
import {
  type DurationHistogram,
  emptyHistogram,
  histograms,
  labelled,
  metricFamily,
  observe,
  singleMetric,
} from './prometheus-text.ts';

const STATES: readonly HealthState[] = [
  'idle',
  'healthy',
  'degraded',
  'unavailable',
  'not approved',
  'disabled',
  'killed',
];

/** Calls of one principal, tool and origin with one outcome. */
interface CallCount {
  readonly principal: string;
  readonly tool: string;
  readonly origin: string;
  readonly outcome: string;
  /** Under which name the tally counts them. */
  readonly kind: string;
  count: number;
}

/** Durations of the calls of one principal and tool. */
interface Durations {
  readonly upstream: DurationHistogram;
  readonly whole: DurationHistogram;
}

/** How often the audit and the state failed. */
export interface FaultCounts {
  audit: number;
  state: number;
}

/** Values at the moment of the request. */
export interface MetricReadings {
  readonly health: Readonly<Record<string, { readonly state: HealthState; readonly restarts: number }>>;
  /** Leases whose settling is tried again. */
  readonly unsettled: number;
  /** Open sessions by transport. */
  readonly sessions: Readonly<Record<'stdio' | 'http', number>>;
  readonly spills: { readonly files: number; readonly bytes: number };
}

/** The counters of the process. A call of an unknown tool counts as `unknown`, so callers cannot add series. */
export class Metrics {
  #waiting = 0;
  readonly #tally: CallTally;
  readonly #events = new Map<string, number>();
  readonly #calls = new Map<string, CallCount>();
  /** By principal and tool. */
  readonly #durations = new Map<string, Map<string, Durations>>();
  readonly #faults: FaultCounts;
  #spilled = 0;

  /** What sessions put into the context of models. */
  readonly context: ContextAccounts;

  /** `tally` counts each call too. `faults` and `context` are updated by other parts. */
  constructor(tally: CallTally, faults: FaultCounts, context: ContextAccounts) {
    this.context = context;
    this.#tally = tally;
    this.#faults = faults;
  }

  onServerEvent({ server, event }: ServerEvent): void {
    const key = labelled({ server, event });
    this.#events.set(key, (this.#events.get(key) ?? 0) + 1);
  }

  /** Counts a call that has ended. `now`: by the clock of `startedAt`. */
  onEnd(end: EndedCall, now: number): void {
    const { forwarded, shaped } = end.kind === 'sent' ? end : {};
    const tool = end.exposed?.name ?? 'unknown';
    const outcome = end.error?.code ?? (shaped?.isError === true ? 'TOOL_FAILED' : 'ok');
    const { id: principal, origin } = end.start.principal;
    const key = `${outcome} ${principal} ${origin} ${tool}`;
    let counter = this.#calls.get(key);
    if (counter === undefined) {
      counter = { principal, tool, origin, outcome, kind: countKey({ tool, origin, outcome }), count: 0 };
      this.#calls.set(key, counter);
    }
    counter.count += 1;
    const ms = forwarded?.upstreamMs;
    this.#tally.count(counter.kind, ms);
    this.#spilled += shaped?.spilled ?? 0;
    const { upstream, whole } = this.#durationsOf(principal, tool);
    if (ms !== undefined) observe(upstream, ms / 1000);
    // A clock may be set back.
    observe(whole, Math.max(0, now - end.start.startedAt) / 1000);
  }

  #durationsOf(principal: string, tool: string): Durations {
    let tools = this.#durations.get(principal);
    if (tools === undefined) this.#durations.set(principal, (tools = new Map()));
    let durations = tools.get(tool);
    if (durations === undefined) tools.set(tool, (durations = { upstream: emptyHistogram(), whole: emptyHistogram() }));
    return durations;
  }

  /** Notes that a call begins (1) or stops (-1) to wait for a person. */
  onWaiting(change: 1 | -1): void {
    this.#waiting += change;
  }

  /**
   * Returns the lines of /metrics for calls and servers. `only`: the id of the principal whose calls are counted. Then
   * values of the whole process are left out.
   */
  text(readings: MetricReadings, only?: string): string {
    const isIncluded = (principal: string): boolean => only === undefined || principal === only;
    const counts = new Map<string, number>();
    for (const { principal, tool, origin, outcome, count } of this.#calls.values()) {
      const key = labelled({ tool, origin, outcome });
      if (isIncluded(principal)) counts.set(key, (counts.get(key) ?? 0) + count);
    }
    const samplesByTool = (which: keyof Durations): [string, DurationHistogram][] =>
      [...sumByTool(this.#durations, isIncluded, which)].map(([tool, histogram]) => [labelled({ tool }), histogram]);
    const servers = Object.entries(readings.health);
    const lines = [
      ...metricFamily('tollgate_calls_total', ['counter', 'Calls by exposed tool, origin and outcome code.'], counts),
      ...histograms(
        'tollgate_call_seconds',
        'Time from the request to its answer, including waits for persons and budgets.',
        samplesByTool('whole'),
      ),
      ...histograms('tollgate_upstream_seconds', 'Time that servers took.', samplesByTool('upstream')),
      ...metricFamily(
        'tollgate_server_state',
        ['gauge', '1 for the state that the server is in.'],
        servers.flatMap(([server, { state }]) =>
          STATES.map((each) => [labelled({ server, state: each }), each === state ? 1 : 0] as const),
        ),
      ),
      ...contextLines(this.context.samples(only)),
      ...(only === undefined ? this.#processLines(readings) : []),
    ];
    return `${lines.join('\n')}\n`;
  }

  /** Returns the lines of the whole process. */
  #processLines({ health, unsettled, sessions, spills }: MetricReadings): readonly string[] {
    return [
      ...metricFamily(
        'tollgate_server_restarts_total',
        ['counter', 'Restarts of servers.'],
        Object.entries(health).map(([server, { restarts }]) => [labelled({ server }), restarts]),
      ),
      ...metricFamily('tollgate_server_events_total', ['counter', 'What happened to servers.'], this.#events),
      ...singleMetric(
        'tollgate_budget_unsettled',
        ['gauge', 'Leases whose settling failed and is tried again.'],
        unsettled,
      ),
      ...singleMetric('tollgate_approvals_waiting', ['gauge', 'Calls that wait for a person.'], this.#waiting),
      ...metricFamily(
        'tollgate_sessions',
        ['gauge', 'Open sessions by transport, those of hosts included.'],
        Object.entries(sessions).map(([transport, count]) => [labelled({ transport }), count]),
      ),
      ...singleMetric(
        'tollgate_audit_faults_total',
        ['counter', 'Reads and writes of the audit log that failed.'],
        this.#faults.audit,
      ),
      ...singleMetric(
        'tollgate_state_faults_total',
        ['counter', 'Reads and writes of the shared state that failed.'],
        this.#faults.state,
      ),
      ...singleMetric(
        'tollgate_spilled_bytes_total',
        ['counter', 'Bytes that were cut from results and stored as spills.'],
        this.#spilled,
      ),
      ...singleMetric('tollgate_spill_bytes', ['gauge', 'Bytes of the stored spills.'], spills.bytes),
      ...singleMetric('tollgate_spill_files', ['gauge', 'Stored spills.'], spills.files),
    ];
  }

  /** Returns the counts of all processes, also ended ones, for hosts. Throws STATE_FAILED. */
  statistics(): Statistics {
    return this.#tally.read();
  }
}

/** Returns the lines of what models were shown, and of what they would have been shown without Tollgate. */
function contextLines(context: readonly ContextSample[]): readonly string[] {
  const family = (unit: 'bytes' | 'tokens', help: string): readonly string[] =>
    metricFamily(
      `tollgate_context_${unit}_total`,
      ['counter', help],
      context.map(({ kind, side, [unit]: value }) => [labelled({ kind, side }), value]),
    );
  return [
    ...family('bytes', 'Lists, arguments and results, as shown and as they would be without Tollgate.'),
    ...family('tokens', 'The same in tokens, estimated.'),
  ];
}

/** Adds up the durations of the included principals by tool. */
function sumByTool(
  all: ReadonlyMap<string, ReadonlyMap<string, Durations>>,
  isIncluded: (principal: string) => boolean,
  which: keyof Durations,
): ReadonlyMap<string, DurationHistogram> {
  const found = new Map<string, DurationHistogram>();
  for (const [principal, tools] of all) {
    if (!isIncluded(principal)) continue;
    for (const [tool, { [which]: durations }] of tools) {
      const { buckets, sum, count } = durations;
      const histogram = found.get(tool) ?? emptyHistogram();
      found.set(tool, {
        buckets: histogram.buckets.map((bucketCount, at) => bucketCount + (buckets[at] ?? 0)),
        sum: histogram.sum + sum,
        count: histogram.count + count,
      });
    }
  }
  return found;
}
