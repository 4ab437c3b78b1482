/**
 * Preserves numbers that a double cannot represent while parsed JSON is processed: as marked strings, which become the
 * same digits again at the end.
 */
import { randomBytes } from 'node:crypto';
import { doublesAround, fitsDouble } from '../../adapters/rpc/decimal.ts';
import { closingQuote } from '../../catalogs/text/json-string.ts';
import { type Fault, faultAt } from '../../catalogs/validation/validation-faults.ts';

/** Random for each process, so that no server can write such a string. */
const MARK = `number-${randomBytes(16).toString('hex')}:`;
const MARKED = new RegExp(`"${MARK}(?:(-?[0-9][0-9.eE+-]*)")?`, 'g');
const MOST_CHECKED = 10_000;
const QUOTE = 34;

/**
 * Returns a JSON text with each number that a double cannot represent as a marked string. Linear; the text must be
 * valid JSON. `mark`: what stands before the digits in the string.
 */
export function markExactNumbers(text: string, mark = MARK): string {
  const parts: string[] = [];
  let from = 0;
  for (let at = 0; at < text.length; at++) {
    const unit = text.charCodeAt(at);
    if (unit === QUOTE) at = closingQuote(text, at);
    if (unit !== 45 && (unit < 48 || unit > 57)) continue;
    const end = numberEnd(text, at);
    const written = text.slice(at, end);
    if (!fitsDouble(written)) {
      parts.push(text.slice(from, at), `"${mark}${written}"`);
      from = end;
    }
    at = end - 1;
  }
  parts.push(text.slice(from));
  return parts.join('');
}

/**
 * Returns a text of `holdNumbers` with its numbers as they were written. A marked string that a redaction changed stays
 * a string.
 */
export function restoreExactNumbers(text: string): string {
  return text.replace(MARKED, (_all, written: string | undefined) => written ?? '"');
}

/**
 * Validates a value of `holdNumbers`: each of its numbers as the double below it, then as the double above it. Both
 * must fit, so a bound that depends on the lost digits refuses. A number without such doubles stays a string, which
 * fits no numeric type. More than MOST_CHECKED of them are an error, because each takes twenty microseconds.
 */
export function checkMarkedNumbers(value: unknown, check: (value: unknown) => readonly Fault[]): readonly Fault[] {
  const text = JSON.stringify(value);
  if (text.split(MARK, MOST_CHECKED + 2).length > MOST_CHECKED + 1)
    return [faultAt([], `cannot be validated: it has more than ${MOST_CHECKED} numbers that no double represents`)];
  for (const side of ['below', 'above'] as const) {
    const judged = text.replace(MARKED, (all, written: string | undefined) =>
      written === undefined ? all : String(doublesAround(written)?.[side] ?? all),
    );
    const faults = check(JSON.parse(judged));
    if (faults.length > 0) return faults;
  }
  return [];
}

function numberEnd(text: string, start: number): number {
  let end = start + 1;
  while (end < text.length && /[0-9.eE+-]/.test(text.charAt(end))) end++;
  return end;
}
