/** Owns what a command has printed, as lines with fixed numbers; refuses to keep more than a head and a tail of it. */
import { StringDecoder } from 'node:string_decoder';
import { stripVTControlCharacters } from 'node:util';

/** Bytes kept at each end, together 1 MiB; what lies between is counted and dropped. */
const KEPT_BYTES = 512 * 1024;
/** A line that never ends is broken here, or a flood without line ends would fill the memory. */
const MAX_PENDING = 64 * 1024;

/** Lines of an output. `gap` is set when lines between `lines` were dropped: how many, and before which index they stood. */
export interface OutputLines {
  readonly lines: readonly string[];
  readonly from: number;
  readonly to: number;
  readonly gap?: { readonly before: number; readonly lines: number };
}

/** An output as it grows. Lines count from 1; colours are stripped, and of lines rewritten with CR the last state stays. */
export class OutputLog {
  readonly #decoder = new StringDecoder('utf8');
  readonly #head: string[] = [];
  #tail: string[] = [];
  #headBytes = 0;
  #tailBytes = 0;
  #dropped = 0;
  #pending = '';
  #cursor = { line: 1, shown: '' };

  push(chunk: Buffer): void {
    const parts = (this.#pending + this.#decoder.write(chunk)).split('\n');
    this.#pending = parts.pop() ?? '';
    for (const part of parts) this.#keep(clean(part));
    if (this.#pending.length > MAX_PENDING) this.#breakPending();
  }

  /** Lines so far, an unfinished last one included. */
  get total(): number {
    return this.#finished + (this.#last === '' ? 0 : 1);
  }

  get unread(): number {
    const seen = this.#cursor.shown !== '' && this.#cursor.shown === this.#line(this.#cursor.line) ? 1 : 0;
    return Math.max(0, this.total - this.#cursor.line + 1 - seen);
  }

  /** At most `limit` lines from line `from`. Lines that were dropped are jumped over and reported. */
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

  /** What has not been shown yet, at most `limit` lines and `bytes` bytes (one line at least); it counts as shown from now on. */
  next(limit: number, bytes: number): OutputLines {
    const known = this.#cursor;
    const completed = known.shown !== '' && known.line <= this.#finished && this.#line(known.line) === known.shown;
    const begin = completed ? { line: known.line + 1, shown: '' } : known;
    const fresh = this.lines(begin.line, limit);
    const lines = [...fresh.lines];
    const first = lines[0];
    if (first !== undefined && begin.shown !== '' && first.startsWith(begin.shown))
      lines[0] = first.slice(begin.shown.length);
    let size = 0;
    const fits =
      fresh.gap === undefined ? lines.findIndex((text) => (size += Buffer.byteLength(text) + 1) > bytes) : -1;
    const shown = fits === -1 ? lines : lines.slice(0, Math.max(1, fits));
    const to = fits === -1 ? fresh.to : fresh.from + shown.length - 1;
    const unfinished = to > this.#finished && this.#last !== '';
    this.#cursor = unfinished ? { line: to, shown: this.#last } : { line: Math.max(to + 1, begin.line), shown: '' };
    const nothing = shown.length === 1 && shown[0] === '' && begin.shown !== '' && unfinished;
    return { ...fresh, lines: nothing ? [] : shown, to };
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
    // Dropped in one go at twice the size: taking one line off the front of a long array each time would be quadratic.
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
    const rewritten = this.#pending.lastIndexOf('\r', this.#pending.length - 2);
    if (rewritten !== -1) {
      this.#pending = this.#pending.slice(rewritten + 1);
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
