/** Finds the first of many strings in a text, in a time that hardly depends on their number (Wu and Manber, 1994). */

/** Characters that are compared together. */
const BLOCK = 3;
/** Entries of the table of shifts: a power of two. */
const TABLE = 65_536;

/** A place in a text. */
export interface FoundString {
  readonly start: number;
  readonly end: number;
}

/** Searches for one set of strings. A regular expression would try every string at every character. */
export class MultiStringSearch {
  /** Characters of the shortest string. The blocks of all strings are compared in this length. */
  readonly #window: number;
  /** By the last block of a window: how far the window can move; 0 if a string may begin at it. */
  readonly #shifts: Uint8Array;
  /** Strings by the last block of their first window, the longest first. */
  readonly #forms = new Map<number, string[]>();

  /** `forms`: the strings, each of at least 3 characters. */
  constructor(forms: readonly string[]) {
    this.#window = Math.min(...forms.map(({ length }) => length), 255);
    const last = this.#window - BLOCK;
    this.#shifts = new Uint8Array(TABLE).fill(last + 1);
    for (const form of [...forms].sort((one, other) => other.length - one.length)) {
      for (let at = 0; at <= last; at += 1) {
        const block = blockAt(form, at);
        this.#shifts[block] = Math.min(this.#shifts[block] ?? 0, last - at);
      }
      const block = blockAt(form, last);
      this.#forms.set(block, [...(this.#forms.get(block) ?? []), form]);
    }
  }

  /** Returns the first string that begins at `from` or later; of several that begin there, the longest. */
  next(text: string, from: number): FoundString | undefined {
    const last = this.#window - BLOCK;
    for (let at = from + last; at + BLOCK <= text.length; ) {
      const block = blockAt(text, at);
      const shift = this.#shifts[block] ?? 0;
      at += shift;
      if (shift > 0) continue;
      const start = at - last;
      const form = this.#forms.get(block)?.find((one) => text.startsWith(one, start));
      if (form !== undefined) return { start, end: start + form.length };
      at += 1;
    }
    return undefined;
  }
}

function blockAt(text: string, at: number): number {
  return ((text.charCodeAt(at) << 10) ^ (text.charCodeAt(at + 1) << 5) ^ text.charCodeAt(at + 2)) & (TABLE - 1);
}
