/** Reads a WebAssembly module, and changes it, before it runs: the memory that it needs, and a broken cache of OPA. */

export const CUSTOM_SECTION = 0;
export const CODE_SECTION = 10;
/** The subsection of the name section that has the names of functions. */
const FUNCTION_NAMES = 1;
const MAGIC = [0x00, 0x61, 0x73, 0x6d, 0x01, 0x00, 0x00, 0x00];
export const IMPORT_SECTION = 2;
const DATA_SECTION = 11;
const PAGE = 65_536;
const UTF8 = new TextDecoder();
/** Instructions: the constant expression that places a segment, and those that fill an emptied function. */
const OP = { nop: 0x01, end: 0x0b, i32Const: 0x41 } as const;
/** Kinds of imports (WebAssembly core specification 2.0, section 5.5.5). */
export const KIND = { function: 0, table: 1, memory: 2, global: 3 } as const;

/**
 * Returns the initial size, in pages, of the imported memory: the size that the module requests, or the end of its data
 * if that is larger. opa adds the table of dynamic calls last and does not count it. A module with many groups of rules
 * then requests too little and would not load. Throws RangeError or Error for bytes that are not such a module.
 */
export function memoryPages(wasm: Uint8Array): number {
  let requested: number | undefined;
  let filled = 0;
  for (const { id, start } of sectionsOf(wasm)) {
    if (id === IMPORT_SECTION) requested = findMemory(new WasmReader(wasm, start));
    if (id === DATA_SECTION) filled = findDataEnd(new WasmReader(wasm, start));
  }
  if (requested === undefined) throw new Error('the module imports nothing');
  return Math.max(requested, Math.ceil(filled / PAGE));
}

/** The function by which opa's built-ins look up compiled patterns. */
const CACHE_GET = 'opa_builtin_cache_get';

/** With this many regular expressions in one evaluation, opa's cache of them is broken. */
export const SOUND_CACHE_PATTERNS = 100;

/**
 * Returns the module with a cache lookup that never finds anything. From the hundredth pattern on, opa's cache of
 * regular expressions frees an entry that is still in use. An evaluation then loops without end, or decides from freed
 * memory. Without the cache, a pattern is compiled for each match. A module without names or without that function, and
 * bytes that are not a module, are returned unchanged; the code that loads them reports the error.
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
  const index = read(CUSTOM_SECTION, (reader, end) =>
    [...functionNames(reader, end)].find(([, name]) => name === CACHE_GET),
  )?.[0];
  const imported = read(IMPORT_SECTION, countFunctions) ?? 0;
  return index === undefined || index < imported
    ? undefined
    : read(CODE_SECTION, (reader) => emptyFunction(wasm, reader, index - imported));
}

/**
 * Yields the sections of a module in order, with start and end of their content. Throws Error for bytes that are no
 * module.
 */
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

/** Yields index and name of each named function, if the custom section that `reader` is at is the name section. */
export function* functionNames(reader: WasmReader, end: number): Generator<readonly [index: number, name: string]> {
  if (reader.text() !== 'name') return;
  while (reader.position < end) {
    const part = reader.byte();
    const next = reader.number() + reader.position;
    for (let left = part === FUNCTION_NAMES ? reader.number() : 0; left > 0; left -= 1)
      yield [reader.number(), reader.text()];
    reader.position = next;
  }
}

function countFunctions(reader: WasmReader): number {
  let functions = 0;
  for (let left = reader.number(); left > 0; left -= 1) if (readImport(reader).kind === KIND.function) functions += 1;
  return functions;
}

/** Replaces a function body by one that returns 0, of the same length, so that nothing else in the module changes. */
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

/** Returns the end of all data. Stops at a segment whose place is not a constant. */
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
    const { kind, value } = readImport(reader);
    if (kind === KIND.memory) return value;
  }
  throw new Error('the module imports no memory');
}

/** Reads one import. `value` is the type index of a function, or the minimum size of a memory or table. */
export function readImport(reader: WasmReader): { readonly kind: number; readonly value: number } {
  reader.text();
  reader.text();
  const kind = reader.byte();
  if (kind === KIND.function) return { kind, value: reader.number() };
  if (kind === KIND.memory) return { kind, value: readLimits(reader) };
  if (kind !== KIND.global && kind !== KIND.table) throw new Error(`unknown kind of import ${kind}`);
  reader.skip(kind === KIND.global ? 2 : 1);
  return { kind, value: kind === KIND.table ? readLimits(reader) : 0 };
}

/** Reads the limits of a table or memory, and returns the minimum. */
function readLimits(reader: WasmReader): number {
  const hasMaximum = reader.byte() === 1;
  const minimum = reader.number();
  if (hasMaximum) reader.number();
  return minimum;
}

/** Reads a module byte by byte. Throws RangeError after its end. */
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
