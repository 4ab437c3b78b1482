/**
 * The sessions of HTTP clients, with limits on their number and their idle time. Only its principal can use one.
 * Stateless requests of a principal and origin share a virtual one.
 */
import type { ServerResponse } from 'node:http';
import { isDeepStrictEqual } from 'node:util';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import type { Principal } from '../../../policies/port.ts';
import { isSubject } from '../../config/settings/jwt-settings.ts';
import type { ClientNotice, Facade, Session } from '../facade-port.ts';
import type { Dispatch } from '../legacy-dispatch.ts';
import type { Era } from '../protocol-revisions.ts';
import { openDispatch } from '../session-dispatch.ts';
import { EventStream } from './client-event-stream.ts';

/** The limits of the table. */
export interface SessionOptions {
  readonly facade: Facade;
  readonly maxSessions: number;
  /** Sessions of one principal at once. */
  readonly maxPerPrincipal: number;
  /** A session with nothing running and no open stream ends after this time. */
  readonly idleMs: number;
  /** Whether a token of this principal is still valid. Default: always. */
  readonly isCurrent?: (principal: Principal) => boolean;
  /** Milliseconds, of any beginning. */
  readonly now: () => number;
  readonly onFault: (thrown: unknown) => void;
}

/** The most notifications that wait for a stream. */
const MAX_MISSED = 64;

/** One client over HTTP. */
export class HttpSession {
  readonly session: Session;
  readonly dispatch: Dispatch;
  /** The principal as its token and Origin header identified it when the session was opened. */
  readonly holder: Principal;
  lastUsed: number;
  #stream: EventStream | undefined;
  /** Open responses to stateless requests. */
  readonly #responses = new Set<EventStream>();
  /** Notifications that no stream has carried yet. Of equal ones, one stands for all. */
  readonly #missed = new Set<string>();

  constructor(era: Era, opened: { readonly session: Session; readonly holder: Principal }, options: SessionOptions) {
    const { session, holder } = opened;
    this.session = session;
    this.holder = holder;
    this.lastUsed = options.now();
    this.dispatch = openDispatch(era, {
      facade: options.facade,
      session,
      notify: (text) => this.#notify(text),
      onFault: options.onFault,
    });
  }

  get streaming(): boolean {
    return this.#stream !== undefined;
  }

  get idle(): boolean {
    return this.dispatch.running === 0 && !this.streaming;
  }

  /** Opens the session's one stream of notifications, and sends first what was missed. */
  attach(response: ServerResponse, now: () => number): void {
    const stream = new EventStream(response);
    this.#stream = stream;
    response.once('close', () => {
      this.lastUsed = now();
      if (this.#stream === stream) this.#stream = undefined;
    });
    stream.open();
    this.#tellMissed();
  }

  /** Notes the response to a stateless request until it is closed. */
  hold(response: ServerResponse, now: () => number): EventStream {
    const stream = new EventStream(response);
    this.#responses.add(stream);
    response.once('close', () => {
      this.#responses.delete(stream);
      this.lastUsed = now();
    });
    return stream;
  }

  /** Called every few seconds: keeps proxies from closing a quiet stream, and finds dead ones. */
  keepAlive(): void {
    this.#stream?.comment('keep-alive');
    for (const stream of this.#responses) if (stream.isOpen) stream.comment('keep-alive');
    this.#tellMissed();
    this.dispatch.retell?.();
  }

  /** Ends open streams. The client opens others with a valid token. */
  endStreams(): void {
    this.#stream?.end();
    this.dispatch.endStreams?.();
  }

  /** Answers each running call with `why`, and ends the session. */
  async close(why: string): Promise<void> {
    await this.dispatch.close(why);
    this.#stream?.end();
  }

  /** The oldest notification is dropped if too many wait for a stream. */
  #notify(text: string): void {
    this.#missed.add(text);
    const [oldest = ''] = this.#missed;
    if (this.#missed.size > MAX_MISSED) this.#missed.delete(oldest);
    this.#tellMissed();
  }

  #tellMissed(): void {
    for (const text of this.#missed) {
      if (this.#stream?.send(text) !== true) return;
      this.#missed.delete(text);
    }
  }
}

const ENDED = 'The session ended while the call ran.';

/** All sessions of one listener. */
export class SessionTable {
  readonly #options: SessionOptions;
  readonly #sessions = new Map<string, HttpSession>();
  /** The sessions of stateless requests, by principal. */
  readonly #virtual = new Map<string, HttpSession>();
  /** Sessions that were ended to make room. */
  evicted = 0;

  constructor(options: SessionOptions) {
    this.#options = options;
  }

  get size(): number {
    return this.#sessions.size;
  }

  /**
   * If there are too many, ends the idle session that was unused longest. Throws HTTP_SESSIONS_QUOTA, or
   * HTTP_SESSIONS_FULL, if none is idle.
   */
  open(era: Era, principal: Principal): HttpSession {
    const { facade, maxSessions, maxPerPrincipal } = this.#options;
    if (this.#sessions.size >= maxSessions || this.#countOf(principal) >= maxPerPrincipal) this.#expire();
    if (
      this.#countOf(principal) >= maxPerPrincipal &&
      !this.#evict(({ session }) => session.principal.id === principal.id)
    )
      throw overQuota(maxPerPrincipal);
    if (this.#sessions.size >= maxSessions && !this.#evict(() => true)) throw new TollgateError('HTTP_SESSIONS_FULL');
    const opened = new HttpSession(
      era,
      { session: facade.openSession(principal, 'http'), holder: principal },
      this.#options,
    );
    this.#sessions.set(opened.session.id, opened);
    return opened;
  }

  /**
   * Returns the session of all stateless requests of a principal and origin. The name of a run selects none: a new name
   * would otherwise renew what counts by session. It ends after `idleMs` without a request, and never to make room.
   * Throws HTTP_SESSIONS_FULL, and what opening a session throws.
   */
  virtual(principal: Principal): HttpSession {
    const key = JSON.stringify(principal);
    const known = this.#virtual.get(key);
    if (known !== undefined && !this.#expired(known)) {
      known.lastUsed = this.#options.now();
      return known;
    }
    if (known !== undefined) this.#drop(known);
    if (this.#virtual.size >= this.#options.maxSessions) this.#expire();
    if (this.#virtual.size >= this.#options.maxSessions) throw new TollgateError('HTTP_SESSIONS_FULL');
    const session = this.#options.facade.openSession(principal, 'http');
    const opened = new HttpSession('modern', { session, holder: principal }, this.#options);
    this.#virtual.set(key, opened);
    return opened;
  }

  /**
   * Returns the session with this id if this principal opened it in the same way. Another's session is as unknown as a
   * missing one (attack: session hijack). Grants belong to an origin, so a page, or a caller without a token, cannot
   * use a session of another origin of the same principal.
   */
  find(id: string, principal: Principal): HttpSession | undefined {
    const found = this.#sessions.get(id);
    if (found === undefined || !isHolder(principal, found.holder)) return undefined;
    if (this.#expired(found)) {
      this.#drop(found);
      return undefined;
    }
    found.lastUsed = this.#options.now();
    return found;
  }

  #countOf({ id }: Principal): number {
    let count = 0;
    for (const { session } of this.#sessions.values()) if (session.principal.id === id) count += 1;
    return count;
  }

  async end(session: HttpSession, why: string): Promise<void> {
    this.#sessions.delete(session.session.id);
    for (const [key, one] of this.#virtual) if (one === session) this.#virtual.delete(key);
    await session.close(why);
  }

  /** No session takes a new request from now on. Resolves when nothing runs in any. */
  async drain(): Promise<void> {
    await Promise.all(this.#all().map(({ dispatch }) => dispatch.drain()));
  }

  async endAll(why: string): Promise<void> {
    await Promise.all(this.#all().map((session) => this.end(session, why)));
  }

  /** Notifies one session, or all. */
  toolsChanged(only?: Session): void {
    for (const { dispatch } of this.#concerned(only)) dispatch.toolsChanged();
  }

  /** Sends a notification to one session, or to all. */
  notice(notice: ClientNotice, only?: Session): void {
    for (const { dispatch } of this.#concerned(only)) dispatch.notice(notice);
  }

  /** Call it every few seconds: it ends idle sessions and streams whose token has expired, and keeps others alive. */
  tick(): void {
    this.#expire();
    for (const session of this.#all())
      if (this.#options.isCurrent?.(session.holder) === false) session.endStreams();
      else session.keepAlive();
  }

  #all(): readonly HttpSession[] {
    return [...this.#sessions.values(), ...this.#virtual.values()];
  }

  #concerned(only: Session | undefined): readonly HttpSession[] {
    if (only === undefined) return this.#all();
    const named = this.#sessions.get(only.id);
    return named === undefined ? [...this.#virtual.values()].filter(({ session }) => session === only) : [named];
  }

  /**
   * Returns false if all of these are in use. A client with an open stream may have vanished, so its session may be
   * ended after `idleMs`.
   */
  #evict(which: (session: HttpSession) => boolean): boolean {
    const since = this.#options.now() - this.#options.idleMs;
    const unused = [...this.#sessions.values()].filter(
      (session) => which(session) && (session.idle || (session.dispatch.running === 0 && session.lastUsed < since)),
    );
    const [victim] = unused.sort(
      (one, other) => Number(one.streaming) - Number(other.streaming) || one.lastUsed - other.lastUsed,
    );
    if (victim === undefined) return false;
    this.evicted += 1;
    this.#drop(victim);
    return true;
  }

  #expire(): void {
    for (const session of this.#all()) if (this.#expired(session)) this.#drop(session);
  }

  #expired(session: HttpSession): boolean {
    return (
      session.session.closed.aborted || (session.idle && this.#options.now() - session.lastUsed > this.#options.idleMs)
    );
  }

  #drop(session: HttpSession): void {
    this.end(session, ENDED).catch(this.#options.onFault);
  }
}

/**
 * Returns whether a request of `principal` may use the session of `holder`. The session has the rights of its first
 * token, so another token of the same subject must give exactly these.
 */
function isHolder(principal: Principal, holder: Principal): boolean {
  if (isSubject(principal)) return isDeepStrictEqual(principal, holder);
  return (
    principal.id === holder.id &&
    principal.origin === holder.origin &&
    (principal.owner === true || holder.owner !== true)
  );
}

/** Returns the refusal of a session beyond the quota of its principal. */
export function overQuota(limit: number): TollgateError {
  return new TollgateError('HTTP_SESSIONS_QUOTA', {
    detail: `This principal has ${limit} sessions, all in use, and may not have more.`,
    data: { limit },
  });
}
