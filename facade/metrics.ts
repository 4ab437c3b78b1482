/** Owns the counters of the process in Prometheus text format (HB-06); refuses labels whose number a client could grow. */
import type { HealthState, ServerEvent } from '../adapters/port.ts';
import type { TollgateError } from '../catalogs/errors.ts';
import type { Trace } from './record.ts';
import type { Statistics, Tally } from './statistics.ts';

/** Upper bounds of the duration buckets, seconds (OpenTelemetry's advice for MCP histograms, shortened). */
const BUCKETS = [0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 30, 120];
const STATES: readonly HealthState[] = ['idle', 'healthy', 'degraded', 'unavailable', 'not approved', 'disabled', 'killed'];

/** Calls of one principal, tool and origin that ended in one way. */
interface Ends {
  readonly principal: string;
  readonly tool: string;
  readonly origin: string;
  readonly outcome: string;
  count: number;
}

interface Durations {
  readonly buckets: number[];
  sum: number;
  count: number;
}

/** Counts ends of calls; a tool that did not resolve is `unknown`, so names from outside make no series. */
export class Metrics {
  #waiting = 0;
  readonly #tally: Tally;
  readonly #events = new Map<string, number>();
  readonly #calls = new Map<string, Ends>();
  /** By principal and tool. */
  readonly #durations = new Map<string, Map<string, Durations>>();

  /** `tally` is given each end as well. */
  constructor(tally: Tally) {
    this.#tally = tally;
  }

  onServerEvent({ server, event }: ServerEvent): void {
    const key = `server="${escape(server)}",event="${event}"`;
    this.#events.set(key, (this.#events.get(key) ?? 0) + 1);
  }

  onEnd(trace: Trace, error: TollgateError | undefined): void {
    const tool = trace.exposed?.name ?? 'unknown';
    const outcome = error?.code ?? (trace.shaped?.isError === true ? 'TOOL_FAILED' : 'ok');
    const { id: principal, origin } = trace.principal;
    const key = `${outcome} ${principal} ${origin} ${tool}`;
    const ends = this.#calls.get(key) ?? { principal, tool, origin, outcome, count: 0 };
    if (ends.count === 0) this.#calls.set(key, ends);
    ends.count += 1;
    this.#tally.count({ tool, origin, outcome, ms: trace.upstreamMs });
    if (trace.upstreamMs !== undefined) this.#observe(principal, tool, trace.upstreamMs / 1000);
  }

  /** A call begins or ends to wait for a person. */
  onWaiting(change: 1 | -1): void {
    this.#waiting += change;
  }

  /**
   * Returns the page that /metrics serves. `only`: the id of the principal whose counts alone are shown; then what the process
   * and its servers do for everyone is left out.
   */
  text(health: Readonly<Record<string, { state: HealthState; restarts: number }>>, unsettled: number, only?: string): string {
    const isShown = (principal: string): boolean => only === undefined || principal === only;
    const lines = ['# HELP tollgate_calls_total Calls by exposed tool, origin and outcome code.', '# TYPE tollgate_calls_total counter'];
    const counts = new Map<string, number>();
    for (const { principal, tool, origin, outcome, count } of this.#calls.values()) {
      const key = `tool="${escape(tool)}",origin="${escape(origin)}",outcome="${outcome}"`;
      if (isShown(principal)) counts.set(key, (counts.get(key) ?? 0) + count);
    }
    for (const [key, count] of counts) lines.push(`tollgate_calls_total{${key}} ${count}`);
    lines.push('# HELP tollgate_upstream_seconds Time that servers took.', '# TYPE tollgate_upstream_seconds histogram');
    for (const [tool, one] of this.#durationsOf(isShown)) lines.push(...histogram(`tool="${escape(tool)}"`, one));
    lines.push('# HELP tollgate_server_state 1 for the state that the server is in.', '# TYPE tollgate_server_state gauge');
    const servers = Object.entries(health);
    for (const [name, { state }] of servers) for (const each of STATES) lines.push(`tollgate_server_state{server="${escape(name)}",state="${each}"} ${each === state ? 1 : 0}`);
    return `${[...lines, ...(only === undefined ? this.#common(servers, unsettled) : [])].join('\n')}\n`;
  }

  /** What all principals cause together. */
  #common(servers: readonly (readonly [string, { readonly restarts: number }])[], unsettled: number): readonly string[] {
    return [
      '# HELP tollgate_server_restarts_total Restarts of servers.', '# TYPE tollgate_server_restarts_total counter',
      ...servers.map(([name, { restarts }]) => `tollgate_server_restarts_total{server="${escape(name)}"} ${restarts}`),
      '# HELP tollgate_server_events_total What happened to servers.', '# TYPE tollgate_server_events_total counter',
      ...[...this.#events].map(([key, count]) => `tollgate_server_events_total{${key}} ${count}`),
      '# HELP tollgate_budget_unsettled Leases whose settling failed and is tried again.', '# TYPE tollgate_budget_unsettled gauge', `tollgate_budget_unsettled ${unsettled}`,
      '# HELP tollgate_approvals_waiting Calls that wait for a person.', '# TYPE tollgate_approvals_waiting gauge', `tollgate_approvals_waiting ${this.#waiting}`,
    ];
  }

  /** The same counts for hosts, of all processes and of those before this one. Throws STATE_FAILED. */
  statistics(): Statistics {
    return this.#tally.read();
  }

  /** Durations by tool, of some principals together. */
  #durationsOf(isShown: (principal: string) => boolean): ReadonlyMap<string, Durations> {
    const found = new Map<string, Durations>();
    for (const [principal, tools] of this.#durations) {
      if (!isShown(principal)) continue;
      for (const [tool, { buckets, sum, count }] of tools) {
        const one = found.get(tool) ?? noDurations();
        found.set(tool, { buckets: one.buckets.map((seen, at) => seen + (buckets[at] ?? 0)), sum: one.sum + sum, count: one.count + count });
      }
    }
    return found;
  }

  #observe(principal: string, tool: string, seconds: number): void {
    const tools = this.#durations.get(principal) ?? new Map<string, Durations>();
    this.#durations.set(principal, tools);
    const one = tools.get(tool) ?? noDurations();
    const bucket = BUCKETS.findIndex((bound) => seconds <= bound);
    if (bucket !== -1) one.buckets[bucket] = (one.buckets[bucket] ?? 0) + 1;
    one.sum += seconds;
    one.count += 1;
    tools.set(tool, one);
  }
}

function noDurations(): Durations {
  return { buckets: BUCKETS.map(() => 0), sum: 0, count: 0 };
}

function histogram(key: string, one: Durations): string[] {
  let seen = 0;
  const lines = BUCKETS.map((bound, index) => {
    seen += one.buckets[index] ?? 0;
    return `tollgate_upstream_seconds_bucket{${key},le="${bound}"} ${seen}`;
  });
  return [...lines, `tollgate_upstream_seconds_bucket{${key},le="+Inf"} ${one.count}`, `tollgate_upstream_seconds_sum{${key}} ${one.sum.toFixed(6)}`, `tollgate_upstream_seconds_count{${key}} ${one.count}`];
}

function escape(value: string): string {
  return value.replaceAll('\\', '\\\\').replaceAll('"', '\\"').replaceAll('\n', '\\n');
}
