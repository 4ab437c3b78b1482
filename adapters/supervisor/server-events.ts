/**
 * The events of servers, as one stream. Events carry no payloads and no secrets. The only text of servers in them is
 * the names of tools.
 */
import type { ErrorCode } from '../../catalogs/errors/error-table.ts';

/** The differences of a tool list from the one before, by name. */
export interface ToolListChanges {
  readonly added: readonly string[];
  readonly removed: readonly string[];
  /** Tools with the same name and another definition. */
  readonly changed: readonly string[];
  readonly unchanged: number;
}

/** The number of the start that follows a loss, and the highest number. Without `maxAttempts` there is no limit. */
export interface RestartAttempts {
  readonly attempt: number;
  readonly maxAttempts?: number;
}

/** The outcome of reading a tool list. */
export type ToolListEvent =
  | { readonly event: 'tools.discovered'; readonly tools: readonly string[] }
  | ({ readonly event: 'tools.refreshed' } & ToolListChanges)
  | { readonly event: 'tools.failed'; readonly code: ErrorCode };

/** Requests of the server to the client were refused. `call` and `session`: of the only call that ran meanwhile. */
export interface RefusedRequestEvent {
  readonly event: 'request.refused';
  readonly method: string;
  readonly count: number;
  readonly call?: string;
  readonly session?: string;
}

/**
 * The kinds of events (HE-05, HB-09). Times are in milliseconds. Processes have `crashed`, `restarted` and `failed`;
 * remote servers have `disconnected`, `reconnected` and `reconnect.exhausted`.
 */
export type ServerEventDetails =
  | { readonly event: 'started'; readonly ms: number }
  | { readonly event: 'restarted' | 'reconnected'; readonly ms: number; readonly attempt: number }
  | ({ readonly event: 'start.failed'; readonly code: ErrorCode; readonly inMs?: number } & Partial<RestartAttempts>)
  /** Stopped by Tollgate in an orderly way: nothing uses the server, or Tollgate exits. */
  | { readonly event: 'stopped' }
  /** Ended by the kill switch. */
  | { readonly event: 'killed' }
  /** `inMs`: the time until Tollgate restarts the server without a call. */
  | ({ readonly event: 'crashed'; readonly exit?: number | string; readonly inMs?: number } & RestartAttempts)
  | { readonly event: 'failed'; readonly tries: number }
  | ({ readonly event: 'disconnected'; readonly inMs?: number } & RestartAttempts)
  | { readonly event: 'reconnect.exhausted'; readonly tries: number }
  | ToolListEvent
  | RefusedRequestEvent;

/** An event of one server. `id` joins the events of one connection. Calls have their own events, in the facade. */
export type ServerEvent = ServerEventDetails & { readonly server: string; readonly id: string };

/** Called for every event immediately, in order. Must not throw. */
export type OnEvent = (event: ServerEvent) => void;
