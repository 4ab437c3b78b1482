/** The facade as the transports see it: sessions, lists and calls, with results as JSON text. */
import type { LogLevel, TaskNote } from '../../adapters/port.ts';
import type { CancelSignal } from '../../adapters/rpc/cancellation.ts';
import type { JsonDoc, JsonObject, JsonRpcError, WireText } from '../../adapters/rpc/wire-message.ts';
import type { TollgateError } from '../../catalogs/errors/error-table.ts';
import type { MirroredArgument } from '../../catalogs/schemas/mirrored-arguments.ts';
import type { Principal } from '../../policies/port.ts';
import type { Seals } from '../state/state-seals.ts';
import type { FollowedRequest, RequestOrigin, RequestTrace } from './request-trace.ts';

/** One client connection, from its handshake (or HTTP session) to its end. */
export interface Session {
  /** 128 random bits, hex. It never authenticates alone. */
  readonly id: string;
  readonly principal: Principal;
  readonly transport: 'stdio' | 'http';
  /** The capabilities that the client declared at its handshake, or with its last requests; empty before. */
  client: JsonObject;
  /** True if the client speaks a revision without sessions. Set by its first message. */
  isStateless?: boolean;
  /** The least severe log level that the client wants. Absent: `info`. */
  logLevel?: LogLevel;
  /** Aborted when the session ends. */
  readonly closed: AbortSignal;
  /** The tab of a page for which a host opened it. */
  readonly tab?: string;
  /** An owner's host opened it for the origin of its principal. */
  readonly onBehalf?: boolean;
  /** An owner calls by hand for the principal. Records name both. */
  readonly operator?: Operator;
}

/** An owner at a terminal: the id of the principal, and the user of the machine. */
export interface Operator {
  readonly by: string;
  readonly user: string;
}

/** What a host, or an owner at a terminal, says about a session that it opens. */
export interface HostSessionOptions extends Pick<Session, 'tab' | 'onBehalf' | 'operator'> {
  /** The id. Default: a new one. */
  readonly id?: string;
  /** Another process has opened the session. */
  readonly isContinued?: boolean;
}

/** What a process must know of a session that another one has served. It gives no rights. */
export interface SavedSession extends Pick<Session, 'client' | 'logLevel'> {
  /** The lists that its client has, by method: a hash of their names and pins. */
  readonly lists: Readonly<Record<string, string>>;
}

/** A notification to a client. */
export interface ClientNotice {
  readonly method: string;
  readonly params?: Readonly<Record<string, unknown>>;
}

/**
 * Sends one message to the client that answers no request. Never throws. May drop the message if the client does not
 * read, unless it is a request. Returns false if it could not be sent.
 */
export type SendMessage = (text: string, kind?: 'request') => unknown;

/** How a client is asked. */
export interface AskLimits {
  readonly signal: CancelSignal;
  /** Milliseconds that it may take to answer. */
  readonly timeoutMs: number;
  /** The server that asks. */
  readonly server: string;
  /** The name that the server gives the request among those of the call. */
  readonly key?: string | undefined;
}

/**
 * Sends a request to the client. `params` is JSON text. Rejects with UpstreamError for the client's own error,
 * TOOL_TIMEOUT, CANCELLED, and SERVER_UNAVAILABLE if the request cannot be sent.
 */
export type AskClient = (method: string, params: string, limits: AskLimits) => Promise<JsonDoc<JsonObject>>;

/** The lists of the protocol, by method. */
export const LIST_METHODS = ['tools/list', 'resources/list', 'resources/templates/list', 'prompts/list'] as const;

/** One of them. */
export type ListMethod = (typeof LIST_METHODS)[number];

/** Members that the revision of the client adds to a result, as JSON without braces. A server cannot set them. */
export interface ResultEnvelope {
  /** Members of the result itself. */
  readonly members: string;
  /** Members of its `_meta`. */
  readonly meta: string;
}

/** A call that goes to its server. */
export interface ForwardedFacts {
  /** The id of the decision. */
  readonly decision: string;
  readonly server: string;
  readonly tool: string;
  /** Throws the refusal of a call that may no longer run or be answered: a stop, or a revocation. */
  readonly recheck: () => Promise<void>;
}

/** A request as it came in. */
export interface CallRequest {
  /** Default: `tools/call`. */
  readonly method?: string;
  /** The name of the tool or prompt; the method for requests that name neither. */
  readonly name: string;
  /** The arguments of a tool or prompt as they are in the message, `{}` when absent; the params of other methods. */
  readonly args: JsonDoc<unknown>;
  /** `params._meta` without progressToken. */
  readonly meta?: Readonly<Record<string, unknown>> | undefined;
  /** Set when the client sent a progressToken; the transport adds the token again. */
  readonly onProgress?: ((params: Readonly<Record<string, unknown>>) => void) | undefined;
  /** Sends a request to the client in the channel of this request. Absent if the client cannot answer. */
  readonly ask?: AskClient | undefined;
  /** Sends a notification to the client in the channel of this request. */
  readonly notify?: ((notice: ClientNotice) => void) | undefined;
  /** The least severe log level for this request. Default: that of the session. */
  readonly logLevel?: LogLevel | undefined;
  /** The capabilities that the client declared with this request. Default: those of the session. */
  readonly client?: JsonObject;
  /** What the result of a server is sent in. */
  readonly envelope?: ResultEnvelope | undefined;
  /** The client lets the tool run as a task. Revision 2025-11-25: it asks for one. */
  readonly task?: { readonly ttlMs?: number | undefined } | undefined;
  /** Called with what the server says about its own task for this call; set by the facade itself. */
  readonly onTask?: ((note: TaskNote) => void) | undefined;
  /** Called right before the call goes to its server; set by the facade itself. */
  readonly onForward?: ((facts: ForwardedFacts) => void) | undefined;
  /** The tool by which the call was made, if its client named another tool by it; set by the facade itself. */
  readonly via?: 'call_read' | 'call_write';
  /** Follows the request. Absent while telemetry is off. */
  readonly trace?: RequestTrace | undefined;
  /** Why the request must be refused, if its transport has found that. The refusal is recorded. */
  readonly refusal?: TollgateError;
  /** The request continues a call: it is decided and recorded again, and not sent. Its result has no content. */
  readonly isContinued?: true;
  /** The decision id of the call during which a server made this request, or during which code made this call. */
  readonly parent?: string;
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
 * The answer: the text of `result`, or a JSON-RPC error object. `upstream`: the error is the server's own, and this is
 * the id of the call's decision.
 */
export type Reply =
  | {
      readonly kind: 'result';
      readonly text: WireText;
      /** The text has the members of `CallRequest.envelope`. */
      readonly enveloped?: true;
    }
  | {
      readonly kind: 'error';
      readonly error: JsonRpcError;
      readonly upstream?: string;
    };

/** A request that went to a replica which did not answer. */
export interface LostRequest {
  readonly principal: Principal;
  /** The id of its session. Absent for a stateless request. */
  readonly session?: string;
  readonly method: string;
}

/** The facade, as stdio and HTTP use it. `list` and `perform` never throw. */
export interface Facade {
  openSession(principal: Principal, transport: 'stdio' | 'http', host?: HostSessionOptions): Session;
  /** `released`: other processes serve the session, so what is stored for it stays. */
  closeSession(session: Session, how?: 'released'): Promise<void>;
  /** The mark of this process among those that serve the same sessions. Undefined: there are no others. */
  readonly replica: string | undefined;
  /** Returns what another process must know to serve the session. */
  save(session: Session): SavedSession;
  /**
   * Continues a session that another process has served. Lists that have changed since then must be listed again before
   * their tools can be called. Throws STATE_FAILED if they cannot be compared.
   */
  restore(session: Session, saved: SavedSession): Promise<void>;
  /** Records that a replica ended while it worked on a request, and returns what the client is told. Never throws. */
  answerLost(lost: LostRequest): Reply;
  /** Text for the `instructions` field of initialize. Tollgate's own part has at most 1 kB. */
  instructions(session: Session): string;
  /** Notes the least severe log level that a client wants, also towards its servers. */
  setLogLevel(session: Session, level: LogLevel): void;
  /** Capabilities for the answer to the handshake. */
  capabilities(session: Session): JsonObject;
  list(session: Session, method: ListMethod, signal: CancelSignal): Promise<Reply>;
  perform(session: Session, request: CallRequest): Promise<Reply>;
  /** Begins to follow a request. Absent, or returns undefined, while telemetry is off. */
  readonly follow?:
    | ((session: Session, request: FollowedRequest, origin: RequestOrigin) => RequestTrace | undefined)
    | undefined;
  /** The number of tasks of a session that have not ended. */
  runningTasks(session: Session): number;
  /** The revision of the policy in force. */
  revision(): string;
  /** Seals texts that a client sends back. */
  readonly seals: Seals;
  /** Returns the arguments of a tool that a client repeats in headers; none for an unknown tool. Never rejects. */
  headerArguments(session: Session, name: string): Promise<readonly MirroredArgument[]>;
  /** Called with notifications that belong to no request: for one session, or for all. */
  onNotice(listener: (notice: ClientNotice, session?: Session) => void): void;
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
