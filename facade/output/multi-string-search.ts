/**
 * Finds the first of many strings in UTF-8 bytes. It visits one place in three, however many strings there are, because
 * each string is known by the blocks of bytes that such a place can show of it.
 */

/** Bytes that are compared together. */
const BLOCK = 4;
/** Bytes from one visited place to the next. A string of BLOCK + STEP - 1 bytes has a whole block at one of them. */
const STEP = 3;
/** The part of a string that is compared before the whole: the same BLOCK + STEP - 1 bytes. */
const HEAD = BLOCK + STEP - 1;
/** Bits of a filter for each of its entries, so that few other texts pass. */
const BITS_PER_ENTRY = 32;
/** The golden ratio as an odd number of 32 bits: its product spreads blocks over a filter. */
const SPREAD = 0x9e3779b1;

/** A place in bytes. */
export interface FoundString {
  readonly start: number;
  readonly end: number;
}

/** A set of hashes that may contain more than was added. */
class Filter {
  readonly bits: Int32Array;
  /** A hash is shifted right by this to get its bit. */
  readonly shift: number;

  constructor(entries: number) {
    const size = Math.max(15, Math.ceil(Math.log2(entries * BITS_PER_ENTRY)));
    this.bits = new Int32Array(2 ** (size - 5));
    this.shift = 32 - size;
  }

  add(hash: number): void {
    const bit = hash >>> this.shift;
    this.bits[bit >>> 5] = (this.bits[bit >>> 5] as number) | (1 << bit);
  }

  has(hash: number): boolean {
    const bit = hash >>> this.shift;
    return ((this.bits[bit >>> 5] as number) & (1 << bit)) !== 0;
  }
}

/** Searches for one set of strings. A regular expression would try every string at every character. */
export class MultiStringSearch {
  /** The blocks at the first places of all strings. */
  readonly #blocks: Filter;
  /** The heads of all strings. */
  readonly #heads: Filter;
  /** Strings by their first block, the longest first. */
  readonly #forms = new Map<number, DataView[]>();

  /** `forms`: the strings, each of at least 6 bytes. */
  constructor(forms: readonly string[]) {
    this.#blocks = new Filter(Math.max(1, forms.length * STEP));
    this.#heads = new Filter(Math.max(1, forms.length));
    const views = forms.map((form) => viewOf(Buffer.from(form)));
    for (const form of views.sort((one, other) => other.byteLength - one.byteLength)) {
      for (let at = 0; at < STEP; at += 1) this.#blocks.add(hashOfBlock(form, at));
      this.#heads.add(hashOfHead(form, 0));
      const first = form.getInt32(0);
      this.#forms.set(first, [...(this.#forms.get(first) ?? []), form]);
    }
  }

  /** Returns the first string that begins at `from` or later; of several that begin there, the longest. */
  next(bytes: DataView, from: number): FoundString | undefined {
    // Filter.has with its fields read once, because this loop visits all bytes of each result.
    const { bits, shift } = this.#blocks;
    const last = bytes.byteLength - BLOCK;
    for (let at = from + STEP - 1; at <= last; at += STEP) {
      const bit = hashOfBlock(bytes, at) >>> shift;
      if (((bits[bit >>> 5] as number) & (1 << bit)) === 0) continue;
      const found = this.#around(bytes, at);
      if (found !== undefined) return found;
    }
    return undefined;
  }

  /** Returns the first string that begins at a visited place, or at one of those before it that are not visited. */
  #around(bytes: DataView, at: number): FoundString | undefined {
    for (let start = at - STEP + 1; start <= at && start + HEAD <= bytes.byteLength; start += 1) {
      if (!this.#heads.has(hashOfHead(bytes, start))) continue;
      const form = this.#forms.get(bytes.getInt32(start))?.find((one) => isAt(one, bytes, start));
      if (form !== undefined) return { start, end: start + form.byteLength };
    }
    return undefined;
  }
}

function hashOfBlock(bytes: DataView, at: number): number {
  return Math.imul(bytes.getInt32(at), SPREAD);
}

function hashOfHead(bytes: DataView, at: number): number {
  return Math.imul(hashOfBlock(bytes, at) ^ bytes.getInt32(at + HEAD - BLOCK), SPREAD);
}

/** Returns a view of the same bytes. */
export function viewOf(bytes: Buffer): DataView {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
}

function isAt(form: DataView, bytes: DataView, start: number): boolean {
  if (start + form.byteLength > bytes.byteLength) return false;
  for (let at = 0; at < form.byteLength; at += 1) if (form.getUint8(at) !== bytes.getUint8(start + at)) return false;
  return true;
}
