/** Splits a byte stream into lines. It buffers one line at most, and a bad line does not affect the others. */

/** Options of the reader. `maxBytes` counts one line without its newline. */
export interface LineReaderOptions {
  readonly maxBytes: number;
  /**
   * Called with each line that is not empty, without CR and LF. Up to KEPT_LINE_BYTES, the bytes are valid until it
   * returns. A longer line keeps its bytes.
   */
  onLine(line: Buffer): void;
  /** Called when a line over the limit has ended. `edges`: its first and last bytes, which may contain an id. */
  onBad(reason: string, edges: string): void;
}

const NEWLINE = 10;
const RETURN = 13;
/** The size of the block that is used for many lines. */
export const KEPT_LINE_BYTES = 64 * 1024;
const EDGE_BYTES = 256;

/**
 * Returns the same JSON on one line, for frames that end at a line break (stdio, event streams). In valid JSON, a raw
 * line break is white space, so no value changes. Otherwise, pretty-printed arguments could inject an unchecked call.
 */
export function oneLine(text: string): string {
  return text.includes('\n') || text.includes('\r') ? text.replace(/[\r\n]/g, ' ') : text;
}

/**
 * Newline framing (MCP 2025-11-25, stdio). The time is linear in the bytes, however they are cut into chunks. A line
 * within one chunk is not copied. Others are collected in one block that doubles, so 60 MB in chunks of one byte take
 * 60 MB.
 */
export class LineReader {
  private readonly options: LineReaderOptions;
  private block = Buffer.alloc(0);
  private used = 0;
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
    if (start < chunk.length) this.gather(chunk.subarray(start));
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
    const { skipped } = this;
    const line = this.block.subarray(0, this.used);
    // Released before the callback, so that a large block does not outlive its line.
    if (this.block.length > KEPT_LINE_BYTES || skipped !== undefined) this.block = Buffer.alloc(0);
    this.used = 0;
    this.skipped = undefined;
    if (skipped === undefined) this.deliver(line);
    else
      this.options.onBad(
        `A line is longer than ${this.options.maxBytes} bytes.`,
        skipped.head + skipped.tail.toString('latin1'),
      );
  }

  private deliver(line: Buffer): void {
    const whole = line.length > 0 && line[line.length - 1] === RETURN ? line.subarray(0, -1) : line;
    if (whole.length > 0) this.options.onLine(whole);
  }

  private gather(bytes: Buffer): void {
    if (this.skipped === undefined && this.used + bytes.length > this.options.maxBytes) this.beginSkip(bytes);
    if (this.skipped !== undefined) {
      this.skipped.tail = lastBytes(this.skipped.tail, bytes);
      return;
    }
    const needed = this.used + bytes.length;
    if (needed > this.block.length) {
      const grown = Buffer.allocUnsafe(Math.max(KEPT_LINE_BYTES, Math.min(2 * needed, this.options.maxBytes)));
      this.block.copy(grown, 0, 0, this.used);
      this.block = grown;
    }
    bytes.copy(this.block, this.used);
    this.used = needed;
  }

  private beginSkip(bytes: Buffer): void {
    const held = this.block.subarray(0, this.used);
    const head = Buffer.concat([held.subarray(0, EDGE_BYTES), bytes.subarray(0, EDGE_BYTES)]).subarray(0, EDGE_BYTES);
    this.skipped = { head: head.toString('latin1'), tail: Buffer.from(held.subarray(-EDGE_BYTES)) };
    this.block = Buffer.alloc(0);
    this.used = 0;
  }
}

/** Copies the bytes, so that their chunk can be freed. */
function lastBytes(held: Buffer, bytes: Buffer): Buffer {
  return Buffer.from(Buffer.concat([held, bytes.subarray(-EDGE_BYTES)]).subarray(-EDGE_BYTES));
}
