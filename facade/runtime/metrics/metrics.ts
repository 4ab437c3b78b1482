/** Counts calls and server events for Prometheus (HB-06). No client can increase the number of label values. */
import type { HealthState, ServerEvent } from '../../../adapters/port.ts';
import type { Principal } from '../../../policies/port.ts';
import type { AuditExportState } from '../../audit/export/audit-export.ts';
import type { GateReadings } from '../../budget/process-gate.ts';
import type { EndedCall } from '../../call/record.ts';
import { type CallTally, countKey, type Statistics } from '../../serve/host/call-statistics.ts';
import type { ContextAccounts, ContextSample } from './context-accounts.ts';
import { codeOfFailure, methodOfCall, OperationDurations, type OperationFacts } from './operation-durations.ts';
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

/** Calls by the labels of one metric. */
export type CallCounts = Pick<CallCount, 'tool' | 'origin' | 'outcome' | 'count'>;

/** Events after which a connection to a server has ended. */
const SESSION_ENDS: ReadonlySet<string> = new Set(['stopped', 'killed', 'crashed', 'disconnected']);
const SESSION_BEGINS: ReadonlySet<string> = new Set(['started', 'restarted', 'reconnected']);

/** How often the audit and the state failed. */
export interface FaultCounts {
  audit: number;
  state: number;
  /** Heads of the log that could not be published. */
  heads: number;
}

/** Values at the moment of the request. */
export interface MetricReadings {
  readonly health: Readonly<Record<string, { readonly state: HealthState; readonly restarts: number }>>;
  /** Leases whose settling is tried again. */
  readonly unsettled: number;
  /** The calls that wait for others to end. */
  readonly gate: GateReadings;
  /** Open sessions by transport. */
  readonly sessions: Readonly<Record<'stdio' | 'http', number>>;
  /** Calls that have not ended, those that wait for a person included. */
  readonly running: number;
  readonly spills: { readonly files: number; readonly bytes: number };
  /** Spans and batches of metrics that were not exported. Absent if nothing is exported. */
  readonly dropped?: number | undefined;
  /** How the export of the audit log goes, if this process exports it. */
  readonly exported?: AuditExportState | undefined;
}

/** The counters of the process. A call of an unknown tool counts as `unknown`, so callers cannot add series. */
export class Metrics {
  #waiting = 0;
  readonly #tally: CallTally;
  readonly #events = new Map<string, number>();
  readonly #calls = new Map<string, CallCount>();
  readonly #served = new OperationDurations();
  readonly #sent = new OperationDurations();
  /** Durations of ended sessions, by their labels. */
  readonly #clientSessions = new Map<string, DurationHistogram>();
  readonly #serverSessions = new Map<string, DurationHistogram>();
  /** When each connection to a server began, by its id. */
  readonly #connected = new Map<string, number>();
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

  /** Returns the duration of the session with a server that has ended by this event, in ms. */
  onServerEvent({ server, event, id }: ServerEvent): number | undefined {
    const key = labelled({ server, event });
    this.#events.set(key, (this.#events.get(key) ?? 0) + 1);
    if (SESSION_BEGINS.has(event)) this.#connected.set(id, performance.now());
    const began = SESSION_ENDS.has(event) ? this.#connected.get(id) : undefined;
    if (began === undefined) return undefined;
    this.#connected.delete(id);
    const ms = performance.now() - began;
    addDuration(this.#serverSessions, labelled({ tollgate_server: server }), ms);
    return ms;
  }

  /** A session of a client has ended after this many ms. */
  onSessionEnd(transport: 'stdio' | 'http', ms: number): void {
    addDuration(this.#clientSessions, labelled({ network_transport: transport === 'stdio' ? 'pipe' : 'tcp' }), ms);
  }

  /** A list was answered, or refused with an error. */
  onList({ id }: Principal, { method, error, ms }: Pick<OperationFacts, 'method' | 'error'> & { ms: number }): void {
    this.#served.add(id, { method, error, target: '', server: '' }, ms);
  }

  /** Returns how often calls ended, over all principals. */
  callCounts(): readonly CallCounts[] {
    const sums = new Map<string, CallCounts>();
    for (const { tool, origin, outcome, kind, count } of this.#calls.values())
      sums.set(kind, { tool, origin, outcome, count: count + (sums.get(kind)?.count ?? 0) });
    return [...sums.values()];
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
    this.#addDurations(end, now);
  }

  #addDurations(end: EndedCall, now: number): void {
    const { principal, startedAt } = end.start;
    const method = methodOfCall(end);
    const { forwarded, shaped } = end.kind === 'sent' ? end : {};
    // A refusal of a tool is a result with isError, and that of another method an error.
    const refused = end.error === undefined ? '' : method === 'tools/call' ? 'tool_error' : end.error.code;
    const error = refused !== '' ? refused : shaped?.isError === true ? 'tool_error' : '';
    // Requests of code and of servers are no requests of a client.
    if (end.caller?.parent === undefined)
      this.#served.add(
        principal.id,
        { method, target: method === '_OTHER' ? '' : (end.exposed?.name ?? 'unknown'), error, server: '' },
        now - startedAt,
      );
    const { effect } = end.judged?.lowered ?? {};
    if (forwarded?.upstreamMs === undefined || effect === undefined) return;
    const { failure } = forwarded;
    const failed = failure !== undefined ? codeOfFailure(failure) : shaped?.isError === true ? 'tool_error' : '';
    const { server, tool: target } = effect;
    this.#sent.add(principal.id, { method, target, error: failed, server }, forwarded.upstreamMs);
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
    const servers = Object.entries(readings.health);
    const lines = [
      ...metricFamily('tollgate_calls_total', ['counter', 'Calls by exposed tool, origin and outcome code.'], counts),
      ...histograms(
        'mcp_server_operation_duration_seconds',
        'Requests of clients, from their receipt to their answer, including waits for persons and budgets.',
        this.#served.byLabels(only),
      ),
      ...histograms(
        'mcp_client_operation_duration_seconds',
        'Calls at servers, from their sending to their answer.',
        this.#sent.byLabels(only),
      ),
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
  #processLines(readings: MetricReadings): readonly string[] {
    const { health, unsettled, sessions, spills, dropped, exported } = readings;
    return [
      ...exportLines(exported),
      ...metricFamily(
        'tollgate_principal_calls_total',
        ['counter', 'Calls by principal and outcome code.'],
        this.#byPrincipal(),
      ),
      ...histograms('mcp_server_session_duration_seconds', 'Ended sessions of clients.', this.#clientSessions),
      ...histograms('mcp_client_session_duration_seconds', 'Ended sessions with servers.', this.#serverSessions),
      ...(dropped === undefined
        ? []
        : singleMetric(
            'tollgate_telemetry_dropped_total',
            ['counter', 'Spans, and batches of metrics, that were not exported.'],
            dropped,
          )),
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
      ...this.#openCallLines(readings),
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
        'tollgate_audit_heads_failed_total',
        ['counter', 'Heads of the audit log that could not be published in the shared state.'],
        this.#faults.heads,
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

  /** Returns the lines of the calls that have not ended. */
  #openCallLines({ running, gate }: MetricReadings): readonly string[] {
    return [
      ...singleMetric(
        'tollgate_calls_in_flight',
        ['gauge', 'Calls that run now, without those that wait for a person.'],
        Math.max(0, running - this.#waiting),
      ),
      ...singleMetric('tollgate_approvals_waiting', ['gauge', 'Calls that wait for a person.'], this.#waiting),
      ...gateLines(gate),
    ];
  }

  #byPrincipal(): ReadonlyMap<string, number> {
    const sums = new Map<string, number>();
    for (const { principal, outcome, count } of this.#calls.values()) {
      const key = labelled({ principal, outcome });
      sums.set(key, (sums.get(key) ?? 0) + count);
    }
    return sums;
  }

  /** Returns the counts of all processes, also ended ones, for hosts. Throws STATE_FAILED. */
  statistics(): Statistics {
    return this.#tally.read();
  }
}

function gateLines({ waiting, waitingBytes, shed }: GateReadings): readonly string[] {
  return [
    ...singleMetric('tollgate_calls_waiting', ['gauge', 'Calls that wait for other calls to end.'], waiting),
    ...singleMetric(
      'tollgate_calls_waiting_bytes',
      ['gauge', 'What these calls count against limits.waitingBytes.'],
      waitingBytes,
    ),
    ...singleMetric(
      'tollgate_calls_shed_total',
      ['counter', 'Calls that were refused at once, because the process was overloaded.'],
      shed,
    ),
  ];
}

function exportLines({ records, failure }: Partial<AuditExportState> = {}): readonly string[] {
  if (records === undefined) return [];
  return [
    ...singleMetric(
      'tollgate_audit_exported_total',
      ['counter', 'Records of the audit log that the target has acknowledged.'],
      records,
    ),
    ...singleMetric(
      'tollgate_audit_export_failing',
      ['gauge', '1 while the audit log cannot be exported.'],
      failure === undefined ? 0 : 1,
    ),
  ];
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

function addDuration(all: Map<string, DurationHistogram>, labels: string, ms: number): void {
  let durations = all.get(labels);
  if (durations === undefined) all.set(labels, (durations = emptyHistogram()));
  observe(durations, ms / 1000);
}
