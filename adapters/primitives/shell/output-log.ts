/** Stores the output of a command as lines with fixed numbers. Keeps a head and a tail of limited size. */
import { StringDecoder } from 'node:string_decoder';
import { stripVTControlCharacters } from 'node:util';

/** Bytes kept at each end, together 1 MiB. Lines between them are counted and dropped. */
const KEPT_BYTES = 512 * 1024;
/** A longer line is broken, so that output without line ends cannot fill the memory. */
const MAX_PENDING = 64 * 1024;

/** Lines of an output. `gap` is set if lines were dropped: their number, and the index in `lines` that they precede. */
export interface OutputLines {
  readonly lines: readonly string[];
  readonly from: number;
  readonly to: number;
  readonly gap?: { readonly before: number; readonly lines: number };
}

/** A growing output. Lines count from 1. Colors are removed. Of a line lastReturn with CR, the last state is kept. */
export class OutputLog {
  readonly #decoder = new StringDecoder('utf8');
  readonly #head: string[] = [];
  #tail: string[] = [];
  #headBytes = 0;
  #tailBytes = 0;
  #dropped = 0;
  #pending = '';
  #cursor = { line: 1, shown: '' };

  /** Adds output. */
  push(chunk: Buffer): void {
    const parts = (this.#pending + this.#decoder.write(chunk)).split('\n');
    this.#pending = parts.pop() ?? '';
    for (const part of parts) this.#keep(clean(part));
    if (this.#pending.length > MAX_PENDING) this.#breakPending();
  }

  /** Number of lines so far, including an unfinished last one. */
  get total(): number {
    return this.#finished + (this.#last === '' ? 0 : 1);
  }

  /** Number of lines that `next` has not returned. */
  get unread(): number {
    const alreadyShown = this.#cursor.shown !== '' && this.#cursor.shown === this.#line(this.#cursor.line) ? 1 : 0;
    return Math.max(0, this.total - this.#cursor.line + 1 - alreadyShown);
  }

  /** Returns at most `limit` lines from line `from`. Skips dropped lines and reports them as `gap`. */
  lines(from: number, limit: number): OutputLines {
    const lines: string[] = [];
    let gap: OutputLines['gap'];
    let line = from;
    for (; line <= this.total && lines.length < limit; line += 1) {
      const text = this.#line(line);
      if (text !== undefined) {
        lines.push(text);
        continue;
      }
      const resume = this.#head.length + this.#dropped + 1;
      gap = { before: lines.length, lines: resume - line };
      line = resume - 1;
    }
    return { lines, from, to: line - 1, ...(gap === undefined ? {} : { gap }) };
  }

  /**
   * Returns the lines not shown yet, at most `limit` lines and `bytes` bytes but at least one line. Marks them as
   * shown.
   */
  next(limit: number, bytes: number): OutputLines {
    const cursor = this.#cursor;
    const isCompleted =
      cursor.shown !== '' && cursor.line <= this.#finished && this.#line(cursor.line) === cursor.shown;
    const begin = isCompleted ? { line: cursor.line + 1, shown: '' } : cursor;
    const unshown = this.lines(begin.line, limit);
    const lines = [...unshown.lines];
    const first = lines[0];
    if (first !== undefined && begin.shown !== '' && first.startsWith(begin.shown))
      lines[0] = first.slice(begin.shown.length);
    let size = 0;
    const fits =
      unshown.gap === undefined ? lines.findIndex((text) => (size += Buffer.byteLength(text) + 1) > bytes) : -1;
    const shown = fits === -1 ? lines : lines.slice(0, Math.max(1, fits));
    const to = fits === -1 ? unshown.to : unshown.from + shown.length - 1;
    const isUnfinished = to > this.#finished && this.#last !== '';
    this.#cursor = isUnfinished ? { line: to, shown: this.#last } : { line: Math.max(to + 1, begin.line), shown: '' };
    const isUnchanged = shown.length === 1 && shown[0] === '' && begin.shown !== '' && isUnfinished;
    return { ...unshown, lines: isUnchanged ? [] : shown, to };
  }

  get #finished(): number {
    return this.#head.length + this.#dropped + this.#tail.length;
  }

  get #last(): string {
    return clean(this.#pending);
  }

  #line(line: number): string | undefined {
    if (line > this.#finished) return this.#last;
    return line <= this.#head.length ? this.#head[line - 1] : this.#tail[line - 1 - this.#head.length - this.#dropped];
  }

  #keep(line: string): void {
    const bytes = Buffer.byteLength(line) + 1;
    if (this.#dropped + this.#tail.length === 0 && this.#headBytes + bytes <= KEPT_BYTES) {
      this.#head.push(line);
      this.#headBytes += bytes;
      return;
    }
    this.#tail.push(line);
    this.#tailBytes += bytes;
    // Trims only at twice the size. Removing lines from the front of a long array one by one would be quadratic.
    if (this.#tailBytes > 2 * KEPT_BYTES) this.#trim();
  }

  #trim(): void {
    let drop = 0;
    while (this.#tailBytes > KEPT_BYTES) {
      this.#tailBytes -= Buffer.byteLength(this.#tail[drop] ?? '') + 1;
      drop += 1;
    }
    this.#tail = this.#tail.slice(drop);
    this.#dropped += drop;
  }

  #breakPending(): void {
    const lastReturn = this.#pending.lastIndexOf('\r', this.#pending.length - 2);
    if (lastReturn !== -1) {
      this.#pending = this.#pending.slice(lastReturn + 1);
      return;
    }
    this.#keep(clean(this.#pending));
    this.#pending = '';
  }
}

function clean(line: string): string {
  const plain = stripVTControlCharacters(line.endsWith('\r') ? line.slice(0, -1) : line);
  return plain.includes('\r') ? (plain.split('\r').findLast((state) => state !== '') ?? '') : plain;
}
