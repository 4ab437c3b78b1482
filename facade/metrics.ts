/** Owns the counters of the process in Prometheus text format (HB-06); refuses labels whose number a client could grow. */
import type { HealthState, ServerEvent } from '../adapters/port.ts';
import type { TollgateError } from '../catalogs/errors.ts';
import type { Trace } from './record.ts';

/** Upper bounds of the duration buckets, seconds (OpenTelemetry's advice for MCP histograms, shortened). */
const BUCKETS = [0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 30, 120];
const STATES: readonly HealthState[] = ['idle', 'healthy', 'degraded', 'unavailable', 'disabled'];

interface Durations {
  readonly buckets: number[];
  sum: number;
  count: number;
}

/** Counts ends of calls; a tool that did not resolve is `unknown`, so names from outside make no series. */
export class Metrics {
  readonly #events = new Map<string, number>();
  readonly #calls = new Map<string, number>();
  readonly #durations = new Map<string, Durations>();

  /** Events of calls are counted as calls. */
  onServerEvent({ server, event }: ServerEvent): void {
    if (event.startsWith('tool.')) return;
    const key = `server="${escape(server)}",event="${event}"`;
    this.#events.set(key, (this.#events.get(key) ?? 0) + 1);
  }

  onEnd(trace: Trace, error: TollgateError | undefined): void {
    const tool = trace.exposed?.name ?? 'unknown';
    const outcome = error?.code ?? (trace.shaped?.isError === true ? 'TOOL_FAILED' : 'ok');
    const key = `tool="${escape(tool)}",origin="${escape(trace.principal.origin)}",outcome="${outcome}"`;
    this.#calls.set(key, (this.#calls.get(key) ?? 0) + 1);
    const upstream = trace.upstreamMs;
    if (upstream !== undefined) this.#observe(`tool="${escape(tool)}"`, upstream / 1000);
  }

  /** The page that /metrics serves. */
  text(health: Readonly<Record<string, { state: HealthState; restarts: number }>>, unsettled: number): string {
    const lines = ['# HELP tollgate_calls_total Calls by exposed tool, origin and outcome code.', '# TYPE tollgate_calls_total counter'];
    for (const [key, count] of this.#calls) lines.push(`tollgate_calls_total{${key}} ${count}`);
    lines.push('# HELP tollgate_upstream_seconds Time that servers took.', '# TYPE tollgate_upstream_seconds histogram');
    for (const [key, one] of this.#durations) lines.push(...histogram(key, one));
    lines.push('# HELP tollgate_server_state 1 for the state that the server is in.', '# TYPE tollgate_server_state gauge');
    const servers = Object.entries(health);
    for (const [name, { state }] of servers) for (const each of STATES) lines.push(`tollgate_server_state{server="${escape(name)}",state="${each}"} ${each === state ? 1 : 0}`);
    lines.push('# HELP tollgate_server_restarts_total Restarts of servers.', '# TYPE tollgate_server_restarts_total counter');
    for (const [name, { restarts }] of servers) lines.push(`tollgate_server_restarts_total{server="${escape(name)}"} ${restarts}`);
    lines.push('# HELP tollgate_server_events_total What happened to servers.', '# TYPE tollgate_server_events_total counter');
    for (const [key, count] of this.#events) lines.push(`tollgate_server_events_total{${key}} ${count}`);
    lines.push('# HELP tollgate_budget_unsettled Leases whose settling failed and is tried again.', '# TYPE tollgate_budget_unsettled gauge', `tollgate_budget_unsettled ${unsettled}`);
    return `${lines.join('\n')}\n`;
  }

  #observe(key: string, seconds: number): void {
    const one = this.#durations.get(key) ?? { buckets: BUCKETS.map(() => 0), sum: 0, count: 0 };
    const bucket = BUCKETS.findIndex((bound) => seconds <= bound);
    if (bucket !== -1) one.buckets[bucket] = (one.buckets[bucket] ?? 0) + 1;
    one.sum += seconds;
    one.count += 1;
    this.#durations.set(key, one);
  }
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
