/** One MCP session with a server, from the handshake to the end. It accepts known protocol revisions only. */
import { randomUUID } from 'node:crypto';
import { asTollgateError, OWNER_CORRECTABLE, TollgateError } from '../../catalogs/errors/error-table.ts';
import { jsonString } from '../../catalogs/text/json-string.ts';
import type { RawTool, ToolResult } from '../../catalogs/tools/tool-definition.ts';
import { type RawPrompt, type ServerInfo, type UpstreamCall, UpstreamError } from '../port.ts';
import type { Connection } from '../rpc/connection.ts';
import { isObject } from '../rpc/message-parser.ts';
import { Peer } from '../rpc/peer.ts';
import { INPUT_REQUIRED } from '../rpc/refused-requests.ts';
import { type JsonDoc, JsonText } from '../rpc/wire-message.ts';
import type { RefusedRequestEvent } from './server-events.ts';
import { type DefinitionList, readPromptList, readToolList } from './tool-list.ts';

/** The events of a session. */
export interface SessionEvents {
  onToolsChanged(): void;
  /** A message that broke the protocol was skipped. */
  onBad(): void;
  /** Requests of the server were refused. */
  onRefused?(event: RefusedRequestEvent): void;
  /**
   * The server ended by itself. Calls in flight have already failed. `why` completes "Server x …"; `refusal` is that
   * of ConnectionEvents.
   */
  onClosed(why: string, exit?: number | string, refusal?: TollgateError): void;
}

const NEWEST = '2025-11-25';
const ACCEPTED: readonly string[] = [NEWEST, '2025-06-18', '2025-03-26', '2024-11-05', '2024-10-07'];
const CLIENT = { name: 'tollgate', version: '0.1.0' };

/** A call that runs, as requests of its server are reported. */
export type RunningCall = Pick<UpstreamCall, 'id' | 'scope'>;

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
  private offersPrompts = false;
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
    });
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

  /** Reads all pages of prompts/list. Returns none if the server does not offer prompts. */
  async listPrompts(timeoutMs: number): Promise<readonly RawPrompt[]> {
    if (!this.offersPrompts) return [];
    return (await readPromptList((params) => this.request('prompts/list', params, timeoutMs))).entries;
  }

  private request(method: string, params: string, timeoutMs: number): ReturnType<Peer['request']> {
    return this.peer.request({ method, params: () => params, timeoutMs, hardTimeoutMs: timeoutMs });
  }

  /**
   * Sends one tools/call, with the unchanged text of the arguments. Throws as ServerAdapter.call. The caller calls
   * `end` with `running` afterwards.
   */
  call(call: UpstreamCall, running: RunningCall): Promise<JsonDoc<ToolResult>> {
    const { timeoutMs, hardTimeoutMs, signal, onProgress } = call;
    this.calls.add(running);
    const params = (id: number): string => callParams(call, id);
    return this.peer
      .request({ method: 'tools/call', params, timeoutMs, hardTimeoutMs, signal, onProgress })
      .then((result) => this.refuseRequest(result as JsonDoc<ToolResult>));
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
      onMessage: (message) => {
        this.lastMessageAt = performance.now();
        peer.receive(message);
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
    const params = JSON.stringify({ protocolVersion: NEWEST, capabilities: {}, clientInfo: CLIENT });
    const { value } = await this.request('initialize', params, Infinity);
    const { protocolVersion } = value;
    if (typeof protocolVersion !== 'string' || !ACCEPTED.includes(protocolVersion)) {
      const answered = typeof protocolVersion === 'string' ? JSON.stringify(protocolVersion.slice(0, 32)) : 'none';
      throw this.initFailed(`answered with protocol revision ${answered}; accepted are ${ACCEPTED.join(', ')}`);
    }
    this.connection.useProtocolVersion(protocolVersion);
    // Over HTTP, the first call could overtake this message if it were not awaited.
    await this.peer.notify('notifications/initialized');
    const { instructions, capabilities } = value;
    this.instructions = typeof instructions === 'string' ? instructions : undefined;
    this.offersPrompts = isObject(capabilities) && isObject(capabilities.prompts);
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
  return `{"name":${jsonString(call.tool)},"arguments":${call.args.text}${tail}}`;
}

function textOr(value: unknown, fallback: string): string {
  return typeof value === 'string' ? value.slice(0, 256) : fallback;
}
