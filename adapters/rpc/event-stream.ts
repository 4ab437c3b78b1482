/** Reads the messages of an event stream (HTML Living Standard, server-sent events) as their own bytes. */

const [NEWLINE, RETURN, SPACE] = [10, 13, 32];

/** Where events go. `maxBytes` counts the data of one event. */
export interface EventStreamOptions {
  readonly maxBytes: number;
  /** Called with the data of each event of the type `message`. */
  onMessage(data: Buffer): void;
}

/** Reads an event stream in chunks. The time is linear in the bytes, however they are cut into chunks. */
export class EventStreamReader {
  readonly #options: EventStreamOptions;
  #line: Buffer[] = [];
  #data: Buffer[] = [];
  #bytes = 0;
  #isMessage = true;
  #afterReturn = false;
  #isFirst = true;

  constructor(options: EventStreamOptions) {
    this.#options = options;
  }

  /** Returns false if an event is larger than `maxBytes`. The caller must end the stream then. */
  push(chunk: Buffer): boolean {
    let start = this.#afterReturn && chunk[0] === NEWLINE ? 1 : 0;
    if (chunk.length > 0) this.#afterReturn = chunk[chunk.length - 1] === RETURN;
    let [newline, carriage] = [indexFrom(chunk, NEWLINE, start), indexFrom(chunk, RETURN, start)];
    for (let end = Math.min(newline, carriage); end < chunk.length; end = Math.min(newline, carriage)) {
      this.#line.push(chunk.subarray(start, end));
      this.#endLine();
      start = end === carriage && chunk[end + 1] === NEWLINE ? end + 2 : end + 1;
      // Each byte is searched once for each of the two: only a mark that was passed needs another search.
      if (newline < start) newline = indexFrom(chunk, NEWLINE, start);
      if (carriage < start) carriage = indexFrom(chunk, RETURN, start);
    }
    // Copied, because the caller reuses its chunk.
    if (start < chunk.length) this.#line.push(Buffer.from(chunk.subarray(start)));
    return this.#bytes <= this.#options.maxBytes;
  }

  #endLine(): void {
    const whole = this.#line.length === 1 ? (this.#line[0] as Buffer) : Buffer.concat(this.#line);
    const line =
      this.#isFirst && whole.subarray(0, 3).toString('latin1') === '\u00ef\u00bb\u00bf' ? whole.subarray(3) : whole;
    this.#line = [];
    this.#isFirst = false;
    if (line.length === 0) return this.#endEvent();
    const colon = line.indexOf(58);
    const field = line.subarray(0, colon < 0 ? line.length : Math.min(colon, 8)).toString('latin1');
    const value = colon < 0 ? Buffer.alloc(0) : line.subarray(line[colon + 1] === SPACE ? colon + 2 : colon + 1);
    if (field === 'event')
      this.#isMessage = value.length === 0 || (value.length < 16 && value.toString('latin1') === 'message');
    if (field !== 'data') return;
    this.#bytes += value.length + 1;
    if (this.#bytes <= this.#options.maxBytes) this.#data.push(Buffer.from(value));
  }

  #endEvent(): void {
    const data = this.#data.flatMap((line, index) => (index === 0 ? [line] : [Buffer.from('\n'), line]));
    const passes = this.#isMessage;
    this.#data = [];
    this.#isMessage = true;
    if (this.#bytes > this.#options.maxBytes) return;
    this.#bytes = 0;
    const whole = Buffer.concat(data);
    if (passes && whole.length > 0) this.#options.onMessage(whole);
  }
}

/** Returns the index of a byte, or the chunk's length if there is none. */
function indexFrom(chunk: Buffer, byte: number, start: number): number {
  const found = chunk.indexOf(byte, start);
  return found < 0 ? chunk.length : found;
}
