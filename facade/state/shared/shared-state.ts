/**
 * The state of a replica: a copy of all values of a store, kept up to date by its announcements and by polls. Reads use
 * the copy and return at once. Budgets and writes are one request each (decision 105).
 */
import { hash, randomBytes } from 'node:crypto';
import { hostname } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { type Instant, instant } from '../budget-clock.ts';
import { changeOf, needsSettle } from '../budget-counter.ts';
import type { Amounts, Reservation, State, StoredCounter } from '../state-port.ts';
import type { ValueChanges } from '../state-values.ts';
import { Stops } from '../stop-file.ts';
import { ValueCopy } from '../value-copy.ts';
import { LEASE_MS, RETURN_MS, type SharedStore, STALE_MS, type StoreNews, type StoreWrite } from './shared-store.ts';
import { StopMirror } from './stop-mirror.ts';
import { storeAway } from './store-errors.ts';

/** Postgres refuses NUL, and Redis would change a lone surrogate. */
const UNSTORABLE = /\0|\p{Surrogate}/u;
/** Poll interval, ms: the announcement of a change may be lost. */
const POLL_MS = 500;
/** The copy is out of date this long after the last news, ms. */
const PROOF_MS = 1_000;
/** How often the stop file is compared with the store, ms. */
const STOPS_MS = 250;
/** Labels of runs that ended long ago are removed, ms. */
const CLEAN_MS = 3_600_000;
/** How long a close waits for the store, ms. */
const CLOSE_MS = 500;
/** Announcements within this time are one poll, ms. */
const HEAR_MS = 10;
/** The clock of the store is compared with ours again if it differs by more, ms. */
const CLOCK_MS = 1_000;

/** What a shared state is opened with. `folder`: the state folder of this machine, which has the stop file. */
export interface SharedPlace {
  readonly folder: string;
  readonly store: SharedStore;
  /** Called for each read and write that fails. */
  readonly onFault?: () => void;
}

/** Opens the state of a store. Rejects with STATE_AWAY, STATE_FAILED, STATE_TOO_NEW; then the store is closed. */
export async function openSharedState(place: SharedPlace): Promise<State> {
  const state = new SharedState(place);
  try {
    await state.open();
    return state;
  } catch (thrown) {
    await state.close();
    throw thrown;
  }
}

class SharedState implements State {
  readonly isShared = true;
  readonly machine: string;
  readonly stops: Stops;
  readonly #store: SharedStore;
  readonly #onFault: () => void;
  readonly #mark = randomBytes(16).toString('hex');
  readonly #copy = new ValueCopy();
  readonly #mirror: StopMirror;
  readonly #timers: NodeJS.Timeout[] = [];
  #seen: number | undefined;
  #alive: ReadonlySet<string> = new Set();
  /** The version of the copy that `alive` was read with. */
  #aliveVersion: number | undefined;
  /** Until then, a process that `alive` does not have may live. */
  #unsureUntil = Number.NEGATIVE_INFINITY;
  /** When a mark was first asked for that `alive` does not have. */
  readonly #unheard = new Map<string, number>();
  /** The clock of the store minus our monotonic clock, ms. */
  #offset = 0;
  #provedAt = Number.NEGATIVE_INFINITY;
  #fault: TollgateError | undefined;
  #reading: Promise<void> | undefined;
  #following: Promise<void> | undefined;
  #losses = 0;
  #isHearing = false;
  #stopStamp = '';
  #leases = 0;
  #isClosed = false;

  constructor({ folder, store, onFault = () => undefined }: SharedPlace) {
    this.#store = store;
    this.#onFault = onFault;
    this.stops = new Stops(folder);
    this.machine = hash('sha256', `${hostname()} ${folder}`, 'hex').slice(0, 16);
    this.#mirror = new StopMirror(this.stops, this);
  }

  async open(): Promise<void> {
    await this.#read();
    await this.#mirror.sync();
    this.#listen();
    this.#every(POLL_MS, () => void this.#read().catch(() => undefined));
    this.#every(STOPS_MS, () => this.#syncStops());
    this.#every(CLEAN_MS, () => void this.#clean().catch(() => undefined));
  }

  refresh(exact?: 'exact'): Promise<void> | undefined {
    if (exact === undefined && this.#isUpToDate()) return undefined;
    const renewed = this.#renew(exact !== undefined);
    renewed.catch(this.#onFault);
    return renewed;
  }

  get(space: string, key: string): string | undefined {
    this.#check();
    return this.#copy.get(space, key);
  }

  list(space: string, prefix?: string): ReadonlyMap<string, string> {
    this.#check();
    return this.#copy.list(space, prefix);
  }

  stamp(): string {
    this.#check();
    return String(this.#copy.version);
  }

  async reserve(...[claims, now, ahead = { most: 0, held: 0 }]: Parameters<State['reserve']>): ReturnOf<'reserve'> {
    this.#leases += 1;
    const lease = `${this.#mark}.${this.#leases}`;
    const answer = await this.#ask(this.#store.reserve({ claims, ahead, lease, mark: this.#mark }));
    this.#setClock(answer.now);
    if ('taken' in answer) {
      const taken = answer.taken.map(({ since, amounts }, index) => ({
        claim: claims[index]!,
        since: this.#ownTime(since),
        amounts,
      }));
      return { reservation: { id: lease, taken } };
    }
    const { index, unit, left, since } = answer.refused;
    const claim = claims[index]!;
    const limit =
      unit === 'concurrent' ? claim.concurrent! : claim.demands.find((demand) => demand.unit === unit)!.limit;
    const { windowMs } = claim;
    const hasReset = windowMs !== undefined && unit !== 'concurrent';
    return {
      refused: { claim, unit, limit, left, ...(hasReset && { resetsAt: now.wall + since + windowMs - answer.now }) },
    };
  }

  async settle(reservation: Reservation, used: Partial<Amounts>): Promise<void> {
    if (!needsSettle(reservation, used)) return;
    const changes = reservation.taken.map(({ claim, since, amounts }) => ({
      claim,
      since: since.wall,
      amounts: changeOf(amounts, used),
    }));
    await this.#ask(this.#store.settle(reservation.id, changes));
  }

  endScope(scope: string, key: string): Promise<void> {
    return this.#ask(this.#store.endScope(scope, key));
  }

  async counters(most: number): Promise<readonly StoredCounter[]> {
    const found = await this.#ask(this.#store.counters(most));
    return found.map((counter) => ({ ...counter, since: this.#ownTime(counter.since) }));
  }

  resetCounters(budget: string, key?: string): Promise<number> {
    return this.#ask(this.#store.resetCounters(budget, key));
  }

  async put(space: string, key: string, to: string): Promise<void> {
    await this.#write({ op: 'put', space, key, to });
  }

  async remove(space: string, key: string): Promise<void> {
    await this.#write({ op: 'remove', space, key });
  }

  take(space: string, key: string, only?: string): Promise<string | undefined> {
    return this.#write({ op: 'take', space, key, ...(only !== undefined && { only }) });
  }

  async swap(space: string, key: string, change: { readonly from?: string; readonly to: string }): Promise<boolean> {
    return (await this.#write({ op: 'swap', space, key, ...change })) !== undefined;
  }

  mark(): string {
    return this.#mark;
  }

  isAlive(mark: string): boolean {
    if (mark === this.#mark || this.#alive.has(mark)) return true;
    if (!/^[0-9a-f]{32}$/.test(mark)) return false;
    if (performance.now() < this.#unsureUntil) return true;
    // A process is heard before its first write. So only a value that is younger than `alive` may name an unheard one.
    const first = this.#aliveVersion === this.#copy.version ? this.#provedAt : performance.now();
    const since = this.#unheard.get(mark) ?? first;
    this.#unheard.set(mark, since);
    return since > this.#provedAt;
  }

  async shareStops(): Promise<void> {
    await this.#mirror.sync();
  }

  async close(): Promise<void> {
    if (this.#isClosed) return;
    this.#isClosed = true;
    for (const timer of this.#timers) clearInterval(timer);
    // Without a word the store forgets this process after its lease.
    // A request on its way would let this process live on in the store.
    const leave = async (): Promise<void> => {
      await this.#reading?.catch(() => undefined);
      await this.#store.leave(this.#mark);
    };
    const left = this.#isUpToDate() ? [this.#following, leave()] : [];
    await Promise.race([Promise.allSettled(left), sleep(CLOSE_MS, undefined, { ref: false })]);
    this.#fault = new TollgateError('STATE_FAILED', { detail: 'The state is closed.' });
    await this.#store.close();
    this.stops.close();
  }

  #listen(): void {
    const onLost = (): void => {
      // What is stored may be older now: the store was restarted or restored. So all values are read.
      this.#seen = undefined;
      this.#losses += 1;
      this.#provedAt = Number.NEGATIVE_INFINITY;
      if (!this.#isClosed) setTimeout(() => this.#listen(), POLL_MS).unref();
    };
    this.#store.listen({ onNews: () => this.#hear(), onLost });
  }

  /** Reads after an announcement, also if a request is on its way, which may not see the change. */
  #hear(): void {
    const before = this.#reading ?? Promise.resolve();
    if (this.#isHearing) return;
    this.#isHearing = true;
    void before
      .catch(() => undefined)
      .then(() => sleep(HEAR_MS, undefined, { ref: false }))
      .then(() => {
        // A request that has begun meanwhile may not see the change either.
        return this.#reading?.catch(() => undefined);
      })
      .then(() => {
        this.#isHearing = false;
        return this.#isClosed ? undefined : this.#read();
      })
      .catch(() => undefined);
  }

  #every(ms: number, work: () => void): void {
    this.#timers.push(setInterval(work, ms).unref());
  }

  #isUpToDate(): boolean {
    return this.#fault === undefined && performance.now() - this.#provedAt < PROOF_MS;
  }

  /** Reads until the copy is up to date. `isExact`: from a request that began after this call. */
  async #renew(isExact: boolean): Promise<void> {
    const began = performance.now();
    const until = began + this.#store.timeoutMs;
    do {
      const left = until - performance.now();
      if (left <= 0) throw this.#fault ?? storeAway('timeout');
      // A known fault is reported at once. The polls notice when it is over.
      if (this.#fault !== undefined && this.#reading !== undefined) throw this.#fault;
      await Promise.race([
        this.#read(),
        sleep(left, undefined, { ref: false }).then(() => Promise.reject(storeAway('timeout'))),
      ]);
    } while (!this.#isUpToDate() || (isExact && this.#provedAt < began));
  }

  /** Reads the news. There is one request at a time, whose copy is as old as its beginning. */
  #read(): Promise<void> {
    this.#reading ??= this.#readNews().finally(() => (this.#reading = undefined));
    return this.#reading;
  }

  async #readNews(): Promise<void> {
    const began = performance.now();
    const from = this.#seen;
    const losses = this.#losses;
    try {
      const news = await this.#store.news(from, this.#mark);
      if (this.#isClosed || losses !== this.#losses) return;
      this.#setClock(news.now);
      this.#apply(news, from);
      this.#noteAlive(news);
      this.#provedAt = began;
      this.#fault = undefined;
    } catch (thrown) {
      if (!this.#isClosed) this.#fault = asFault(thrown);
      throw thrown;
    }
  }

  #noteAlive({ alive, to, now, resumed }: StoreNews): void {
    this.#unsureUntil = performance.now() + resumed + RETURN_MS - now;
    this.#alive = new Set(alive);
    // The answer to a write may have brought newer values meanwhile.
    if (to === this.#seen) this.#aliveVersion = this.#copy.version;
    for (const [mark, since] of this.#unheard)
      if (this.#alive.has(mark) || performance.now() - since > LEASE_MS) this.#unheard.delete(mark);
  }

  /**
   * Applies changes after `from`. An older answer that arrives late has nothing new. A list of all values may have a
   * smaller number, because the store was restored.
   */
  #apply(changes: ValueChanges, from: number | undefined): void {
    const seen = this.#seen;
    const isRestored = changes.all && (from === undefined || changes.to < from);
    if (seen !== undefined && changes.to < seen && !isRestored) return;
    this.#copy.apply(changes);
    this.#seen = changes.to;
    if (changes.all || changes.changes.some(({ space }) => space === 'stops')) this.#stopStamp = '';
    this.#syncStops();
  }

  #syncStops(): void {
    if (this.#following !== undefined || this.#isClosed) return;
    try {
      const stamp = this.stops.stamp();
      if (stamp === this.#stopStamp) return;
      this.#stopStamp = stamp;
    } catch {
      // Every call reads the stop file, and reports the fault.
      return;
    }
    this.#following = this.#mirror
      .sync()
      .catch(() => void (this.#stopStamp = ''))
      .finally(() => (this.#following = undefined));
  }

  async #write(change: StoreWrite): Promise<string | undefined> {
    if (Object.values(change).some((text) => UNSTORABLE.test(text)))
      throw new TollgateError('STATE_FAILED', {
        detail: 'A text with a NUL character or half a character cannot be stored.',
        retryable: false,
      });
    if (this.#seen === undefined) await this.#read();
    const losses = this.#losses;
    // -1 is before all changes, so that the answer has all values.
    const from = this.#seen ?? -1;
    const { result, news } = await this.#ask(this.#store.write(change, from));
    // After a loss, only all values count. The next read has them.
    if (losses === this.#losses) this.#apply(news, from);
    return result;
  }

  async #ask<T>(asked: Promise<T>): Promise<T> {
    try {
      return await asked;
    } catch (thrown) {
      this.#onFault();
      throw thrown;
    }
  }

  /** Throws the present fault, because old values must not be used. */
  #check(): void {
    if (this.#fault === undefined) return;
    this.#onFault();
    throw this.#fault;
  }

  #setClock(now: number): void {
    const offset = now - instant().monotonic;
    // Small differences are the time of the request. A stable offset gives a window the same name each time.
    if (Math.abs(offset - this.#offset) > CLOCK_MS) this.#offset = offset;
  }

  /** Returns a time of the store as an instant of this machine. `wall` stays, because it identifies the window. */
  #ownTime(since: number): Instant {
    const { boot } = instant();
    return { wall: since, monotonic: since - this.#offset, boot };
  }

  async #clean(): Promise<void> {
    for (const space of this.#copy.spaces('labels/'))
      for (const [key, text] of this.#copy.list(space))
        if (Number(text) < Date.now() - STALE_MS) await this.take(space, key, text);
  }
}

type ReturnOf<Method extends 'reserve'> = Promise<Awaited<ReturnType<State[Method]>>>;

function asFault(thrown: unknown): TollgateError {
  return thrown instanceof TollgateError ? thrown : storeAway('unknown');
}
