/**
 * The sessions that several replicas serve, as their shared state has them. A session has one home: the replica that
 * runs it. A replica takes over a session by replacing its record, so that one of several wins (decision 106).
 */
import { hash, randomBytes } from 'node:crypto';
import type { Principal } from '../../../policies/port.ts';
import { sessionKey } from '../../call/identify.ts';
import type { State } from '../../state/state-port.ts';
import type { SavedSession } from '../facade-port.ts';
import { labelSpace } from '../host/host-runs.ts';

/** What the state has of one session. It gives no rights: these come from the token of each request. */
export interface SessionRecord {
  /** The principal as its token and Origin header identified it when the session was opened. */
  readonly holder: Principal;
  /** The revision that `initialize` agreed on. */
  readonly revision: string;
  readonly saved: SavedSession;
  /** The mark of its home. Absent: the home has released it. */
  readonly home?: string;
  /** Milliseconds since 1970. */
  readonly touched: number;
}

/** A record as it was read. It can be replaced only while its text is the same. */
export interface FoundRecord {
  readonly record: SessionRecord;
  readonly text: string;
}

/** An id that is common to the sessions of all replicas for one key. */
export interface SharedId {
  readonly id: string;
  /** Another replica made it. */
  readonly isContinued: boolean;
}

/** Whose sessions have such an id, as far as one can be ended by it. */
export interface SharedIdOwner {
  readonly tab?: string;
  readonly origin?: string;
}

interface IdRecord extends SharedIdOwner {
  readonly nonce: string;
  /** Milliseconds since 1970. */
  readonly touched: number;
}

/** What the records are kept with. `now` in ms since 1970. */
export interface SharedSessionParts {
  readonly state: State;
  readonly idleMs: number;
  readonly now: () => number;
}

const [SESSIONS, IDS, REPLICAS] = ['sessions', 'session-ids', 'replicas'];
/** A record is deleted this long after its idle time, because clocks of replicas differ. */
const SLACK_MS = 120_000;
/** How often the record of a session that is used is renewed in the idle time. */
const RENEWALS = 10;
const MAX_TRIES = 5;
/** The records of sessions. Methods throw STATE_FAILED and STATE_AWAY. */
export class SharedSessions {
  readonly #state: State;
  readonly #idleMs: number;
  readonly #now: () => number;
  /** The text that this replica wrote last, by session. */
  readonly #written = new Map<string, string>();
  #address: string | undefined;

  constructor({ state, idleMs, now }: SharedSessionParts) {
    this.#state = state;
    this.#idleMs = idleMs;
    this.#now = now;
  }

  /** Records are renewed after this time, if they are used. */
  get renewMs(): number {
    return this.#idleMs / RENEWALS;
  }

  /** Makes the following reads see what all replicas have written. */
  refresh(exact?: 'exact'): Promise<void> | undefined {
    return this.#state.refresh(exact);
  }

  /** Lets other replicas find this one. `address`: host and port of its hop. */
  async enlist(address: string): Promise<void> {
    this.#address = address;
    await this.#list();
  }

  async delist(): Promise<void> {
    this.#address = undefined;
    await this.#state.remove(REPLICAS, this.#state.mark());
  }

  /** Returns the address of the hop of another replica; undefined for this one, one that has none, and a dead one. */
  addressOf(mark: string | undefined): string | undefined {
    if (mark === undefined || mark === this.#state.mark() || !this.#state.isAlive(mark)) return undefined;
    return this.#state.get(REPLICAS, mark);
  }

  /** Returns true while this replica is the home of a session. */
  isHome(id: string): boolean {
    const text = this.#state.get(SESSIONS, sessionKey(id));
    return text !== undefined && (text === this.#written.get(id) || parse(text).home === this.#state.mark());
  }

  /** Returns the record of a session; undefined if there is none, or if it was unused for too long. */
  find(id: string): FoundRecord | undefined {
    const text = this.#state.get(SESSIONS, sessionKey(id));
    if (text === undefined) return undefined;
    const record = parse(text);
    return this.#isOver(record) ? undefined : { record, text };
  }

  /** Writes the first record of a session, whose home is this replica. */
  async add(id: string, about: Pick<SessionRecord, 'holder' | 'revision' | 'saved'>): Promise<void> {
    const text = this.#textOf({ ...about, touched: 0 });
    await this.#state.put(SESSIONS, sessionKey(id), text);
    this.#written.set(id, text);
  }

  /** Makes this replica the home of a session. Returns false if the record has changed since it was read. */
  async claim(id: string, { record, text: from }: FoundRecord): Promise<boolean> {
    const to = this.#textOf(record);
    if (!(await this.#state.swap(SESSIONS, sessionKey(id), { from, to }))) return false;
    this.#written.set(id, to);
    return true;
  }

  /** Renews the record of a session whose home is this replica. Does nothing if that has changed. */
  async renew(id: string, saved?: SavedSession): Promise<void> {
    for (let tries = 0; tries < MAX_TRIES; tries += 1) {
      const from = this.#state.get(SESSIONS, sessionKey(id));
      if (from === undefined || !this.isHome(id)) return;
      const record = parse(from);
      if (await this.claim(id, { record: { ...record, saved: saved ?? record.saved }, text: from })) return;
    }
  }

  /** Lets other replicas take over a session. */
  async release(id: string): Promise<void> {
    this.#written.delete(id);
    const from = this.#state.get(SESSIONS, sessionKey(id));
    if (from === undefined || parse(from).home !== this.#state.mark()) return;
    const { home: _home, ...record } = parse(from);
    await this.#state.swap(SESSIONS, sessionKey(id), { from, to: JSON.stringify(record) });
  }

  /** Deletes the record of a session whose home is this replica. Returns false if another one has it. */
  async remove(id: string): Promise<boolean> {
    this.#written.delete(id);
    const isHome = this.isHome(id);
    if (isHome) await this.#state.remove(SESSIONS, sessionKey(id));
    return isHome;
  }

  /** Returns the id of the sessions of all replicas for a key, and makes one if there is none. */
  async idOf(key: string, owner: SharedIdOwner = {}): Promise<SharedId> {
    const name = sessionKey(key);
    for (;;) {
      const from = this.#state.get(IDS, name);
      const known = from === undefined ? undefined : parseId(from);
      if (known !== undefined && !this.#isOver(known)) return { id: idFrom(name, known.nonce), isContinued: true };
      const nonce = randomBytes(16).toString('hex');
      const to = JSON.stringify({ ...owner, nonce, touched: this.#now() } satisfies IdRecord);
      if (await this.#state.swap(IDS, name, { to, ...(from !== undefined && { from }) }))
        return { id: idFrom(name, nonce), isContinued: false };
      await this.#state.refresh('exact');
    }
  }

  /** Returns false if the id was replaced, because another replica has ended the session. */
  isIdOf(key: string, id: string): boolean {
    const name = sessionKey(key);
    const text = this.#state.get(IDS, name);
    return text !== undefined && idFrom(name, parseId(text).nonce) === id;
  }

  async renewId(key: string): Promise<void> {
    const from = this.#state.get(IDS, sessionKey(key));
    if (from === undefined) return;
    const to = JSON.stringify({ ...parseId(from), touched: this.#now() } satisfies IdRecord);
    await this.#state.swap(IDS, sessionKey(key), { from, to });
  }

  /** Deletes an id that no replica has used for too long. Returns true if this call has deleted it. */
  async endId(key: string): Promise<boolean> {
    const only = this.#state.get(IDS, sessionKey(key));
    if (only === undefined || this.#now() - parseId(only).touched <= this.#idleMs) return false;
    return (await this.#state.take(IDS, sessionKey(key), only)) !== undefined;
  }

  /** Deletes the ids of a tab, of all origins or of one. */
  async endTab(tab: string, origin: string | undefined): Promise<void> {
    await this.#state.refresh('exact');
    for (const [name, text] of this.#state.list(IDS)) {
      const owner = parseId(text);
      if (owner.tab === tab && (origin ?? owner.origin) === owner.origin) await this.#state.remove(IDS, name);
    }
  }

  /**
   * Deletes records of sessions that were unused for too long: their home has ended, and no client came back. Corrects
   * the list of replicas.
   */
  async sweep(): Promise<void> {
    await this.#list();
    for (const [key, text] of this.#state.list(SESSIONS)) {
      if (!this.#isOver(parse(text)) || (await this.#state.take(SESSIONS, key, text)) === undefined) continue;
      for (const label of this.#state.list(labelSpace(key)).keys()) await this.#state.remove(labelSpace(key), label);
    }
    for (const [key, text] of this.#state.list(IDS))
      if (this.#isOver(parseId(text))) await this.#state.take(IDS, key, text);
  }

  /** Others remove a replica that was silent for too long, so it lists itself again. */
  async #list(): Promise<void> {
    const dead = [...this.#state.list(REPLICAS).keys()].filter((mark) => !this.#state.isAlive(mark));
    for (const mark of dead) await this.#state.remove(REPLICAS, mark);
    const mark = this.#state.mark();
    if (this.#address !== undefined && this.#state.get(REPLICAS, mark) === undefined)
      await this.#state.put(REPLICAS, mark, this.#address);
  }

  #isOver({ touched }: Pick<SessionRecord, 'touched'>): boolean {
    return this.#now() - touched > this.#idleMs + this.renewMs + SLACK_MS;
  }

  #textOf(record: SessionRecord): string {
    return JSON.stringify({ ...record, home: this.#state.mark(), touched: this.#now() } satisfies SessionRecord);
  }
}

function parse(text: string): SessionRecord {
  return JSON.parse(text) as SessionRecord;
}

function parseId(text: string): IdRecord {
  return JSON.parse(text) as IdRecord;
}

function idFrom(name: string, nonce: string): string {
  return hash('sha256', `${nonce} ${name}`, 'hex').slice(0, 32);
}
