/** Owns the one connection that a server may have, with its slot: opening, losing and ending it; refuses a second beside it. */
import { setTimeout as sleep } from 'node:timers/promises';
import { asTollgateError, TollgateError } from '../../catalogs/errors/error-table.ts';
import type { ServerInfo, UpstreamCall } from '../port.ts';
import type { Connection } from '../rpc/connection.ts';
import type { RefusedRequest } from '../rpc/refused-requests.ts';
import type { ConnectionSlots, SlotHolder } from './connection-cap.ts';
import type { LossCause } from './restarts.ts';
import type { ServerSettings } from './server-settings.ts';
import { UpstreamSession } from './upstream-session.ts';

/** From the end of a call to the first look at the number of processes, and from that to the second: many programs leave some for a moment. */
const FULL_LOOKS_MS = [2000, 3000];
/** How long a connection on which nothing happens may take to answer a ping. */
const PING_MS = 5000;

/** What a connector is made of, and what it reports. */
export interface ConnectorParts {
  readonly settings: ServerSettings;
  readonly slots: ConnectionSlots;
  readonly connect: () => Connection;
  /** It must not be given up although it is idle. */
  readonly isKept: () => boolean;
  readonly onToolsChanged: () => void;
  /** Requests of the server were refused; `during`: the only call that ran meanwhile. */
  readonly onRefused: (id: string, refused: RefusedRequest, during: UpstreamCall | undefined) => void;
  /** It went by itself, or did not come up. `why` is one public line. */
  readonly onLost: (id: string, loss: LossCause & { readonly why: string; readonly wasReady: boolean }) => void;
  /** It was ended by us, in order. */
  readonly onStopped: (id: string) => void;
}

/** Opens one connection at a time; its caller sees to it that `open` is not called twice at once. */
export class Connector implements SlotHolder {
  private readonly parts: ConnectorParts;
  /** The newest session: connecting, or connected when `ready`. */
  private session: UpstreamSession | undefined;
  private ready = false;
  private usedAt = 0;
  private probing = false;
  private isLooking = false;
  private readonly closing = new Map<UpstreamSession, Promise<void>>();
  badLines = 0;
  info: ServerInfo | undefined;

  constructor(parts: ConnectorParts) {
    this.parts = parts;
  }

  /** The connected session, if there is one now. */
  get current(): UpstreamSession | undefined {
    return this.ready ? this.session : undefined;
  }

  /** Waits for a slot and connects. `refusal` is asked again once there is a slot, after `consent`. Throws INIT_FAILED, SERVER_UNAVAILABLE and what a start throws. */
  async open(
    refusal: () => TollgateError | undefined,
    consent: () => Promise<TollgateError | undefined>,
  ): Promise<UpstreamSession> {
    const { settings, slots } = this.parts;
    // An old process of this server still holds its slot until nothing of it is left.
    await Promise.all(this.closing.values());
    await slots.acquire(this, settings.connectTimeoutMs);
    await this.checkStart(refusal, consent);
    const session = this.makeSession();
    try {
      this.info = await session.open(settings.connectTimeoutMs);
    } catch (thrown) {
      const error = asTollgateError(thrown);
      this.lose(session, { why: error.message, error });
      throw error;
    }
    // It may have been stopped, or have ended, between its answer and this line; its slot is free already.
    if (this.session !== session)
      throw (
        refusal() ?? new TollgateError('SERVER_UNAVAILABLE', { detail: `Server "${settings.name}" ended at once.` })
      );
    this.ready = true;
    this.usedAt = performance.now();
    this.checkWhileIdle(session);
    return session;
  }

  /** A server elsewhere ends without a word to us: one that is not used would count as healthy until the next call. */
  private checkWhileIdle(session: UpstreamSession): void {
    const { healthCheckMs: every = 0 } = this.parts.settings;
    if (every === 0) return;
    const timer = setInterval(() => {
      if (this.current !== session) return clearInterval(timer);
      if (session.inFlight > 0) return;
      // Who waits for a connection may have found this one busy meanwhile.
      void this.endUnless(session, () => session.answersPing(PING_MS), 'does not answer a ping').then(() =>
        this.parts.slots.noteIdle(),
      );
    }, every).unref();
  }

  /** To be called when it was used, and may be idle now. */
  noteUse(): void {
    void this.endIfFull();
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

  /** Ends it in order if nobody uses it. */
  endIfIdle(): void {
    if (!this.busy()) this.disconnect();
  }

  /** Ends everything at once. `why` completes "Server x …" for calls in flight. The id of what was connected, if anything was. */
  kill(why: string): string | undefined {
    const { session, ready } = this;
    for (const one of [session, ...this.closing.keys()]) one?.kill(why);
    if (session === undefined) return undefined;
    this.session = undefined;
    this.ready = false;
    this.parts.slots.release(this);
    return ready ? session.id : undefined;
  }

  /** Asks a session for a sign of life, and ends it as lost when there is none within the time given. */
  endIfUnresponsive(session: UpstreamSession, withinMs: number): Promise<void> {
    return this.endUnless(
      session,
      () => session.isResponsive(withinMs),
      'was ended, because it took no notice of a cancelled call nor of a ping',
    );
  }

  /** After a call: a server whose processes have used up its limit, and stay, could do nothing any more. It is ended as lost, so that it can be started again. */
  private async endIfFull(): Promise<void> {
    const session = this.current;
    if (session === undefined || this.isLooking) return;
    this.isLooking = true;
    let isFull = true;
    for (let look = 0; look < FULL_LOOKS_MS.length && isFull; look += 1) {
      await sleep(FULL_LOOKS_MS[look], undefined, { ref: false });
      isFull = this.current === session && session.inFlight === 0 && session.isFull;
    }
    this.isLooking = false;
    if (!isFull) return;
    const why = 'was ended, because what it had started took all the processes that limits.processes lets it have';
    session.kill(why);
    this.lose(session, { why: `Server "${this.parts.settings.name}" ${why}.`, exit: 'processes' });
  }

  private async endUnless(session: UpstreamSession, lives: () => Promise<boolean>, why: string): Promise<void> {
    if (this.probing || this.current !== session) return;
    this.probing = true;
    const alive = await lives();
    this.probing = false;
    if (alive || this.current !== session) return;
    session.kill(why);
    this.lose(session, { why: `Server "${this.parts.settings.name}" ${why}.` });
  }

  /** The wait for a slot may have been long: what was agreed to may be something else by now. Gives the slot back. */
  private async checkStart(
    refusal: () => TollgateError | undefined,
    consent: () => Promise<TollgateError | undefined>,
  ): Promise<void> {
    try {
      const refused = (await consent()) ?? refusal();
      if (refused !== undefined) throw refused;
    } catch (thrown) {
      this.parts.slots.release(this);
      throw thrown;
    }
  }

  private makeSession(): UpstreamSession {
    const { settings, connect, onToolsChanged } = this.parts;
    const session: UpstreamSession = new UpstreamSession(settings.name, connect(), {
      onToolsChanged,
      onBad: () => this.badLines++,
      onRefused: (refused, during) => this.parts.onRefused(session.id, refused, during),
      onClosed: (why, exit, error) =>
        this.lose(session, {
          why: error?.message ?? `Server "${settings.name}" ${why}.`,
          ...(exit === undefined ? {} : { exit }),
          ...(error === undefined ? {} : { error }),
        }),
    });
    this.session = session;
    return session;
  }

  private lose(session: UpstreamSession, ending: LossCause & { readonly why: string }): void {
    if (this.session !== session) return;
    const wasReady = this.ready;
    this.session = undefined;
    this.ready = false;
    this.parts.slots.release(this);
    this.parts.onLost(session.id, { ...ending, wasReady });
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
    // Who waits for the end hears of it; without anybody, what is left in places of our own must not end the facade.
    closed.catch(() => undefined);
    this.closing.set(session, closed);
  }
}
