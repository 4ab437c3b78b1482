/** Owns the face that the wire sees: sessions in, lists and calls through, texts of JSON out. */
import type { CancelSignal } from '../../adapters/rpc/cancellation.ts';
import type { JsonDoc } from '../../adapters/rpc/wire-message.ts';
import type { Principal } from '../../policies/port.ts';

/** One client connection, from its handshake (or HTTP session) to its end. */
export interface Session {
  /** 128 random bits, hex. Never authentication by itself. */
  readonly id: string;
  readonly principal: Principal;
  readonly transport: 'stdio' | 'http';
  /** Aborted when the session ends. */
  readonly closed: AbortSignal;
  /** The tab that a host speaks for in it. */
  readonly tab?: string;
  /** An owner's host opened it for the origin of its principal. */
  readonly onBehalf?: boolean;
}

/** What a host says of a session that it opens. */
export type HostSessionOptions = Pick<Session, 'tab' | 'onBehalf'>;

/** A `tools/call` as it left the wire. */
export interface CallRequest {
  readonly name: string;
  /** The arguments as they stand in the message; `{}` when absent. */
  readonly args: JsonDoc<unknown>;
  /** `params._meta` without progressToken. */
  readonly meta?: Readonly<Record<string, unknown>>;
  /** Given when the client sent a progressToken; the wire adds the token back. */
  readonly onProgress?: (params: Readonly<Record<string, unknown>>) => void;
  /** Told while the call waits for a person, before `onProgress` is told anything; set by the facade itself. */
  readonly onWait?: (params: Readonly<Record<string, unknown>>) => void;
  /** Aborted by notifications/cancelled, or by the end of the session. */
  readonly signal: CancelSignal;
  /** Aborted when the client has said its last word, or Tollgate stops: what runs may end, nothing waits for a person any more. */
  readonly drained?: AbortSignal;
}

/**
 * What goes back: the text of `result`, or a JSON-RPC error object. `dataText` is the JSON of `data` where a double would round it.
 * `upstream`: the error is the server's own, and this is the id of the call's decision.
 */
export type Reply =
  | { readonly kind: 'result'; readonly text: string }
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

/** The facade, as stdio and HTTP drive it. `listTools` and `callTool` never throw. */
export interface Facade {
  openSession(principal: Principal, transport: 'stdio' | 'http', host?: HostSessionOptions): Session;
  closeSession(session: Session): Promise<void>;
  /** Text for the `instructions` field of initialize, at most 1 kB. */
  instructions(session: Session): string;
  listTools(session: Session, signal: CancelSignal): Promise<Reply>;
  callTool(session: Session, request: CallRequest): Promise<Reply>;
  /** Called, coalesced, when the list of this session's tools may have changed; without a session, when those of all may. */
  onToolsChanged(listener: (session?: Session) => void): void;
  /** Prometheus text format; no payloads, no secrets. An owner sees the counts of all, anyone else its own. */
  metrics(principal: Principal): string;
  /** For health checks: what keeps this process from serving calls; empty when it can. Never rejects. */
  readiness(): Promise<readonly string[]>;
  /** For /healthz: name → state of the servers that the principal may know of; an owner of all. */
  health(principal: Principal): Readonly<Record<string, string>>;
}
