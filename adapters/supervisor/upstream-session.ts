/** One MCP session with a server, from the handshake to the end. It accepts known protocol revisions only. */
import { randomUUID } from 'node:crypto';
import { asTollgateError, OWNER_CORRECTABLE, TollgateError } from '../../catalogs/errors/error-table.ts';
import { jsonString } from '../../catalogs/text/json-string.ts';
import type { RawTool, ToolResult } from '../../catalogs/tools/tool-definition.ts';
import {
  type AnswerServer,
  type LogLevel,
  type ServerInfo,
  type ServerLists,
  type ServerNotice,
  type UpstreamCall,
  UpstreamError,
} from '../port.ts';
import { abortable, type CancelSignal } from '../rpc/cancellation.ts';
import type { Connection } from '../rpc/connection.ts';
import { isObject, type JsonObject } from '../rpc/message-parser.ts';
import { type Answer, Peer, type PeerEvents } from '../rpc/peer.ts';
import type { PeerRequest } from '../rpc/pending-call.ts';
import { INPUT_REQUIRED, URL_ELICITATION } from '../rpc/refused-requests.ts';
import type { JsonDoc } from '../rpc/wire-message.ts';
import { answerInput, asksForInput } from '../stateless/input-rounds.ts';
import { appendMembers, type StatelessRevision, withoutEnvelope } from '../stateless/stateless-revision.ts';
import { type Handshake, type HandshakeMemory, shakeHands } from './handshake.ts';
import type { RefusedRequestEvent } from './server-events.ts';
import { type DefinitionList, readServerList, readToolList } from './tool-list.ts';
import { callAsTask, followStatelessTask, isStatelessTask, taskMember, taskRequests } from './upstream-task.ts';

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
  /** See `PeerEvents.onExchange`. */
  readonly onExchange?: PeerEvents['onExchange'];
  /** What earlier sessions found out. Changed by this one. */
  readonly memory?: HandshakeMemory;
  /** Returns true if a session with the server comes first. Absent: a revision without sessions. */
  prefersSession?(): boolean;
  /**
   * The server ended by itself. Calls in flight have already failed. `why` completes "Server x …"; `refusal` is that
   * of ConnectionEvents.
   */
  onClosed(why: string, exit?: number | string, refusal?: TollgateError): void;
}

/** The longest delay that a timer supports. */
const MAX_DELAY_MS = 2 ** 31 - 1;
/** Milliseconds for an answer that no one waits for. */
const LEVEL_MS = 10_000;
/** Asks the client to open URLs before the call is repeated (MCP 2025-11-25, elicitation). */
const URL_ELICITATION_REQUIRED = -32042;

/** A call that runs, as requests and messages of its server are attributed to it. */
export type RunningCall = Pick<UpstreamCall, 'id' | 'scope' | 'run' | 'onRequest' | 'onLog'>;

/** One connection with its JSON-RPC peer. It can be opened once. */
export class UpstreamSession {
  private readonly name: string;
  private readonly createConnection: () => Connection;
  private connection: Connection;
  private peer: Peer;
  private readonly events: SessionEvents;
  /** The id in all events of this connection. */
  readonly id = randomUUID();
  /** Small objects, because an old set may refer to ended calls until the next complete garbage collection. */
  private readonly calls = new Set<RunningCall>();
  private lastMessageAt = Number.NEGATIVE_INFINITY;
  /** What the server declared at the handshake. */
  private offers: JsonObject = {};
  /** Present if the server speaks a revision without sessions. */
  private stateless: StatelessRevision | undefined;
  /** The revision that the handshake agreed on. */
  private version: string | undefined;
  private isOver = false;
  private readonly memory: HandshakeMemory;
  private logLevel: LogLevel | undefined;
  /** The instructions that the server gave at the handshake. */
  instructions: string | undefined;

  constructor(name: string, createConnection: () => Connection, events: SessionEvents) {
    [this.name, this.createConnection, this.events] = [name, createConnection, events];
    this.memory = events.memory ?? { sessionFirst: false };
    this.connection = createConnection();
    this.peer = this.createPeer();
  }

  private createPeer(): Peer {
    const { connection, events } = this;
    const { onExchange } = events;
    return new Peer(connection, {
      onToolsChanged: () => events.onToolsChanged(),
      onDropped: () => events.onBad(),
      onExchange:
        onExchange && ((exchange) => onExchange({ ...exchange, session: this.sessionId, version: this.version })),
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

  /** The id of the session for telemetry. Undefined: the revision has no sessions. */
  private get sessionId(): string | undefined {
    return this.stateless === undefined ? this.id : undefined;
  }

  /** The number of requests without an answer so far. A call also counts while its client is asked for input. */
  get inFlight(): number {
    return Math.max(this.peer.inFlight - (this.stateless?.inFlight ?? 0), this.calls.size);
  }

  /**
   * Milliseconds since anything came from the server, also a comment of an event stream. 0 if the transport does not
   * say: it reports a lost server by itself.
   */
  get silentMs(): number {
    const heardAt = this.connection.heardAt?.();
    return heardAt === undefined ? 0 : performance.now() - heardAt;
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
      return await Promise.race([this.connect(timeoutMs), expired]);
    } catch (thrown) {
      this.kill();
      throw this.asInitFailure(thrown);
    } finally {
      clearTimeout(timer);
    }
  }

  /** Reads all pages of tools/list, as readToolList does. `timeoutMs` applies to each page. */
  async listTools(timeoutMs: number): Promise<DefinitionList<RawTool>> {
    const list = await readToolList((params) => this.request('tools/list', params, timeoutMs));
    if (this.stateless === undefined) return list;
    const { entries, unfit } = this.stateless.noteTools(list.entries);
    return { entries, unfit: [...list.unfit, ...unfit] };
  }

  /** Reads all pages of another list. Returns none if the server does not offer it. */
  async list<Kind extends keyof ServerLists>(kind: Kind, timeoutMs: number): Promise<ServerLists[Kind]> {
    if (!this.has(kind === 'prompts' ? 'prompts' : 'resources')) return [] as unknown as ServerLists[Kind];
    const { entries } = await readServerList(kind, (params) => this.request(`${kind}/list`, params, timeoutMs));
    return entries as unknown as ServerLists[Kind];
  }

  /** Asks for log messages from this level on, once. A server without logging, or without sessions, is not asked. */
  useLogLevel(level: LogLevel): void {
    if (this.logLevel === level || !this.has('logging') || this.stateless !== undefined) return;
    this.logLevel = level;
    this.request('logging/setLevel', JSON.stringify({ level }), LEVEL_MS).catch(() => undefined);
  }

  /** Sends one request of Tollgate itself. `params` is JSON text. */
  request(method: string, params: string, timeoutMs: number): ReturnType<Peer['request']> {
    return this.stateless === undefined
      ? this.peer.request({ method, params: () => params, timeoutMs, hardTimeoutMs: timeoutMs })
      : this.stateless.request(method, params, timeoutMs);
  }

  /**
   * Sends one call, with the unchanged text of the arguments. Throws as ServerAdapter.call. The caller calls `end` with
   * `running` afterwards.
   */
  call(asked: UpstreamCall, running: RunningCall): Promise<JsonDoc<ToolResult>> {
    this.calls.add(running);
    const { onSent } = asked;
    const call = onSent === undefined ? asked : { ...asked, onSent: (id: number) => onSent(id, this.sessionId) };
    const answer =
      this.stateless !== undefined
        ? this.callStateless(this.stateless, call, running)
        : call.asTask === true && this.has('tasks.requests.tools.call')
          ? callAsTask(this.peer, call, callRequest({ ...call, retry: taskMember(call) }, running))
          : this.peer.request(callRequest(call, running));
    return answer.then(
      (result) => this.refuseRequest(result as JsonDoc<ToolResult>, call),
      (thrown: unknown) => this.refuseUrls(thrown, call),
    );
  }

  /** Sends a call with all that a server without sessions must know, and again with what it asks for. */
  private async callStateless(
    stateless: StatelessRevision,
    call: UpstreamCall,
    running: RunningCall,
  ): Promise<JsonDoc<JsonObject>> {
    const { method = 'tools/call', onRequest, takesInputRequired, timeoutMs } = call;
    const replaced = stateless.replace(method, call.args.text);
    if (replaced !== undefined) return replaced;
    // Without the list, the server refuses a call whose headers it needs.
    if (method === 'tools/call' && stateless.needsTools) await this.listTools(timeoutMs).catch(() => undefined);
    const params = method === 'tools/call' ? { name: call.tool, arguments: call.args.value } : call.args.value;
    const headers = stateless.headers(method, params);
    const deadline = performance.now() + call.hardTimeoutMs;
    const envelope = stateless.envelope(call, method === 'tools/call');
    const send = (retry = call.retry): Promise<JsonDoc<JsonObject>> => {
      const meta = { ...call.meta, ...envelope };
      const hardTimeoutMs = Math.max(1, deadline - performance.now());
      return this.peer.request({ ...callRequest({ ...call, meta, retry, hardTimeoutMs }, running), headers });
    };
    const answer: AnswerServer | undefined =
      onRequest && ((asked, about, key) => withinDeadline(onRequest(asked, about, key), call.signal, deadline));
    const first = await send();
    const result = takesInputRequired === true || answer === undefined ? first : await answerInput(first, send, answer);
    if (asksForInput(result)) return result;
    if (method !== 'tools/call' || !isStatelessTask(result)) return withoutEnvelope(result);
    const request = taskRequests(this.peer, callRequest(call, running), (about, asked) => ({
      params: appendMembers(asked, [`"_meta":${JSON.stringify(envelope)}`]),
      headers: stateless.headers(about, JSON.parse(asked) as JsonObject),
    }));
    return withoutEnvelope(await followStatelessTask(result, call, { request, answer, deadline }));
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
  private refuseRequest(result: JsonDoc<ToolResult>, { takesInputRequired }: UpstreamCall): JsonDoc<ToolResult> {
    if (takesInputRequired === true || !asksForInput(result)) return result;
    this.peer.noteRefused(INPUT_REQUIRED);
    throw new TollgateError('UPSTREAM_REQUEST_DENIED');
  }

  /** Stops the server in an orderly way. Calls in flight get TOOL_CRASHED, because they may have run. */
  close(): Promise<void> {
    this.noteEnd();
    this.peer.end(this.crashed('was stopped'));
    return this.connection.close();
  }

  /** Kills the server synchronously. `why` completes "Server x …" for calls in flight. */
  kill(why = 'was stopped'): void {
    this.noteEnd();
    this.peer.end(this.crashed(why));
    this.connection.killNow();
  }

  private noteEnd(): void {
    this.isOver = true;
    this.stateless?.stop();
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

  private async connect(timeoutMs: number): Promise<ServerInfo> {
    let handshake = await this.tryConnect(timeoutMs);
    if (handshake === undefined) {
      this.memory.sessionFirst = true;
      this.connection = this.createConnection();
      this.peer = this.createPeer();
      handshake = (await this.tryConnect(timeoutMs)) as Handshake;
    }
    const { info, offers, instructions, stateless, ignoredQuestion } = handshake;
    if (ignoredQuestion === true) this.memory.sessionFirst = true;
    [this.offers, this.instructions, this.stateless] = [offers, instructions, stateless];
    this.version = info.protocolVersion;
    stateless?.listen();
    return info;
  }

  /**
   * Connects and performs a handshake. Returns undefined if the server ended when it was asked for a new revision: some
   * accept no other first message than `initialize`. It is started again, once.
   */
  private async tryConnect(timeoutMs: number): Promise<Handshake | undefined> {
    const { peer, events } = this;
    let lost: TollgateError | undefined;
    let isAsked = false;
    let reportEnd: (() => void) | undefined;
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
        const report = (): void => {
          this.noteEnd();
          events.onClosed(why, exit, refusal);
        };
        if (isAsked && refusal === undefined) reportEnd = report;
        else report();
      },
    });
    // The server can end before `start` returns. This error says why, and a request would only say that it is gone.
    if (lost !== undefined) throw lost;
    const sessionFirst = this.memory.sessionFirst || this.events.prefersSession?.() === true;
    const parts = {
      name: this.name,
      connection: this.connection,
      peer,
      capabilities: () => events.capabilities?.() ?? {},
      memory: { sessionFirst },
      timeoutMs,
      onRefused: () => void (isAsked = false),
      fail: (why: string) => this.initFailed(why),
    };
    isAsked = !sessionFirst;
    try {
      return await shakeHands(parts);
    } catch (thrown) {
      // Something else than the question failed if nothing could be sent.
      const isDue = reportEnd !== undefined && !this.isOver && asTollgateError(thrown).code === 'TOOL_CRASHED';
      if (isDue) return undefined;
      reportEnd?.();
      throw thrown;
    } finally {
      isAsked = false;
    }
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

function callRequest(call: UpstreamCall, serves: RunningCall): PeerRequest {
  const { method = 'tools/call', timeoutMs, hardTimeoutMs, signal, onProgress } = call;
  return { method, params: (id) => callParams(call, id), timeoutMs, hardTimeoutMs, signal, onProgress, serves };
}

/** Writes the params as JSON. The progress token is present only if the caller wants progress. */
function callParams(call: UpstreamCall, id: number): string {
  const { method, tool, args, retry } = call;
  call.onSent?.(id);
  const meta = call.onProgress === undefined ? call.meta : { ...call.meta, progressToken: id };
  const own = method === undefined ? `{"name":${jsonString(tool)},"arguments":${args.text}}` : args.text;
  const more = retry === undefined ? [] : [retry];
  if (meta !== undefined) more.push(`"_meta":${JSON.stringify(meta)}`);
  return more.length === 0 ? own : appendMembers(own, more);
}

/** Waits for an answer of a client, at most until the deadline of the call. */
async function withinDeadline(answer: Promise<string>, signal: CancelSignal, deadline: number): Promise<string> {
  let timer: NodeJS.Timeout | undefined;
  const expired = new Promise<never>((_resolve, reject) => {
    const detail = 'The client did not answer the server within the deadline of the call.';
    const delay = Math.min(deadline - performance.now(), MAX_DELAY_MS);
    timer = setTimeout(() => reject(new TollgateError('TOOL_TIMEOUT', { detail })), delay).unref();
  });
  try {
    return await abortable(Promise.race([answer, expired]), signal);
  } finally {
    clearTimeout(timer);
  }
}
