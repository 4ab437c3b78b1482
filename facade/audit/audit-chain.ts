/**
 * The form of an audit chain: file names, the text of a record, and its hash. The hash is computed over the bytes that
 * are written.
 */
import { hash } from 'node:crypto';
import type { AuditEntry, BudgetEntry, CallFacts, DecisionEntry, IntentEntry, OutcomeEntry } from './audit-entry.ts';

/** Version of the format, `v` of every record. */
const VERSION = 1;
/** A prefix of what is hashed, so that no other document with the same bytes has the same hash. */
const DOMAIN = `tollgate-audit\0${VERSION}\0`;
const DOMAIN_BYTES = Buffer.from(DOMAIN);
/** `prev` of the first record of a chain. */
export const NO_HASH = '0'.repeat(64);

/** The last record of a chain. */
export interface ChainHead {
  readonly chain: string;
  readonly seq: number;
  readonly hash: string;
}

/**
 * What was in the folder when a chain began. `tree`: the last checkpoint. `heads`: the newest chains with records after
 * it; `unnamed`: the number of the others.
 */
export interface SeenBefore {
  readonly tree?: { readonly origin: string; readonly size: number; readonly root: string };
  readonly heads?: readonly ChainHead[];
  readonly unnamed?: number;
}

/**
 * The first record of a chain. `process` names the lock by which other processes see whether the writer is alive. `pid`
 * and `born` are for people, and for systems where no lock could be taken. The nonce makes chains different. What was
 * in the folder before shows later what is missing.
 */
export interface OpenedEntry extends SeenBefore {
  readonly type: 'opened';
  readonly chain: string;
  readonly pid: number;
  readonly born: string;
  readonly process?: string;
  readonly nonce: string;
}

/** The first record of a file that continues a chain. Its `prev` is the last hash of the file before. */
export interface ContinuedEntry {
  readonly type: 'continued';
  readonly chain: string;
  readonly before: string;
  readonly pid: number;
  readonly born: string;
  readonly process?: string;
}

/** The last record of a chain whose process ended normally. */
export interface ClosedEntry {
  readonly type: 'closed';
}

/**
 * The keys that sealing adds to an entry. An entry with such a key would lose it, because a JSON reader keeps only the
 * last of two equal keys.
 */
export const SEAL_KEYS = ['v', 'seq', 'ts', 'replica', 'prev', 'hash'] as const;

/**
 * The entries of a union that have no key of the seal. An entry with such a key is not in this type, so no code can
 * append it.
 */
export type Unsealed<Entry> = Entry extends unknown
  ? keyof Entry & (typeof SEAL_KEYS)[number] extends never
    ? Entry
    : never
  : never;

/** Every entry that a chain file can contain. */
export type ChainEntry = Unsealed<AuditEntry | OpenedEntry | ContinuedEntry | ClosedEntry>;

/** An optional member may be undefined too: JSON leaves it out, and objects with the same keys are faster. */
export type WithUndefined<Entry> = {
  readonly [Key in keyof Entry]: Record<never, never> extends Pick<Entry, Key> ? Entry[Key] | undefined : Entry[Key];
};

/** A record of a call without its facts, which are serialised once for all records of the call. */
export type CallEntry =
  | WithUndefined<Omit<IntentEntry, keyof CallFacts>>
  | WithUndefined<Omit<OutcomeEntry, keyof CallFacts>>
  | WithUndefined<Omit<BudgetEntry, keyof CallFacts>>
  | WithUndefined<Omit<DecisionEntry, Exclude<keyof CallFacts, 'reasons'>>>;

/** What is sealed: an entry, or the texts of an entry of a call and of its facts. */
export type Sealable =
  | { readonly entry: ChainEntry; readonly facts?: undefined }
  | { readonly entry: CallEntryText; readonly facts: string };

/** The JSON of a `CallEntry` without its braces, as it becomes part of the record. */
export type CallEntryText = string & { readonly of?: CallEntry };

/** Returns an entry of a call as text. */
export function callEntryText(entry: CallEntry | Omit<Extract<CallEntry, { type: 'intent' }>, 'sizes'>): CallEntryText {
  return JSON.stringify(entry).slice(1, -1);
}

/** Every type of a record, in the order of docs/audit.md. */
export const AUDIT_TYPES = [
  'intent',
  'outcome',
  'decision',
  'budget',
  'session',
  'task',
  'config',
  'server',
  'approval',
  'grant',
  'consent',
  'upgrade',
  'switch',
  'setup',
  'recovered',
  'process',
  'proof',
  'opened',
  'continued',
  'closed',
] as const satisfies readonly ChainEntry['type'][];

/** The place of a record in its chain. */
export interface ChainPosition {
  readonly seq: number;
  /** ISO time, UTC. */
  readonly ts: string;
  /** The replica that wrote it, see docs/audit-fleet.md. */
  readonly replica?: string | undefined;
  readonly prev: string;
}

/** A line as it is written, with its newline, and its hash. */
export interface SealedRecord {
  readonly line: string;
  readonly hash: string;
}

/** A record as read: its entry, its place, and its hash. */
export type AuditRecord = ChainEntry & ChainPosition & { readonly v: number; readonly hash: string };

let lastSecond = { at: Number.NaN, text: '' };

/**
 * Returns the ISO text of a time in ms. Many records fall into one second, so the text up to the second is made once.
 */
export function isoTime(ms: number): string {
  const at = Math.floor(ms / 1000);
  if (at !== lastSecond.at) lastSecond = { at, text: new Date(at * 1000).toISOString().slice(0, -4) };
  return `${lastSecond.text}${String(Math.floor(ms - at * 1000)).padStart(3, '0')}Z`;
}

const SEAL = /^,"hash":"([0-9a-f]{64})"\}$/;
const SEAL_BYTES = `,"hash":"${NO_HASH}"}`.length;

/**
 * Seals an entry. The hash covers the text of the line up to the hash, so there is no second canonical form in which
 * two readers could differ. Throws for an entry with a key of the seal.
 */
export function sealRecord(record: Sealable, { seq, ts, replica, prev }: ChainPosition): SealedRecord {
  const members = record.facts === undefined ? membersOf(record.entry) : callMembers(record.entry, record.facts);
  const writer = replica === undefined ? '' : `"replica":"${replica}",`;
  const hashed = `${DOMAIN}{"v":${VERSION},"seq":${seq},"ts":"${ts}",${writer}${members},"prev":"${prev}"`;
  const sealed = hash('sha256', hashed, 'hex');
  // V8 has joined the parts of `hashed` for the hash. A part of it costs no second copy.
  return { line: `${hashed.slice(DOMAIN.length)},"hash":"${sealed}"}\n`, hash: sealed };
}

/** The members of a record between those of the seal. */
function membersOf(entry: ChainEntry): string {
  for (const key of SEAL_KEYS) if (key in entry) throw new Error(`an entry has the key ${key} of the seal`);
  const text = JSON.stringify(entry);
  return (text.length > MAX_RECORD ? JSON.stringify(bounded(JSON.parse(text))) : text).slice(1, -1);
}

/** The types of entry and facts have no key of the seal. */
function callMembers(entry: CallEntryText, facts: string): string {
  const members = `${entry},${facts}`;
  return members.length <= MAX_RECORD ? members : JSON.stringify(bounded(JSON.parse(`{${members}}`))).slice(1, -1);
}

/**
 * Returns the hash of a line (without newline) if it is correct. Works on bytes, because invalid UTF-8 must not read as
 * valid.
 */
export function checkSeal(line: Buffer): string | undefined {
  const end = line.length - SEAL_BYTES;
  if (end < 2) return undefined;
  const [, claimed] = SEAL.exec(line.toString('latin1', end)) ?? [];
  return claimed === hash('sha256', Buffer.concat([DOMAIN_BYTES, line.subarray(0, end)]), 'hex') ? claimed : undefined;
}

/** Returns the record of a line; undefined for a line that is no record, because another program wrote it. */
export function parseRecord(line: Buffer): AuditRecord | undefined {
  try {
    const value: unknown = JSON.parse(line.toString());
    return typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as AuditRecord) : undefined;
  } catch {
    return undefined;
  }
}

/** A name can be a megabyte long, and a policy can give a thousand reasons. These limits keep a record small. */
const MAX_RECORD = 2000;
const MAX_TEXT = 200;
const MAX_ITEMS = 32;

/** Cuts long texts and lists. A cut text ends in `…`. */
function bounded<T>(value: T): T {
  if (typeof value === 'string') return value.length <= MAX_TEXT ? value : (`${value.slice(0, MAX_TEXT)}…` as T);
  if (typeof value !== 'object' || value === null) return value;
  if (Array.isArray(value))
    return (value.length <= MAX_ITEMS ? value : [...value.slice(0, MAX_ITEMS), '…']).map(bounded) as T;
  const copy: Record<string, unknown> = {};
  for (const key in value) copy[key] = bounded(value[key]);
  return copy as T;
}

const NAME = /^(?<chain>\d{8}T\d{9}Z-(?<pid>\d{1,10}))(?:\.(?<part>\d{3,6}))?\.jsonl$/;

/** Returns `<start>-<pid>`, the name of a chain. */
export function chainName(started: Date, pid: number): string {
  return `${started.toISOString().replaceAll(/[-:.]/g, '')}-${pid}`;
}

/** Returns the file name of a part of a chain. The first part has no number; the next ones end in `.001` and so on. */
export function chainFileName(chain: string, part: number): string {
  return part === 0 ? `${chain}.jsonl` : `${chain}.${String(part).padStart(3, '0')}.jsonl`;
}

/** Parses a file name; undefined for a file that is not of a chain. */
export function parseChainFileName(
  name: string,
): { readonly chain: string; readonly pid: number; readonly part: number } | undefined {
  const groups = NAME.exec(name)?.groups;
  if (groups === undefined) return undefined;
  const parsed = { chain: groups.chain ?? '', pid: Number(groups.pid), part: Number(groups.part ?? 0) };
  // `.000` or `.0001` would be a second name of the same part.
  return chainFileName(parsed.chain, parsed.part) === name ? parsed : undefined;
}
