/** The port through which the facade reaches any server. It knows no policy, no principal and no client. */

import { type ErrorCode, OWNER_CORRECTABLE, TollgateError } from '../catalogs/errors/error-table.ts';
import type { Confinement } from '../catalogs/readers/confinement.ts';
import type { CallPathHandles } from '../catalogs/readers/path-handles.ts';
import type { RawTool, Semantics, ToolResult } from '../catalogs/tools/tool-definition.ts';
import type { CancelSignal } from './rpc/cancellation.ts';
import type { JsonDoc, JsonRpcError } from './rpc/wire-message.ts';
import type { ServerLifetime } from './supervisor/server-settings.ts';

export type { CredentialStore, Credentials, SignInParts, SignInSummary, SignIns } from './oauth/sign-in-credentials.ts';
export { abortable } from './rpc/cancellation.ts';
export type { DigestStore, FileDigest } from './stdio/file-digests.ts';
export type { StartFiles, StartInspector } from './stdio/start-inspection.ts';
export { startPlaces } from './stdio/start-places.ts';
export type { OnEvent, ServerEvent } from './supervisor/server-events.ts';
export type {
  OAuthSettings,
  ServerLifetime,
  ServerSettings,
  SharedConnectionSlots,
} from './supervisor/server-settings.ts';

/** What a server answered. Only a server that runs in this process can say what no wire carries. */
export interface ServerAnswer extends JsonDoc<ToolResult> {
  /** Labels of the result, in addition to those of the server. */
  readonly labels?: readonly string[];
  /** The number of results, for the audit record. */
  readonly hits?: number;
}

/** An answer of a server that runs in this process: a text, and what Tollgate is told beside it. */
export type InProcessAnswer = { readonly text: string } & Pick<ServerAnswer, 'labels' | 'hits'>;

/** The principal and the task that a call serves. */
export interface CallScope {
  readonly user: string;
  readonly space: string;
  readonly conversation: string;
  readonly turn: string;
}

/**
 * Who calls, as the facade knows it: for servers that run in this process. Nothing of it comes from arguments or
 * `_meta`.
 */
export interface CallerIdentity {
  /** Id, role, profiles and origin, as records have them. */
  readonly principal: {
    readonly id: string;
    readonly role: string;
    readonly profiles: readonly string[];
    readonly origin: string;
  };
  readonly run: string;
  readonly scope: CallScope;
  /**
   * The unit of limits per turn: the scope of a run that an owner opened, else the session. A new run name resets no
   * limit.
   */
  readonly counted: CallScope;
  /** The servers of its profiles, as it may see them. */
  readonly servers: () => readonly VisibleServer[];
  /** Hides a server from this session only, or shows it again. */
  readonly setHidden: (server: string, aside: boolean) => void;
}

/** A server as a caller may see it. `fault` is a code of the error table: why its tools are missing. */
export interface VisibleServer {
  readonly name: string;
  readonly state: HealthState;
  readonly fault?: ErrorCode;
  readonly hidden: boolean;
  readonly tools: readonly { readonly name: string; readonly description: string }[];
}

/** One call to a server. The adapter sends `args.text` as it stands and makes its own request id and progress token. */
export interface UpstreamCall {
  readonly tool: string;
  readonly args: JsonDoc<Readonly<Record<string, unknown>>>;
  /** The caller's `_meta` without its progressToken (traceparent and the like pass). */
  readonly meta?: Readonly<Record<string, unknown>>;
  /** The id of its decision: goes with what is told of requests of the server meanwhile. */
  readonly id?: string;
  /** Who calls, for backends that keep state per session (bash sessions, read versions). Opaque. */
  readonly scope: string;
  readonly signal: CancelSignal;
  /** Milliseconds without an answer until TOOL_TIMEOUT. Progress restarts the count. */
  readonly timeoutMs: number;
  /** Milliseconds that progress cannot extend. */
  readonly hardTimeoutMs: number;
  /** The size of a result that the caller gets. A backend with pages keeps each page within it. */
  readonly cap?: { readonly bytes: number; readonly lines: number };
  /** The paths of the arguments as the policy evaluated them. Absent if it did not. The caller closes them. */
  readonly pathHandles?: CallPathHandles;
  /**
   * Judges whether this caller may read a file (relative to the workspace), and gives the judged descriptor, which the
   * backend closes; undefined: it may not. A search shows lines of what the descriptor names only; it says nothing of
   * other files, because a count would tell what is in them. Absent: every file.
   */
  readonly mayRead?: (path: string) => Promise<CallPathHandles | undefined>;
  /**
   * Folders outside of the workspace that are open to this call now, real; the workspace server asks again before it
   * acts on a path in one and before it shows what it read. Throws DENIED when they were closed meanwhile. Absent:
   * none.
   */
  readonly outsideFolders?: () => Promise<readonly string[]>;
  /** Paths that rules close to programs of this caller. Absent if there are none. */
  readonly confinement?: Confinement;
  /** Only for servers that run in this process. */
  readonly identity?: CallerIdentity;
  /** Given when the client asked for progress; called with the params of the server's notification, less its token. */
  readonly onProgress?: (params: Readonly<Record<string, unknown>>) => void;
}

/**
 * Healthy; degraded (answers, but breaks the protocol, or is remote, lost and tried again); unavailable (not there);
 * not approved (nobody has agreed to it as it is); disabled (by its owner, or it crashed too often, or cannot be used
 * as it is written); killed (by the kill switch); idle (not started yet, or ended because nobody used it).
 */
export type HealthState = 'idle' | 'healthy' | 'degraded' | 'unavailable' | 'not approved' | 'disabled' | 'killed';

/** The state of a server that may not run, from what refuses it. */
export function refusedState({ data }: Pick<TollgateError, 'data'>): HealthState {
  if (data.killed === true) return 'killed';
  return data.consent === 'lacking' ? 'not approved' : 'disabled';
}

/**
 * The error for a caller after a failed start: the server is unavailable, or a person must fix something. It keeps the
 * text of the failure.
 */
export function startFailure(error: TollgateError): TollgateError {
  const { code, message, next } = error;
  return code === 'SERVER_UNAVAILABLE' || OWNER_CORRECTABLE.has(code)
    ? error
    : new TollgateError('SERVER_UNAVAILABLE', { detail: message, next, cause: error });
}

/**
 * A definition that does not fit the schema of the protocol: it is left out, and nobody can call it. `tool`: its name,
 * or its place in the list.
 */
export interface InvalidDefinition {
  readonly tool: string;
  readonly reason: string;
}

/** The state that `tollgate servers` and /healthz show. */
export interface Health {
  readonly state: HealthState;
  /** One public line that says why it is not healthy. */
  readonly reason?: string;
  readonly restarts: number;
  /** Lines that broke the protocol and were skipped. */
  readonly badLines: number;
  /** Definitions of the last list that were left out. Absent: none. */
  readonly unfit?: readonly InvalidDefinition[];
}

/** Identity that the server gave at its handshake. */
export interface ServerInfo {
  readonly name: string;
  readonly version: string;
  readonly protocolVersion: string;
}

/**
 * A server, however it is reached (HE-01). Methods throw TollgateError with INIT_FAILED, SERVER_UNAVAILABLE,
 * TOOL_TIMEOUT, TOOL_CRASHED, UPSTREAM_TOO_LARGE, UPSTREAM_INVALID or CANCELLED; a server's own JSON-RPC error
 * comes as `UpstreamError`. Nothing here retries a call.
 */
export interface ServerAdapter {
  /** The configured name, `^[a-z][a-z0-9-]*$`. */
  readonly name: string;
  /** Connects if needed; idempotent. Waits at most the connect timeout. */
  start(signal?: CancelSignal): Promise<ServerInfo>;
  /** All pages; starts the server if needed; cached until the server says list_changed or restarts. */
  listTools(signal?: CancelSignal): Promise<readonly RawTool[]>;
  call(call: UpstreamCall): Promise<ServerAnswer>;
  health(): Health;
  info(): ServerInfo | undefined;
  /**
   * Called (coalesced) when the list of tools may have changed; `renewed` when that is only because it is another
   * process now, which may well list the same. One listener; later ones replace it.
   */
  onToolsChanged(listener: (renewed?: 'renewed') => void): void;
  /** True if it is not running and the next call would start it. */
  isAsleep?(): boolean;
  /**
   * Starts it for a session (`''`: for none) if it is asleep, so that what it lists is what it will be called by.
   * Throws as `start`.
   */
  wake?(scope: string): Promise<void>;
  /**
   * For an owner: asks it anew for its tools at the next question, or ends it in order and starts it again, with its
   * losses forgotten. Calls that run get TOOL_CRASHED then. Absent: it has no process and no connection of its own.
   * Throws as `start`, and what people decided against it.
   */
  renew?(how: 'list' | 'process'): Promise<void>;
  /** Why it takes no call of this session at present, though perhaps of others; undefined: it does. */
  refuses?(scope: string): TollgateError | undefined;
  /** Ends the connection and every process behind it; idempotent. */
  stop(): Promise<void>;
  /** Kills all its processes. Absent if it has none. */
  killNow?(): void;
  /** Drops the state of this scope, because its session ended. */
  endScope?(scope: string): Promise<void>;
  /**
   * For as long as this session of the facade lives, the server stays as its profile asks; of several sessions the
   * longest wish counts. Absent: the server's own setting.
   */
  demand?(scope: string, lifetime?: ServerLifetime): void;
  /**
   * Something kept on the server belongs to sessions while `holds` says so: it is not given up for others meanwhile.
   */
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

/**
 * What answers at an address: an MCP server (perhaps after a sign-in), another service, nothing, or something at
 * private addresses.
 */
export type AddressProbeResult =
  | { readonly kind: 'mcp'; readonly login: boolean }
  | { readonly kind: 'web'; readonly status: number }
  | { readonly kind: 'private'; readonly addresses: readonly string[] }
  | { readonly kind: 'unreachable'; readonly why: string }
  /** The name has no address. */
  | { readonly kind: 'unknown' };

/**
 * Asks what answers at an address. `addresses`: those that are not public and were written out. Never throws for what
 * answers.
 */
export type AddressProbe = (address: string, addresses: readonly string[]) => Promise<AddressProbeResult>;

/** The four primitives. */
export const PRIMITIVES = ['read', 'write', 'edit', 'bash'] as const;
export type Primitive = (typeof PRIMITIVES)[number];

/** The tool and arguments of the backend that serve a primitive's call. The policy evaluates these. */
export interface LoweredPrimitive {
  readonly tool: string;
  readonly args: Readonly<Record<string, unknown>>;
  readonly semantics: Semantics;
}

/**
 * A backend that serves primitives. Its `call` takes `tool: 'read' | 'write' | 'edit' | 'bash'` with the arguments of
 * catalogs/primitives/schemas.json. What it cannot do honestly throws NOT_SUPPORTED.
 */
export interface PrimitiveBackend extends ServerAdapter {
  /** Tools of the backend behind each primitive, with their meaning; a primitive that is absent is not served. */
  serves(): ReadonlyMap<Primitive, readonly { readonly tool: string; readonly semantics: Semantics }[]>;
  /** Pure: no I/O. Throws ARGS_INVALID or NOT_SUPPORTED. */
  lower(primitive: Primitive, args: Readonly<Record<string, unknown>>): LoweredPrimitive;
}
/** Everything that a server publishes before a call. */
export interface ServerProbeResult {
  readonly info: ServerInfo;
  readonly tools: readonly RawTool[];
  readonly instructions?: string;
  readonly prompts: readonly RawPrompt[];
  /** Tools that were left out, because their definitions do not fit the protocol. Absent: none. */
  readonly unfit?: readonly InvalidDefinition[];
}
/** A prompt as a server listed it; unknown keys are kept. */
export interface RawPrompt {
  readonly name: string;
  readonly [key: string]: unknown;
}
