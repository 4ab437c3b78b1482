/**
 * The sessions of HTTP clients, with limits on their number and their idle time. Only its principal can use one.
 * Stateless requests of a principal and origin share a virtual one.
 */
import type { ServerResponse } from 'node:http';
import { isDeepStrictEqual } from 'node:util';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { type Awaitable, andThen } from '../../../catalogs/text/awaitable.ts';
import type { Principal } from '../../../policies/port.ts';
import { isSubject } from '../../config/settings/jwt-settings.ts';
import { type ClientNotice, type Facade, LIST_METHODS, type Session } from '../facade-port.ts';
import type { Dispatch } from '../legacy-dispatch.ts';
import type { Era } from '../protocol-revisions.ts';
import { notificationText } from '../reply-text.ts';
import { openDispatch } from '../session-dispatch.ts';
import { EventStream } from './client-event-stream.ts';
import type { FoundRecord, SharedId, SharedSessions } from './shared-sessions.ts';

/** The limits of the table. */
export interface SessionOptions {
  readonly facade: Facade;
  readonly maxSessions: number;
  /** Sessions of one principal at once. */
  readonly maxPerPrincipal: number;
  /** A session with nothing running and no open stream ends after this time. */
  readonly idleMs: number;
  /** The records of sessions that other replicas serve too. Absent: there are no others. */
  readonly shared?: SharedSessions;
  /** A session stays with its home while that can be reached. Default: it moves to the replica that is asked. */
  readonly hops?: boolean;
  /** Whether a token of this principal is still valid. Default: always. */
  readonly isCurrent?: (principal: Principal) => boolean;
  /** Milliseconds, of any beginning. */
  readonly now: () => number;
  readonly onFault: (thrown: unknown) => void;
}

/** A session that another replica has. */
export interface SessionElsewhere {
  /** The address of the hop of its home. */
  readonly address: string;
  readonly found: FoundRecord;
}

/** The most notifications that wait for a stream. */
const MAX_MISSED = 64;
/** What a client may have missed while its session had no home. It reads the lists again. */
const MISSED = [...new Set(LIST_METHODS.map((method) => method.split('/')[0]))].map((list) =>
  notificationText(`notifications/${list}/list_changed`),
);

/** A session of the facade, and how it was opened. */
interface OpenedSession {
  readonly session: Session;
  readonly holder: Principal;
  /** The revision of a session that another replica has opened. */
  readonly resumed?: string;
}

/** One client over HTTP. */
export class HttpSession {
  readonly session: Session;
  readonly dispatch: Dispatch;
  /** The principal as its token and Origin header identified it when the session was opened. */
  readonly holder: Principal;
  lastUsed: number;
  /** When its record was renewed, by the same clock. */
  renewed: number;
  /** What its record has. */
  saved = '';
  #stream: EventStream | undefined;
  /** Open responses to stateless requests. */
  readonly #responses = new Set<EventStream>();
  /** Notifications that no stream has carried yet. Of equal ones, one stands for all. */
  readonly #missed = new Set<string>();

  constructor(era: Era, { session, holder, resumed }: OpenedSession, options: SessionOptions) {
    this.session = session;
    this.holder = holder;
    this.lastUsed = options.now();
    this.renewed = this.lastUsed;
    this.dispatch = openDispatch(era, {
      facade: options.facade,
      session,
      notify: (text) => this.#notify(text),
      onFault: options.onFault,
      ...(resumed !== undefined && { resumed }),
    });
    for (const text of resumed === undefined ? [] : MISSED) this.#missed.add(text);
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

  /** Answers each running call with `why`, and ends the session here; everywhere, unless it is released. */
  async close(why: string, how?: 'released'): Promise<void> {
    await this.dispatch.close(why, how);
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

/** How often the home of a session may change while one request looks for it. */
export const MAX_MOVES = 5;
const ENDED = 'The session ended while the call ran.';

/** All sessions of one listener. */
export class SessionTable {
  readonly #options: SessionOptions;
  readonly #sessions = new Map<string, HttpSession>();
  /** The sessions of stateless requests, by principal. */
  readonly #virtual = new Map<string, HttpSession>();
  /** Sessions that this replica is taking over. */
  readonly #claims = new Map<string, Promise<unknown>>();
  #isDraining = false;
  #isRenewing = false;
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
    this.#makeRoom(principal);
    const session = this.#options.facade.openSession(principal, 'http');
    const opened = new HttpSession(era, { session, holder: principal }, this.#options);
    this.#sessions.set(opened.session.id, opened);
    return opened;
  }

  #makeRoom(principal: Principal): void {
    const { maxSessions, maxPerPrincipal } = this.#options;
    if (this.#sessions.size >= maxSessions || this.#countOf(principal) >= maxPerPrincipal) this.#expire();
    if (
      this.#countOf(principal) >= maxPerPrincipal &&
      !this.#evict(({ session }) => session.principal.id === principal.id)
    )
      throw overQuota(maxPerPrincipal);
    if (this.#sessions.size >= maxSessions && !this.#evict(() => true)) throw new TollgateError('HTTP_SESSIONS_FULL');
  }

  /**
   * Returns the session of all stateless requests of a principal and origin. The name of a run selects none: a new name
   * would otherwise renew what counts by session. It ends after `idleMs` without a request, and never to make room.
   * Throws HTTP_SESSIONS_FULL, and what opening a session throws.
   */
  virtual(principal: Principal): Awaitable<HttpSession> {
    const key = JSON.stringify(principal);
    const { shared } = this.#options;
    if (shared === undefined) return this.#virtualWith(key, principal);
    return andThen(shared.refresh(), async () => this.#virtualWith(key, principal, await shared.idOf(key)));
  }

  #virtualWith(key: string, principal: Principal, id?: SharedId): HttpSession {
    const known = this.#virtual.get(key);
    if (known !== undefined && !this.#expired(known) && (id === undefined || id.id === known.session.id)) {
      known.lastUsed = this.#options.now();
      return known;
    }
    if (known !== undefined) this.#drop(known);
    if (this.#virtual.size >= this.#options.maxSessions) this.#expire();
    if (this.#virtual.size >= this.#options.maxSessions) throw new TollgateError('HTTP_SESSIONS_FULL');
    const session = this.#options.facade.openSession(principal, 'http', id);
    const opened = new HttpSession('modern', { session, holder: principal }, this.#options);
    this.#virtual.set(key, opened);
    return opened;
  }

  /**
   * Returns a session, or where it is: the home must be asked first. Takes over a session without a home. Undefined:
   * see `find`. `exact`: what was found before has changed. Throws SHUTTING_DOWN if this replica stops and no other one
   * has the session.
   */
  locate(id: string, principal: Principal, exact?: 'exact'): Awaitable<HttpSession | SessionElsewhere | undefined> {
    const { shared } = this.#options;
    return shared === undefined ? this.find(id, principal) : this.#locate(shared, { id, principal, exact });
  }

  async #locate(
    shared: SharedSessions,
    {
      id,
      principal,
      exact,
    }: { readonly id: string; readonly principal: Principal; readonly exact: 'exact' | undefined },
  ): Promise<HttpSession | SessionElsewhere | undefined> {
    for (let moves = 0; moves < MAX_MOVES; moves += 1) {
      await this.#claims.get(id);
      await shared.refresh(moves > 0 ? 'exact' : exact);
      const local = this.#sessions.get(id);
      if (local !== undefined && shared.isHome(id)) return this.find(id, principal);
      if (shared.find(id) === undefined) await shared.refresh('exact');
      const found = shared.find(id);
      if (found === undefined) {
        if (local !== undefined) await this.end(local, ENDED);
        return undefined;
      }
      if (!isHolder(JSON.parse(JSON.stringify(principal)) as Principal, found.record.holder)) return undefined;
      const address = shared.addressOf(found.record.home);
      if (address !== undefined && this.#options.hops === true) return { address, found };
      const taken = await this.takeOver(id, principal, found);
      if (taken !== undefined) return taken;
    }
    throw tooManyMoves();
  }

  /** Returns true if this replica is the home of a session, and does not stop: then others take over at once. */
  async isHome(id: string): Promise<boolean> {
    const { shared } = this.#options;
    await this.#claims.get(id);
    await shared?.refresh();
    return !this.#isDraining && this.#sessions.has(id) && shared?.isHome(id) === true;
  }

  /** Makes this replica the home of a session. Returns undefined if another replica was faster. Throws as `open`. */
  takeOver(id: string, principal: Principal, found: FoundRecord): Promise<HttpSession | undefined> {
    if (this.#isDraining) throw new TollgateError('SHUTTING_DOWN');
    const claim = this.#takeOver(id, principal, found);
    this.#claims.set(
      id,
      claim.then(
        () => this.#claims.delete(id),
        () => this.#claims.delete(id),
      ),
    );
    return claim;
  }

  async #takeOver(id: string, principal: Principal, found: FoundRecord): Promise<HttpSession | undefined> {
    const { facade, shared } = this.#options;
    const known = this.#sessions.get(id);
    if (known === undefined) this.#makeRoom(principal);
    if ((await shared?.claim(id, found)) !== true) return undefined;
    const { holder, revision, saved } = found.record;
    // The session has the rights of its first token, as far as this token has them too.
    const owner = principal.owner === true && holder.owner === true;
    const current = owner === (principal.owner === true) ? principal : Object.freeze({ ...principal, owner });
    const session = known?.session ?? facade.openSession(current, 'http', { id, isContinued: true });
    const taken = known ?? new HttpSession('legacy', { session, holder: current, resumed: revision }, this.#options);
    this.#sessions.set(id, taken);
    taken.saved = JSON.stringify(saved);
    try {
      await facade.restore(session, saved);
    } catch (thrown) {
      await this.release(taken);
      throw thrown;
    }
    taken.lastUsed = this.#options.now();
    return taken;
  }

  /** Notes what another replica must know of a session, if it has changed. Throws STATE_FAILED. */
  save(session: HttpSession): Awaitable<void> {
    const { shared, facade } = this.#options;
    if (shared === undefined) return undefined;
    const { id } = session.session;
    const saved = facade.save(session.session);
    const text = JSON.stringify(saved);
    if (text === session.saved) return undefined;
    const isNew = session.saved === '';
    session.saved = text;
    const { holder, dispatch } = session;
    return isNew ? shared.add(id, { holder, revision: dispatch.revision ?? '', saved }) : shared.renew(id, saved);
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

  /** Ends a session everywhere. */
  async end(session: HttpSession, why: string): Promise<void> {
    const { shared } = this.#options;
    const { id } = session.session;
    const key = [...this.#virtual].find(([, one]) => one === session)?.[0];
    if (key === undefined) this.#sessions.delete(id);
    else this.#virtual.delete(key);
    let isLast = true;
    try {
      isLast = (await (key === undefined ? shared?.remove(id) : shared?.endId(key))) ?? true;
    } finally {
      await session.close(why, isLast ? undefined : 'released');
    }
  }

  /** Ends a session here. Another replica may continue it. */
  async release(session: HttpSession): Promise<void> {
    this.#sessions.delete(session.session.id);
    try {
      await this.#options.shared?.release(session.session.id);
    } finally {
      await session.close(ENDED, 'released');
    }
  }

  /**
   * No session takes a new request from now on. Other replicas may take over at once; what runs here ends here.
   * Resolves when nothing runs in any.
   */
  async drain(): Promise<void> {
    this.#isDraining = true;
    const { shared, onFault } = this.#options;
    const running = this.#all().map(({ dispatch }) => dispatch.drain());
    if (shared !== undefined)
      await Promise.all([...this.#sessions.keys()].map((id) => shared.release(id).catch(onFault)));
    for (const session of shared === undefined ? [] : this.#sessions.values()) session.endStreams();
    await Promise.all(running);
  }

  /** Ends all sessions here. */
  async endAll(why: string): Promise<void> {
    const how = this.#options.shared === undefined ? undefined : 'released';
    const all = this.#all();
    this.#sessions.clear();
    this.#virtual.clear();
    await Promise.all(all.map((session) => session.close(why, how)));
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
    this.#renew().catch((thrown) => (thrown instanceof TollgateError ? undefined : this.#options.onFault(thrown)));
    for (const session of this.#all())
      if (this.#options.isCurrent?.(session.holder) === false) session.endStreams();
      else session.keepAlive();
  }

  /** Tells other replicas which sessions are in use, and forgets those that another one has taken over. */
  async #renew(): Promise<void> {
    const { shared } = this.#options;
    if (shared === undefined || this.#isDraining || this.#isRenewing) return;
    this.#isRenewing = true;
    try {
      await this.#renewAll(shared);
    } finally {
      this.#isRenewing = false;
    }
  }

  async #renewAll(shared: SharedSessions): Promise<void> {
    await shared.refresh();
    for (const session of this.#sessions.values()) {
      const { id } = session.session;
      if (session.saved === '' || this.#claims.has(id)) continue;
      if (!shared.isHome(id)) {
        session.endStreams();
        if (session.dispatch.running === 0) await this.release(session);
      } else if (this.#isDue(session, shared)) await shared.renew(id);
    }
    for (const [key, session] of this.#virtual) if (this.#isDue(session, shared)) await shared.renewId(key);
    await shared.sweep();
  }

  #isDue(session: HttpSession, { renewMs }: SharedSessions): boolean {
    const now = this.#options.now();
    if (now - session.renewed < renewMs || (session.idle && session.lastUsed <= session.renewed)) return false;
    session.renewed = now;
    return true;
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

/** Returns the refusal of a request whose session changed its home again and again. */
export function tooManyMoves(): TollgateError {
  return new TollgateError('STATE_AWAY', {
    detail: 'The session moves between replicas too often.',
    next: 'Call again in a few seconds.',
  });
}

/** Returns the refusal of a session beyond the quota of its principal. */
export function overQuota(limit: number): TollgateError {
  return new TollgateError('HTTP_SESSIONS_QUOTA', {
    detail: `This principal has ${limit} sessions, all in use, and may not have more.`,
    data: { limit },
  });
}
