/**
 * The stop file: what `off`, `kill`, `revoke` and `suspend` forbid. It needs neither the database nor free disk space,
 * because it is made in advance with a fixed size and is overwritten in place. Every process reads it at every call.
 */
import { randomBytes } from 'node:crypto';
import {
  closeSync,
  constants,
  fstatSync,
  fsyncSync,
  linkSync,
  mkdirSync,
  openSync,
  readFileSync,
  readSync,
  rmSync,
  statSync,
  writeSync,
} from 'node:fs';
import path from 'node:path';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { elapsed, type Instant } from './budget-clock.ts';
import { tryLock } from './process-mark.ts';

/** Name of the file in a state folder. */
export const STOPS_FILE = 'stopped';
/** The file in which an earlier version kept stops on a full disk: one JSON object. */
const LEGACY_FILE = 'stops';
/** The lock of a writer. */
const LOCK = 'stopped.lock';
/** How long a writer waits for the lock, ms. Then it writes without it, so that a frozen writer prevents no stop. */
const LOCK_MS = 1_000;
/** The name that stops everything. No server has it. */
export const EVERYTHING = '*';
/** Begins the name of a stop of a principal. No name of a server begins with it. */
export const PRINCIPAL_MARK = '@';

/** One stop. `since`: ISO 8601, UTC. `by`: the user of the machine. */
export interface Stop {
  readonly since: string;
  readonly by: string;
  /** Distinguishes stops of the same name; absent for a stop by a person. */
  readonly id?: string;
  /** How long it lasts; absent: until it is lifted. */
  readonly lasts?: { readonly ms: number; readonly from: Instant };
}

/** Returns whether the time of a stop is over. It does not depend on a clock that someone can set. */
export function isStopOver({ lasts }: Stop, now: Instant): boolean {
  return lasts !== undefined && elapsed(lasts.from, now) >= lasts.ms;
}

/*
 * The header contains a mark, a stamp that changes with every stop, a stamp that changes with every value of the
 * database, and whether a database was made. The next slot is for EVERYTHING. Writers do not disturb each other,
 * because each part is written separately.
 */
const SLOT_BYTES = 256;
const SLOTS = 256;
const FILE_BYTES = SLOT_BYTES * SLOTS;
const MARK = 'tollgate stops 1';
const STAMP_BYTES = 16;
const OFFSET = { stops: 16, values: 32, made: 48 } as const;
const HEADER_BYTES = 49;

/** How long a read of the header is valid, ms. */
export const HEADER_MS = 1;
/** How long a read of the slots is valid, ms, even if the stamp is the same: a writer may die before it writes it. */
const RENEW_MS = 1_000;

const DAMAGED = {
  detail: 'The stop file is damaged, so it is not known what is stopped.',
  next:
    'Find out what wrote to the state folder. End Tollgate, remove `stopped` from the state folder, stop again ' +
    'what must not run, and then run: tollgate on',
};

/**
 * The stops of a state folder, read and written without its database. Every method throws STATE_FAILED, or STATE_LOST
 * if the file was removed.
 */
export class Stops {
  readonly #file: number;
  readonly #folder: string;
  readonly #inode: string;
  readonly #header = Buffer.alloc(HEADER_BYTES);
  #headerReadAt = -Infinity;
  #stamp = '';
  #valueStamp = '';
  #known: ReadonlyMap<string, Stop> = new Map();
  #knownStamp: string | undefined;
  #knownAt = -Infinity;
  #isOpen = true;

  /** Opens the file in a state folder, and makes both if they are missing. */
  constructor(folder: string) {
    this.#folder = folder;
    this.#file = guardFile(() => {
      mkdirSync(folder, { recursive: true, mode: 0o700 });
      return openOrMake(folder);
    });
    this.#inode = inodeOf(fstatSync(this.#file));
  }

  /** Returns all stops by name; EVERYTHING is first. */
  list(): ReadonlyMap<string, Stop> {
    this.#readHeader();
    const now = performance.now();
    if (this.#stamp === this.#knownStamp && now - this.#knownAt < RENEW_MS) return this.#known;
    // Reads again, because the first read may have met a writer.
    const slots = this.#readSlots() ?? this.#readSlots();
    if (slots === undefined) throw new TollgateError('STATE_FAILED', DAMAGED);
    this.#known = new Map(
      [...slots]
        .map(([name, { stop }]): [string, Stop] => [name, stop])
        .sort(([one], [other]) => (one < other ? -1 : 1)),
    );
    [this.#knownStamp, this.#knownAt] = [this.#stamp, now];
    return this.#known;
  }

  /** Stops a name. The stop is on the disk when this returns. */
  put(name: string, stop: Stop): void {
    withLock(path.join(this.#folder, LOCK), () => this.#put(name, stop));
  }

  /** Stops a name as `put` does. Returns false if it is stopped already. */
  putNew(name: string, stop: Stop): boolean {
    return withLock(path.join(this.#folder, LOCK), () => {
      if (this.#slots().has(name)) return false;
      this.#put(name, stop);
      return true;
    });
  }

  /** Lifts a stop. Returns false if there was none, or if it is not `only`. It is on the disk when this returns. */
  remove(name: string, only?: Stop): boolean {
    return withLock(path.join(this.#folder, LOCK), () => {
      const found = this.#slots().get(name);
      if (found === undefined || (only !== undefined && textOf(name, only) !== textOf(name, found.stop))) return false;
      this.#writeSlot(found.index, '');
      return true;
    });
  }

  #put(name: string, stop: Stop): void {
    const text = textOf(name, stop);
    for (;;) {
      const slots = this.#slots();
      const index = slots.get(name)?.index ?? freeIndex(name, new Set([...slots.values()].map((one) => one.index)));
      this.#writeSlot(index, text);
      // Without the lock, another process may have chosen the same slot.
      if (this.#slots().get(name) !== undefined) return;
    }
  }

  /** Returns a stamp that differs after each stop, of any process. */
  stamp(): string {
    this.#readHeader();
    return this.#stamp;
  }

  /** Returns a stamp that differs after each change of a value in the database, of any process. */
  valueStamp(): string {
    this.#readHeader();
    return this.#valueStamp;
  }

  /** Tells all processes that values have changed. Call it after the commit. */
  touchValues(): void {
    guardFile(() => this.#write(newStamp(), OFFSET.values));
  }

  /** Whether the state folder has had a database. */
  get hasDatabase(): boolean {
    this.#readHeader();
    return this.#header[OFFSET.made] === '1'.charCodeAt(0);
  }

  set hasDatabase(has: boolean) {
    guardFile(() => {
      this.#write(has ? '1' : '0', OFFSET.made);
      fsyncSync(this.#file);
    });
  }

  close(): void {
    if (this.#isOpen) closeSync(this.#file);
    this.#isOpen = false;
  }

  #readHeader(): void {
    const now = performance.now();
    if (now - this.#headerReadAt < HEADER_MS) return;
    guardFile(() => {
      if (!this.#isOpen) throw new TollgateError('STATE_FAILED', { detail: 'The state is closed.' });
      const found = statSync(path.join(this.#folder, STOPS_FILE), { throwIfNoEntry: false });
      // If the file was replaced, this process would not see new stops.
      if (found === undefined || inodeOf(found) !== this.#inode) throw stopsLost();
      this.#header.fill(0, readSync(this.#file, this.#header, 0, HEADER_BYTES, 0));
    });
    if (this.#header.toString('latin1', 0, MARK.length) !== MARK) throw new TollgateError('STATE_FAILED', DAMAGED);
    this.#stamp = this.#header.toString('latin1', OFFSET.stops, OFFSET.stops + STAMP_BYTES);
    this.#valueStamp = this.#header.toString('latin1', OFFSET.values, OFFSET.values + STAMP_BYTES);
    this.#headerReadAt = now;
  }

  #slots(): ReadonlyMap<string, Slot> {
    this.#headerReadAt = -Infinity;
    this.#readHeader();
    const slots = this.#readSlots() ?? this.#readSlots();
    if (slots === undefined) throw new TollgateError('STATE_FAILED', DAMAGED);
    return slots;
  }

  #readSlots(): ReadonlyMap<string, Slot> | undefined {
    const bytes = Buffer.alloc(FILE_BYTES);
    if (guardFile(() => readSync(this.#file, bytes, 0, FILE_BYTES, 0)) !== FILE_BYTES) return undefined;
    const slots = new Map<string, Slot>();
    for (let index = 1; index < SLOTS; index += 1) {
      const slot = slotOf(bytes.toString('utf8', index * SLOT_BYTES, (index + 1) * SLOT_BYTES));
      if (slot === undefined) return undefined;
      if (slot !== 'free') slots.set(slot.name, { index, stop: slot.stop });
    }
    return slots;
  }

  #writeSlot(index: number, text: string): void {
    const bytes = Buffer.alloc(SLOT_BYTES, ' ');
    bytes.write(text);
    guardFile(() => {
      this.#write(bytes, index * SLOT_BYTES);
      this.#write(newStamp(), OFFSET.stops);
      fsyncSync(this.#file);
    });
    this.#headerReadAt = -Infinity;
  }

  #write(text: Buffer | string, at: number): void {
    const bytes = typeof text === 'string' ? Buffer.from(text) : text;
    writeSync(this.#file, bytes, 0, bytes.length, at);
    this.#headerReadAt = -Infinity;
  }
}

interface Slot {
  readonly index: number;
  readonly stop: Stop;
}

/** The first slot is for EVERYTHING. For other names, the search begins at a slot that the name determines. */
function freeIndex(name: string, taken: ReadonlySet<number>): number {
  if (name === EVERYTHING) return 1;
  const count = SLOTS - 2;
  const first = [...name].reduce((hash, letter) => (hash * 31 + (letter.codePointAt(0) ?? 0)) % count, 7);
  for (let step = 0; step < count; step += 1) {
    const index = 2 + ((first + step) % count);
    if (!taken.has(index)) return index;
  }
  throw new TollgateError('STATE_FAILED', {
    detail: `At most ${count} servers and principals can be stopped one by one.`,
    next: 'Stop everything instead: tollgate off',
  });
}

function textOf(name: string, { since, by, id, lasts }: Stop): string {
  const time = lasts && [lasts.ms, lasts.from.wall, lasts.from.monotonic, lasts.from.boot];
  const text = (user: string): string => JSON.stringify({ name, since, by: user, id, time });
  const room = SLOT_BYTES - Buffer.byteLength(text(''));
  if (room < 0)
    throw new TollgateError('STATE_FAILED', {
      detail: 'The name is too long for a stop.',
      next: 'Stop everything instead: tollgate off',
    });
  let user = by;
  while (Buffer.byteLength(text(user)) > SLOT_BYTES) user = user.slice(0, -1);
  return text(user);
}

function slotOf(text: string): { readonly name: string; readonly stop: Stop } | 'free' | undefined {
  if (text.trim() === '') return 'free';
  try {
    const { name, since, by, id, time } = JSON.parse(text) as Readonly<Record<string, unknown>>;
    const lasts = readTime(time);
    return typeof name === 'string' && typeof since === 'string' && typeof by === 'string'
      ? { name, stop: { since, by, ...(typeof id === 'string' && { id }), ...(lasts !== undefined && { lasts }) } }
      : undefined;
  } catch {
    return undefined;
  }
}

/** A time that cannot be read never ends. */
function readTime(time: unknown): Stop['lasts'] {
  if (!Array.isArray(time)) return undefined;
  const [ms, wall, monotonic, boot] = time as readonly unknown[];
  if (![ms, wall, monotonic].every(Number.isFinite) || typeof boot !== 'string') return undefined;
  return { ms: ms as number, from: { wall: wall as number, monotonic: monotonic as number, boot } };
}

function newStamp(): string {
  return randomBytes(STAMP_BYTES / 2).toString('hex');
}

/** The error for a missing file. */
export function stopsLost(): TollgateError {
  return new TollgateError('STATE_LOST', {
    detail: 'The file `stopped` was removed from the state folder, or replaced, so it is not known what is stopped.',
    next: 'End Tollgate. Stop again what must not run (tollgate kill NAME), and then run: tollgate on',
  });
}

function inodeOf({ dev, ino }: { readonly dev: number; readonly ino: number }): string {
  return `${dev}.${ino}`;
}

/** Does the work with the lock, or without it if it is busy for too long, because a stop is more important. */
function withLock<T>(file: string, work: () => T): T {
  const until = performance.now() + LOCK_MS;
  let lock = tryLock(file);
  while (lock === 'busy' && performance.now() < until) {
    Atomics.wait(SLEEPER, 0, 0, 5);
    lock = tryLock(file);
  }
  try {
    return work();
  } finally {
    if (typeof lock === 'object') lock.close();
  }
}

const SLEEPER = new Int32Array(new SharedArrayBuffer(4));

/**
 * Opens the file, and makes it if it is missing. Other processes never see an incomplete file. On a read-only disk it
 * is opened for reading.
 */
function openOrMake(folder: string): number {
  const file = path.join(folder, STOPS_FILE);
  const open = (): number => {
    try {
      return openSync(file, constants.O_RDWR | constants.O_NOFOLLOW);
    } catch (error) {
      if (codeOf(error) !== 'EROFS') throw error;
      return openSync(file, constants.O_RDONLY | constants.O_NOFOLLOW);
    }
  };
  try {
    return open();
  } catch (error) {
    if (codeOf(error) !== 'ENOENT') throw error;
  }
  const draft = `${file}.${newStamp()}`;
  try {
    const made = openSync(draft, 'wx', 0o600);
    let taken = 1;
    try {
      const bytes = Buffer.alloc(FILE_BYTES, ' ');
      bytes.write(`${MARK}${newStamp()}${newStamp()}0`);
      for (const [name, stop] of legacyStops(folder))
        bytes.write(textOf(name, stop), SLOT_BYTES * (name === EVERYTHING ? 1 : (taken += 1)));
      writeSync(made, bytes);
      fsyncSync(made);
    } finally {
      closeSync(made);
    }
    linkSync(draft, file);
  } catch (error) {
    if (codeOf(error) !== 'EEXIST') throw error;
  } finally {
    rmSync(draft, { force: true });
  }
  return open();
}

/** Reads the stops that an earlier version wrote on a full disk. */
function legacyStops(folder: string): readonly (readonly [string, Stop])[] {
  try {
    const old = JSON.parse(readFileSync(path.join(folder, LEGACY_FILE), 'utf8')) as Record<string, string>;
    return Object.entries(old).map(([name, text]) => [name, JSON.parse(text) as Stop]);
  } catch {
    return [];
  }
}

function codeOf(error: unknown): string | undefined {
  return (error as NodeJS.ErrnoException).code;
}

function guardFile<T>(work: () => T): T {
  try {
    return work();
  } catch (error) {
    if (error instanceof TollgateError) throw error;
    throw new TollgateError('STATE_FAILED', {
      detail: `The stop file cannot be used (${codeOf(error) ?? 'unknown'}).`,
      cause: error,
    });
  }
}
