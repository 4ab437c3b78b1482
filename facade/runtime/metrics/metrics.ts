/** The counters of the process in Prometheus text format (HB-06). No client can increase the number of label values. */
import type { HealthState, ServerEvent } from '../../../adapters/port.ts';
import type { EndedCall } from '../../call/record.ts';
import type { CallTally, Statistics } from '../../serve/host/call-statistics.ts';
import {
  type DurationHistogram,
  emptyHistogram,
  histograms,
  labelled,
  metricFamily,
  observe,
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
interface Ends {
  readonly principal: string;
  readonly tool: string;
  readonly origin: string;
  readonly outcome: string;
  count: number;
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

/** Counts the ends of calls. A tool that did not resolve is `unknown`, so names from outside make no series. */
export class Metrics {
  #waiting = 0;
  readonly #tally: CallTally;
  readonly #events = new Map<string, number>();
  readonly #calls = new Map<string, Ends>();
  /** By principal and tool. */
  readonly #upstream = new Map<string, Map<string, DurationHistogram>>();
  readonly #whole = new Map<string, Map<string, DurationHistogram>>();
  readonly #faults: FaultCounts;
  #spilled = 0;

  /** `tally` gets each end as well; whoever notices a fault counts it in `faults`. */
  constructor(tally: CallTally, faults: FaultCounts) {
    this.#tally = tally;
    this.#faults = faults;
  }

  onServerEvent({ server, event }: ServerEvent): void {
    const key = labelled({ server, event });
    this.#events.set(key, (this.#events.get(key) ?? 0) + 1);
  }

  /** Counts the end of a call. `now`: by the same clock as `startedAt`. */
  onEnd(end: EndedCall, now: number): void {
    const { forwarded, shaped } = end.kind === 'sent' ? end : {};
    const tool = end.exposed?.name ?? 'unknown';
    const outcome = end.error?.code ?? (shaped?.isError === true ? 'TOOL_FAILED' : 'ok');
    const { id: principal, origin } = end.principal;
    const key = `${outcome} ${principal} ${origin} ${tool}`;
    const ends = this.#calls.get(key) ?? { principal, tool, origin, outcome, count: 0 };
    if (ends.count === 0) this.#calls.set(key, ends);
    ends.count += 1;
    const ms = forwarded?.upstreamMs;
    this.#tally.count({ tool, origin, outcome, ms });
    this.#spilled += shaped?.spilled ?? 0;
    if (ms !== undefined) observe(durationsIn(this.#upstream, principal, tool), ms / 1000);
    // A clock may be set back.
    observe(durationsIn(this.#whole, principal, tool), Math.max(0, now - end.startedAt) / 1000);
  }

  /** A call begins or stops waiting for a person. */
  onWaiting(change: 1 | -1): void {
    this.#waiting += change;
  }

  /**
   * Returns the lines of /metrics for calls and servers. `only`: the id of the principal whose counts are shown; then
   * values of the process and its servers are left out.
   */
  text(readings: MetricReadings, only?: string): string {
    const isShown = (principal: string): boolean => only === undefined || principal === only;
    const counts = new Map<string, number>();
    for (const { principal, tool, origin, outcome, count } of this.#calls.values()) {
      const key = labelled({ tool, origin, outcome });
      if (isShown(principal)) counts.set(key, (counts.get(key) ?? 0) + count);
    }
    const byTool = (durations: ByTool): [string, DurationHistogram][] =>
      [...summed(durations, isShown)].map(([tool, one]) => [labelled({ tool }), one]);
    const servers = Object.entries(readings.health);
    const lines = [
      ...metricFamily('tollgate_calls_total', ['counter', 'Calls by exposed tool, origin and outcome code.'], counts),
      ...histograms(
        'tollgate_call_seconds',
        'Time from the request to its answer, including waits for persons and budgets.',
        byTool(this.#whole),
      ),
      ...histograms('tollgate_upstream_seconds', 'Time that servers took.', byTool(this.#upstream)),
      ...metricFamily(
        'tollgate_server_state',
        ['gauge', '1 for the state that the server is in.'],
        servers.flatMap(([server, { state }]) =>
          STATES.map((each) => [labelled({ server, state: each }), each === state ? 1 : 0] as const),
        ),
      ),
      ...(only === undefined ? this.#common(readings) : []),
    ];
    return `${lines.join('\n')}\n`;
  }

  /** Counts that all principals cause together. */
  #common({ health, unsettled, sessions, spills }: MetricReadings): readonly string[] {
    return [
      ...metricFamily(
        'tollgate_server_restarts_total',
        ['counter', 'Restarts of servers.'],
        Object.entries(health).map(([server, { restarts }]) => [labelled({ server }), restarts]),
      ),
      ...metricFamily('tollgate_server_events_total', ['counter', 'What happened to servers.'], this.#events),
      ...metricFamily(
        'tollgate_budget_unsettled',
        ['gauge', 'Leases whose settling failed and is tried again.'],
        [['', unsettled]],
      ),
      ...metricFamily('tollgate_approvals_waiting', ['gauge', 'Calls that wait for a person.'], [['', this.#waiting]]),
      ...metricFamily(
        'tollgate_sessions',
        ['gauge', 'Open sessions by transport, those of hosts included.'],
        Object.entries(sessions).map(([transport, count]) => [labelled({ transport }), count]),
      ),
      ...metricFamily(
        'tollgate_audit_faults_total',
        ['counter', 'Records, and looks at the log, that failed.'],
        [['', this.#faults.audit]],
      ),
      ...metricFamily(
        'tollgate_state_faults_total',
        ['counter', 'Reads and writes of the shared state that failed.'],
        [['', this.#faults.state]],
      ),
      ...metricFamily(
        'tollgate_spilled_bytes_total',
        ['counter', 'Bytes that were cut from results and stored as spills.'],
        [['', this.#spilled]],
      ),
      ...metricFamily('tollgate_spill_bytes', ['gauge', 'Bytes of the stored spills.'], [['', spills.bytes]]),
      ...metricFamily('tollgate_spill_files', ['gauge', 'Stored spills.'], [['', spills.files]]),
    ];
  }

  /** Returns the same counts for hosts, over all processes, also ended ones. Throws STATE_FAILED. */
  statistics(): Statistics {
    return this.#tally.read();
  }
}

/** Durations by principal and tool. */
type ByTool = ReadonlyMap<string, ReadonlyMap<string, DurationHistogram>>;

function durationsIn(
  all: Map<string, Map<string, DurationHistogram>>,
  principal: string,
  tool: string,
): DurationHistogram {
  const tools = all.get(principal) ?? new Map<string, DurationHistogram>();
  const one = tools.get(tool) ?? emptyHistogram();
  all.set(principal, tools.set(tool, one));
  return one;
}

/** Durations by tool, of several principals together. */
function summed(all: ByTool, isShown: (principal: string) => boolean): ReadonlyMap<string, DurationHistogram> {
  const found = new Map<string, DurationHistogram>();
  for (const [principal, tools] of all) {
    if (!isShown(principal)) continue;
    for (const [tool, { buckets, sum, count }] of tools) {
      const one = found.get(tool) ?? emptyHistogram();
      found.set(tool, {
        buckets: one.buckets.map((seen, at) => seen + (buckets[at] ?? 0)),
        sum: one.sum + sum,
        count: one.count + count,
      });
    }
  }
  return found;
}

/** Returns the same port; `onFault` is called for each call that throws or rejects. */
export function countFaults<T extends object>(port: T, onFault: () => void): T {
  const known = new Map<unknown, unknown>();
  const counted =
    (method: (...args: readonly unknown[]) => unknown) =>
    (...args: readonly unknown[]): unknown => {
      try {
        const answer = method.apply(port, [...args]);
        if (answer instanceof Promise) answer.catch(onFault);
        return answer;
      } catch (thrown) {
        onFault();
        throw thrown;
      }
    };
  return new Proxy(port, {
    get: (_port, name) => {
      const member: unknown = Reflect.get(port, name, port);
      if (typeof member !== 'function') return member;
      const made = known.get(member) ?? counted(member as (...args: readonly unknown[]) => unknown);
      known.set(member, made);
      return made;
    },
  });
}
