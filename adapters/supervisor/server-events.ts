/** Owns the words for what happens to servers, told as one stream; has no place for payloads and secrets, nor for text of servers but the names of their tools. */
import type { ErrorCode } from '../../catalogs/errors/error-table.ts';

/** How a list of tools differs from the one before, by name. */
export interface ToolListChanges {
  readonly added: readonly string[];
  readonly removed: readonly string[];
  /** Same name, other definition. */
  readonly changed: readonly string[];
  readonly unchanged: number;
}

/** The number of the start that follows a loss, and how many there are at most. After `maxAttempts` no start follows for now; absent: no limit. */
export interface RestartAttempts {
  readonly attempt: number;
  readonly maxAttempts?: number;
}

/** What a reading of the list of tools came to. */
export type ToolListEvent =
  | { readonly event: 'tools.discovered'; readonly tools: readonly string[] }
  | ({ readonly event: 'tools.refreshed' } & ToolListChanges)
  | { readonly event: 'tools.failed'; readonly code: ErrorCode };

/**
 * What can happen (HE-05, HB-09). Times in milliseconds. A process `crashed` and was `restarted` or has `failed` for good;
 * a remote server `disconnected` and `reconnected`, or its tries are `reconnect.exhausted`.
 */
export type ServerEventDetails =
  | { readonly event: 'started'; readonly ms: number }
  | { readonly event: 'restarted' | 'reconnected'; readonly ms: number; readonly attempt: number }
  | ({ readonly event: 'start.failed'; readonly code: ErrorCode; readonly inMs?: number } & Partial<RestartAttempts>)
  /** Ended by us: in order, because nobody uses it, or because Tollgate ends. */
  | { readonly event: 'stopped' }
  /** Ended by the kill switch. */
  | { readonly event: 'killed' }
  /** `inMs`: when it is started again without being called. */
  | ({ readonly event: 'crashed'; readonly exit?: number | string; readonly inMs?: number } & RestartAttempts)
  | { readonly event: 'failed'; readonly tries: number }
  | ({ readonly event: 'disconnected'; readonly inMs?: number } & RestartAttempts)
  | { readonly event: 'reconnect.exhausted'; readonly tries: number }
  | ToolListEvent
  /** Requests of the server to the client were refused; `call` and `session` where a single call ran meanwhile. */
  | {
      readonly event: 'request.refused';
      readonly method: string;
      readonly count: number;
      readonly call?: string;
      readonly session?: string;
    };

/** Something that happened to a server. `id` joins the events of one connection. Calls are told of where they end, in the facade. */
export type ServerEvent = ServerEventDetails & { readonly server: string; readonly id: string };

/** Told of everything at once, in order. Must not throw. */
export type OnEvent = (event: ServerEvent) => void;
