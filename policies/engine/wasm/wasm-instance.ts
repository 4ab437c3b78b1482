/** Owns one running instance of policy wasm with its data, loaded from text or copied from the memory of another; judges neither questions nor answers. */
import { createRequire } from 'node:module';
import { inTimeSlices } from '../../../catalogs/text/time-slices.ts';
import { type BuiltinCallSite, readCallSites } from './builtin-failures.ts';
import type { Moment } from './builtins.ts';
import { type WasmExports, WasmHost } from './wasm-host.ts';
import { memoryPages } from './wasm-module.ts';

const PAGE = 65_536;
/** Bytes that rules take in the memory for each byte of their text. */
const SPREAD = 13;
/** Bytes that are copied at once: a millisecond or two, most of it for memory that is touched for the first time. */
const PIECE = 2 * 1024 * 1024;

// The package's ES module does not export the class that its types promise; the CommonJS entry does.
const { LoadedPolicy } = createRequire(import.meta.url)(
  '@open-policy-agent/opa-wasm',
) as typeof import('@open-policy-agent/opa-wasm');

/** What the SDK knows of the data that it has loaded, and does not say in its types. */
interface Loaded {
  /** Where the heap ends without any data. */
  readonly baseHeapPtr: number;
  dataAddr: number;
  /** Where it ends with them; what a decision needs begins there. */
  dataHeapPtr: number;
}

/** A module that can be started. */
export interface LoadableModule {
  readonly module: WebAssembly.Module;
  /** Pages of memory that it needs without data, and that it may have at most. */
  readonly pages: number;
  readonly maximum: number;
}

/** Data as they lie in the memory of an instance: any other instance of the same module reads them, in any thread. */
export interface MemoryImage {
  /** The heap that the data fill, from where that of a fresh instance ends; in memory that threads share, whose size makes no garbage collector hurry. */
  readonly heap: Uint8Array;
  /** Where they begin in it. */
  readonly address: number;
  /** Pages of memory, so that the copy need not grow where the one that was loaded had not to. */
  readonly pages: number;
}

/** A call of a built-in that gave nothing. */
export type FailureSite = Required<BuiltinCallSite>;

/** Throws what the runtime throws of bytes that are no module, and RangeError or Error of one that imports no memory. */
export function openModule(wasm: Uint8Array, memoryBytes: number): LoadableModule {
  const pages = memoryPages(wasm);
  return {
    pages,
    maximum: Math.max(pages, Math.ceil(memoryBytes / PAGE)),
    module: new WebAssembly.Module(wasm as Uint8Array<ArrayBuffer>),
  };
}

/**
 * An instance and its data. All that an evaluation finds beside its input is the module's own memory, which each instance
 * initialises alike, and the heap of the data, which evaluations only read: each begins its own behind it, and forgets what
 * the one before has freed (`opa_heap_ptr_set`, which `opa_eval` calls first). So the heap is copied, and nothing else.
 */
export class WasmInstance {
  readonly #host: WasmHost;
  /** What it was started from. */
  readonly from: LoadableModule;
  readonly #policy: InstanceType<typeof LoadedPolicy>;
  readonly #memory: WebAssembly.Memory;
  /** Bytes of its memory with nothing but data in it. */
  #restBytes = 0;
  #moment: Moment = { time: '' };

  private constructor(from: LoadableModule, pages: number) {
    this.from = from;
    this.#memory = new WebAssembly.Memory({ initial: Math.min(from.maximum, pages), maximum: from.maximum });
    const host = new WasmHost(this.#memory, () => this.#moment);
    this.#host = host;
    const instance = new WebAssembly.Instance(from.module, { env: host.imports });
    host.attach(instance.exports as unknown as WasmExports);
    this.#policy = new LoadedPolicy({ instance, module: from.module }, this.#memory, host.minorVersion);
  }

  /** With data from their text. Throws POLICY_INVALID for a module that wants what is not there, and what the SDK throws for data that are no JSON. */
  static load(from: LoadableModule, data: ArrayBuffer): WasmInstance {
    // Memory that grows page by page takes longer to grow than the data to load; what is never touched costs nothing.
    const made = new WasmInstance(from, from.pages + Math.ceil((data.byteLength * SPREAD) / PAGE));
    made.#policy.setData(data);
    return made.#rest();
  }

  /** With the data of another instance of the same module; others have their turn meanwhile. Throws as `load`. */
  static async copy(from: LoadableModule, image: MemoryImage): Promise<WasmInstance> {
    const made = new WasmInstance(from, image.pages);
    const { heap } = image;
    const into = made.#heapFor(image);
    const pieces = Array.from({ length: Math.ceil(heap.length / PIECE) }, (_, number) => number * PIECE);
    for await (const at of inTimeSlices(pieces)) into.set(heap.subarray(at, at + PIECE), at);
    return made.#rest();
  }

  /** A fresh one with the same data, in memory of the size that this one began with. Not for one that has trapped: what is in its memory is unknown. */
  renewed(): WasmInstance {
    const made = new WasmInstance(this.from, this.#restBytes / PAGE);
    const heap = this.#heap();
    made.#heapFor({ heap, address: this.#loaded.dataAddr }).set(heap);
    return made.#rest();
  }

  /** Its data, to be given to another thread. */
  image(): MemoryImage {
    const own = this.#heap();
    const heap = new Uint8Array(new SharedArrayBuffer(own.byteLength));
    heap.set(own);
    return { heap, address: this.#loaded.dataAddr, pages: this.#restBytes / PAGE };
  }

  /** What the SDK makes of the answer. Throws on every trap; the instance cannot be used then. */
  evaluate(entrypoint: string, input: ArrayBuffer, moment: Moment): unknown {
    this.#moment = moment;
    return this.#policy.evaluate(input, entrypoint);
  }

  /** Built-ins of user Rego that failed since this was asked last. */
  takeFailures(): readonly FailureSite[] {
    const failures = this.#host.takeFailures();
    if (failures.size === 0) return [];
    const sites = readCallSites(this.from.module);
    return [...failures].flatMap(([number, name]) =>
      sites[number - 1] === undefined ? [] : [{ builtin: name, ...sites[number - 1] } as FailureSite],
    );
  }

  /** Names of what the module answers. */
  get entrypoints(): readonly string[] {
    return Object.keys(this.#policy.entrypoints as object);
  }

  /** Bytes of its memory now. */
  get bytes(): number {
    return this.#memory.buffer.byteLength;
  }

  /** Bytes by which evaluations have made it grow. */
  get growth(): number {
    return this.bytes - this.#restBytes;
  }

  get #loaded(): Loaded {
    return this.#policy as unknown as Loaded;
  }

  #rest(): this {
    this.#restBytes = this.bytes;
    return this;
  }

  #heap(): Uint8Array<ArrayBuffer> {
    const { baseHeapPtr, dataHeapPtr } = this.#loaded;
    return new Uint8Array(this.#memory.buffer, baseHeapPtr, dataHeapPtr - baseHeapPtr);
  }

  /** Where the heap of other data goes; from here on the SDK takes it for that of its own. */
  #heapFor({
    heap,
    address,
  }: {
    readonly heap: { readonly byteLength: number };
    readonly address: number;
  }): Uint8Array<ArrayBuffer> {
    const loaded = this.#loaded;
    loaded.dataAddr = address;
    loaded.dataHeapPtr = loaded.baseHeapPtr + heap.byteLength;
    return this.#heap();
  }
}
