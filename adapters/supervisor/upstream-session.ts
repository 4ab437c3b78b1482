/** One MCP session with a server, from the handshake to the end. It accepts known protocol revisions only. */
import { randomUUID } from 'node:crypto';
import { asTollgateError, OWNER_CORRECTABLE, TollgateError } from '../../catalogs/errors/error-table.ts';
import { jsonString } from '../../catalogs/text/json-string.ts';
import type { RawTool, ToolResult } from '../../catalogs/tools/tool-definition.ts';
import {
  type LogLevel,
  type ServerInfo,
  type ServerLists,
  type ServerNotice,
  type UpstreamCall,
  UpstreamError,
} from '../port.ts';
import type { Connection } from '../rpc/connection.ts';
import { isObject, type JsonObject } from '../rpc/message-parser.ts';
import { type Answer, Peer } from '../rpc/peer.ts';
import { INPUT_REQUIRED, URL_ELICITATION } from '../rpc/refused-requests.ts';
import { type JsonDoc, JsonText } from '../rpc/wire-message.ts';
import type { RefusedRequestEvent } from './server-events.ts';
import { type DefinitionList, readServerList, readToolList } from './tool-list.ts';

/** The events of a session. */
export interface SessionEvents {
  onToolsChanged(): void;
  /** A message that broke the protocol was skipped. */
  onBad(): void;
  /** Requests of the server were refused. */
  onRefused?(event: RefusedRequestEvent): void;
  /** Returns the capabilities of clients that the handshake declares. Absent: none. */
  capabilities?(): JsonObject;
  onNotice?(notice: ServerNotice): void;
  /**
   * The server ended by itself. Calls in flight have already failed. `why` completes "Server x …"; `refusal` is that
   * of ConnectionEvents.
   */
  onClosed(why: string, exit?: number | string, refusal?: TollgateError): void;
}

const NEWEST = '2025-11-25';
const ACCEPTED: readonly string[] = [NEWEST, '2025-06-18', '2025-03-26', '2024-11-05', '2024-10-07'];
const CLIENT = { name: 'tollgate', version: '0.1.0' };

/** Milliseconds for an answer that no one waits for. */
const LEVEL_MS = 10_000;
/** Asks the client to open URLs before the call is repeated (MCP 2025-11-25, elicitation). */
const URL_ELICITATION_REQUIRED = -32042;

/** A call that runs, as requests and messages of its server are attributed to it. */
export type RunningCall = Pick<UpstreamCall, 'id' | 'scope' | 'run' | 'onRequest' | 'onLog'>;

/** One connection with its JSON-RPC peer. It can be opened once. */
export class UpstreamSession {
  private readonly name: string;
  private readonly connection: Connection;
  private readonly peer: Peer;
  private readonly events: SessionEvents;
  /** The id in all events of this connection. */
  readonly id = randomUUID();
  /** Small objects, because an old set may refer to ended calls until the next complete garbage collection. */
  private readonly calls = new Set<RunningCall>();
  private lastMessageAt = Number.NEGATIVE_INFINITY;
  /** What the server declared at the handshake. */
  private offers: JsonObject = {};
  private logLevel: LogLevel | undefined;
  /** The instructions that the server gave at the handshake. */
  instructions: string | undefined;

  constructor(name: string, connection: Connection, events: SessionEvents) {
    this.name = name;
    this.connection = connection;
    this.events = events;
    this.peer = new Peer(connection, {
      onToolsChanged: () => events.onToolsChanged(),
      onDropped: () => events.onBad(),
      onRefused: (refused) => {
        const [call, second] = this.calls;
        const only = second === undefined ? call : undefined;
        events.onRefused?.({
          event: 'request.refused',
          ...refused,
          ...(only?.id !== undefined && { call: only.id }),
          ...(only !== undefined && { session: only.scope }),
        });
      },
      onRequest: (method, params, serves) => this.passRequest(this.callOf(serves), method, params),
      onNotification: (method, params, serves) => this.passNotice(method, params, this.callOf(serves)),
    });
  }

  /**
   * Returns the call that a message of the server belongs to. Over a link with one stream that is any of its running
   * calls if all are of one run, because then the policy decides the same for each (relay.md calls this attribution).
   */
  private callOf(serves: object | undefined): RunningCall | undefined {
    if (serves !== undefined) return serves as RunningCall;
    const [first, ...others] = this.calls;
    const isSameRun = others.every(({ scope, run }) => scope === first?.scope && run === first.run);
    return isSameRun ? first : undefined;
  }

  private passRequest(
    call: RunningCall | undefined,
    method: string,
    params: JsonDoc<JsonObject> | undefined,
  ): Answer | undefined {
    if (call?.onRequest === undefined) return undefined;
    return { result: call.onRequest(method, params), serves: call };
  }

  private passNotice(method: string, params: JsonDoc<JsonObject> | undefined, call: RunningCall | undefined): void {
    const { onNotice } = this.events;
    if (method === 'notifications/message' && params !== undefined) {
      if (call?.onLog !== undefined) return call.onLog(params);
      const sessions = [...new Set([...this.calls].map(({ scope }) => scope))];
      return onNotice?.({ notice: 'log', params, sessions });
    }
    const uri = params?.value.uri;
    if (method === 'notifications/resources/updated' && typeof uri === 'string') onNotice?.({ notice: 'updated', uri });
    const list = /^notifications\/(resources|prompts)\/list_changed$/.exec(method)?.[1];
    if (list === 'resources' || list === 'prompts') onNotice?.({ notice: 'changed', list });
  }

  /** Returns true if the server declared this at the handshake: `resources`, `resources.subscribe`, `logging`. */
  has(capability: string): boolean {
    let declared: unknown = this.offers;
    for (const part of capability.split('.')) declared = isObject(declared) ? declared[part] : undefined;
    return declared === true || isObject(declared);
  }

  /** True if the server cannot start another process. */
  get isFull(): boolean {
    return this.connection.isFull?.() === true;
  }

  /** The number of requests without an answer so far. */
  get inFlight(): number {
    return this.peer.inFlight;
  }

  /**
   * Connects and performs the handshake within `timeoutMs`. Throws INIT_FAILED, SERVER_UNAVAILABLE and faults that a
   * person must fix. Nothing is left running then.
   */
  async open(timeoutMs: number): Promise<ServerInfo> {
    let timer: NodeJS.Timeout | undefined;
    const expired = new Promise<never>((_resolve, reject) => {
      timer = setTimeout(() => reject(this.initFailed(`did not answer within ${timeoutMs} ms`)), timeoutMs);
    });
    try {
      return await Promise.race([this.connect(), expired]);
    } catch (thrown) {
      this.kill();
      throw this.asInitFailure(thrown);
    } finally {
      clearTimeout(timer);
    }
  }

  /** Reads all pages of tools/list, as readToolList does. `timeoutMs` applies to each page. */
  listTools(timeoutMs: number): Promise<DefinitionList<RawTool>> {
    return readToolList((params) => this.request('tools/list', params, timeoutMs));
  }

  /** Reads all pages of another list. Returns none if the server does not offer it. */
  async list<Kind extends keyof ServerLists>(kind: Kind, timeoutMs: number): Promise<ServerLists[Kind]> {
    if (!this.has(kind === 'prompts' ? 'prompts' : 'resources')) return [] as unknown as ServerLists[Kind];
    const { entries } = await readServerList(kind, (params) => this.request(`${kind}/list`, params, timeoutMs));
    return entries as unknown as ServerLists[Kind];
  }

  /** Asks for log messages from this level on, once. A server without logging is not asked. */
  useLogLevel(level: LogLevel): void {
    if (this.logLevel === level || !this.has('logging')) return;
    this.logLevel = level;
    this.request('logging/setLevel', JSON.stringify({ level }), LEVEL_MS).catch(() => undefined);
  }

  /** Sends one request of Tollgate itself. `params` is JSON text. */
  request(method: string, params: string, timeoutMs: number): ReturnType<Peer['request']> {
    return this.peer.request({ method, params: () => params, timeoutMs, hardTimeoutMs: timeoutMs });
  }

  /**
   * Sends one call, with the unchanged text of the arguments. Throws as ServerAdapter.call. The caller calls `end` with
   * `running` afterwards.
   */
  call(call: UpstreamCall, running: RunningCall): Promise<JsonDoc<ToolResult>> {
    const { method = 'tools/call', timeoutMs, hardTimeoutMs, signal, onProgress } = call;
    this.calls.add(running);
    const params = (id: number): string => callParams(call, id);
    return this.peer.request({ method, params, timeoutMs, hardTimeoutMs, signal, onProgress, serves: running }).then(
      (result) => this.refuseRequest(result as JsonDoc<ToolResult>),
      (thrown: unknown) => this.refuseUrls(thrown, call),
    );
  }

  /** An error that asks the client to open URLs passes only to a caller that can decide about it. */
  private refuseUrls(thrown: unknown, { onRequest }: UpstreamCall): never {
    if (!(thrown instanceof UpstreamError) || thrown.rpc.code !== URL_ELICITATION_REQUIRED || onRequest !== undefined)
      throw thrown;
    this.peer.noteRefused(URL_ELICITATION);
    throw new TollgateError('URL_ELICITATION_DENIED');
  }

  /** Notes that a call has ended, so requests of the server do not belong to it any more. */
  end(running: RunningCall): void {
    this.calls.delete(running);
  }

  /** Protocol revision 2026-07-28 puts requests to the client into results. They are refused like other requests. */
  private refuseRequest(result: JsonDoc<ToolResult>): JsonDoc<ToolResult> {
    if (JsonText.of(result).memberValue('resultType') !== 'input_required') return result;
    this.peer.noteRefused(INPUT_REQUIRED);
    throw new TollgateError('UPSTREAM_REQUEST_DENIED');
  }

  /** Stops the server in an orderly way. Calls in flight get TOOL_CRASHED, because they may have run. */
  close(): Promise<void> {
    this.peer.end(this.crashed('was stopped'));
    return this.connection.close();
  }

  /** Kills the server synchronously. `why` completes "Server x …" for calls in flight. */
  kill(why = 'was stopped'): void {
    this.peer.end(this.crashed(why));
    this.connection.killNow();
  }

  /** Sends a ping. Returns false if the server sends no message at all within `withinMs` (MCP 2025-11-25, ping). */
  async isResponsive(withinMs: number): Promise<boolean> {
    const sentAt = performance.now();
    try {
      await this.request('ping', '{}', withinMs);
      return true;
    } catch (thrown) {
      return asTollgateError(thrown).code !== 'TOOL_TIMEOUT' || this.lastMessageAt > sentAt;
    }
  }

  /**
   * Sends a ping. Returns false if the server does not answer it: no answer in time, a broken connection, or an error
   * of a gateway before it (HTTP 5xx).
   */
  async answersPing(withinMs: number): Promise<boolean> {
    try {
      await this.request('ping', '{}', withinMs);
      return true;
    } catch (thrown) {
      if (thrown instanceof UpstreamError) return true;
      // HTTP 4xx: the server runs, but does not support ping.
      const { code } = (asTollgateError(thrown).cause ?? {}) as { readonly code?: unknown };
      return typeof code === 'number' && code >= 400 && code < 500;
    }
  }

  private async connect(): Promise<ServerInfo> {
    const { peer, events } = this;
    let lost: TollgateError | undefined;
    await this.connection.start({
      onMessage: (message, during) => {
        this.lastMessageAt = performance.now();
        peer.receive(message, during);
      },
      onBad: () => events.onBad(),
      onTooLarge: (edges) => peer.failTooLarge(edges),
      onFailed: (id, error) => peer.fail(id, error),
      onClosed: (why, exit, refusal) => {
        lost = refusal ?? this.crashed(why);
        peer.end(lost);
        events.onClosed(why, exit, refusal);
      },
    });
    // The server can end before `start` returns. This error says why, and a request would only say that it is gone.
    if (lost !== undefined) throw lost;
    return this.shakeHands();
  }

  /** Performs the handshake. It has no deadline of its own, because `open` has one. */
  private async shakeHands(): Promise<ServerInfo> {
    const capabilities = this.events.capabilities?.() ?? {};
    const params = JSON.stringify({ protocolVersion: NEWEST, capabilities, clientInfo: CLIENT });
    const { value } = await this.request('initialize', params, Infinity);
    const { protocolVersion } = value;
    if (typeof protocolVersion !== 'string' || !ACCEPTED.includes(protocolVersion)) {
      const answered = typeof protocolVersion === 'string' ? JSON.stringify(protocolVersion.slice(0, 32)) : 'none';
      throw this.initFailed(`answered with protocol revision ${answered}; accepted are ${ACCEPTED.join(', ')}`);
    }
    this.connection.useProtocolVersion(protocolVersion);
    // Over HTTP, the first call could overtake this message if it were not awaited.
    await this.peer.notify('notifications/initialized');
    const { instructions } = value;
    this.instructions = typeof instructions === 'string' ? instructions : undefined;
    if (isObject(value.capabilities)) this.offers = value.capabilities;
    const info = isObject(value.serverInfo) ? value.serverInfo : undefined;
    return { name: textOr(info?.name, this.name), version: textOr(info?.version, ''), protocolVersion };
  }

  private asInitFailure(thrown: unknown): TollgateError {
    if (thrown instanceof UpstreamError)
      return this.initFailed(`refused the handshake with error ${thrown.rpc.code}`, thrown);
    const error = asTollgateError(thrown);
    if (error.code === 'INIT_FAILED' || error.code === 'SERVER_UNAVAILABLE' || OWNER_CORRECTABLE.has(error.code))
      return error;
    if (error.code === 'INTERNAL') return this.initFailed('could not be started', thrown);
    return new TollgateError('INIT_FAILED', { detail: error.message, ...this.advice(), cause: error });
  }

  private initFailed(why: string, cause?: unknown): TollgateError {
    return new TollgateError('INIT_FAILED', { detail: `Server "${this.name}" ${why}.`, ...this.advice(), cause });
  }

  /** Names the log of the server, if it has written to it. */
  private advice(): { readonly next?: string } {
    const { wrote } = this.connection;
    if (wrote === undefined) return {};
    return {
      next: wrote
        ? `Read its log: \`tollgate servers --log ${this.name}\`.`
        : `It has written nothing to its log. Check its command, args and env under servers.${this.name}; ` +
          '`tollgate doctor` looks for what is missing.',
    };
  }

  private crashed(why: string): TollgateError {
    return new TollgateError('TOOL_CRASHED', { detail: `Server "${this.name}" ${why} before it had answered.` });
  }
}

/** Writes the params as JSON. The progress token is present only if the caller wants progress. */
function callParams(call: UpstreamCall, id: number): string {
  const meta = call.onProgress === undefined ? call.meta : { ...call.meta, progressToken: id };
  const tail = meta === undefined ? '' : `,"_meta":${JSON.stringify(meta)}`;
  if (call.method !== undefined) return `${call.args.text.slice(0, -1)}${tail}}`;
  return `{"name":${jsonString(call.tool)},"arguments":${call.args.text}${tail}}`;
}

function textOr(value: unknown, fallback: string): string {
  return typeof value === 'string' ? value.slice(0, 256) : fallback;
}
