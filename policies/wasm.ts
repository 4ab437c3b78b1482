/** Owns the one place where policy wasm runs, and closes every trap of the SDK; refuses input and results that are not exactly one object. */
import { createRequire } from 'node:module';
import { TollgateError } from '../catalogs/errors.ts';
import type { Moment } from './builtins.ts';
import { Host, type Exports } from './host.ts';
import { memoryPages } from './module.ts';

const PAGE = 65_536;
/** Bytes that rules take in the memory for each byte of their text. */
const SPREAD = 13;

// The package's ES module does not export the class that its types promise; the CommonJS entry does.
const { LoadedPolicy } = createRequire(import.meta.url)('@open-policy-agent/opa-wasm') as typeof import('@open-policy-agent/opa-wasm');

/** Bounds of one evaluator, in bytes. */
export interface WasmLimits {
  /** Largest input; default 256 KiB. */
  readonly inputBytes: number;
  /** Most memory that the module can take, data included; default 512 MiB. */
  readonly memoryBytes: number;
  /** Growth beyond the loaded data after which the instance is replaced, since wasm memory never shrinks; default 16 MiB. */
  readonly growthBytes: number;
}

const DEFAULTS: WasmLimits = { inputBytes: 256 * 1024, memoryBytes: 512 * 1024 * 1024, growthBytes: 16 * 1024 * 1024 };

interface Running {
  readonly policy: InstanceType<typeof LoadedPolicy>;
  readonly memory: WebAssembly.Memory;
  readonly restBytes: number;
}

/** A module of compiled policy with its data. Not safe for concurrent use, and need not be: evaluation is synchronous. */
export class WasmPolicy {
  readonly #module: WebAssembly.Module;
  readonly #data: ArrayBuffer;
  readonly #initialPages: number;
  readonly #limits: WasmLimits;
  #running: Running | undefined;
  #moment: Moment = { time: '' };

  /**
   * Loads `wasm` with `dataText` (a JSON object) as `data`. Throws POLICY_INVALID when it is no policy, lacks one of
   * `entrypoints`, or needs a built-in that is not supplied: the SDK would find that out at a decision.
   */
  constructor(wasm: Uint8Array, dataText: string, options: { entrypoints: readonly string[]; limits?: Partial<WasmLimits> }) {
    this.#limits = { ...DEFAULTS, ...options.limits };
    this.#data = exactBuffer(dataText);
    try {
      this.#initialPages = memoryPages(wasm);
      this.#module = new WebAssembly.Module(wasm as Uint8Array<ArrayBuffer>);
      this.#running = this.#start();
    } catch (thrown) {
      if (thrown instanceof TollgateError) throw thrown;
      throw new TollgateError('POLICY_INVALID', { detail: 'The compiled policy cannot be loaded.', cause: thrown });
    }
    const known = new Set(Object.keys(this.#running.policy.entrypoints as object));
    const missing = options.entrypoints.filter((name) => !known.has(name));
    if (missing.length > 0) throw new TollgateError('POLICY_INVALID', { detail: `The compiled policy has no entry point ${missing.join(', ')}.` });
  }

  /**
   * Evaluates `entrypoint` over `inputText`, which must be one JSON object that the caller made itself. `time` (RFC 3339) is
   * what the policy's clock shows. Returns the one result object; throws POLICY_FAILED for everything else.
   */
  evaluate(entrypoint: string, inputText: string, time = ''): Readonly<Record<string, unknown>> {
    const input = this.#readInput(inputText);
    this.#moment = { time };
    let results: unknown;
    try {
      this.#running ??= this.#start();
      results = this.#running.policy.evaluate(input, entrypoint);
    } catch (thrown) {
      // What a trap left behind in the memory is unknown, so the next call gets a new instance.
      this.#running = undefined;
      throw new TollgateError('POLICY_FAILED', { detail: 'The policy stopped in the middle of the decision.', cause: thrown });
    }
    if (this.#running.memory.buffer.byteLength - this.#running.restBytes > this.#limits.growthBytes) this.#running = undefined;
    return onlyResult(results);
  }

  /** Names of what the module answers. */
  get entrypoints(): readonly string[] {
    return Object.keys((this.#running ??= this.#start()).policy.entrypoints as object);
  }

  /** Bytes of wasm memory now; 0 when the instance was dropped. */
  get memoryBytes(): number {
    return this.#running?.memory.buffer.byteLength ?? 0;
  }

  /** Input that does not parse would become undefined without a word, and rules that ask for absence would then allow. */
  #readInput(text: string): ArrayBuffer {
    if (!isObject(text)) throw new TollgateError('POLICY_FAILED', { detail: 'The input of the policy is not an object.' });
    if (!isWellFormed(text)) throw new TollgateError('POLICY_FAILED', { detail: 'The input of the policy holds half of a surrogate pair.' });
    const input = exactBuffer(text);
    if (input.byteLength > this.#limits.inputBytes) {
      throw new TollgateError('POLICY_FAILED', { detail: `The input of the policy has ${input.byteLength} bytes; the limit is ${this.#limits.inputBytes}.`, next: 'Send smaller arguments.' });
    }
    return input;
  }

  #start(): Running {
    const maximum = Math.max(this.#initialPages, Math.ceil(this.#limits.memoryBytes / PAGE));
    // Memory that grows page by page takes longer to grow than the data to load; what is never touched costs nothing.
    const initial = Math.min(maximum, this.#initialPages + Math.ceil((this.#data.byteLength * SPREAD) / PAGE));
    const memory = new WebAssembly.Memory({ initial, maximum });
    const host = new Host(memory, () => this.#moment);
    const instance = new WebAssembly.Instance(this.#module, { env: host.imports });
    host.attach(instance.exports as unknown as Exports);
    const policy = new LoadedPolicy({ instance, module: this.#module }, memory, host.minorVersion);
    policy.setData(this.#data);
    return { policy, memory, restBytes: memory.buffer.byteLength };
  }
}

/** The SDK hands over the whole buffer of a view, so a pooled one would carry other data or a cut text. */
function exactBuffer(text: string): ArrayBuffer {
  const bytes = new TextEncoder().encode(text);
  return bytes.byteLength === bytes.buffer.byteLength ? bytes.buffer : bytes.slice().buffer;
}

function onlyResult(results: unknown): Readonly<Record<string, unknown>> {
  const list: readonly unknown[] = Array.isArray(results) ? results : [];
  const result: unknown = (list[0] as { result?: unknown } | undefined)?.result;
  if (list.length === 1 && typeof result === 'object' && result !== null && !Array.isArray(result)) return result as Readonly<Record<string, unknown>>;
  throw new TollgateError('POLICY_FAILED', { detail: 'The policy gave no decision.' });
}

function isObject(text: string): boolean {
  try {
    return text.startsWith('{') && typeof JSON.parse(text) === 'object';
  } catch {
    return false;
  }
}

/** In Node since 20; the language level that the project compiles for does not know it. */
function isWellFormed(text: string): boolean {
  return (text as unknown as { isWellFormed(): boolean }).isWellFormed();
}
