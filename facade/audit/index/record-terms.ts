/**
 * The terms by which a record is found: `key=value` for each filter, and `word=…` for each word of its texts. The index
 * stores them, and every row that the index names is compared with those of the record on the disk.
 */
import type { AuditRecord } from '../audit-chain.ts';

/** The filters that compare one field of a record. Each is an option of `tollgate audit list`. */
export const TERM_KEYS = [
  'principal',
  'server',
  'tool',
  'verb',
  'rule',
  'code',
  'outcome',
  'session',
  'run',
  'approval',
  'label',
  'budget',
  'path',
  'program',
  'host',
  'parent',
  'call',
  'replica',
  'type',
  'id',
] as const;

/** One of them. */
export type TermKey = (typeof TERM_KEYS)[number];

/** Keys of ids and hashes. Each has many values, so no list of them is kept. */
export const ID_KEYS = ['id', 'session', 'run', 'approval', 'parent', 'call', 'hash', 'digest'] as const;
const IDS: ReadonlySet<string> = new Set(ID_KEYS);
/** The key of a word. */
export const WORD = 'word';
/** Digits of a hash that are indexed. */
export const HASH_DIGITS = 16;

/** The terms of one record. A call has some only in its first record: `ofCall` holds for its last record too. */
export interface RecordTerms {
  readonly own: readonly TermGroup[];
  readonly ofCall: readonly TermGroup[];
}

/** The terms of one value. Records with this value share it, so that it is made and stored once. */
export interface TermGroup {
  readonly terms: readonly string[];
  /** The terms as tokens of FTS5. */
  readonly tokens: string;
  /** Its terms are of the vocabulary. */
  readonly isListed: boolean;
}

/** A record of which nothing is known: any program can have written it. */
type Fields = Readonly<Record<string, unknown>>;

/** Returns the terms of a record. */
export function termsOf(record: AuditRecord): RecordTerms {
  const fields = record as unknown as Fields;
  return { own: ownTerms(fields), ofCall: termsOfCall(fields) };
}

function ownTerms(fields: Fields): readonly TermGroup[] {
  const { principal, type, id } = fields;
  const own: TermGroup[] = [together(fields, WHAT, addWhat)];
  if (isFields(principal)) own.push(together(principal, WHO, addWho));
  for (const key of IDS_OF_RECORD) addValue(own, key, fields[key]);
  for (const list of [fields.reasons, fields.shadow])
    for (const reason of items(list)) if (isFields(reason)) addValue(own, 'rule', reason.id);
  addValue(own, 'approval', type === 'approval' || type === 'grant' ? id : fields.consent);
  addValue(own, 'hash', cutHash(fields.hash));
  addValue(own, 'digest', cutHash(fields.effectDigest));
  for (const key of WORDS) addWords(own, fields[key]);
  for (const key of LISTS) for (const one of items(fields[key])) addWords(own, one);
  return own;
}

/** What only the first record of a call says. */
function termsOfCall({ obligations, facts }: Fields): readonly TermGroup[] {
  if (obligations === undefined && facts === undefined) return NONE;
  const ofCall: TermGroup[] = [];
  const add = (from: unknown, keys: readonly (readonly [string, string])[]): void => {
    if (!isFields(from)) return;
    for (const [key, list] of keys) for (const value of items(from[list])) addValue(ofCall, key, value);
  };
  add(obligations, OBLIGATIONS);
  add(facts, FACTS);
  return ofCall;
}

/** Fields whose name is the key of their term. */
const IDS_OF_RECORD = ['id', 'session', 'run', 'parent', 'call'] as const;
const PLAIN = ['type', 'server', 'tool', 'verb', 'code', 'outcome', 'host', 'budget', 'replica'] as const;
/** Few records differ in all of these, so they have one group of terms. */
const WHAT = [...PLAIN, 'exposed'] as const;
const WHO = ['id', 'role', 'origin'] as const;

function addWhat(groups: TermGroup[], { server, tool, exposed, ...fields }: Fields): void {
  for (const key of PLAIN) addValue(groups, key, key === 'server' ? server : key === 'tool' ? tool : fields[key]);
  addValue(groups, 'tool', exposed);
  // A refused call may not have reached the tool, whose name its client gave after that of the server.
  if (tool === undefined && typeof server === 'string' && typeof exposed === 'string' && exposed.startsWith(server))
    addValue(groups, 'tool', exposed.slice(server.length + 1));
  if (typeof server === 'string' && typeof tool === 'string') addValue(groups, 'tool', `${server}.${tool}`);
}

function addWho(groups: TermGroup[], { id, role, origin }: Fields): void {
  addValue(groups, 'principal', id);
  addWords(groups, role);
  addWords(groups, origin);
}

/** Fields that are only searched as text. */
const WORDS = ['event', 'by', 'user', 'kind', 'via', 'scope', 'correlation', 'reason', 'method', 'profile'];
const LISTS = ['servers', 'clients', 'secrets', 'files'];
const OBLIGATIONS = [
  ['label', 'labels'],
  ['budget', 'budgets'],
] as const;
const FACTS = [
  ['path', 'paths'],
  ['program', 'programs'],
  ['host', 'hosts'],
] as const;
/** More items of a list than any record has. */
const MAX_ITEMS = 64;

function isFields(value: unknown): value is Fields {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function items(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value.slice(0, MAX_ITEMS) : [];
}

function cutHash(value: unknown): unknown {
  return typeof value === 'string' ? value.slice(0, HASH_DIGITS) : undefined;
}

/** Returns the term of a value: `principal=local`. */
export function termOf(key: string, value: string): string {
  return `${key}=${value.slice(0, MAX_VALUE)}`;
}

/** Characters of a value that count. */
const MAX_VALUE = 300;
/** The groups of values that many records share. */
const SHARED = new Map<string, TermGroup>();
const MAX_SHARED = 50_000;
const NONE: readonly TermGroup[] = [];

function addValue(groups: TermGroup[], key: string, value: unknown): void {
  if (typeof value !== 'string' || value === '') return;
  if (IDS.has(key)) groups.push(groupOf([termOf(key, value)], false));
  else groups.push(shared(`${key}=${value}`, () => [termOf(key, value), ...endTerms(key, value), ...wordTerms(value)]));
}

/** Returns the group of several fields. Each term is in it once. */
function together(
  fields: Fields,
  keys: readonly string[],
  add: (groups: TermGroup[], fields: Fields) => void,
): TermGroup {
  let name = '\0\0';
  for (const key of keys) {
    const value = fields[key];
    const text = typeof value === 'string' ? value : '';
    // With a NUL in a value, other fields could have the same name.
    if (text.includes('\0')) name = UNSHARED;
    if (name !== UNSHARED) name += `${text}\0`;
  }
  return shared(name, () => {
    const groups: TermGroup[] = [];
    add(groups, fields);
    return [...new Set(groups.flatMap(({ terms }) => terms))];
  });
}

/** The keys of how a path ends: the last name of it, backwards, and what follows its last dot. */
const [END, EXTENSION] = ['end', 'extension'];

/** Terms of how a path ends, for patterns that begin with `*`. */
function endTerms(key: string, path: string): readonly string[] {
  if (key !== 'path') return [];
  const name = path.slice(0, MAX_VALUE).replace(/^.*\//s, '');
  const dot = name.lastIndexOf('.');
  return [endTerm(name), ...(dot < 0 ? [] : [extensionTerm(name.slice(dot + 1))])];
}

/** Returns the term of the last name of a path, and the beginning of such terms for an end of the name. */
export function endTerm(name: string): string {
  return termOf(END, [...name].reverse().join(''));
}

/** Returns the term of what follows the last dot in the last name of a path. */
export function extensionTerm(extension: string): string {
  return termOf(EXTENSION, extension);
}

function addWords(groups: TermGroup[], value: unknown): void {
  if (typeof value === 'string' && value !== '')
    groups.push(shared(`\0${value.replaceAll('\0', ' ')}`, () => wordTerms(value)));
}

/** The name of a group that no other record shares. */
const UNSHARED = '';

function shared(name: string, make: () => readonly string[]): TermGroup {
  const known = SHARED.get(name);
  if (known !== undefined) return known;
  const group = groupOf(make(), true);
  if (SHARED.size >= MAX_SHARED) SHARED.clear();
  if (name !== UNSHARED && name.length <= MAX_TEXT) SHARED.set(name, group);
  return group;
}

function groupOf(terms: readonly string[], isListed: boolean): TermGroup {
  return { terms, tokens: terms.map(tokenOf).join(' '), isListed };
}

function wordTerms(value: string): readonly string[] {
  return wordsOf(value).map((word) => termOf(WORD, word));
}

/** Characters of a text whose words count, and characters of a word. */
const MAX_TEXT = 1000;
const MAX_WORD = 64;

/** Returns the words of a text, in lower case. */
export function wordsOf(text: string): readonly string[] {
  return (
    text
      .slice(0, MAX_TEXT)
      .toLowerCase()
      .match(/[\p{L}\p{N}]+/gu) ?? []
  ).map((word) => word.slice(0, MAX_WORD));
}

/** Returns true if a term is of the vocabulary that `did you mean` and patterns choose from: no id, no hash. */
export function isListed(term: string): boolean {
  return !IDS.has(term.slice(0, term.indexOf('=')));
}

/** ASCII that the tokenizer of the index takes for a part of a token, see `TERM_TOKENIZER`. */
const KEPT = '-._/:=@~';
/** The tokenizer of FTS5: bytes above ASCII are parts of tokens, and `KEPT`. */
export const TERM_TOKENIZER = `ascii tokenchars '${KEPT}'`;
const ASCII_BASE = 0xe000;

/** Returns a term as one token of FTS5: other ASCII becomes a private character (U+E000 and following). */
export function tokenOf(term: string): string {
  return PLAIN_TERM.test(term)
    ? term
    : term.replace(ODD_ASCII, (odd) => String.fromCharCode(ASCII_BASE + odd.charCodeAt(0)));
}

const PLAIN_TERM = /^[\w\-./:=@~]*$/;
const ODD_ASCII = /[\0-,;<>?[\\\]^`{|}\x7F]/g;
