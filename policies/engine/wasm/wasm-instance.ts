/**
 * A running instance of policy WebAssembly with its data, loaded from text or copied from the memory of another
 * instance.
 */
import { createRequire } from 'node:module';
import { inTimeSlices } from '../../../catalogs/text/time-slices.ts';
import { type BuiltinCallSite, readCallSites } from './builtin-failures.ts';
import type { Moment } from './builtins.ts';
import { type WasmExports, WasmHost } from './wasm-host.ts';
import { memoryPages } from './wasm-module.ts';

const PAGE = 65_536;
/** Bytes of memory that rules need for each byte of their text. */
const SPREAD = 13;
/** Bytes per copied chunk. A chunk takes a millisecond or two, mostly for memory that is touched for the first time. */
const CHUNK = 2 * 1024 * 1024;

// The package's ES module does not export the class that its types declare. Its CommonJS entry does.
const { LoadedPolicy } = createRequire(import.meta.url)(
  '@open-policy-agent/opa-wasm',
) as typeof import('@open-policy-agent/opa-wasm');

/** Fields of the SDK's policy that its types do not declare. */
interface Loaded {
  /** End of the heap without data. */
  readonly baseHeapPtr: number;
  readonly entrypoints: Readonly<Record<string, number>>;
  dataAddr: number;
  /** End of the heap with data. The memory of an evaluation begins here. */
  dataHeapPtr: number;
}

/** A module that can be instantiated. */
export interface LoadableModule {
  readonly module: WebAssembly.Module;
  /** Pages of memory that the module needs without data, and the most that it may have. */
  readonly pages: number;
  readonly maximum: number;
}

/**
 * Loaded data as they are in the memory of an instance. Any instance of the same module can use them, in any thread.
 */
export interface MemoryImage {
  /**
   * The part of the heap with the data. It is in shared memory, so that its size does not speed up garbage collection.
   */
  readonly heap: Uint8Array;
  /** Address of the data. */
  readonly address: number;
  /** Pages of memory of the loaded instance, so that the copy does not grow either. */
  readonly pages: number;
}

/** A call of a built-in that failed. */
export type FailureSite = Required<BuiltinCallSite>;

/** Compiles a module. Throws CompileError for invalid bytes, and RangeError or Error if it imports no memory. */
export function openModule(wasm: Uint8Array, memoryBytes: number): LoadableModule {
  const pages = memoryPages(wasm);
  return {
    pages,
    maximum: Math.max(pages, Math.ceil(memoryBytes / PAGE)),
    module: new WebAssembly.Module(wasm as Uint8Array<ArrayBuffer>),
  };
}

/**
 * An instance and its data. An evaluation reads its input, the module's own memory, which is equal in every instance,
 * and the heap with the data, which it never changes. Each evaluation begins its own heap behind the data and ignores
 * what earlier ones freed (`opa_heap_ptr_set`, which `opa_eval` calls first). So a copy of the data heap is enough.
 */
export class WasmInstance {
  readonly #host: WasmHost;
  /** The module that it was started from. */
  readonly from: LoadableModule;
  readonly #policy: InstanceType<typeof LoadedPolicy>;
  readonly #memory: WebAssembly.Memory;
  readonly #exports: WasmExports;
  /** Bytes of memory before any evaluation. */
  #initialBytes = 0;
  #moment: Moment = { time: '' };

  private constructor(from: LoadableModule, pages: number) {
    this.from = from;
    this.#memory = new WebAssembly.Memory({ initial: Math.min(from.maximum, pages), maximum: from.maximum });
    const host = new WasmHost(this.#memory, () => this.#moment);
    this.#host = host;
    const instance = new WebAssembly.Instance(from.module, { env: host.imports });
    this.#exports = instance.exports as unknown as WasmExports;
    host.attach(this.#exports);
    this.#policy = new LoadedPolicy({ instance, module: from.module }, this.#memory, host.minorVersion);
  }

  /**
   * Loads data from their text. Throws POLICY_INVALID if the module needs a missing import, and SDK errors for invalid
   * JSON.
   */
  static load(from: LoadableModule, data: ArrayBuffer): WasmInstance {
    // Growing memory page by page takes longer than loading the data. Memory that is never touched costs nothing.
    const instance = new WasmInstance(from, from.pages + Math.ceil((data.byteLength * SPREAD) / PAGE));
    instance.#policy.setData(data);
    return instance.#markInitial();
  }

  /** Copies the data of another instance of the same module, in time slices. Throws as `load`. */
  static async copy(from: LoadableModule, image: MemoryImage): Promise<WasmInstance> {
    const instance = new WasmInstance(from, image.pages);
    const { heap } = image;
    const target = instance.#heapFor(image);
    const chunks = Array.from({ length: Math.ceil(heap.length / CHUNK) }, (_, number) => number * CHUNK);
    for await (const at of inTimeSlices(chunks)) target.set(heap.subarray(at, at + CHUNK), at);
    return instance.#markInitial();
  }

  /**
   * Returns a new instance with the same data and the initial size. Do not use after a trap: the memory is then
   * undefined.
   */
  renewed(): WasmInstance {
    const instance = new WasmInstance(this.from, this.#initialBytes / PAGE);
    const heap = this.#heap();
    instance.#heapFor({ heap, address: this.#loaded.dataAddr }).set(heap);
    return instance.#markInitial();
  }

  /** Returns the data, for another thread. */
  image(): MemoryImage {
    const own = this.#heap();
    const heap = new Uint8Array(new SharedArrayBuffer(own.byteLength));
    heap.set(own);
    return { heap, address: this.#loaded.dataAddr, pages: this.#initialBytes / PAGE };
  }

  /**
   * Returns the result set. `input` is JSON. Throws for a text that is not JSON, which the SDK would take for no input,
   * and on every trap. Then the instance cannot be used again. Does what `opa_eval` of the ABI does.
   */
  evaluate(entrypoint: string, input: string, moment: Moment): unknown {
    this.#moment = moment;
    const { dataAddr, dataHeapPtr: start, entrypoints } = this.#loaded;
    const { [entrypoint]: number } = entrypoints;
    if (number === undefined) throw new Error(`no entry point ${entrypoint}`);
    const exports = this.#exports;
    const end = start + this.#write(input, start);
    exports.opa_heap_ptr_set(end);
    const value = exports.opa_json_parse(start, end - start);
    if (value === 0) throw new Error('the input is not JSON');
    const context = exports.opa_eval_ctx_new();
    exports.opa_eval_ctx_set_input(context, value);
    exports.opa_eval_ctx_set_data(context, dataAddr);
    exports.opa_eval_ctx_set_entrypoint(context, number);
    exports.eval(context);
    return JSON.parse(this.#host.text(exports.opa_json_dump(exports.opa_eval_ctx_get_result(context))));
  }

  /** Writes a text in UTF-8 and returns its length in bytes. */
  #write(text: string, address: number): number {
    const length = Buffer.byteLength(text);
    const missing = address + length - this.bytes;
    if (missing > 0) this.#memory.grow(Math.ceil(missing / PAGE));
    return this.#host.bytes.write(text, address);
  }

  /** Returns the built-ins of user Rego that failed since the last call of this method. */
  takeFailures(): readonly FailureSite[] {
    const failures = this.#host.takeFailures();
    if (failures.size === 0) return [];
    const sites = readCallSites(this.from.module);
    return [...failures].flatMap(([number, name]) =>
      sites[number - 1] === undefined ? [] : [{ builtin: name, ...sites[number - 1] } as FailureSite],
    );
  }

  /** Names of the module's entry points. */
  get entrypoints(): readonly string[] {
    return Object.keys(this.#loaded.entrypoints);
  }

  /** Current size of the memory in bytes. */
  get bytes(): number {
    return this.#memory.buffer.byteLength;
  }

  /** Bytes that evaluations have added to the memory. */
  get growth(): number {
    return this.bytes - this.#initialBytes;
  }

  get #loaded(): Loaded {
    return this.#policy as unknown as Loaded;
  }

  #markInitial(): this {
    this.#initialBytes = this.bytes;
    return this;
  }

  #heap(): Uint8Array<ArrayBuffer> {
    const { baseHeapPtr, dataHeapPtr } = this.#loaded;
    return new Uint8Array(this.#memory.buffer, baseHeapPtr, dataHeapPtr - baseHeapPtr);
  }

  /** Returns the memory for the heap of other data, and makes the SDK treat it as its own data. */
  #heapFor({ heap, address }: Pick<MemoryImage, 'heap' | 'address'>): Uint8Array<ArrayBuffer> {
    const loaded = this.#loaded;
    loaded.dataAddr = address;
    loaded.dataHeapPtr = loaded.baseHeapPtr + heap.byteLength;
    return this.#heap();
  }
}
