/** The sessions of HTTP clients, with limits on their number and their idle time. Only its principal can use one. */
import type { ServerResponse } from 'node:http';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import type { Principal } from '../../../policies/port.ts';
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

  /** Called every few seconds: keeps proxies from closing a quiet stream, and finds dead ones. */
  keepAlive(): void {
    this.#stream?.comment('keep-alive');
    this.#tellMissed();
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
    await session.close(why);
  }

  /** No session takes a new request from now on. Resolves when nothing runs in any. */
  async drain(): Promise<void> {
    await Promise.all([...this.#sessions.values()].map(({ dispatch }) => dispatch.drain()));
  }

  async endAll(why: string): Promise<void> {
    await Promise.all([...this.#sessions.values()].map((session) => this.end(session, why)));
  }

  /** Notifies one session, or all. */
  toolsChanged(only?: Session): void {
    const concerned = only === undefined ? this.#sessions.values() : [this.#sessions.get(only.id)];
    for (const session of concerned) session?.dispatch.toolsChanged();
  }

  /** Sends a notification to one session, or to all. */
  notice(notice: ClientNotice, only?: Session): void {
    const concerned = only === undefined ? this.#sessions.values() : [this.#sessions.get(only.id)];
    for (const session of concerned) session?.dispatch.notice(notice);
  }

  /** Call it every few seconds: it ends idle sessions and keeps streams alive. */
  tick(): void {
    this.#expire();
    for (const session of this.#sessions.values()) session.keepAlive();
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
    for (const session of this.#sessions.values()) if (this.#expired(session)) this.#drop(session);
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

/** Returns whether a request of `principal` may use the session of `holder`. */
function isHolder(principal: Principal, holder: Principal): boolean {
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
