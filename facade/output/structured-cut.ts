/**
 * Cuts structured content: shorter strings and arrays until it fits. It is refused if the tool's schema no longer
 * accepts it.
 */

interface Limit {
  readonly chars: number;
  readonly items: number;
}

/**
 * Returns a smaller copy of `value` whose JSON is at most `bytes` long, or undefined if keys and numbers alone are
 * longer. One limit for strings and arrays is halved until it fits, so equal parts stay equally long. Only a limit that
 * fits is copied: each is measured first, and measuring stops at `bytes`.
 */
export function cutStructuredContent(value: unknown, bytes: number): unknown {
  const measure = new Measure(bytes);
  if (!measure.fits(value, { chars: 0, items: 0 })) return undefined;
  for (let limit = Math.max(16, bytes); limit > 0; limit = Math.floor(limit / 2)) {
    const both = { chars: limit, items: Math.ceil(limit / 16) };
    if (measure.fits(value, both)) return limitDeep(value, both);
  }
  return limitDeep(value, { chars: 0, items: 0 });
}

/** Returns whether the JSON of a limited value would fit, without making it. */
class Measure {
  readonly #bytes: number;
  /** The keys of an object are listed once, because it may have a million. */
  readonly #keys = new Map<object, readonly string[]>();

  constructor(bytes: number) {
    this.#bytes = bytes;
  }

  fits(value: unknown, limit: Limit): boolean {
    return this.#rest(value, limit, this.#bytes) >= 0;
  }

  /** Returns the bytes of `room` that are left after a value; negative if it does not fit. */
  #rest(value: unknown, limit: Limit, room: number): number {
    if (room < 0) return room;
    if (typeof value === 'string') return room - sizeOf(limited(value, limit));
    if (value === null || typeof value !== 'object') return room - (JSON.stringify(value) ?? '').length;
    return Array.isArray(value)
      ? this.#restOfList(value, limit, room)
      : this.#restOfObject(value as Readonly<Record<string, unknown>>, limit, room);
  }

  #restOfList(list: readonly unknown[], limit: Limit, room: number): number {
    const count = Math.min(list.length, limit.items);
    let left = room - 2 - Math.max(0, count - 1);
    for (let at = 0; at < count && left >= 0; at += 1) left = this.#rest(list[at], limit, left);
    return left;
  }

  #restOfObject(object: Readonly<Record<string, unknown>>, limit: Limit, room: number): number {
    const keys = this.#keys.get(object) ?? Object.keys(object);
    this.#keys.set(object, keys);
    // The minimum for each key: two quotes, a colon, a comma and a value of one byte.
    let left = room - 2 - Math.max(0, keys.length - 1);
    if (left < keys.length * 4) return -1;
    for (let at = 0; at < keys.length && left >= 0; at += 1)
      left = this.#rest(object[keys[at] ?? ''], limit, left - 1 - sizeOf(keys[at] ?? ''));
    return left;
  }
}

function sizeOf(text: string): number {
  return Buffer.byteLength(JSON.stringify(text));
}

function limited(text: string, { chars }: Limit): string {
  return text.length <= chars ? text : `${text.slice(0, chars).replace(/[\ud800-\udbff]$/, '')}…`;
}

function limitDeep(value: unknown, limit: Limit): unknown {
  if (typeof value === 'string') return limited(value, limit);
  if (Array.isArray(value)) return value.slice(0, limit.items).map((item) => limitDeep(item, limit));
  if (value === null || typeof value !== 'object') return value;
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, limitDeep(item, limit)]));
}
