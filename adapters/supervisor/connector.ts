/** Opens, monitors and closes the one connection of a server, and holds its slot. */
import { setTimeout as sleep } from 'node:timers/promises';
import { asTollgateError, type TollgateError } from '../../catalogs/errors/error-table.ts';
import type { ServerInfo, ServerNotice } from '../port.ts';
import type { Connection } from '../rpc/connection.ts';
import type { JsonObject } from '../rpc/message-parser.ts';
import type { ConnectionSlots, SlotHolder } from './connection-cap.ts';
import type { LossCause } from './restarts.ts';
import type { ServerEventDetails } from './server-events.ts';
import { type ServerSettings, serverUnavailable } from './server-settings.ts';
import { type SessionEvents, UpstreamSession } from './upstream-session.ts';

/** Pauses before each check of the number of processes after a call. Many programs leave some for a moment. */
const FULL_CHECK_PAUSES_MS = [2000, 3000];
/** Milliseconds that a remote server may take to answer a ping. */
const PING_MS = 5000;
/** Pings in a row without an answer after which a server with waiting calls counts as lost. */
const MAX_MISSED = 3;

/** The dependencies of a connector, and the events that it reports. */
export interface ConnectorParts {
  readonly settings: ServerSettings;
  readonly slots: ConnectionSlots;
  readonly connect: () => Connection;
  /** Returns true if the connection must stay open although it is idle. */
  readonly isKept: () => boolean;
  readonly onToolsChanged: () => void;
  readonly onNotice: (notice: ServerNotice) => void;
  readonly onExchange?: SessionEvents['onExchange'];
  /** Returns the capabilities of clients that a handshake declares now. */
  readonly capabilities: () => JsonObject;
  readonly prefersSession: () => boolean;
  readonly report: (event: ServerEventDetails, id: string) => void;
  /** The connection ended by itself, or could not be opened. `why` is one public line. */
  readonly onLost: (id: string, loss: LossCause & { readonly why: string; readonly wasReady: boolean }) => void;
  /** Tollgate closed the connection in an orderly way. */
  readonly onStopped: (id: string) => void;
}

/** Opens one connection at a time. The caller must not call `open` while another `open` runs. */
export class Connector implements SlotHolder {
  private readonly parts: ConnectorParts;
  /** The newest session. It is connected if `ready` is true; otherwise it is connecting. */
  private session: UpstreamSession | undefined;
  private ready = false;
  private usedAt = 0;
  private probing = false;
  private isCheckingFull = false;
  private readonly memory = { sessionFirst: false };
  private readonly closing = new Map<UpstreamSession, Promise<void>>();
  badLines = 0;
  info: ServerInfo | undefined;

  constructor(parts: ConnectorParts) {
    this.parts = parts;
  }

  /** The connected session, if there is one. */
  get current(): UpstreamSession | undefined {
    return this.ready ? this.session : undefined;
  }

  /**
   * Waits for a slot and connects. Calls `consent` and `refusal` once it has a slot. Throws what they return,
   * INIT_FAILED, SERVER_UNAVAILABLE and what a start throws.
   */
  async open(
    refusal: () => TollgateError | undefined,
    consent: () => Promise<TollgateError | undefined>,
  ): Promise<UpstreamSession> {
    const { settings, slots } = this.parts;
    // An old process of this server holds its slot until it has ended completely.
    await Promise.all(this.closing.values());
    await slots.acquire(this, settings.connectTimeoutMs);
    try {
      // Consent is checked again, because it may have changed during a long wait for the slot.
      const refused = (await consent()) ?? refusal();
      if (refused !== undefined) throw refused;
    } catch (thrown) {
      slots.release(this);
      throw thrown;
    }
    const session = this.createSession();
    try {
      this.info = await session.open(settings.connectTimeoutMs);
    } catch (thrown) {
      const error = asTollgateError(thrown);
      this.lose(session, { why: error.message, error });
      throw error;
    }
    // It may have been stopped, or have ended, since its answer. Its slot is already free then.
    if (this.session !== session) throw refusal() ?? serverUnavailable(settings.name, 'ended right after its start');
    this.ready = true;
    this.usedAt = performance.now();
    this.checkRegularly(session);
    return session;
  }

  /**
   * Pings a remote server: it can end unnoticed. An idle one would count as healthy until the next call. If calls wait
   * and nothing comes, they would wait for their deadline. A busy server may answer late, so several pings must fail.
   */
  private checkRegularly(session: UpstreamSession): void {
    const { healthCheckMs = 0 } = this.parts.settings;
    if (healthCheckMs === 0) return;
    let missed = 0;
    const timer = setInterval(() => {
      if (this.current !== session) return clearInterval(timer);
      const isBusy = session.inFlight > 0;
      if (isBusy && session.silentMs < healthCheckMs) return void (missed = 0);
      const isAlive = async (): Promise<boolean> => {
        const isHeard = (await session.answersPing(PING_MS)) || (isBusy && session.silentMs < PING_MS);
        missed = isHeard ? 0 : missed + 1;
        return missed < (isBusy ? MAX_MISSED : 1);
      };
      // During the ping the connection was busy, so a server that waits for a slot could not get this one.
      void this.endUnless(session, isAlive, 'does not answer a ping').then(() => this.parts.slots.noteIdle());
    }, healthCheckMs).unref();
  }

  /** Must be called after each use, when the connection may be idle. */
  noteUse(): void {
    if (!this.isCheckingFull && this.current !== undefined) void this.endIfFull(this.current);
    this.usedAt = performance.now();
    this.parts.slots.noteIdle();
  }

  busy(): boolean {
    return !this.ready || (this.session?.inFlight ?? 0) > 0 || this.parts.isKept();
  }

  lastUsed(): number {
    return this.usedAt;
  }

  async giveUp(): Promise<void> {
    this.disconnect();
    await Promise.all(this.closing.values());
  }

  /** Closes the connection in an orderly way if it is idle. */
  endIfIdle(): void {
    if (!this.busy()) this.disconnect();
  }

  /**
   * Kills the server, and returns the id of its session if it was connected. `why` completes "Server x …" for the
   * calls in flight.
   */
  kill(why: string): string | undefined {
    const { session, ready } = this;
    for (const one of [session, ...this.closing.keys()]) one?.kill(why);
    if (session === undefined) return undefined;
    this.session = undefined;
    this.ready = false;
    this.parts.slots.release(this);
    return ready ? session.id : undefined;
  }

  /** Pings a session, and ends it as lost if the server sends nothing within the given milliseconds. */
  endIfUnresponsive(session: UpstreamSession, withinMs: number): Promise<void> {
    return this.endUnless(
      session,
      () => session.isResponsive(withinMs),
      'was stopped, because it did not react to a cancelled call or to a ping',
    );
  }

  /**
   * Ends a server as lost if its processes still use up its limit some time after a call. It could not work any more,
   * and can be started again.
   */
  private async endIfFull(session: UpstreamSession): Promise<void> {
    this.isCheckingFull = true;
    let isFull = true;
    for (const pause of FULL_CHECK_PAUSES_MS) {
      if (!isFull) break;
      await sleep(pause, undefined, { ref: false });
      isFull = this.current === session && session.inFlight === 0 && session.isFull;
    }
    this.isCheckingFull = false;
    if (!isFull) return;
    this.killAsLost(session, 'was stopped, because its processes used up limits.processes', { exit: 'processes' });
  }

  private async endUnless(session: UpstreamSession, isAlive: () => Promise<boolean>, why: string): Promise<void> {
    if (this.probing || this.current !== session) return;
    this.probing = true;
    const alive = await isAlive();
    this.probing = false;
    if (!alive && this.current === session) this.killAsLost(session, why);
  }

  private killAsLost(session: UpstreamSession, why: string, cause: LossCause = {}): void {
    session.kill(why);
    this.lose(session, { why: `Server "${this.parts.settings.name}" ${why}.`, ...cause });
  }

  private createSession(): UpstreamSession {
    const { settings, connect, onToolsChanged, onNotice, onExchange, capabilities } = this.parts;
    const session: UpstreamSession = new UpstreamSession(settings.name, connect, {
      onToolsChanged,
      onNotice,
      onExchange,
      memory: this.memory,
      prefersSession: this.parts.prefersSession,
      capabilities,
      onBad: () => this.badLines++,
      onRefused: (event) => this.parts.report(event, session.id),
      onClosed: (why, exit, error) =>
        this.lose(session, {
          why: error?.message ?? `Server "${settings.name}" ${why}.`,
          ...(exit !== undefined && { exit }),
          ...(error !== undefined && { error }),
        }),
    });
    this.session = session;
    return session;
  }

  private lose(session: UpstreamSession, loss: LossCause & { readonly why: string }): void {
    if (this.session !== session) return;
    const wasReady = this.ready;
    this.session = undefined;
    this.ready = false;
    this.parts.slots.release(this);
    this.parts.onLost(session.id, { ...loss, wasReady });
  }

  private disconnect(): void {
    const { session, ready } = this;
    if (session === undefined) return;
    this.session = undefined;
    this.ready = false;
    if (ready) this.parts.onStopped(session.id);
    const closed = session.close().finally(() => {
      this.closing.delete(session);
      this.parts.slots.release(this);
    });
    // Callers that wait for the end get its error. Without a caller, the error must not end the facade.
    closed.catch(() => undefined);
    this.closing.set(session, closed);
  }
}
