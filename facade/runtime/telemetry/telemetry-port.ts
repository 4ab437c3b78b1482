/** What the facade reports to telemetry. Its implementation is loaded only if telemetry is exported. */
import type { ServerEvent } from '../../../adapters/port.ts';
import type { Exchange, FollowedExchange } from '../../../adapters/rpc/peer.ts';
import type { EndedCall } from '../../call/record.ts';
import type { ServerConfig } from '../../config/config.ts';
import type { CallRequest, Facade, Reply, Session } from '../../serve/facade-port.ts';
import type { RequestTrace } from '../../serve/request-trace.ts';
import type { Metrics } from '../metrics/metrics.ts';

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
  onSession(session: Session, ms: number): void;
  /** A session with a server has ended after this many ms, by this event. */
  onServerSession(
    event: Pick<ServerEvent, 'server' | 'event' | 'id'>,
    ended: { readonly ms: number; readonly config: ServerConfig | undefined },
  ): void;
  /** Follows a request of Tollgate itself to a server. */
  followExchange(exchange: Exchange & { readonly server: string }, config: ServerConfig | undefined): FollowedExchange;
  /** Exports what these count, with the rest. */
  observe(metrics: Pick<Metrics, 'context' | 'callCounts'>): void;
  /** Spans and batches of metrics that could not be exported. */
  readonly dropped: number;
  /** Exports what is left, for at most two seconds. */
  close(): Promise<void>;
}
