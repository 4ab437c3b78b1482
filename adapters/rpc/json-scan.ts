/** Scans a JSON text once, in linear time, to decide whether the native parse is safe. It builds no values. */
import { fitsDouble } from './decimal.ts';

/** One member of the outermost object. `text.slice(start, end)` is its value without white space around it. */
export interface JsonMember {
  readonly key: string;
  readonly start: number;
  readonly end: number;
}

/** The result of a scan. It is meaningful only for texts that JSON.parse accepts. */
export interface JsonScan {
  readonly members: readonly JsonMember[];
  /** The number of members at all depths. A parsed value with fewer keys has lost a duplicate. */
  readonly keys: number;
  /** The number of commas and of opening brackets. There is at most one value more. */
  readonly values: number;
  /** The deepest nesting of arrays and objects. */
  readonly depth: number;
  /** False if a double does not hold a number exactly: digits lost, out of range, or minus zero. */
  readonly exact: boolean;
  readonly loneSurrogate: boolean;
}

const QUOTE = 34;
const BACKSLASH = 92;
const LETTER_D = 100;
const LETTER_U = 117;
/** The number of code units that are read one by one after an escape. */
const NEAR = 16;

/**
 * Scans a text. Never throws. The time is linear in the length and the stack has a fixed size, for any nesting and any
 * number of keys. Native searches skip strings without escapes.
 */
export function scanJson(text: string): JsonScan {
  return new Scanner(text).run();
}

/** Returns the members of the outermost object of a text, in order. Never throws. */
export function jsonMembers(text: string): readonly JsonMember[] {
  return scanJson(text).members;
}

class Scanner {
  private readonly text: string;
  private readonly members: JsonMember[] = [];
  private keys = 0;
  private values = 0;
  private level = 0;
  private depth = 0;
  private exact = true;
  private loneSurrogate = false;
  /** The next backslash at or after the current place. It is found once for all strings before it. */
  private backslash = -1;
  private keyStart = 0;
  private keyEnd = 0;
  private valueStart = -1;
  private key = '';

  constructor(text: string) {
    this.text = text;
  }

  run(): JsonScan {
    const { text } = this;
    for (let at = 0; at < text.length; at++) {
      const unit = text.charCodeAt(at);
      if (unit === QUOTE) at = this.skipString(at);
      else if (unit === 45 || (unit >= 48 && unit <= 57)) at = this.skipNumber(at);
      else if (unit > 32) this.mark(unit, at);
    }
    const { members, keys, values, depth, exact, loneSurrogate } = this;
    return { members, keys, values, depth, exact, loneSurrogate };
  }

  /** Tracks the nesting, and where the members of the outermost object begin and end. */
  private mark(unit: number, at: number): void {
    switch (unit) {
      case 123: // {
      case 91: // [
        this.values++;
        this.level++;
        if (this.level > this.depth) this.depth = this.level;
        return;
      case 125: // }
      case 93: // ]
        if (this.level === 1) this.closeMember(at);
        this.level--;
        return;
      case 58: // :
        this.keys++;
        if (this.level === 1) this.openMember(at + 1);
        return;
      case 44: // ,
        this.values++;
        if (this.level === 1) this.closeMember(at);
        return;
      default:
    }
  }

  private openMember(start: number): void {
    const raw = this.text.slice(this.keyStart, this.keyEnd);
    this.key = raw.includes('\\') ? unescape(raw) : raw;
    this.valueStart = start;
  }

  private closeMember(end: number): void {
    if (this.valueStart < 0) return;
    let start = this.valueStart;
    let stop = end;
    while (start < stop && this.text.charCodeAt(start) <= 32) start++;
    while (stop > start && this.text.charCodeAt(stop - 1) <= 32) stop--;
    this.members.push({ key: this.key, start, end: stop });
    this.valueStart = -1;
  }

  /** Returns the place of the closing quote, or the end of the text. */
  private skipString(open: number): number {
    const { text } = this;
    if (this.backslash < open) this.backslash = orEnd(text.indexOf('\\', open + 1), text);
    let close = orEnd(text.indexOf('"', open + 1), text);
    if (this.backslash < close) close = this.skipEscapes(this.backslash);
    if (this.level === 1) {
      this.keyStart = open + 1;
      this.keyEnd = close;
    }
    return close;
  }

  /**
   * Starts at the first escape of a string. Escapes are often close together, so it reads a few units one by one before
   * it uses a native search. It remembers the next backslash and quote, so it searches no part of the text twice.
   */
  private skipEscapes(from: number): number {
    const { text } = this;
    let at = from;
    let close = -1;
    while (at < text.length) {
      for (let near = at + NEAR; at < near; ) {
        const unit = text.charCodeAt(at);
        if (unit === QUOTE) return at;
        if (unit !== BACKSLASH) at += 1;
        else {
          at = this.endOfEscape(at);
          near = at + NEAR;
        }
      }
      if (close < at) close = orEnd(text.indexOf('"', at), text);
      if (this.backslash < at) this.backslash = orEnd(text.indexOf('\\', at), text);
      if (close <= this.backslash) return close;
      at = this.backslash;
    }
    return text.length;
  }

  /** Returns the place after the escape that starts at `at`. */
  private endOfEscape(at: number): number {
    return this.text.charCodeAt(at + 1) === LETTER_U ? this.skipUnicode(at + 1) + 1 : at + 2;
  }

  /** `at` is the `u` of an escape. Returns the place of its last hex digit, or of the second half's in a pair. */
  private skipUnicode(at: number): number {
    // Only \uD… can be half of a pair. Fully escaped texts contain millions of others.
    if ((this.text.charCodeAt(at + 1) | 32) !== LETTER_D) return at;
    const unit = hexUnit(this.text, at + 1);
    if (unit < 0xd800) return at;
    const second = this.text.startsWith('\\u', at + 5) ? hexUnit(this.text, at + 7) : 0;
    if (unit < 0xdc00 && second >= 0xdc00 && second <= 0xdfff) return at + 10;
    this.loneSurrogate = true;
    return at;
  }

  private skipNumber(start: number): number {
    const { text } = this;
    let end = start + 1;
    let plain = true;
    for (; end < text.length; end++) {
      const unit = text.charCodeAt(end);
      if (unit >= 48 && unit <= 57) continue;
      // . + - E e
      if (unit !== 46 && unit !== 43 && unit !== 45 && unit !== 69 && unit !== 101) break;
      plain = false;
    }
    const certain = plain && end - start <= 15 && text.charCodeAt(start) !== 45;
    if (!certain && this.exact) this.exact = fitsDouble(text.slice(start, end));
    return end - 1;
  }
}

function orEnd(found: number, text: string): number {
  return found < 0 ? text.length : found;
}

/** Returns the code unit of four hex digits, or -1. JSON.parse refuses such a text anyway. */
function hexUnit(text: string, at: number): number {
  const digits = text.slice(at, at + 4);
  return /^[0-9a-fA-F]{4}$/.test(digits) ? Number.parseInt(digits, 16) : -1;
}

/** Returns a key as JSON reads it. Returns the raw text if it is not JSON: the later parse refuses it. */
function unescape(raw: string): string {
  try {
    return JSON.parse(`"${raw}"`) as string;
  } catch {
    return raw;
  }
}
