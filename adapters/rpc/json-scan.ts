/**
 * Checks a JSON text in one pass over its bytes, in linear time. It builds no values: it finds where the members are,
 * and what later stages must know about the text.
 */
import { isSuspect } from '../../catalogs/text/hostile-text.ts';
import { fitsDouble } from './decimal.ts';
import { isText, JsonKeys, KeyMemory } from './json-keys.ts';

/** One member of an object. The bytes from `start` to `end` are its value without white space around it. */
export interface JsonMember {
  readonly key: string;
  readonly start: number;
  readonly end: number;
  /** False if a double does not hold one of its numbers exactly. */
  readonly exact: boolean;
  /** True for an array that holds objects only. */
  readonly hasOnlyObjects: boolean;
  /** The members of the value. Only for the members of the outermost object of a message. */
  readonly members: readonly JsonMember[];
}

/** Facts about the strings of a text. They say which steps of shaping can be skipped, so each may be too careful. */
export interface StringFacts {
  /** A key `_meta` below the members of the result. */
  hasNestedMeta: boolean;
  /** An item of a list, or a value in it, has a key `uri`, `icons` or `resource`. */
  hasAddress: boolean;
  /** An item, or a value in it, has a key `data` or `blob`. */
  hasMedia: boolean;
  /** A character that `escapeHostile` may write out. */
  isSuspect: boolean;
  /** An escape that need not be written so: `\u`, `\/`, or `\\`, which begins one in a text that is JSON itself. */
  hasFreeEscape: boolean;
  /** The number of line ends in strings. */
  newlines: number;
}

/** The result of a scan. Besides `members`, `depth` and `values`, it is meaningful only if `isValid`. */
export interface JsonScan {
  /** True if the text is JSON (RFC 8259). */
  readonly isValid: boolean;
  /** The members of the outermost object. */
  readonly members: readonly JsonMember[];
  /** True if an object has two equal keys, however they are escaped. */
  readonly hasDuplicate: boolean;
  /** The number of commas and of opening brackets. There is at most one value more. */
  readonly values: number;
  /** The deepest nesting of arrays and objects. */
  readonly depth: number;
  /** False if a double does not hold a number exactly: digits lost, out of range, or minus zero. */
  readonly exact: boolean;
  readonly hasLoneSurrogate: boolean;
  readonly strings: Readonly<StringFacts>;
}

/** A scan of a text that arrives in parts. Other texts may be scanned between two parts. */
export interface PartialScan {
  /** Scans what is new, except the last few bytes. `bytes`: all of the text so far, maybe in another buffer. */
  advance(bytes: Buffer): void;
  /** Scans the rest. `bytes`: the whole text. Returns what `scanJson` returns for it. */
  finish(bytes: Buffer): JsonScan;
}

/**
 * The level of the objects whose members are found: 1 for a text by itself, 2 for a message, whose result or params are
 * members of the outermost object.
 */
export type ScanLevel = 1 | 2;

/** The most values in one message. Each takes at least 50 bytes, and up to four microseconds in each step of a call. */
export const MAX_JSON_VALUES = 250_000;

const QUOTE = 34;
const BACKSLASH = 92;
const LETTER_U = 117;
const UNDERSCORE = 95;
const OPEN_OBJECT = 123;
const OPEN_LIST = 91;
const NOTHING: readonly never[] = [];
/** Keys of an item with an address that a client may open. */
const ADDRESSES: ReadonlySet<string> = new Set(['uri', 'icons', 'resource']);
/** The first letters of ADDRESSES and of the keys of media. */
const ITEM_KEY_INITIALS: ReadonlySet<number> = new Set([LETTER_U, 105, 114, 100, 98]);

/** Bytes of a string that need a look: quote, backslash, control characters, and first bytes of suspect characters. */
const SPECIAL = new Uint8Array(256).fill(1, 0, 32);
for (const byte of [QUOTE, BACKSLASH, 0x7f, 0xc2, 0xe1, 0xe2, 0xef, 0xf3]) SPECIAL[byte] = 1;
/** The number of bytes that are read one by one before words are. */
const NEAR = 8;
/** A text with fewer bytes is not read in words, because the view costs more. */
const MIN_VIEW_BYTES = 1024;

/** What may come next. A number for each, because it is compared at every token. */
const VALUE = 0;
const FIRST_VALUE = 1;
const KEY = 2;
const FIRST_KEY = 3;
const COLON = 4;
/** A comma or a closing bracket; at level 0, the end. */
const NEXT = 5;

/** Deeper levels are not followed, because no message may nest so deep. */
const DEEPEST = 512;
/** The bytes behind a part that have come too. A pair of escapes, a literal and a character have fewer bytes. */
const LOOKAHEAD = 16;
const NO_BYTES = Buffer.alloc(0);

/** What is known of each open level. */
class ScanMemory {
  /** 1 if the level is an object. */
  readonly isObjectAt = new Uint8Array(DEEPEST + 1);
  /** The last string. The scan reads those of members only. */
  readonly keyStarts = new Int32Array(DEEPEST + 1);
  readonly keyEnds = new Int32Array(DEEPEST + 1);
  readonly keys = new KeyMemory();
}

/** For texts that are scanned in one go, because only one of them is scanned at a time. */
const shared = new ScanMemory();

/**
 * Scans a UTF-8 text. Never throws. The time is linear in the length and the stack has a fixed size, for any nesting
 * and any number of keys. After a fault it goes on, so that the id of a message can still be found.
 */
export function scanJson(bytes: Buffer, level: ScanLevel = 1): JsonScan {
  return new Scanner(level, shared).finish(bytes);
}

/** Starts the scan of a text that arrives in parts. It has 100 KB of memory of its own. Takes linear time in all. */
export function startScan(level: ScanLevel): PartialScan {
  return new Scanner(level, new ScanMemory());
}

/** Returns the members of the outermost object of a text, in order, with places in the text. Never throws. */
export function jsonMembers(text: string): readonly JsonMember[] {
  const bytes = Buffer.from(text);
  const { members } = scanJson(bytes);
  if (bytes.length === text.length) return members;
  let [byte, place] = [0, 0];
  const placeOf = (at: number): number => {
    place += bytes.toString('utf8', byte, at).length;
    byte = at;
    return place;
  };
  return members.map((member) => ({ ...member, start: placeOf(member.start), end: placeOf(member.end) }));
}

/** A member that has begun. */
class OpenMember {
  readonly key: string;
  readonly start: number;
  exact = true;
  hasOnlyObjects = true;
  members: JsonMember[] | undefined;

  constructor(key: string, start: number) {
    this.key = key;
    this.start = start;
  }
}

class Scanner implements JsonScan, PartialScan {
  readonly members: JsonMember[] = [];
  isValid = true;
  values = 0;
  depth = 0;
  exact = true;
  hasLoneSurrogate = false;
  readonly strings: StringFacts = {
    hasNestedMeta: false,
    hasAddress: false,
    hasMedia: false,
    isSuspect: false,
    hasFreeEscape: false,
    newlines: 0,
  };
  private bytes: Buffer = NO_BYTES;
  private view: DataView | undefined;
  /** The end of this part. It is the end of the bytes only in the last part. */
  private stop = 0;
  /** The place of the next byte. */
  private at = 0;
  /** The place of the quote that opens a string which the last part cut, or -1. */
  private cutString = -1;
  /** The place before which `endOfPart` has looked at all bytes. */
  private searched = 0;
  private readonly memory: ScanMemory;
  private readonly keys: JsonKeys;
  private readonly base: ScanLevel;
  private state = VALUE;
  private level = 0;
  private outer: OpenMember | undefined;
  private inner: OpenMember | undefined;

  constructor(base: ScanLevel, memory: ScanMemory) {
    this.base = base;
    this.memory = memory;
    this.keys = new JsonKeys(NO_BYTES, memory.keys);
    memory.keyStarts.fill(0, 0, 3);
    memory.keyEnds.fill(0, 0, 3);
  }

  get hasDuplicate(): boolean {
    return this.keys.hasDuplicate;
  }

  advance(bytes: Buffer): void {
    // The message will be refused. Its line may never end, so no more members may collect in memory.
    if (this.values > MAX_JSON_VALUES) return;
    this.run(bytes, this.endOfPart(bytes));
  }

  finish(bytes: Buffer): JsonScan {
    this.run(bytes, bytes.length);
    if (this.state !== NEXT || this.level !== 0) this.isValid = false;
    return this;
  }

  /** Returns where the next part ends: behind a byte that is in no number. It looks at each byte once. */
  private endOfPart(bytes: Buffer): number {
    const end = Math.max(bytes.length - LOOKAHEAD, this.searched);
    let at = end;
    while (at > this.searched && isInNumber(bytes[at - 1] as number)) at -= 1;
    const isFound = at > this.searched;
    this.searched = end;
    return isFound ? at : this.stop;
  }

  private run(bytes: Buffer, stop: number): void {
    this.bytes = bytes;
    this.keys.bytes = bytes;
    this.stop = stop;
    this.view = bytes.length < MIN_VIEW_BYTES ? undefined : new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
    const { cutString } = this;
    this.cutString = -1;
    let at = cutString < 0 ? this.at : this.readString(cutString, this.at) + 1;
    for (; at < stop; at += 1) {
      const byte = bytes[at] as number;
      if (byte === QUOTE) at = this.readString(at, at + 1);
      else if (byte === 45 || (byte >= 48 && byte <= 57)) at = this.readNumber(at);
      else if (byte > 32) at = this.mark(byte, at);
      else if (byte !== 32 && byte !== 10 && byte !== 13 && byte !== 9) this.isValid = false;
    }
    this.at = at;
  }

  /** Reads a bracket, a colon, a comma or a literal. Returns the place of its last byte. */
  private mark(byte: number, at: number): number {
    switch (byte) {
      case OPEN_OBJECT:
      case OPEN_LIST:
        this.open(byte);
        return at;
      case 125: // }
      case 93: // ]
        this.close(byte === 125, at);
        return at;
      case 58: // :
        if (this.state !== COLON) this.isValid = false;
        this.state = VALUE;
        this.beginMember(at + 1);
        return at;
      case 44: // ,
        this.values += 1;
        if (this.state !== NEXT || this.level === 0) this.isValid = false;
        this.state = this.memory.isObjectAt[Math.min(this.level, DEEPEST)] === 1 ? KEY : VALUE;
        this.endMember(at);
        return at;
      default:
        return this.literal(byte, at);
    }
  }

  private open(byte: number): void {
    this.beginValue(byte);
    this.values += 1;
    this.level += 1;
    const level = this.level;
    if (level > this.depth) this.depth = level;
    this.state = byte === OPEN_OBJECT ? FIRST_KEY : FIRST_VALUE;
    if (level < 1 || level > DEEPEST) return;
    this.memory.isObjectAt[level] = byte === OPEN_OBJECT ? 1 : 0;
    if (byte === OPEN_OBJECT) this.keys.open(level);
  }

  private close(isObject: boolean, at: number): void {
    const state = this.state;
    const isOpen = this.level > 0 && (this.memory.isObjectAt[Math.min(this.level, DEEPEST)] === 1) === isObject;
    if (!isOpen || (state !== NEXT && state !== (isObject ? FIRST_KEY : FIRST_VALUE))) this.isValid = false;
    this.endMember(at);
    this.level -= 1;
    this.state = NEXT;
  }

  private literal(byte: number, at: number): number {
    this.beginValue(byte);
    this.state = NEXT;
    const word = byte === 116 ? 'true' : byte === 102 ? 'false' : 'null';
    if (isText(this.bytes, at, word)) return at + word.length - 1;
    this.isValid = false;
    return at;
  }

  /** Checks that a value may begin here. `byte` is its first. */
  private beginValue(byte: number): void {
    if (this.state > FIRST_VALUE) this.isValid = false;
    if (byte !== OPEN_OBJECT && this.level === this.base + 1 && this.innermost !== undefined)
      this.innermost.hasOnlyObjects = false;
  }

  private get innermost(): OpenMember | undefined {
    return this.base === 1 ? this.outer : this.inner;
  }

  private beginMember(start: number): void {
    if (this.level < 1 || this.level > this.base) return;
    const { keyStarts, keyEnds } = this.memory;
    const key = this.keys.text(keyStarts[this.level] as number, keyEnds[this.level] as number);
    const member = new OpenMember(key, start);
    if (this.level === 1) this.outer = member;
    else this.inner = member;
  }

  private endMember(end: number): void {
    const bytes = this.bytes;
    const member = this.level === 1 ? this.outer : this.level === 2 ? this.inner : undefined;
    if (member === undefined) return;
    let { start } = member;
    let stop = end;
    while (start < stop && (bytes[start] as number) <= 32) start += 1;
    while (stop > start && (bytes[stop - 1] as number) <= 32) stop -= 1;
    const { key, exact, members = NOTHING } = member;
    const hasOnlyObjects = member.hasOnlyObjects && bytes[start] === OPEN_LIST;
    const done = { key, start, end: stop, exact, hasOnlyObjects, members };
    if (this.level === 1) {
      this.members.push(done);
      this.outer = undefined;
      return;
    }
    this.inner = undefined;
    if (this.outer === undefined) return;
    if (!exact) this.outer.exact = false;
    (this.outer.members ??= []).push(done);
  }

  /**
   * Reads a string from a place in it. Returns the place of its closing quote, or the end of the text. If the part ends
   * in it, returns the place before the next byte.
   */
  private readString(open: number, from: number): number {
    let close = this.skipString(from);
    if (close >= this.stop) {
      if (this.stop < this.bytes.length) {
        this.cutString = open;
        return close - 1;
      }
      this.isValid = false;
      close = this.stop;
    }
    const level = this.level;
    this.memory.keyStarts[level] = open + 1;
    this.memory.keyEnds[level] = close;
    if (this.state === KEY || this.state === FIRST_KEY) {
      this.state = COLON;
      // With more values the message is refused anyway, and millions of keys would take too much memory.
      if (this.values <= MAX_JSON_VALUES) this.keys.add(level, open + 1, close);
      if (level > this.base) this.noteKey(open + 1, close);
    } else {
      this.beginValue(QUOTE);
      this.state = NEXT;
    }
    return close;
  }

  /** Notes `_meta` at any level, and keys of items with an address or media, also if they are escaped. */
  private noteKey(start: number, end: number): void {
    const below = this.level - this.base;
    const first = this.bytes[start] as number;
    if (first !== UNDERSCORE && first !== BACKSLASH && (below > 4 || !ITEM_KEY_INITIALS.has(first))) return;
    const key = this.keys.text(start, end);
    if (key === '_meta') this.strings.hasNestedMeta = true;
    else if (below === 1) return;
    else if (ADDRESSES.has(key)) this.strings.hasAddress = true;
    else if (key === 'data' || key === 'blob') this.strings.hasMedia = true;
  }

  /** `from` is a place in a string. Returns the place of its closing quote, or one behind the part. */
  private skipString(from: number): number {
    const bytes = this.bytes;
    let at = this.skipPlain(from);
    while (at < this.stop) {
      const byte = bytes[at] as number;
      if (byte === QUOTE) return at;
      if (byte === BACKSLASH) at = this.skipEscape(at);
      else {
        this.noteSpecial(byte, at);
        at += 1;
      }
      at = this.skipPlain(at);
    }
    return at;
  }

  private skipPlain(from: number): number {
    const bytes = this.bytes;
    const view = this.view;
    const end = this.stop;
    for (let at = from; ; ) {
      for (const stop = Math.min(at + NEAR, end); at < stop; at += 1) if (SPECIAL[bytes[at] as number] !== 0) return at;
      if (at >= end) return at;
      if (view !== undefined) while (at + 4 <= end && isPlainWord(view.getInt32(at, true))) at += 4;
    }
  }

  private noteSpecial(byte: number, at: number): void {
    if (byte < 32) this.isValid = false;
    else if (!this.strings.isSuspect) this.strings.isSuspect = isSuspect(firstUnit(this.bytes, at));
  }

  /** Returns the place after the escape that starts at `at`. */
  private skipEscape(at: number): number {
    switch (this.bytes[at + 1]) {
      case QUOTE:
      case 114: // r
      case 116: // t
        break;
      case 110: // n
        this.strings.newlines += 1;
        break;
      case BACKSLASH:
      case 47: // /
        this.strings.hasFreeEscape = true;
        break;
      case 98: // b
      case 102: // f
        this.strings.isSuspect = true;
        break;
      case LETTER_U:
        return this.skipUnicode(at);
      default:
        this.isValid = false;
    }
    return at + 2;
  }

  /** `at` is the backslash of `\u`. Returns the place after the escape, or after the second half of a pair. */
  private skipUnicode(at: number): number {
    const bytes = this.bytes;
    this.strings.hasFreeEscape = true;
    const unit = hexUnit(bytes, at + 2);
    if (unit < 0) {
      this.isValid = false;
      return at + 2;
    }
    if (unit === 10) this.strings.newlines += 1;
    if (!this.strings.isSuspect) this.strings.isSuspect = isSuspect(unit);
    if (unit < 0xd800 || unit > 0xdfff) return at + 6;
    const second = bytes[at + 6] === BACKSLASH && bytes[at + 7] === LETTER_U ? hexUnit(bytes, at + 8) : 0;
    if (unit < 0xdc00 && second >= 0xdc00 && second <= 0xdfff) return at + 12;
    this.hasLoneSurrogate = true;
    this.strings.isSuspect = true;
    return at + 6;
  }

  /** Reads a number. Returns the place of its last byte. */
  private readNumber(start: number): number {
    const bytes = this.bytes;
    this.beginValue(45);
    this.state = NEXT;
    let at = bytes[start] === 45 ? start + 1 : start;
    const whole = this.digits(at);
    if (whole === at || (bytes[at] === 48 && whole > at + 1)) this.isValid = false;
    at = whole;
    if (bytes[at] === 46) {
      const end = this.digits(at + 1);
      if (end === at + 1) this.isValid = false;
      at = end;
    }
    const mantissa = at;
    if (((bytes[at] as number) | 32) === 101) {
      const sign = bytes[at + 1] === 43 || bytes[at + 1] === 45 ? 2 : 1;
      const end = this.digits(at + sign);
      if (end === at + sign) this.isValid = false;
      at = end;
    }
    // Fifteen digits without an exponent survive a double. Minus zero does not.
    const isShort = at === mantissa && at - start <= 15;
    if (!isShort || (bytes[start] === 45 && bytes[start + 1] === 48)) this.noteNumber(start, at);
    return at - 1;
  }

  private noteNumber(start: number, end: number): void {
    const member = this.inner ?? this.outer;
    const isExact = member?.exact ?? this.exact;
    if (!isExact || fitsDouble(this.bytes.toString('latin1', start, end))) return;
    this.exact = false;
    if (member !== undefined) member.exact = false;
  }

  private digits(from: number): number {
    const bytes = this.bytes;
    let at = from;
    while (at < bytes.length && (bytes[at] as number) >= 48 && (bytes[at] as number) <= 57) at += 1;
    return at;
  }
}

/** Returns true if four bytes of a string are ASCII and need no look. Each term sets the top bit of such a byte. */
function isPlainWord(word: number): boolean {
  const found =
    word |
    (word + 0x01010101) |
    (word - 0x20202020) |
    ((word ^ 0x22222222) - 0x01010101) |
    ((word ^ 0x5c5c5c5c) - 0x01010101);
  return (found & 0x80808080) === 0;
}

/** Returns true for the bytes that a number may contain. */
function isInNumber(byte: number): boolean {
  return (byte >= 48 && byte <= 57) || byte === 43 || byte === 45 || byte === 46 || (byte | 32) === 101;
}

/** Returns the first code unit of the character that begins at a place of a UTF-8 text. */
function firstUnit(bytes: Buffer, at: number): number {
  const byte = bytes[at] as number;
  if (byte < 0x80) return byte;
  const second = (bytes[at + 1] as number) & 63;
  if (byte < 0xe0) return ((byte & 31) << 6) | second;
  const third = (bytes[at + 2] as number) & 63;
  if (byte < 0xf0) return ((byte & 15) << 12) | (second << 6) | third;
  // The high half of the pair has the upper ten bits.
  return 0xd7c0 + (((byte & 7) << 8) | (second << 2) | (third >> 4));
}

/** Returns the code unit of four hex digits, or -1. */
function hexUnit(bytes: Buffer, at: number): number {
  let unit = 0;
  for (let place = at; place < at + 4; place += 1) {
    const byte = bytes[place] ?? 0;
    const digit =
      byte >= 48 && byte <= 57 ? byte - 48 : (byte | 32) >= 97 && (byte | 32) <= 102 ? (byte | 32) - 87 : -1;
    if (digit < 0) return -1;
    unit = unit * 16 + digit;
  }
  return unit;
}
