/** Owns what can be read of a wasm module before it runs: the memory that it needs; refuses modules that import none. */

const MAGIC = [0x00, 0x61, 0x73, 0x6d, 0x01, 0x00, 0x00, 0x00];
const IMPORT_SECTION = 2;
const DATA_SECTION = 11;
const PAGE = 65_536;
/** Instructions of the constant expression that places a segment. */
const OP = { i32Const: 0x41, end: 0x0b } as const;
/** Kinds of imports: WebAssembly core specification 2.0, binary format, 5.5.5. */
const KIND = { function: 0, table: 1, memory: 2, global: 3 } as const;

/**
 * Initial size, in pages, of the memory that the module imports: what it asks for, or what its data fills, whichever is more.
 * opa does not count the table of its dynamic calls, which it adds last, so a module with many groups of rules asks for too
 * little and would not load. Throws RangeError or Error on bytes that are no such module.
 */
export function memoryPages(wasm: Uint8Array): number {
  if (MAGIC.some((byte, index) => wasm[index] !== byte)) throw new Error('not a wasm module');
  const reader = new Reader(wasm, MAGIC.length);
  let asked: number | undefined;
  let filled = 0;
  while (!reader.done) {
    const section = reader.byte();
    const end = reader.number() + reader.position;
    if (section === IMPORT_SECTION) asked = findMemory(reader);
    if (section === DATA_SECTION) filled = findDataEnd(reader);
    reader.position = end;
  }
  if (asked === undefined) throw new Error('the module imports nothing');
  return Math.max(asked, Math.ceil(filled / PAGE));
}

/** The first byte behind all data. Segments that are placed by anything but a constant are left to the runtime. */
function findDataEnd(reader: Reader): number {
  let filled = 0;
  for (let left = reader.number(); left > 0; left -= 1) {
    if (reader.number() !== 0 || reader.byte() !== OP.i32Const) return filled;
    const offset = reader.number();
    if (reader.byte() !== OP.end) return filled;
    const size = reader.number();
    filled = Math.max(filled, offset + size);
    reader.skip(size);
  }
  return filled;
}

function findMemory(reader: Reader): number {
  for (let left = reader.number(); left > 0; left -= 1) {
    reader.skip(reader.number());
    reader.skip(reader.number());
    const kind = reader.byte();
    if (kind === KIND.memory) {
      reader.byte();
      return reader.number();
    }
    skipImport(reader, kind);
  }
  throw new Error('the module imports no memory');
}

function skipImport(reader: Reader, kind: number): void {
  if (kind === KIND.function) reader.number();
  else if (kind === KIND.global) reader.skip(2);
  else if (kind === KIND.table) {
    reader.byte();
    const limited = reader.byte() === 1;
    reader.number();
    if (limited) reader.number();
  } else throw new Error(`unknown kind of import ${kind}`);
}

class Reader {
  position: number;
  readonly #bytes: Uint8Array;

  constructor(bytes: Uint8Array, position: number) {
    this.#bytes = bytes;
    this.position = position;
  }

  get done(): boolean {
    return this.position >= this.#bytes.length;
  }

  byte(): number {
    const byte = this.#bytes[this.position];
    if (byte === undefined) throw new RangeError('the module is cut off');
    this.position += 1;
    return byte;
  }

  skip(count: number): void {
    this.position += count;
  }

  /** Unsigned LEB128 of at most 32 bits. */
  number(): number {
    let value = 0;
    for (let shift = 0; shift < 35; shift += 7) {
      const byte = this.byte();
      value += (byte & 0x7f) * 2 ** shift;
      if (byte < 0x80) return value;
    }
    throw new RangeError('a number of the module is too long');
  }
}
