/**
 * The heads of a fleet: each replica publishes the last checkpoint of its log in the shared state. A log that is
 * missing, shorter or another one is then noticed by comparison, also when its replica is gone.
 */
import type { KeyObject } from 'node:crypto';
import { asTollgateError, TollgateError } from '../../../catalogs/errors/error-table.ts';
import type { State } from '../../state/state-port.ts';
import { type AuditTree, withTree } from '../proof/audit-tree.ts';
import { rootOf } from '../proof/merkle-tree.ts';
import { type Checkpoint, isSignedBy, parseNote, parseVerifierKey, verifierKey } from '../proof/signed-note.ts';

/** The last checkpoint that a replica published. A replica that lost its log has a head for each log. */
export interface PublishedHead {
  readonly replica: string;
  readonly checkpoint: Checkpoint;
  /** The signed note, and the verifier key that the replica named. */
  readonly note: string;
  readonly key: string;
  /** ISO time of the clock of the replica. */
  readonly at: string;
  /** The replica ended normally after it. */
  readonly ended?: true;
}

/** The heads that were read, and why others do not count. */
export interface FoundHeads {
  readonly heads: readonly PublishedHead[];
  readonly faults: readonly { readonly replica: string; readonly what: string }[];
}

/** The space of the heads. A key is `REPLICA/ORIGIN`, so another log never replaces the head of a lost one. */
const SPACE = 'audit-heads';
/** A replica publishes at most this often, ms. */
const QUIET_MS = 5_000;
/** Tries against other processes with the same log. */
const MAX_TRIES = 5;

/** Reads all heads of a state. Throws STATE_FAILED. */
export async function readHeads(state: Pick<State, 'list' | 'refresh'>): Promise<FoundHeads> {
  await state.refresh('exact');
  return foundHeads([...state.list(SPACE)].map(([key, text]) => ({ ...partsOf(text), replica: key.split('/', 1)[0] })));
}

/** Reads the heads that `audit heads --json` printed. A text that is something else has a fault. */
export function parseHeads(text: string): FoundHeads {
  try {
    const rows: unknown = JSON.parse(text);
    if (Array.isArray(rows)) return foundHeads(rows as readonly Readonly<Record<string, unknown>>[]);
  } catch {
    // The fault says it.
  }
  return { heads: [], faults: [{ replica: '', what: 'it is not what `tollgate audit heads --json` prints' }] };
}

/** Removes a head, unless it was published again meanwhile. Returns false then. Throws STATE_FAILED. */
export async function removeHead(state: Pick<State, 'get' | 'take'>, head: PublishedHead): Promise<boolean> {
  const key = keyOf(head.replica, head.checkpoint.origin);
  const text = state.get(SPACE, key);
  if (text === undefined || partsOf(text).note !== head.note) return false;
  return (await state.take(SPACE, key, text)) !== undefined;
}

/** Removes all heads of a replica, also those that do not count. Throws STATE_FAILED. */
export async function dropHeads(state: Pick<State, 'list' | 'remove'>, replica: string): Promise<void> {
  for (const key of state.list(SPACE, keyOf(replica, '')).keys()) await state.remove(SPACE, key);
}

function keyOf(replica: string, origin: string): string {
  return `${replica}/${origin}`;
}

function partsOf(text: string): Readonly<Record<string, unknown>> {
  try {
    return Object(JSON.parse(text)) as Readonly<Record<string, unknown>>;
  } catch {
    return {};
  }
}

function foundHeads(rows: readonly Readonly<Record<string, unknown>>[]): FoundHeads {
  const heads: PublishedHead[] = [];
  const faults: { replica: string; what: string }[] = [];
  for (const row of rows) {
    const head = headOf(row);
    if (typeof head === 'string') faults.push({ replica: String(row?.replica ?? ''), what: head });
    else heads.push(head);
  }
  return { heads: heads.sort(byReplica), faults };
}

function byReplica(one: PublishedHead, other: PublishedHead): number {
  return one.replica === other.replica ? (one.at < other.at ? -1 : 1) : one.replica < other.replica ? -1 : 1;
}

/** Returns the head, or why it does not count: a replica that was taken over can write any value. */
function headOf(row: Readonly<Record<string, unknown>> | null): PublishedHead | string {
  const { replica, note, key, at, ended } = row ?? {};
  if (![replica, note, key, at].every((part) => typeof part === 'string')) return 'it cannot be read';
  const signed = parseNote(note as string);
  const verifier = parseVerifierKey(key as string);
  if (signed === undefined || verifier === undefined) return 'it cannot be read';
  const { checkpoint } = signed;
  if ((checkpoint.replica ?? replica) !== replica) return `its checkpoint is of the replica ${checkpoint.replica}`;
  if (!isSignedBy(signed, verifier)) return 'its checkpoint is not signed with its key';
  const head = { replica: replica as string, checkpoint, note: note as string, key: key as string, at: at as string };
  return ended === true ? { ...head, ended } : head;
}

/** What the publication of one log needs. */
export interface HeadPlaces {
  readonly state: Pick<State, 'get' | 'swap' | 'refresh'>;
  readonly replica: string;
  /** The folder of the log. */
  readonly folder: string;
  /** Gets each failure, and nothing after a success. `atEnd`: the log is closed already. Must not throw. */
  readonly onResult: (failure?: TollgateError, atEnd?: true) => void;
}

/** Publishes the head of one log. No call waits for it. */
export class HeadPublisher {
  readonly #places: HeadPlaces;
  #timer: NodeJS.Timeout | undefined;
  #last = -Infinity;
  #running: Promise<void> = Promise.resolve();

  constructor(places: HeadPlaces) {
    this.#places = places;
  }

  /** Publishes the last checkpoint soon. `key`: of the log. Never throws. */
  publish(key: KeyObject): void {
    const wait = Math.max(0, this.#last + QUIET_MS - performance.now());
    this.#timer ??= setTimeout(() => void this.#run(key), wait).unref();
  }

  /** Publishes the last checkpoint now, as that of a replica that has ended. Never rejects. */
  finish(key: KeyObject): Promise<void> {
    clearTimeout(this.#timer);
    return this.#run(key, true);
  }

  #run(key: KeyObject, ended?: true): Promise<void> {
    this.#timer = undefined;
    this.#last = performance.now();
    return (this.#running = this.#running.then(async () => {
      try {
        await this.#put(key, ended);
        this.#places.onResult();
      } catch (thrown) {
        this.#places.onResult(asTollgateError(thrown), ended);
      }
    }));
  }

  /** Replaces the head by one that contains it, and no other: a head that differs from this log stays as evidence. */
  async #put(key: KeyObject, ended: true | undefined): Promise<void> {
    const { state, replica, folder } = this.#places;
    for (let tries = 0; tries < MAX_TRIES; tries += 1) {
      await state.refresh('exact');
      const origin = withTree(folder, (tree) => tree.origin) ?? '';
      const place = keyOf(replica, origin);
      const from = state.get(SPACE, place);
      // The log is read after the state: another process with this log signs first, and publishes then.
      const note = withTree(folder, (tree) => checkedNote(tree, from));
      if (note === undefined) return;
      const before = partsOf(from ?? '');
      if (before.note === note && before.ended === ended) return;
      const at = new Date().toISOString();
      const to = JSON.stringify({ note, key: verifierKey(origin, key).text, at, ...(ended === true && { ended }) });
      if (await state.swap(SPACE, place, { ...(from !== undefined && { from }), to })) return;
    }
    throw new TollgateError('STATE_FAILED', { detail: 'Other processes changed the head of this log meanwhile.' });
  }
}

/** Returns the last note of a tree, if there is one. Throws STATE_FAILED if the tree does not contain the head. */
function checkedNote(tree: AuditTree, from: string | undefined): string | undefined {
  const note = tree.last?.note;
  const published = from === undefined ? undefined : parseNote(String(partsOf(from).note))?.checkpoint;
  if (note === undefined || published === undefined) return note;
  const { size, root } = published;
  const signed = tree.last?.size ?? 0;
  if (size > signed)
    throw differs(`${size} records were published, and ${signed} are signed here: an older copy was put back`);
  if (rootOf(size, tree.node).toString('base64') !== root)
    throw differs(`the first ${size} records that were published are not those of this log`);
  return note;
}

function differs(what: string): TollgateError {
  return new TollgateError('STATE_FAILED', {
    detail: `The head of this log in the shared state stays as it is: ${what}.`,
    next: 'Copy the folder of the log, and read "What a finding means" in docs/audit-fleet.md.',
    retryable: false,
  });
}
