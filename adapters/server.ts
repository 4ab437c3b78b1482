/** Owns one external server over its sessions: lazy start, restarts, the cached list, its health; refuses to repeat a call. */
import { setTimeout as sleep } from 'node:timers/promises';
import { asTollgateError, TollgateError } from '../catalogs/errors.ts';
import type { RawTool, ToolResult } from '../catalogs/tool.ts';
import { abortable } from './abortable.ts';
import type { Connection } from './connection.ts';
import { judgeHealth } from './health.ts';
import type { Health, JsonDoc, ServerAdapter, ServerInfo, UpstreamCall } from './port.ts';
import { Restarts } from './restarts.ts';
import { UpstreamSession } from './session.ts';
import { startRefusal } from './settings.ts';
import type { ServerSettings } from './settings.ts';
import type { ConnectionSlots, SlotHolder } from './slots.ts';

/** What a server is made of: its settings, the shared slots, and how its connections are made. */
export interface ServerParts {
  readonly settings: ServerSettings;
  readonly slots: ConnectionSlots;
  readonly connect: () => Connection;
}

/** For one page of tools/list. */
const LIST_TIMEOUT_MS = 30_000;
const RETIRE_POLL_MS = 50;

/** A server by stdio, Streamable HTTP or SSE. After `stop` only `start` connects it again. */
export class UpstreamServer implements ServerAdapter, SlotHolder {
  readonly name: string;
  private readonly parts: ServerParts;
  private readonly restarts: Restarts;
  /** The newest session: connecting, or connected when `ready`. */
  private session: UpstreamSession | undefined;
  private starting: Promise<UpstreamSession> | undefined;
  private ready = false;
  private serverInfo: ServerInfo | undefined;
  private tools: Promise<readonly RawTool[]> | undefined;
  private listener: () => void = () => {};
  private stopped = false;
  private badLines = 0;
  private usedAt = 0;
  private readonly closing = new Map<UpstreamSession, Promise<void>>();

  constructor(parts: ServerParts) {
    this.name = parts.settings.name;
    this.parts = parts;
    this.restarts = new Restarts(parts.settings);
  }

  async start(signal?: AbortSignal): Promise<ServerInfo> {
    this.stopped = false;
    await this.connected(signal);
    return this.serverInfo as ServerInfo;
  }

  async listTools(signal?: AbortSignal): Promise<readonly RawTool[]> {
    if (this.tools === undefined) {
      const session = await this.connected(signal);
      // Several callers may have waited for one start: the first lists for all.
      this.tools ??= this.readTools(session);
    }
    return abortable(this.tools, signal);
  }

  async call(call: UpstreamCall): Promise<JsonDoc<ToolResult>> {
    const session = this.ready && this.session !== undefined ? this.session : await this.connectedForCall(call.signal);
    this.usedAt = performance.now();
    try {
      return await session.call(call);
    } finally {
      this.parts.slots.noteIdle();
    }
  }

  get settings(): ServerSettings {
    return this.parts.settings;
  }

  /** Takes no new start, lets running calls end, at most for so long, and then stops. */
  async retire(graceMs: number): Promise<void> {
    this.stopped = true;
    const end = performance.now() + graceMs;
    while ((this.session?.inFlight ?? 0) > 0 && performance.now() < end) await sleep(RETIRE_POLL_MS);
    await this.stop();
  }

  health(): Health {
    const { count, reason } = this.restarts;
    return judgeHealth({ refusal: startRefusal(this.parts.settings), connected: this.ready, restarts: count, badLines: this.badLines, loss: reason });
  }

  info(): ServerInfo | undefined {
    return this.serverInfo;
  }

  onToolsChanged(listener: () => void): void {
    this.listener = listener;
  }

  stop(): Promise<void> {
    this.stopped = true;
    return this.giveUp();
  }

  /** Ends every process at once, synchronously: for the exit of our own process. */
  killNow(): void {
    this.stopped = true;
    for (const session of [this.session, ...this.closing.keys()]) session?.kill();
  }

  busy(): boolean {
    return !this.ready || (this.session?.inFlight ?? 0) > 0;
  }

  lastUsed(): number {
    return this.usedAt;
  }

  async giveUp(): Promise<void> {
    this.disconnect();
    await Promise.all(this.closing.values());
  }

  private async connectedForCall(signal: AbortSignal): Promise<UpstreamSession> {
    try {
      return await this.connected(signal);
    } catch (thrown) {
      const error = asTollgateError(thrown);
      // Nothing was sent yet, so the caller may try again.
      throw error.code === 'INIT_FAILED' ? new TollgateError('SERVER_UNAVAILABLE', { detail: error.message, cause: error }) : error;
    }
  }

  private connected(signal?: AbortSignal): Promise<UpstreamSession> {
    if (this.ready && this.session !== undefined) return Promise.resolve(this.session);
    this.starting ??= this.connect().finally(() => {
      this.starting = undefined;
    });
    return abortable(this.starting, signal);
  }

  private async connect(): Promise<UpstreamSession> {
    const { settings, slots } = this.parts;
    const refusal = this.stopRefusal() ?? startRefusal(settings) ?? this.restarts.refusal(performance.now());
    if (refusal !== undefined) throw refusal;
    // An old process of this server still holds its slot until nothing of it is left.
    await Promise.all(this.closing.values());
    await slots.acquire(this, settings.connectTimeoutMs);
    const stopped = this.stopRefusal();
    if (stopped !== undefined) {
      slots.release(this);
      throw stopped;
    }
    const session: UpstreamSession = new UpstreamSession(this.name, this.parts.connect(), {
      onToolsChanged: () => this.forgetTools(),
      onBad: () => this.badLines++,
      onClosed: (why) => this.lost(session, `Server "${this.name}" ${why}.`),
    });
    this.session = session;
    const again = this.serverInfo !== undefined;
    try {
      this.serverInfo = await session.open(settings.connectTimeoutMs);
    } catch (thrown) {
      this.lost(session, asTollgateError(thrown).message);
      throw thrown;
    }
    // It may have been stopped, or have ended, between its answer and this line; its slot is free already.
    if (this.session !== session) throw this.stopRefusal() ?? new TollgateError('SERVER_UNAVAILABLE', { detail: this.restarts.reason ?? 'The server ended at once.' });
    this.restarts.noteStart();
    this.ready = true;
    this.usedAt = performance.now();
    if (again) this.forgetTools();
    return session;
  }

  private stopRefusal(): TollgateError | undefined {
    return this.stopped ? new TollgateError('SERVER_UNAVAILABLE', { detail: `Server "${this.name}" was stopped.` }) : undefined;
  }

  private readTools(session: UpstreamSession): Promise<readonly RawTool[]> {
    const reading = session.listTools(LIST_TIMEOUT_MS).finally(() => this.parts.slots.noteIdle());
    reading.catch(() => {
      if (this.tools === reading) this.tools = undefined;
    });
    return reading;
  }

  private forgetTools(): void {
    this.tools = undefined;
    this.listener();
  }

  private lost(session: UpstreamSession, why: string): void {
    if (this.session !== session) return;
    this.session = undefined;
    this.ready = false;
    this.restarts.noteLoss(why, performance.now());
    this.parts.slots.release(this);
  }

  private disconnect(): void {
    const { session } = this;
    if (session === undefined) return;
    this.session = undefined;
    this.ready = false;
    const closed = session.close().finally(() => {
      this.closing.delete(session);
      this.parts.slots.release(this);
    });
    this.closing.set(session, closed);
  }
}
