/** Owns one MCP session with a server, from its handshake to its end; refuses revisions and results that it cannot vouch for. */
import { randomUUID } from 'node:crypto';
import { asTollgateError, OWNER_CORRECTABLE, TollgateError } from '../../catalogs/errors/error-table.ts';
import type { RawTool, ToolResult } from '../../catalogs/tools/tool-definition.ts';
import { type RawPrompt, type ServerInfo, type UpstreamCall, UpstreamError } from '../port.ts';
import type { Connection } from '../rpc/connection.ts';
import { isObject } from '../rpc/message-parser.ts';
import { Peer } from '../rpc/peer.ts';
import { INPUT_REQUIRED, type RefusedRequest } from '../rpc/refused-requests.ts';
import type { JsonDoc } from '../rpc/wire-message.ts';
import { type DefinitionList, readPromptList, readToolList } from './tool-list.ts';

/** What the owner of a session is told. */
export interface SessionEvents {
  onToolsChanged(): void;
  /** Something that broke the protocol was skipped. */
  onBad(): void;
  /** Requests of the server were refused; `during`: the only call that ran meanwhile. */
  onRefused?(refused: RefusedRequest, during: UpstreamCall | undefined): void;
  /** The server is gone by itself; calls in flight have got their error. `why` completes "Server x …"; `refusal` as in ConnectionEvents. */
  onClosed(why: string, exit?: number | string, refusal?: TollgateError): void;
}

const OFFERED = '2025-11-25';
const ACCEPTED: readonly string[] = [OFFERED, '2025-06-18', '2025-03-26', '2024-11-05', '2024-10-07'];
const CLIENT = { name: 'tollgate', version: '0.1.0' };

/** One connection and the peer on top of it; used once. */
export class UpstreamSession {
  private readonly name: string;
  private readonly connection: Connection;
  private readonly peer: Peer;
  private readonly events: SessionEvents;
  /** Joins the events of this connection. */
  readonly id = randomUUID();
  private readonly calls = new Set<UpstreamCall>();
  private heardAt = Number.NEGATIVE_INFINITY;
  /** What the server said of itself at its handshake, for people to look at. */
  said: { readonly instructions?: string; readonly offersPrompts: boolean } = { offersPrompts: false };

  constructor(name: string, connection: Connection, events: SessionEvents) {
    this.name = name;
    this.connection = connection;
    this.events = events;
    this.peer = new Peer(connection, {
      onToolsChanged: () => events.onToolsChanged(),
      onDropped: () => events.onBad(),
      onRefused: (refused) => events.onRefused?.(refused, this.calls.size === 1 ? [...this.calls][0] : undefined),
    });
  }

  /** Whether it can start no process any more. */
  get isFull(): boolean {
    return this.connection.isFull?.() === true;
  }

  /** Calls without an answer so far. */
  get inFlight(): number {
    return this.peer.inFlight;
  }

  /** Connects and shakes hands within the time given. Throws INIT_FAILED, SERVER_UNAVAILABLE and what a person must mend first, and then nothing is left running. */
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

  /** All pages of tools/list; see readToolList. `timeoutMs` counts for each page. */
  listTools(timeoutMs: number): Promise<DefinitionList<RawTool>> {
    return readToolList((params) => this.page('tools/list', params, timeoutMs));
  }

  /** All pages of prompts/list; none where the server does not offer them. */
  async listPrompts(timeoutMs: number): Promise<readonly RawPrompt[]> {
    return this.said.offersPrompts
      ? (await readPromptList((params) => this.page('prompts/list', params, timeoutMs))).entries
      : [];
  }

  private page(method: string, params: string, timeoutMs: number): ReturnType<Peer['request']> {
    return this.peer.request({ method, params: () => params, timeoutMs, hardTimeoutMs: timeoutMs });
  }

  /** One tools/call; the arguments go out as their text stands. Throws as ServerAdapter says. */
  async call(call: UpstreamCall): Promise<JsonDoc<ToolResult>> {
    const { timeoutMs, hardTimeoutMs, signal, onProgress } = call;
    const request = {
      method: 'tools/call',
      params: (id: number) => callParams(call, id),
      timeoutMs,
      hardTimeoutMs,
      signal,
    };
    this.calls.add(call);
    try {
      const result = await this.peer.request(onProgress === undefined ? request : { ...request, onProgress });
      // The revision of 2026-07-28 carries requests to the client inside results; they are refused like the others.
      if (result.value.resultType === 'input_required') {
        this.peer.noteRefused(INPUT_REQUIRED);
        throw new TollgateError('UPSTREAM_REQUEST_DENIED');
      }
      return result as JsonDoc<ToolResult>;
    } finally {
      this.calls.delete(call);
    }
  }

  /** Ends the server in order; calls in flight get TOOL_CRASHED, because they may have run. */
  close(): Promise<void> {
    this.peer.end(this.crashed('was stopped'));
    return this.connection.close();
  }

  /** Synchronous last resort. `why` completes "Server x …" for the calls in flight. */
  kill(why = 'was stopped'): void {
    this.peer.end(this.crashed(why));
    this.connection.killNow();
  }

  /** False when the server does not say a word within the time given, not even to a ping (MCP 2025-11-25, ping). */
  async isResponsive(withinMs: number): Promise<boolean> {
    const asked = performance.now();
    try {
      await this.peer.request({ method: 'ping', params: () => '{}', timeoutMs: withinMs, hardTimeoutMs: withinMs });
      return true;
    } catch (thrown) {
      return asTollgateError(thrown).code !== 'TOOL_TIMEOUT' || this.heardAt > asked;
    }
  }

  /** False when a ping gets no answer of the server: none in time, a connection that broke, or an error of what stands before it (HTTP 5xx). */
  async answersPing(withinMs: number): Promise<boolean> {
    try {
      await this.peer.request({ method: 'ping', params: () => '{}', timeoutMs: withinMs, hardTimeoutMs: withinMs });
      return true;
    } catch (thrown) {
      if (thrown instanceof UpstreamError) return true;
      // A server that knows no ping is there all the same.
      const { code } = (asTollgateError(thrown).cause ?? {}) as { readonly code?: unknown };
      return typeof code === 'number' && code >= 400 && code < 500;
    }
  }

  private async connect(): Promise<ServerInfo> {
    const { peer, events } = this;
    let lost: TollgateError | undefined;
    await this.connection.start({
      onMessage: (message) => {
        this.heardAt = performance.now();
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
    // It ended while its start was looked at once more: what it ended with is the reason, not that it cannot be asked.
    if (lost !== undefined) throw lost;
    return this.shakeHands();
  }

  /** Without a deadline of its own: `open` holds it. */
  private async shakeHands(): Promise<ServerInfo> {
    const params = JSON.stringify({ protocolVersion: OFFERED, capabilities: {}, clientInfo: CLIENT });
    const { value } = await this.peer.request({
      method: 'initialize',
      params: () => params,
      timeoutMs: Infinity,
      hardTimeoutMs: Infinity,
    });
    const { protocolVersion } = value;
    if (typeof protocolVersion !== 'string' || !ACCEPTED.includes(protocolVersion)) {
      const said = typeof protocolVersion === 'string' ? JSON.stringify(protocolVersion.slice(0, 32)) : 'none';
      throw this.initFailed(`answered with protocol revision ${said}; accepted are ${ACCEPTED.join(', ')}`);
    }
    this.connection.useProtocolVersion(protocolVersion);
    // Waited for: over HTTP the first call could overtake it.
    await this.peer.notify('notifications/initialized');
    const { instructions, capabilities } = value;
    this.said = {
      ...(typeof instructions === 'string' && { instructions }),
      offersPrompts: isObject(capabilities) && isObject(capabilities.prompts),
    };
    const told = isObject(value.serverInfo) ? value.serverInfo : {};
    return { name: textOr(told.name, this.name), version: textOr(told.version, ''), protocolVersion };
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

  /** Its log is named where something stands in it. */
  private advice(): { readonly next?: string } {
    const { wrote } = this.connection;
    if (wrote === undefined) return {};
    return {
      next: wrote
        ? `Read its log: \`tollgate servers --log ${this.name}\`.`
        : `It has written nothing to its log. Check its command, args and env under servers.${this.name}; \`tollgate doctor\` looks for what is missing.`,
    };
  }

  private crashed(why: string): TollgateError {
    return new TollgateError('TOOL_CRASHED', { detail: `Server "${this.name}" ${why} before it had answered.` });
  }
}

/** Our token stands there only when progress was asked for: a server must not be told to report to nobody. */
function callParams(call: UpstreamCall, id: number): string {
  const meta = call.onProgress === undefined ? call.meta : { ...call.meta, progressToken: id };
  const tail = meta === undefined ? '' : `,"_meta":${JSON.stringify(meta)}`;
  return `{"name":${JSON.stringify(call.tool)},"arguments":${call.args.text}${tail}}`;
}

function textOr(value: unknown, otherwise: string): string {
  return typeof value === 'string' ? value.slice(0, 256) : otherwise;
}
