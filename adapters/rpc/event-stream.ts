/** Reads the messages of an event stream (HTML Living Standard, server-sent events) as their own bytes. */

const [NEWLINE, RETURN, SPACE] = [10, 13, 32];
const MAX_TYPE_BYTES = 64;
/** A longer id, or one that no header can carry, is ignored: the stream cannot be resumed there. */
const MAX_ID_BYTES = 4096;
const HEADER_VALUE = /^[\t\x20-\x7e\x80-\xff]*$/;

/** Where events go. `maxBytes` counts the data of one event. */
export interface EventStreamOptions {
  readonly maxBytes: number;
  /** Called with the data of each event of the type `message`. */
  onMessage(data: Buffer): void;
  /** Called with the data of each event of another type. */
  onOther?(type: string, data: Buffer): void;
}

/** Reads an event stream in chunks. The time is linear in the bytes, however they are cut into chunks. */
export class EventStreamReader {
  readonly #options: EventStreamOptions;
  #line: Buffer[] = [];
  /** The data of the event so far, each line with its line break. */
  #data = Buffer.alloc(0);
  #bytes = 0;
  #type = '';
  #id: string | undefined;
  /** The id of the last event that is complete, one character per byte. Undefined if there was none, or it is empty. */
  lastId: string | undefined;
  /** Milliseconds that the server asks the client to wait before it reconnects. */
  retryMs: number | undefined;
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
    if (field === 'data') return this.#addData(value);
    const word = value.subarray(0, MAX_ID_BYTES + 1).toString('latin1');
    if (field === 'event') this.#type = word.slice(0, MAX_TYPE_BYTES);
    else if (field === 'id' && word.length <= MAX_ID_BYTES && HEADER_VALUE.test(word)) this.#id = word;
    else if (field === 'retry' && /^\d{1,10}$/.test(word)) this.retryMs = Number(word);
  }

  #addData(value: Buffer): void {
    const start = this.#bytes;
    this.#bytes += value.length + 1;
    if (this.#bytes > this.#options.maxBytes) return;
    // One block that doubles, because an event may consist of millions of empty lines.
    if (this.#bytes > this.#data.length) {
      const larger = Buffer.allocUnsafe(Math.max(this.#bytes, 2 * this.#data.length));
      this.#data.copy(larger, 0, 0, start);
      this.#data = larger;
    }
    this.#data[start + value.copy(this.#data, start)] = NEWLINE;
  }

  #endEvent(): void {
    const type = this.#type;
    this.#type = '';
    if (this.#bytes > this.#options.maxBytes) return;
    const data = this.#data.subarray(0, Math.max(0, this.#bytes - 1));
    this.#data = Buffer.alloc(0);
    this.#bytes = 0;
    if (this.#id !== undefined) this.lastId = this.#id === '' ? undefined : this.#id;
    if (data.length === 0) return;
    if (type === '' || type === 'message') this.#options.onMessage(data);
    else this.#options.onOther?.(type, data);
  }
}

/** Returns the index of a byte, or the chunk's length if there is none. */
function indexFrom(chunk: Buffer, byte: number, start: number): number {
  const found = chunk.indexOf(byte, start);
  return found < 0 ? chunk.length : found;
}
