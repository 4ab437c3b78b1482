/** The interface of a connection to one running server. It knows nothing about the messages. */
import type { TollgateError } from '../../catalogs/errors/error-table.ts';
import type { WireMessage } from './message-parser.ts';
import type { PeerLink } from './peer.ts';

/**
 * The first revision without sessions: each request carries all that its server must know (MCP 2026-07-28). Dates
 * compare as texts.
 */
export const STATELESS_REVISION = '2026-07-28';

/** What a connection reports, in the order of arrival. Nothing comes after `onClosed`. */
export interface ConnectionEvents {
  /** `during`: the id of our request whose answer stream carried it. Absent if the transport does not say. */
  onMessage(message: WireMessage, during?: number): void;
  /** Bytes that are not a message were skipped. */
  onBad(): void;
  /** A message over the wire limit was dropped; see Peer.failTooLarge. */
  onTooLarge(edges: string): void;
  /** The answer to this request cannot arrive any more. */
  onFailed(id: number, error: TollgateError): void;
  /**
   * The server ended by itself. `why` is public and completes "Server x …". `exit` is the code or signal of a
   * process, or `memory` if its sandbox had none left. `refusal`: the server never ran,
   * because of a fault that must be fixed first.
   */
  onClosed(why: string, exit?: number | string, refusal?: TollgateError): void;
}

/** One process or one remote session. It can be started once. */
export interface Connection extends PeerLink {
  /** True if it has written to its log. Absent if it has no log. */
  readonly wrote?: boolean;
  /** The kind of HTTP. Absent for other transports. */
  readonly overHttp?: 'streamable' | 'sse';
  /** Returns true if it has reached its limit of processes. Absent if that cannot be determined. */
  isFull?(): boolean;
  /** Connects. Throws INIT_FAILED, SERVER_UNAVAILABLE, SANDBOX_UNAVAILABLE, SECRET_MISSING and VAULT_FAILED. */
  start(events: ConnectionEvents): Promise<void>;
  /** Sets the negotiated protocol version, for transports that must repeat it. Absent: not negotiated yet. */
  useProtocolVersion(version: string | undefined): void;
  /** Returns the monotonic milliseconds at which bytes last came. Absent if the transport does not know. */
  heardAt?(): number;
  /** Stops the server in order and waits until no process of it is left. Idempotent. */
  close(): Promise<void>;
  /** Kills the server synchronously: for the exit of this process, and for servers that never became ready. */
  killNow(): void;
}
