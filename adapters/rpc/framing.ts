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
/** A chunk with fewer bytes is copied, because it may be a part of a much larger one. */
const MIN_PIECE_BYTES = 16 * 1024;
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
 * within one chunk is not copied. Others are collected: large chunks as they are, and small ones in blocks, so 60 MB in
 * chunks of one byte take 60 MB.
 */
export class LineReader {
  private readonly options: LineReaderOptions;
  /** The pieces of the line that come before those in the block. */
  private pieces: Buffer[] = [];
  private pieceBytes = 0;
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
    const { skipped } = this;
    if (skipped === undefined && this.used + this.pieceBytes === 0 && rest.length <= this.options.maxBytes) {
      this.deliver(rest);
      return;
    }
    this.gather(rest);
    if (this.skipped === undefined) return this.deliver(this.takeLine());
    const { head, tail } = this.skipped;
    this.skipped = undefined;
    this.options.onBad(`A line is longer than ${this.options.maxBytes} bytes.`, head + tail.toString('latin1'));
  }

  /** Forgets the line before its callback, so that its pieces do not outlive it. */
  private takeLine(): Buffer {
    const last = this.block.subarray(0, this.used);
    const line = this.pieces.length === 0 ? last : Buffer.concat([...this.pieces, last]);
    this.pieces = [];
    this.pieceBytes = 0;
    this.used = 0;
    return line;
  }

  private deliver(line: Buffer): void {
    const whole = line.length > 0 && line[line.length - 1] === RETURN ? line.subarray(0, -1) : line;
    if (whole.length > 0) this.options.onLine(whole);
  }

  private gather(bytes: Buffer): void {
    if (this.skipped === undefined && this.pieceBytes + this.used + bytes.length > this.options.maxBytes)
      this.beginSkip(bytes);
    if (this.skipped !== undefined) {
      this.skipped.tail = lastBytes(this.skipped.tail, bytes);
      return;
    }
    const isLarge = bytes.length >= MIN_PIECE_BYTES;
    if (this.used > 0 && (isLarge || this.used + bytes.length > this.block.length)) {
      this.addPiece(this.block.subarray(0, this.used));
      this.block = Buffer.alloc(0);
      this.used = 0;
    }
    if (isLarge) return this.addPiece(bytes);
    if (this.block.length === 0) this.block = Buffer.allocUnsafe(KEPT_LINE_BYTES);
    this.used += bytes.copy(this.block, this.used);
  }

  private addPiece(bytes: Buffer): void {
    this.pieces.push(bytes);
    this.pieceBytes += bytes.length;
  }

  private beginSkip(bytes: Buffer): void {
    const held = this.takeLine();
    const head = Buffer.concat([held.subarray(0, EDGE_BYTES), bytes.subarray(0, EDGE_BYTES)]).subarray(0, EDGE_BYTES);
    this.skipped = { head: head.toString('latin1'), tail: Buffer.from(held.subarray(-EDGE_BYTES)) };
  }
}

/** Copies the bytes, so that their chunk can be freed. */
function lastBytes(held: Buffer, bytes: Buffer): Buffer {
  return Buffer.from(Buffer.concat([held, bytes.subarray(-EDGE_BYTES)]).subarray(-EDGE_BYTES));
}
