/**
 * The built-in functions that WebAssembly leaves to its host. They are pure and bounded, and read the clock of the
 * request.
 */
import { createHash } from 'node:crypto';

/** The time of a decision. */
export interface Moment {
  /** RFC 3339. Empty if the call has no time. */
  readonly time: string;
}

/**
 * Takes arguments as JSON values. Returns JSON text, or undefined if Rego has no result. If it throws, the call is
 * refused.
 */
export type Builtin = (args: readonly unknown[], moment: Moment) => string | undefined;

const DAYS = ['Sunday', 'Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday', 'Saturday'];

/** Built-ins by their name in Rego. capabilities.json is made from this table and from the built-ins of WebAssembly. */
export const BUILTINS: ReadonlyMap<string, Builtin> = new Map<string, Builtin>([
  [
    'sprintf',
    ([format, values]) =>
      typeof format === 'string' && Array.isArray(values) ? JSON.stringify(formatText(format, values)) : undefined,
  ],
  [
    'strings.any_prefix_match',
    ([texts, prefixes]) => JSON.stringify(anyPair(texts, prefixes, (text, prefix) => text.startsWith(prefix))),
  ],
  [
    'strings.any_suffix_match',
    ([texts, suffixes]) => JSON.stringify(anyPair(texts, suffixes, (text, suffix) => text.endsWith(suffix))),
  ],
  [
    'crypto.sha256',
    ([text]) =>
      typeof text === 'string' ? JSON.stringify(createHash('sha256').update(text).digest('hex')) : undefined,
  ],
  ['time.now_ns', (_args, moment) => nanoseconds(moment.time)],
  ['time.parse_rfc3339_ns', ([text]) => (typeof text === 'string' ? nanoseconds(text) : undefined)],
  ['time.clock', ([at]) => calendar(at, ({ hour, minute, second }) => JSON.stringify([hour, minute, second]))],
  ['time.date', ([at]) => calendar(at, ({ year, month, day }) => JSON.stringify([year, month, day]))],
  [
    'time.weekday',
    ([at]) =>
      calendar(at, ({ year, month, day }) =>
        JSON.stringify(DAYS[new Date(Date.UTC(year, month - 1, day)).getUTCDay()]),
      ),
  ],
]);

/** Returns nanoseconds as text, because a double cannot represent them. Digits below a millisecond are dropped. */
function nanoseconds(text: string): string | undefined {
  const whole = /^(\d{4}-\d{2}-\d{2})[Tt](\d{2}:\d{2}:\d{2})(\.\d+)?([Zz]|[+-]\d{2}:\d{2})$/.test(text)
    ? Date.parse(text)
    : Number.NaN;
  return Number.isNaN(whole) ? undefined : `${BigInt(whole) * 1_000_000n}`;
}

interface Calendar {
  readonly year: number;
  readonly month: number;
  readonly day: number;
  readonly hour: number;
  readonly minute: number;
  readonly second: number;
}

/** `at` is nanoseconds, or [nanoseconds, zone]. An unknown zone has no result, as in OPA. */
function calendar(at: unknown, read: (calendar: Calendar) => string): string | undefined {
  const [nanos, zone] = Array.isArray(at) ? (at as unknown[]) : [at, 'UTC'];
  if (typeof nanos !== 'number' || !Number.isInteger(nanos) || typeof zone !== 'string' || zone === 'Local')
    return undefined;
  const date = new Date(Math.floor(nanos / 1_000_000));
  const parts = zonedParts(date, zone === '' ? 'UTC' : zone);
  if (parts === undefined) return undefined;
  const part = (type: string): number => Number(parts.find((found) => found.type === type)?.value);
  return read({
    year: part('year'),
    month: part('month'),
    day: part('day'),
    hour: part('hour'),
    minute: part('minute'),
    second: part('second'),
  });
}

function zonedParts(date: Date, timeZone: string): readonly Intl.DateTimeFormatPart[] | undefined {
  try {
    const format = new Intl.DateTimeFormat('en-US', {
      timeZone,
      hourCycle: 'h23',
      year: 'numeric',
      month: 'numeric',
      day: 'numeric',
      hour: 'numeric',
      minute: 'numeric',
      second: 'numeric',
    });
    return format.formatToParts(date);
  } catch (thrown) {
    if (thrown instanceof RangeError) return undefined;
    throw thrown;
  }
}

function anyPair(left: unknown, right: unknown, matches: (a: string, b: string) => boolean): boolean {
  const rights = texts(right);
  return texts(left).some((a) => rights.some((b) => matches(a, b)));
}

function texts(value: unknown): readonly string[] {
  const all: readonly unknown[] = Array.isArray(value) ? value : [value];
  if (all.every((item): item is string => typeof item === 'string')) return all;
  throw new TypeError('expected a string or a list of strings');
}

/**
 * Formats `%s`, `%v`, `%d` and `%%` as OPA does. Other verbs throw, because their text could differ from that of `opa
 * test`.
 */
function formatText(format: string, values: readonly unknown[]): string {
  let next = 0;
  const text = format.replace(/%(.?)/gs, (_whole, verb: string) => {
    if (verb === '%') return '%';
    if (!['s', 'v', 'd'].includes(verb) || next >= values.length)
      throw new TypeError('sprintf supports %s, %v and %d here, with one value each');
    const value = values[next];
    next += 1;
    if (verb === 'd' && !Number.isInteger(value)) throw new TypeError('%d needs an integer');
    if (verb === 's' && typeof value !== 'string') throw new TypeError('%s needs a string; use %v for other values');
    return typeof value === 'string' ? value : showRego(value);
  });
  if (next !== values.length) throw new TypeError('sprintf has more values than verbs');
  return text;
}

function showRego(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(showRego).join(', ')}]`;
  if (typeof value === 'object' && value !== null) {
    return `{${Object.entries(value)
      .sort(([a], [b]) => (a < b ? -1 : 1))
      .map(([key, inner]) => `${JSON.stringify(key)}: ${showRego(inner)}`)
      .join(', ')}}`;
  }
  return JSON.stringify(value);
}
