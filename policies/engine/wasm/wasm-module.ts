/** Owns what is read of a wasm module, and changed in it, before it runs: the memory that it needs, a cache that is broken; refuses modules that import no memory. */

export const CUSTOM_SECTION = 0;
export const CODE_SECTION = 10;
/** The part of the names that is about functions. */
export const FUNCTION_NAMES = 1;
const MAGIC = [0x00, 0x61, 0x73, 0x6d, 0x01, 0x00, 0x00, 0x00];
export const IMPORT_SECTION = 2;
const DATA_SECTION = 11;
const PAGE = 65_536;
const UTF8 = new TextDecoder();
/** Instructions: the constant expression that places a segment, and what a function is emptied with. */
const OP = { nop: 0x01, end: 0x0b, i32Const: 0x41 } as const;
/** Kinds of imports: WebAssembly core specification 2.0, binary format, 5.5.5. */
export const KIND = { function: 0, table: 1, memory: 2, global: 3 } as const;

/**
 * Initial size, in pages, of the memory that the module imports: what it asks for, or what its data fills, whichever is more.
 * opa does not count the table of its dynamic calls, which it adds last, so a module with many groups of rules asks for too
 * little and would not load. Throws RangeError or Error on bytes that are no such module.
 */
export function memoryPages(wasm: Uint8Array): number {
  let asked: number | undefined;
  let filled = 0;
  for (const { id, start } of sectionsOf(wasm)) {
    if (id === IMPORT_SECTION) asked = findMemory(new WasmReader(wasm, start));
    if (id === DATA_SECTION) filled = findDataEnd(new WasmReader(wasm, start));
  }
  if (asked === undefined) throw new Error('the module imports nothing');
  return Math.max(asked, Math.ceil(filled / PAGE));
}

/** Where opa's built-ins look for what they have compiled. */
const CACHE_GET = 'opa_builtin_cache_get';

/** Regular expressions of one evaluation from which on opa's cache of them is broken. */
export const SOUND_CACHE_PATTERNS = 100;

/**
 * The module with built-ins that find nothing compiled. From its hundredth pattern on, opa's cache of regular expressions throws one
 * out for each that it takes back, and does not look whether it is the same: what was freed is then used, and an evaluation
 * loops without end or decides from whatever stands there. Without the cache a pattern is compiled for each match. A
 * module without names, without that function, or that is none, is given back as it is: whoever loads it judges it.
 */
export function dropCache(wasm: Uint8Array): Uint8Array {
  try {
    return emptyCache(wasm) ?? wasm;
  } catch {
    return wasm;
  }
}

function emptyCache(wasm: Uint8Array): Uint8Array | undefined {
  const sections = [...sectionsOf(wasm)];
  const read = <T>(section: number, take: (reader: WasmReader, end: number) => T | undefined): T | undefined => {
    for (const { id, start, end } of sections) {
      const found = id === section ? take(new WasmReader(wasm, start), end) : undefined;
      if (found !== undefined) return found;
    }
    return undefined;
  };
  const index = read(CUSTOM_SECTION, findFunction);
  const imported = read(IMPORT_SECTION, countFunctions) ?? 0;
  return index === undefined || index < imported
    ? undefined
    : read(CODE_SECTION, (reader) => emptyFunction(wasm, reader, index - imported));
}

/** The sections of a module, in their order: where the content of each begins and ends. Throws Error on bytes that are no module. */
export function* sectionsOf(
  wasm: Uint8Array,
): Generator<{ readonly id: number; readonly start: number; readonly end: number }> {
  if (MAGIC.some((byte, index) => wasm[index] !== byte)) throw new Error('not a wasm module');
  const reader = new WasmReader(wasm, MAGIC.length);
  while (!reader.done) {
    const id = reader.byte();
    const end = reader.number() + reader.position;
    yield { id, start: reader.position, end };
    reader.position = end;
  }
}

/** The index of the function, where this is the section of names. */
function findFunction(reader: WasmReader, end: number): number | undefined {
  if (reader.text() !== 'name') return undefined;
  while (reader.position < end) {
    const part = reader.byte();
    const next = reader.number() + reader.position;
    for (let left = part === FUNCTION_NAMES ? reader.number() : 0; left > 0; left -= 1) {
      const index = reader.number();
      if (reader.text() === CACHE_GET) return index;
    }
    reader.position = next;
  }
  return undefined;
}

function countFunctions(reader: WasmReader): number {
  let functions = 0;
  for (let left = reader.number(); left > 0; left -= 1) {
    reader.text();
    reader.text();
    const kind = reader.byte();
    if (kind === KIND.function) functions += 1;
    if (kind === KIND.memory) skipLimits(reader);
    else skipImport(reader, kind);
  }
  return functions;
}

/** The same number of bytes, so that nothing else of the module changes: no variables, 0, and nothing more. */
function emptyFunction(wasm: Uint8Array, reader: WasmReader, wanted: number): Uint8Array | undefined {
  reader.number();
  for (let left = wanted; left > 0; left -= 1) reader.skip(reader.number());
  const size = reader.number();
  if (size < 4) return undefined;
  const body = [0, OP.i32Const, 0, ...Array.from({ length: size - 4 }, () => OP.nop), OP.end];
  const copy = Uint8Array.from(wasm);
  copy.set(body, reader.position);
  return copy;
}

/** The first byte behind all data. Segments that are placed by anything but a constant are left to the runtime. */
function findDataEnd(reader: WasmReader): number {
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

function findMemory(reader: WasmReader): number {
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

/** Reads past an import that is no memory. */
export function skipImport(reader: WasmReader, kind: number): void {
  if (kind === KIND.function) reader.number();
  else if (kind === KIND.global) reader.skip(2);
  else if (kind === KIND.table) {
    reader.byte();
    skipLimits(reader);
  } else throw new Error(`unknown kind of import ${kind}`);
}

/** Reads past the limits of a table or memory. */
export function skipLimits(reader: WasmReader): void {
  const limited = reader.byte() === 1;
  reader.number();
  if (limited) reader.number();
}

/** Reads a module byte by byte. Throws RangeError behind its end. */
export class WasmReader {
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

  text(): string {
    const size = this.number();
    this.position += size;
    return UTF8.decode(this.#bytes.subarray(this.position - size, this.position));
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
