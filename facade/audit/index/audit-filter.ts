/** What a question about the log selects, as the command line and the console write it. */
import { ERRORS, TollgateError } from '../../../catalogs/errors/error-table.ts';
import { didYouMean, quote } from '../../config/config-problems.ts';
import { AUDIT_TYPES } from '../audit-chain.ts';
import { AUDIT_OUTCOMES } from '../audit-entry.ts';
import { HASH_DIGITS, ID_KEYS, TERM_KEYS, type TermKey, termOf, WORD, wordsOf } from './record-terms.ts';

/** Selects records. All given conditions must hold. */
export interface AuditFilter extends Readonly<Partial<Record<TermKey, string>>> {
  /** ISO times, inclusive and exclusive. */
  readonly since?: string;
  readonly until?: string;
  /** Words that begin so, and beginnings of ids and hashes. All must be in the record. */
  readonly text?: string;
  /** One record for each call: its end, or the intent if no end is recorded. */
  readonly oncePerCall?: boolean;
  /** The same, and no records that are not calls. */
  readonly callsOnly?: boolean;
}

/** A condition on the terms of a record: one of the alternatives holds. */
export type Clause = readonly Alternative[];

/** `exact`: the term; `prefix`: any term that begins so; `pattern`: that also has the other parts, in this order. */
export interface Alternative {
  readonly kind: 'exact' | 'prefix' | 'pattern';
  readonly term: string;
  readonly parts?: readonly string[];
}

/** Keys whose values may have `*`, which stands for any text. An id has no `*`. */
const PATTERNS: ReadonlySet<TermKey> = new Set([
  'principal',
  'server',
  'tool',
  'rule',
  'label',
  'budget',
  'path',
  'program',
  'host',
  'run',
  'session',
  'replica',
]);

/** Words that have a meaning of their own. A mistyped one must not look like a log without such records. */
const WORDS: Readonly<Partial<Record<TermKey, readonly string[]>>> = {
  type: AUDIT_TYPES,
  outcome: AUDIT_OUTCOMES,
  verb: ['read', 'write', 'execute', 'destructive'],
  code: Object.keys(ERRORS),
};

/** The texts that `readAuditFilter` accepts. */
export const FILTER_NAMES = [...TERM_KEYS, 'since', 'until', 'text', 'all'] as const;

/**
 * Returns the filter that texts describe: those of the options of a command, or of the query of a URL. A type selects
 * all its records; otherwise calls are selected, one record for each, and with `all` records that are not calls too.
 * `now`: ms since 1970. Throws USAGE for an unknown name or word, and for a time that cannot be read.
 */
export function readAuditFilter(texts: Readonly<Record<string, string>>, now = Date.now()): AuditFilter {
  const filter: Record<string, string | boolean> = {};
  for (const [name, text] of Object.entries(texts)) {
    if (!(FILTER_NAMES as readonly string[]).includes(name))
      throw usage(`There is no filter ${quote(name)}; ${didYouMean(name, FILTER_NAMES)}`);
    const words = WORDS[name as TermKey];
    if (words !== undefined && !words.includes(text))
      throw usage(`No record has the ${name} ${quote(text)}; ${didYouMean(text, words)}`);
    if (name === 'text' && textClauses(text).length === 0) throw usage(`There is no word in the text ${quote(text)}`);
    if (name !== 'all') filter[name] = name === 'since' || name === 'until' ? readAuditTime(text, now) : text;
  }
  if (texts.type !== undefined) return filter;
  return { ...filter, ...(texts.all === undefined ? { callsOnly: true } : { oncePerCall: true }) };
}

/** Returns the error for a wrong use of the audit commands. */
function usage(detail: string): TollgateError {
  return new TollgateError('USAGE', { detail, next: 'Read `tollgate audit --help`.' });
}

const UNITS: Readonly<Record<string, number>> = { s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000, w: 604_800_000 };

/**
 * Returns the ISO text of a time: an ISO time, an age such as `2h`, `now`, `today` or `yesterday`. A day is its
 * beginning. What names no time zone is in that of the machine. Throws USAGE.
 */
export function readAuditTime(text: string, now = Date.now()): string {
  const time = timeOf(text, now);
  if (!Number.isNaN(time) && Math.abs(time) <= MAX_TIME) return new Date(time).toISOString();
  throw new TollgateError('USAGE', {
    detail: `${quote(text)} is not a time.`,
    next: 'Write 2026-01-31, 2026-01-31T12:00:00Z, today, yesterday, or 30m, 2h, 7d.',
  });
}

/** Years of four digits, so that times compare as texts. */
const MAX_TIME = Date.UTC(9999, 0);

function timeOf(text: string, now: number): number {
  const [, count, unit = ''] = /^(\d{1,6})([smhdw])$/.exec(text) ?? [];
  if (count !== undefined) return now - Number(count) * (UNITS[unit] ?? Number.NaN);
  if (text === 'now') return now;
  if (text === 'today' || text === 'yesterday') {
    const day = new Date(now);
    day.setHours(0, 0, 0, 0);
    if (text === 'yesterday') day.setDate(day.getDate() - 1);
    return day.getTime();
  }
  // ECMAScript reads a date alone as UTC, and a date with a time as local.
  return Date.parse(/^\d{4}-\d{2}-\d{2}$/.test(text) ? `${text}T00:00` : text);
}

/** Returns the conditions of a filter on terms. */
export function clausesOf(filter: AuditFilter): readonly Clause[] {
  const clauses = TERM_KEYS.flatMap((key) => {
    const value = filter[key];
    return value === undefined ? [] : [valueClause(key, value)];
  });
  if (filter.text === undefined) return clauses;
  const texts = textClauses(filter.text);
  return [...clauses, ...(texts.length === 0 ? NOTHING : texts)];
}

/** A condition that no record meets. */
const NOTHING: readonly Clause[] = [[]];

function valueClause(key: TermKey, value: string): Clause {
  if (value.includes('*') && PATTERNS.has(key)) {
    const [begin = '', ...parts] = value.split(/\*+/);
    return [{ kind: 'pattern', term: termOf(key, begin), parts }];
  }
  const exact: Alternative = { kind: 'exact', term: termOf(key, value) };
  if (key !== 'path') return [exact];
  // A folder stands for what is in it.
  const folder = value.replace(/\/+$/, '');
  return [exact, { kind: 'exact', term: termOf(key, folder) }, { kind: 'prefix', term: termOf(key, `${folder}/`) }];
}

/** Words of one search that count. */
const MAX_WORDS = 16;
const ID = /^[0-9a-f][0-9a-f-]{7,63}$/;

function textClauses(text: string): readonly Clause[] {
  const pieces = text.toLowerCase().split(/\s+/);
  return pieces
    .flatMap((piece) => (ID.test(piece) ? [idClause(piece)] : wordsOf(piece).map(wordClause)))
    .slice(0, MAX_WORDS);
}

function wordClause(word: string): Clause {
  return [{ kind: 'prefix', term: termOf(WORD, word) }];
}

/** What looks like an id is the beginning of one, or of a hash, or of a word. */
function idClause(piece: string): Clause {
  const ids = ID_KEYS.map((key) => ({
    kind: 'prefix' as const,
    term: termOf(key, key === 'hash' || key === 'digest' ? piece.slice(0, HASH_DIGITS) : piece),
  }));
  const [word] = wordsOf(piece);
  return word === piece ? [...ids, ...wordClause(word)] : ids;
}

/** Returns true if a set of terms meets a condition. */
export function meets(all: readonly string[], clause: Clause): boolean {
  return clause.some((one) =>
    one.kind === 'exact'
      ? all.includes(one.term)
      : all.some((term) => term.startsWith(one.term) && (one.kind === 'prefix' || hasParts(term, one))),
  );
}

/** Returns true if a term that begins as a pattern also has its other parts. Linear in the length of the term. */
export function hasParts(term: string, { term: begin, parts = [] }: Alternative): boolean {
  let at = begin.length;
  for (const part of parts.slice(0, -1)) {
    const found = term.indexOf(part, at);
    if (found < 0) return false;
    at = found + part.length;
  }
  const end = parts.at(-1) ?? '';
  return term.length - end.length >= at && term.endsWith(end);
}
