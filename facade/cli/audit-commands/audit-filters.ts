/** Turns the options of the audit commands into a filter; refuses words that no record has. */
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { AUDIT_TYPES } from '../../audit/audit-chain.ts';
import { AUDIT_OUTCOMES } from '../../audit/audit-entry.ts';
import type { AuditFilter } from '../../audit/audit-reader.ts';
import { didYouMean, quote } from '../../config/config-problems.ts';
import { readPastTime } from '../durations.ts';

/** Options of the commands that select records. */
export type FilterOptions = Omit<AuditFilter, 'callsOnly'> & { readonly all?: true };

/** Returns the filter that the options describe. Throws USAGE for an unknown word or a time that cannot be read. */
export function filterOf(options: FilterOptions): AuditFilter {
  const { since, until, type, outcome, principal, server, tool, code, run, session, id, text, all } = options;
  checkWord('outcome', outcome, AUDIT_OUTCOMES);
  checkWord('type', type, AUDIT_TYPES);
  const filter = {
    ...{ type, outcome, principal, server, tool, code, run, session, id, text },
    since: since === undefined ? undefined : auditTime(since),
    until: until === undefined ? undefined : auditTime(until),
    // A type selects all its records, including those that are not calls.
    callsOnly: all === true || type !== undefined ? undefined : true,
  };
  return Object.fromEntries(Object.entries(filter).filter(([, value]) => value !== undefined));
}

/** A mistyped word must not look like a log without such records. */
function checkWord(name: string, given: string | undefined, words: readonly string[]): void {
  if (given !== undefined && !words.includes(given))
    throw usage(`No record has the ${name} ${quote(given)}; ${didYouMean(given, words)}`);
}

/** Returns the ISO text of a time that is given as ISO text or as an age such as `2h`. Throws USAGE. */
export function auditTime(text: string): string {
  return new Date(readPastTime(text, Date.now())).toISOString();
}

/** Returns the error for a wrong use of the audit commands. */
export function usage(detail: string): TollgateError {
  return new TollgateError('USAGE', { detail, next: 'Read `tollgate audit --help`.' });
}
