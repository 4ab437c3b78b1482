/** The facade as the transports see it: sessions, lists and calls, with results as JSON text. */
import type { CancelSignal } from '../../adapters/rpc/cancellation.ts';
import type { JsonDoc, WireText } from '../../adapters/rpc/wire-message.ts';
import type { Principal } from '../../policies/port.ts';

/** One client connection, from its handshake (or HTTP session) to its end. */
export interface Session {
  /** 128 random bits, hex. It never authenticates alone. */
  readonly id: string;
  readonly principal: Principal;
  readonly transport: 'stdio' | 'http';
  /** Aborted when the session ends. */
  readonly closed: AbortSignal;
  /** The tab of a page for which a host opened it. */
  readonly tab?: string;
  /** An owner's host opened it for the origin of its principal. */
  readonly onBehalf?: boolean;
}

/** What a host knows about a session that it opens. */
export type HostSessionOptions = Pick<Session, 'tab' | 'onBehalf'>;

/** A `tools/call` as it came in. */
export interface CallRequest {
  readonly name: string;
  /** The arguments as they are in the message; `{}` when absent. */
  readonly args: JsonDoc<unknown>;
  /** `params._meta` without progressToken. */
  readonly meta?: Readonly<Record<string, unknown>> | undefined;
  /** Set when the client sent a progressToken; the transport adds the token again. */
  readonly onProgress?: ((params: Readonly<Record<string, unknown>>) => void) | undefined;
  /** Called while the call waits for a person, before `onProgress` is called; set by the facade itself. */
  readonly onWait?: (params: Readonly<Record<string, unknown>>) => void;
  /** Aborted by notifications/cancelled, or by the end of the session. */
  readonly signal: CancelSignal;
  /**
   * Aborted when the client has sent its last message, or Tollgate stops: running calls may end, and no call waits for
   * a person any more.
   */
  readonly drained?: AbortSignal;
}

/**
 * The answer: the text of `result`, or a JSON-RPC error object. `dataText` is the JSON of `data` if a double would
 * round it. `upstream`: the error is the server's own, and this is the id of the call's decision.
 */
export type Reply =
  | { readonly kind: 'result'; readonly text: WireText }
  | {
      readonly kind: 'error';
      readonly error: {
        readonly code: number;
        readonly message: string;
        readonly data?: unknown;
        readonly dataText?: string;
      };
      readonly upstream?: string;
    };

/** The facade, as stdio and HTTP use it. `listTools` and `callTool` never throw. */
export interface Facade {
  openSession(principal: Principal, transport: 'stdio' | 'http', host?: HostSessionOptions): Session;
  closeSession(session: Session): Promise<void>;
  /** Text for the `instructions` field of initialize, at most 1 kB. */
  instructions(session: Session): string;
  listTools(session: Session, signal: CancelSignal): Promise<Reply>;
  callTool(session: Session, request: CallRequest): Promise<Reply>;
  /**
   * Called, coalesced, when the tool list of this session may have changed; without a session, when every list may
   * have.
   */
  onToolsChanged(listener: (session?: Session) => void): void;
  /**
   * Metrics in the Prometheus text format, without payloads and secrets. An owner sees all counts, any other principal
   * its own.
   */
  metrics(principal: Principal): string;
  /** For health checks: what prevents this process from serving calls; empty if nothing does. Never rejects. */
  readiness(): Promise<readonly string[]>;
  /** For /healthz: name → state of the servers that the principal may know of; all for an owner. */
  health(principal: Principal): Readonly<Record<string, string>>;
}
