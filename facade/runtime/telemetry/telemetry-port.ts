/** What the facade reports to telemetry. Its implementation is loaded only if telemetry is exported. */
import type { EndedCall } from '../../call/record.ts';
import type { ServerConfig } from '../../config/config.ts';
import type { CallRequest, Facade, Reply } from '../../serve/facade-port.ts';
import type { RequestTrace } from '../../serve/request-trace.ts';
import type { Metrics } from '../metrics/metrics.ts';

/** A request of Tollgate itself to a server, or a session with it, that has ended. */
export interface ServerExchange {
  readonly server: string;
  /** Absent: the session. */
  readonly method?: string;
  /** Milliseconds. */
  readonly ms: number;
  /** The error code of the answer, or of Tollgate. */
  readonly error?: string | undefined;
}

/** Exports traces and metrics. Nothing throws, and nothing waits for an exporter but `close`. */
export interface Telemetry {
  readonly follow: NonNullable<Facade['follow']>;
  /** Follows a request that is made during a call: by code, or by a server. */
  readonly followInner: (request: CallRequest) => RequestTrace | undefined;
  /** A call has ended. `server`: the settings of the server that it was decided for, if it is outside this process. */
  onEnd(end: EndedCall, answered: Reply, server: ServerConfig | undefined): void;
  /** The ids by which log lines of a call are found with its trace. */
  idsOf(decision: string): { readonly trace_id: string; readonly span_id: string } | undefined;
  /** A session of a client has ended after this many ms. */
  onSession(transport: 'stdio' | 'http', ms: number): void;
  onExchange(exchange: ServerExchange, server: ServerConfig | undefined): void;
  /** Exports what these count, with the rest. */
  observe(metrics: Pick<Metrics, 'context' | 'callCounts'>): void;
  /** Spans and batches of metrics that could not be exported. */
  readonly dropped: number;
  /** Exports what is left, for at most two seconds. */
  close(): Promise<void>;
}
