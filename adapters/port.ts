/** The port through which the facade reaches any server. It knows no policy, no principal and no client. */

import { type ErrorCode, OWNER_CORRECTABLE, TollgateError } from '../catalogs/errors/error-table.ts';
import type { Confinement } from '../catalogs/readers/confinement.ts';
import type { CallPathHandles } from '../catalogs/readers/path-handles.ts';
import type { RawPrompt, RawResource, RawResourceTemplate } from '../catalogs/tools/definition-schema.ts';
import type { ContentItem, RawTool, Semantics, ToolResult } from '../catalogs/tools/tool-definition.ts';
import type { CancelSignal } from './rpc/cancellation.ts';
import type { JsonDoc, JsonObject, JsonRpcError } from './rpc/wire-message.ts';
import type { ServerLifetime } from './supervisor/server-settings.ts';

export type { IssuerAddress, IssuerKeys, OpenIssuerKeys } from './oauth/issuer-keys.ts';
export type { CredentialStore, Credentials, SignInParts, SignInSummary, SignIns } from './oauth/sign-in-credentials.ts';
export { abortable } from './rpc/cancellation.ts';
export type { DigestStore, FileDigest } from './stdio/file-digests.ts';
export type { StartFiles, StartInspector } from './stdio/start-inspection.ts';
export { startPlaces } from './stdio/start-places.ts';
export type { OnEvent, ServerEvent } from './supervisor/server-events.ts';
export {
  type OAuthSettings,
  type ServerLifetime,
  type ServerSettings,
  type SharedConnectionSlots,
  signInSecrets,
} from './supervisor/server-settings.ts';

/** The answer of a server. Only a server that runs in this process fills the additional fields. */
export interface ServerAnswer extends JsonDoc<ToolResult> {
  /** Labels of the result, in addition to those of the server. */
  readonly labels?: readonly string[];
  /** The number of results, for the audit record. */
  readonly hits?: number;
}

/** An answer of a server that runs in this process: a text, media after it, and the additional fields. */
export type InProcessAnswer = {
  readonly text: string;
  /** Content blocks. */
  readonly media?: readonly ContentItem[];
} & Pick<ServerAnswer, 'labels' | 'hits'>;

/** The principal and the task that a call serves. */
export interface CallScope {
  readonly user: string;
  readonly space: string;
  readonly conversation: string;
  readonly turn: string;
}

/**
 * The caller as the facade identified it, for servers that run in this process. Nothing of it comes from arguments or
 * `_meta`.
 */
export interface CallerIdentity {
  /** The fields as audit records contain them. */
  readonly principal: {
    readonly id: string;
    readonly role: string;
    readonly profiles: readonly string[];
    readonly origin: string;
  };
  readonly run: string;
  readonly scope: CallScope;
  /**
   * The scope in which limits per turn count: the scope of a run that an owner opened, otherwise the session. So a new
   * run name does not reset a limit.
   */
  readonly counted: CallScope;
  /** Returns the servers of the caller's profiles, as this caller may see them. */
  readonly servers: () => readonly VisibleServer[];
  /** Hides a server from this session only, or shows it again. */
  readonly setHidden: (server: string, isHidden: boolean) => void;
}

/** A server as a caller may see it. `fault` says why its tools are missing. */
export interface VisibleServer {
  readonly name: string;
  readonly state: HealthState;
  readonly fault?: ErrorCode;
  readonly hidden: boolean;
  readonly tools: readonly { readonly name: string; readonly description: string }[];
}

/**
 * A request that a server sends to the client while it serves a call. `key`: the name that a server of revision
 * 2026-07-28 gives it. The answer is the JSON text of a result. It rejects with the TollgateError or UpstreamError that
 * refuses the request.
 */
export type AnswerServer = (method: string, params: JsonDoc<JsonObject> | undefined, key?: string) => Promise<string>;

/** What a server says about the task as which it runs a call. */
export interface TaskNote {
  /** The task waits for input of the client. */
  readonly isWaiting: boolean;
  readonly message: string | undefined;
}

/** One call to a server. The adapter sends `args.text` unchanged, with its own request id and progress token. */
export interface UpstreamCall {
  /** Any other method than `tools/call` has all of its params in `args`. Default: `tools/call`. */
  readonly method?: string | undefined;
  /** The name of the tool; empty for other methods. */
  readonly tool: string;
  readonly args: JsonDoc<Readonly<Record<string, unknown>>>;
  /** The caller's `_meta` without its progressToken. */
  readonly meta?: Readonly<Record<string, unknown>> | undefined;
  /**
   * Called when the request is sent, with its id and that of the connection to its server; without the latter if the
   * server speaks a revision without sessions. Absent while telemetry is off.
   */
  readonly onSent?: ((id: number, session?: string) => void) | undefined;
  /** The id of the decision. It links requests that the server makes during this call to the call. */
  readonly id?: string | undefined;
  /** The run of the caller. Requests of the server that may belong to calls of several runs are refused. */
  readonly run?: string | undefined;
  /** An opaque id of the session, for backends that keep state per session (bash sessions, read versions). */
  readonly scope: string;
  /** The profiles of the caller, which choose the environment of the server's process. Absent: the server's own. */
  readonly profiles?: readonly string[];
  readonly signal: CancelSignal;
  /** Milliseconds without an answer until TOOL_TIMEOUT. Progress restarts the count. */
  readonly timeoutMs: number;
  /** Milliseconds that progress cannot extend. */
  readonly hardTimeoutMs: number;
  /** The maximum size of the result that the caller gets. A backend that returns pages keeps each page within it. */
  readonly cap?: { readonly bytes: number; readonly lines: number };
  /** The paths of the arguments as the policy evaluated them. Absent if it evaluated none. The caller closes them. */
  readonly pathHandles?: CallPathHandles | undefined;
  /**
   * Decides whether this caller may read a file, given relative to the workspace. Returns the checked descriptor, which
   * the backend closes, or undefined if the caller may not read it. A search shows lines of the descriptor's file only.
   * It reports nothing about other files, because a count would reveal what they contain. Absent: every file.
   */
  readonly mayRead?: ((path: string) => Promise<CallPathHandles | undefined>) | undefined;
  /**
   * Returns the real paths of folders outside of the workspace that this call may use now. The workspace server calls
   * it again before it acts on a path in one of them, and before it returns what it read. Throws DENIED if they were
   * closed in the meantime. Absent: none.
   */
  readonly outsideFolders?: (() => Promise<readonly string[]>) | undefined;
  /** Paths that rules close to programs of this caller. Absent if there are none. */
  readonly confinement?: Confinement | undefined;
  /** Only for servers that run in this process. */
  readonly identity?: CallerIdentity | undefined;
  /** Present if the client asked for progress. Gets the params of the server's notification without its token. */
  readonly onProgress?: ((params: Readonly<Record<string, unknown>>) => void) | undefined;
  /** What the client of this call supports of `onRequest`, for servers that are told with each request. */
  readonly clientCapabilities?: JsonObject | undefined;
  /** Answers requests of the server to the client. Absent: they are refused. */
  readonly onRequest?: AnswerServer | undefined;
  /**
   * True if the caller answers itself what a server asks in a result of type `input_required` (MCP 2026-07-28). The
   * result then passes as it is. Otherwise `onRequest` answers, and the request is sent again.
   */
  readonly takesInputRequired?: boolean | undefined;
  /** The text of further members of the params: `inputResponses` and `requestState` of a request sent again. */
  readonly retry?: string | undefined;
  /** The lowest level of log messages that the caller wants, for servers that each request must tell. */
  readonly logLevel?: LogLevel | undefined;
  /** Asks a server that offers tasks to run the tool as a task. The call still ends with the result of the tool. */
  readonly asTask?: boolean | undefined;
  /** Called when the server runs the tool as a task, and with each state of it. */
  readonly onTask?: ((note: TaskNote) => void) | undefined;
  /** Gets the params of log messages of the server during this call. */
  readonly onLog?: ((params: JsonDoc<JsonObject>) => void) | undefined;
}

/** Which sessions use one process of a server. */
export interface ProcessUsers {
  /** The only session that it serves. Absent: all of the next line. */
  readonly session?: string | undefined;
  /** Returns whether it serves sessions with these profiles. */
  readonly serves: (profiles: readonly string[]) => boolean;
}

/** What a server lists besides its tools, by the method without `/list` (MCP 2025-11-25, server features). */
export interface ServerLists {
  readonly resources: readonly RawResource[];
  readonly 'resources/templates': readonly RawResourceTemplate[];
  readonly prompts: readonly RawPrompt[];
}

/** Severities of log messages, from the least severe (RFC 5424; MCP 2025-11-25, server/utilities/logging). */
export const LOG_LEVELS = ['debug', 'info', 'notice', 'warning', 'error', 'critical', 'alert', 'emergency'] as const;

/** One of them. */
export type LogLevel = (typeof LOG_LEVELS)[number];

/** What a server says without a request: it logs, a resource was updated, or a list besides its tools has changed. */
export type ServerNotice =
  | { readonly notice: 'log'; readonly params: JsonDoc<JsonObject>; readonly sessions: readonly string[] }
  | { readonly notice: 'updated'; readonly uri: string }
  | { readonly notice: 'changed'; readonly list: 'resources' | 'prompts' };

/**
 * The state of a server:
 * - idle: not started yet, or ended because no one used it;
 * - healthy: it answers;
 * - degraded: it answers but breaks the protocol, or it is remote and Tollgate is reconnecting;
 * - unavailable: it cannot be reached;
 * - not approved: no one has approved its current definition;
 * - disabled: by its owner, after too many crashes, or because its settings cannot be used;
 * - killed: by the kill switch.
 */
export type HealthState = 'idle' | 'healthy' | 'degraded' | 'unavailable' | 'not approved' | 'disabled' | 'killed';

/** Returns the state of a server that may not run. The error says what refuses it. */
export function refusedState({ data }: Pick<TollgateError, 'data'>): HealthState {
  if (data.killed === true) return 'killed';
  return data.consent === 'lacking' ? 'not approved' : 'disabled';
}

/**
 * Returns the error for a caller after a failed start: the error itself if an owner can correct its cause, otherwise
 * SERVER_UNAVAILABLE with the same text.
 */
export function startFailure(error: TollgateError): TollgateError {
  const { code, message, next } = error;
  return code === 'SERVER_UNAVAILABLE' || OWNER_CORRECTABLE.has(code)
    ? error
    : new TollgateError('SERVER_UNAVAILABLE', { detail: message, next, cause: error });
}

/**
 * A definition that does not match the schema of the protocol. It is left out, so no one can call it. `tool` is its
 * name, or its index in the list.
 */
export interface InvalidDefinition {
  readonly tool: string;
  readonly reason: string;
}

/** The state that `tollgate servers` and /healthz show. */
export interface Health {
  readonly state: HealthState;
  /** Why the server is not healthy: one line that every caller may see. */
  readonly reason?: string;
  readonly restarts: number;
  /** The number of lines that broke the protocol and were skipped. */
  readonly badLines: number;
  /** Definitions of the last list that were left out. Absent: none. */
  readonly unfit?: readonly InvalidDefinition[];
}

/** The identity that the server sent in its handshake. */
export interface ServerInfo {
  readonly name: string;
  readonly version: string;
  readonly protocolVersion: string;
}

/**
 * A server behind any transport (HE-01). Methods throw TollgateError with INIT_FAILED, SERVER_UNAVAILABLE,
 * TOOL_TIMEOUT, TOOL_CRASHED, UPSTREAM_TOO_LARGE, UPSTREAM_INVALID or CANCELLED, and `UpstreamError` for a server's own
 * JSON-RPC error. No adapter retries a call.
 */
export interface ServerAdapter {
  /** The configured name, `^[a-z][a-z0-9-]*$`. */
  readonly name: string;
  /** Connects if it is not connected. Idempotent. Waits at most the connect timeout. */
  start(signal?: CancelSignal): Promise<ServerInfo>;
  /** Returns the tools of all pages. Starts the server if needed. Cached until list_changed or a restart. */
  listTools(signal?: CancelSignal): Promise<readonly RawTool[]>;
  call(call: UpstreamCall): Promise<ServerAnswer>;
  /**
   * Returns one of its other lists, as `listTools` does. Empty if the server does not offer it. Absent: it offers none.
   */
  list?<Kind extends keyof ServerLists>(
    kind: Kind,
    asking?: Partial<Pick<UpstreamCall, 'profiles' | 'signal'>>,
  ): Promise<ServerLists[Kind]>;
  health(): Health;
  info(): ServerInfo | undefined;
  /**
   * Sets the listener for possible changes of the tool list. It gets `renewed` if the only reason is a new process,
   * which may list the same tools. Changes are coalesced. A later listener replaces an earlier one.
   */
  onToolsChanged(listener: (renewed?: 'renewed') => void): void;
  /** Returns true if the server is not running and the next call would start it. */
  isAsleep?(): boolean;
  /**
   * Starts the server if it is asleep, so that its listed tools are those that calls reach. `scope` is the session, or
   * `''` for none. Throws as `start`.
   */
  wake?(scope: string): Promise<void>;
  /**
   * For an owner. `list`: the next `listTools` asks the server again. `process`: stops the server in order and starts
   * it again, with its crash count cleared; running calls get TOOL_CRASHED. Absent if the server has no process and no
   * connection of its own. Throws as `start`, and the error of an owner's decision against the server.
   */
  renew?(how: 'list' | 'process'): Promise<void>;
  /** Returns why the server accepts no call of this session now, or undefined. It may accept calls of others. */
  refuses?(scope: string): TollgateError | undefined;
  /** Notes the least severe log level that a session wants. Absent: the server sends no log messages. */
  setLogLevel?(level: LogLevel, session: Pick<UpstreamCall, 'scope' | 'profiles'>): void;
  /** Ends the connection and every process behind it. Idempotent. */
  stop(): Promise<void>;
  /** Kills all its processes. Absent if it has none. */
  killNow?(): void;
  /** Drops the state of this scope. Called when its session has ended. */
  endScope?(scope: string): Promise<void>;
  /**
   * Keeps the server running until this session ends, as long as its profile asks. Of several sessions, the longest
   * lifetime counts. Default: the server's own setting.
   */
  demand?(session: Pick<UpstreamCall, 'scope' | 'profiles'>, lifetime?: ServerLifetime): void;
  /** Keeps the server from being ended to free its place for another server while `holds` returns true. */
  holdWhile?(holds: () => boolean): void;
}

/** A server's own JSON-RPC error. It goes to the client unchanged. */
export class UpstreamError extends Error {
  readonly rpc: JsonRpcError;

  constructor(rpc: JsonRpcError) {
    super(rpc.message);
    this.name = 'UpstreamError';
    this.rpc = rpc;
  }
}

/** What answers at an address: an MCP server (perhaps after a sign-in), another web service, or nothing. */
export type AddressProbeResult =
  | { readonly kind: 'mcp'; readonly login: boolean }
  | { readonly kind: 'web'; readonly status: number }
  /** The host has addresses that are not public. They were not contacted. */
  | { readonly kind: 'private'; readonly addresses: readonly string[] }
  | { readonly kind: 'unreachable'; readonly why: string }
  /** The host name has no address. */
  | { readonly kind: 'unknown' };

/**
 * Probes an address. `addresses` are the addresses that are not public and may be contacted, because the user wrote
 * them. Does not throw for any answer.
 */
export type AddressProbe = (address: string, addresses: readonly string[]) => Promise<AddressProbeResult>;

/**
 * Returns the absolute path of the container client that servers with `isolation: container` use. Throws
 * SANDBOX_UNAVAILABLE.
 */
export type FindContainerClient = () => Promise<string>;

/** A package of a registry entry, as its author wrote it. Texts are from outside: they are not escaped. */
export interface RegistryPackage {
  /** `npm`, `pypi`, `oci`, or a type that Tollgate does not know. */
  readonly type: string;
  readonly identifier: string;
  /** Empty: none, or not a version. */
  readonly version: string;
  /** The address of its package registry. Absent: the usual one of its type. */
  readonly registry?: string;
  /** Variables that it requires. */
  readonly needs: readonly string[];
}

/** A server that a registry lists. No one has verified it. Texts are from outside: they are not escaped. */
export interface RegistryEntry {
  /** `namespace/name`. */
  readonly name: string;
  readonly title: string;
  readonly description: string;
  readonly version: string;
  readonly deprecated: boolean;
  readonly packages: readonly RegistryPackage[];
  readonly remotes: readonly { readonly type: string; readonly url: string }[];
}

/**
 * Searches a registry, by its address, for each of the words. `more`: it has entries that were not read. Throws
 * SERVER_UNAVAILABLE and UPSTREAM_TOO_LARGE.
 */
export type RegistrySearch = (
  registry: string,
  words: readonly string[],
) => Promise<{ readonly entries: readonly RegistryEntry[]; readonly more: boolean }>;

/** The four primitives. */
export const PRIMITIVES = ['read', 'write', 'edit', 'bash'] as const;
export type Primitive = (typeof PRIMITIVES)[number];

/** The backend's tool and arguments for a call of a primitive. The policy evaluates these. */
export interface LoweredPrimitive {
  readonly tool: string;
  readonly args: Readonly<Record<string, unknown>>;
  readonly semantics: Semantics;
}

/**
 * A backend that serves primitives. Its `call` takes `tool: 'read' | 'write' | 'edit' | 'bash'` with the arguments of
 * catalogs/primitives/schemas.json. It throws NOT_SUPPORTED for arguments that it cannot serve exactly.
 */
export interface PrimitiveBackend extends ServerAdapter {
  /** Returns the backend's tools for each primitive. A primitive that is absent is not served. */
  serves(): ReadonlyMap<Primitive, readonly { readonly tool: string; readonly semantics: Semantics }[]>;
  /** Lowers a call, without I/O. Throws ARGS_INVALID or NOT_SUPPORTED. */
  lower(primitive: Primitive, args: Readonly<Record<string, unknown>>): LoweredPrimitive;
}

/** Everything that a server publishes before a call. */
export interface ServerProbeResult {
  readonly info: ServerInfo;
  readonly tools: readonly RawTool[];
  readonly instructions?: string;
  readonly prompts: readonly RawPrompt[];
  /** Absent: none. */
  readonly templates?: readonly RawResourceTemplate[];
  /** Tools that were left out, because their definitions do not match the protocol. Absent: none. */
  readonly unfit?: readonly InvalidDefinition[];
}
