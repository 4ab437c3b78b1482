/** Owns the built-in functions that wasm leaves to its host: pure, bounded, with the clock of the request; refuses everything else. */
import { createHash } from 'node:crypto';

/** The time that a decision is made at. */
export interface Moment {
  /** RFC 3339; empty when the call has none. */
  readonly time: string;
}

/** Takes the arguments as JSON values and gives JSON text, or undefined where Rego has no result. Throwing refuses the call. */
export type Builtin = (args: readonly unknown[], moment: Moment) => string | undefined;

const DAYS = ['Sunday', 'Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday', 'Saturday'];

/** By the name that Rego uses. capabilities.json is made from this table and from what wasm has natively. */
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

/** Nanoseconds as text: a double cannot hold them. Digits below a millisecond are dropped, as the input has none. */
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

/** `at` is nanoseconds, or [nanoseconds, zone]; an unknown zone has no result, as in OPA. */
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

function anyPair(left: unknown, right: unknown, holds: (a: string, b: string) => boolean): boolean {
  const rights = texts(right);
  return texts(left).some((a) => rights.some((b) => holds(a, b)));
}

function texts(value: unknown): readonly string[] {
  const all: readonly unknown[] = Array.isArray(value) ? value : [value];
  if (all.every((item): item is string => typeof item === 'string')) return all;
  throw new TypeError('a text or a list of texts is needed');
}

/** `%s`, `%v`, `%d` and `%%` as OPA prints them. Other verbs throw: a message that differs from the one tested is worse than none. */
function formatText(format: string, values: readonly unknown[]): string {
  let next = 0;
  const text = format.replace(/%(.?)/gs, (_whole, verb: string) => {
    if (verb === '%') return '%';
    if (!['s', 'v', 'd'].includes(verb) || next >= values.length)
      throw new TypeError('sprintf takes %s, %v and %d here, one value each');
    const value = values[next];
    next += 1;
    if (verb === 'd' && !Number.isInteger(value)) throw new TypeError('%d needs a whole number');
    if (verb === 's' && typeof value !== 'string') throw new TypeError('%s needs a text; %v takes anything');
    return typeof value === 'string' ? value : showRego(value);
  });
  if (next !== values.length) throw new TypeError('sprintf got more values than verbs');
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
