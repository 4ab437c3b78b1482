/** Owns the words for one way to one running server; refuses to know what is said over it. */
import type { TollgateError } from '../../catalogs/errors/error-table.ts';
import type { WireMessage } from './message-parser.ts';
import type { PeerLink } from './peer.ts';

/** What a connection reports, in the order of arrival. Nothing comes after `onClosed`. */
export interface ConnectionEvents {
  onMessage(message: WireMessage): void;
  /** Bytes that are no message were skipped. */
  onBad(): void;
  /** A message over the wire limit was dropped; see Peer.failTooLarge. */
  onTooLarge(edges: string): void;
  /** The answer to this request cannot come any more. */
  onFailed(id: number, error: TollgateError): void;
  /** The server is gone, and not because it was closed. `why` is public and completes "Server x …"; `exit` is a process's code or signal, or `memory` when its sandbox was full; `refusal`: it never ran, and this must be mended first. */
  onClosed(why: string, exit?: number | string, refusal?: TollgateError): void;
}

/** One process or one remote session; used once. */
export interface Connection extends PeerLink {
  /** Whether it has written to its log so far. Absent where there is none. */
  readonly wrote?: boolean;
  /** Whether its process has started all the processes that it may have. Absent where that cannot be told. */
  isFull?(): boolean;
  /** Opens the way. Throws INIT_FAILED, SERVER_UNAVAILABLE, SANDBOX_UNAVAILABLE, SECRET_MISSING and VAULT_FAILED. */
  start(events: ConnectionEvents): Promise<void>;
  /** Called with the negotiated revision, for transports that must repeat it. */
  useProtocolVersion(version: string): void;
  /** Ends the server in order and waits until nothing of it is left. Idempotent. */
  close(): Promise<void>;
  /** Last resort, synchronous: for the end of our own process and for servers that were never ready. */
  killNow(): void;
}
