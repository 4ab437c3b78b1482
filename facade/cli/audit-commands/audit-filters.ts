/** Owns what the audit commands can be asked for: options, words, times; refuses words that no record has. */
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { AUDIT_TYPES } from '../../audit/audit-chain.ts';
import { AUDIT_OUTCOMES } from '../../audit/audit-entry.ts';
import type { AuditFilter } from '../../audit/audit-reader.ts';
import { didYouMean, quote } from '../../config/config-problems.ts';

const TEXT = { type: 'string' } as const;
const FLAG = { type: 'boolean' } as const;

/** Options of every command. */
export const COMMON = { config: { type: 'string', short: 'c' }, folder: TEXT, json: FLAG } as const;

/** Options of the commands that look for records. */
export const FILTERS = {
  since: TEXT,
  until: TEXT,
  type: TEXT,
  principal: TEXT,
  server: TEXT,
  tool: TEXT,
  outcome: TEXT,
  code: TEXT,
  run: TEXT,
  session: TEXT,
  id: TEXT,
  text: TEXT,
  all: FLAG,
  ...COMMON,
} as const;

/** Options as they were given. */
export type Values = Readonly<Record<string, string | boolean | readonly (string | boolean)[] | undefined>>;

/** What the options ask for. `now` in ms since 1970. Throws USAGE for a word or a time that there is not. */
export function filterOf(values: Values, now: number): AuditFilter {
  checkWord(values, 'outcome', AUDIT_OUTCOMES);
  checkWord(values, 'type', AUDIT_TYPES);
  // Who names a type wants all of it, also what is no call.
  const filter: Record<string, string | boolean> =
    values.all === true || values.type !== undefined ? {} : { callsOnly: true };
  for (const name of Object.keys(FILTERS)) {
    const value = values[name];
    if (typeof value === 'string') filter[name] = name === 'since' || name === 'until' ? timeOf(value, now) : value;
  }
  return filter as AuditFilter;
}

/** A mistyped word must not look like a log without such records. */
function checkWord(values: Values, name: string, words: readonly string[]): void {
  const given = values[name];
  if (typeof given === 'string' && !words.includes(given))
    throw usage(`No record has the ${name} ${quote(given)}; ${didYouMean(given, words)}`);
}

const UNITS: Readonly<Record<string, number>> = { s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 };

/** ISO text of a time as it is given: ISO, or `2h` ago. Throws USAGE. */
export function timeOf(text: string, now: number): string {
  const [, count, unit] = /^(\d{1,6})([smhd])$/.exec(text) ?? [];
  const time = count === undefined ? Date.parse(text) : now - Number(count) * (UNITS[unit ?? ''] ?? 0);
  if (Number.isNaN(time)) throw usage(`${text} is no time: write 2026-01-31T12:00:00Z, or 30m, 2h, 7d`);
  return new Date(time).toISOString();
}

/** A number that an option gives. Throws USAGE. */
export function numberOf(values: Values, name: string, otherwise: number): number {
  const text = values[name];
  if (text === undefined) return otherwise;
  if (!/^[1-9]\d{0,6}$/.test(String(text))) throw usage(`--${name} is a whole number from 1`);
  return Number(text);
}

/** What a misused command answers with. */
export function usage(detail: string): TollgateError {
  return new TollgateError('USAGE', { detail, next: 'Read `tollgate audit --help`.' });
}
