/** Splits a byte stream into lines. It buffers one line at most, and a bad line does not affect the others. */

/** Options of the reader. `maxBytes` counts one line without its newline. */
export interface LineReaderOptions {
  readonly maxBytes: number;
  /**
   * Called with each line that is not empty, without CR and LF. Up to KEPT_LINE_BYTES, the bytes are valid until it
   * returns. A longer line keeps its bytes.
   */
  onLine(line: Buffer): void;
  /**
   * Called while a line of more than KEPT_LINE_BYTES arrives, after PART_BYTES or more have come. `bytes`: the line so
   * far, valid until it returns; nothing if the line exceeds the limit.
   */
  onPart?(bytes: Buffer | undefined): void;
  /** Called when a line over the limit has ended. `edges`: its first and last bytes, which may contain an id. */
  onBad(reason: string, edges: string): void;
}

const NEWLINE = 10;
const RETURN = 13;
/** The first size of the block. The block of a line up to this size is used for the next line. */
export const KEPT_LINE_BYTES = 64 * 1024;
/** A block up to this size is used again after a copy of its line. The copy costs less time than a new block. */
const MAX_BLOCK_BYTES = 2 * 1_048_576;
/** A long line is reported again after so many bytes. */
export const PART_BYTES = 16 * 1024;
const EDGE_BYTES = 256;

/**
 * Returns the same JSON on one line, for frames that end at a line break (stdio, event streams). In valid JSON, a raw
 * line break is white space, so no value changes. Otherwise, pretty-printed arguments could inject an unchecked call.
 */
export function oneLine(text: string): string {
  return text.includes('\n') || text.includes('\r') ? text.replace(/[\r\n]/g, ' ') : text;
}

/** As `oneLine`, for bytes. */
export function oneLineOfBytes(bytes: Buffer): Buffer {
  if (!bytes.includes(NEWLINE) && !bytes.includes(RETURN)) return bytes;
  return Buffer.from(bytes.map((byte) => (byte === NEWLINE || byte === RETURN ? 32 : byte)));
}

/**
 * Newline framing (MCP 2025-11-25, stdio). The time is linear in the bytes, however they are cut into chunks. A line
 * within one chunk is not copied. Others are collected in a block that doubles, so 60 MB in chunks of one byte take
 * 64 MB, and for a moment twice as much when the block grows.
 */
export class LineReader {
  private readonly options: LineReaderOptions;
  /** Holds the line so far. */
  private block = Buffer.alloc(0);
  private used = 0;
  /** The number of bytes of the line that `onPart` knows. */
  private reported = 0;
  /** The first and last bytes of a line over the limit, which is being skipped. */
  private skipped: { readonly head: string; tail: Buffer } | undefined;

  constructor(options: LineReaderOptions) {
    this.options = options;
  }

  push(chunk: Buffer): void {
    let start = 0;
    for (let end = chunk.indexOf(NEWLINE); end >= 0; end = chunk.indexOf(NEWLINE, start)) {
      this.endLine(chunk.subarray(start, end));
      start = end + 1;
    }
    if (start === chunk.length) return;
    this.gather(chunk.subarray(start));
    this.reportPart();
  }

  /** Ends the stream. The bytes after the last newline are a line too. */
  end(): void {
    this.endLine(Buffer.alloc(0));
  }

  private endLine(rest: Buffer): void {
    if (this.skipped === undefined && this.used === 0 && rest.length <= this.options.maxBytes) {
      this.deliver(rest);
      return;
    }
    this.gather(rest);
    if (this.skipped === undefined) return this.deliver(this.takeLine());
    const { head, tail } = this.skipped;
    this.skipped = undefined;
    this.options.onBad(`A line is longer than ${this.options.maxBytes} bytes.`, head + tail.toString('latin1'));
  }

  /** Forgets the line before its callback. A line in a very large block takes the block with it. */
  private takeLine(): Buffer {
    const line = this.block.subarray(0, this.used);
    this.used = 0;
    this.reported = 0;
    if (this.block.length > MAX_BLOCK_BYTES) this.block = Buffer.alloc(0);
    else if (line.length > KEPT_LINE_BYTES) return Buffer.from(line);
    return line;
  }

  private deliver(line: Buffer): void {
    const whole = line.length > 0 && line[line.length - 1] === RETURN ? line.subarray(0, -1) : line;
    if (whole.length > 0) this.options.onLine(whole);
  }

  private reportPart(): void {
    if (this.used <= KEPT_LINE_BYTES || this.used < this.reported + PART_BYTES) return;
    this.reported = this.used;
    this.options.onPart?.(this.block.subarray(0, this.used));
  }

  private gather(bytes: Buffer): void {
    const size = this.used + bytes.length;
    if (this.skipped === undefined && size > this.options.maxBytes) this.beginSkip(bytes);
    if (this.skipped !== undefined) {
      this.skipped.tail = lastBytes(this.skipped.tail, bytes);
      return;
    }
    if (size > this.block.length) this.growTo(size);
    this.used += bytes.copy(this.block, this.used);
  }

  /** Doubles the block, so that all moves of a line together take linear time. */
  private growTo(size: number): void {
    const doubled = Math.min(2 * this.block.length, this.options.maxBytes);
    const block = Buffer.allocUnsafe(Math.max(KEPT_LINE_BYTES, size, doubled));
    this.block.copy(block, 0, 0, this.used);
    this.block = block;
  }

  private beginSkip(bytes: Buffer): void {
    const held = this.takeLine();
    const head = Buffer.concat([held.subarray(0, EDGE_BYTES), bytes.subarray(0, EDGE_BYTES)]).subarray(0, EDGE_BYTES);
    this.skipped = { head: head.toString('latin1'), tail: Buffer.from(held.subarray(-EDGE_BYTES)) };
    this.options.onPart?.(undefined);
  }
}

/** Copies the bytes, so that their chunk can be freed. */
function lastBytes(held: Buffer, bytes: Buffer): Buffer {
  return Buffer.from(Buffer.concat([held, bytes.subarray(-EDGE_BYTES)]).subarray(-EDGE_BYTES));
}
