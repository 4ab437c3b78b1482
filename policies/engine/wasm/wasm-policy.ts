/** Runs policy WebAssembly. Refuses input and results that are not exactly one object. */

import { type Refusal, TollgateError } from '../../../catalogs/errors/error-table.ts';
import { isJsonObject } from '../../../catalogs/schemas/json-schema.ts';
import { type FailureSite, type LoadableModule, type MemoryImage, openModule, WasmInstance } from './wasm-instance.ts';

/** Limits of one evaluator, in bytes. */
export interface WasmLimits {
  /** Largest input. Default: 256 KiB. */
  readonly inputBytes: number;
  /** Most memory that the module may use, including data. Default: 512 MiB. */
  readonly memoryBytes: number;
  /** Growth after which the instance is replaced, because its memory never shrinks. Default: 16 MiB. */
  readonly growthBytes: number;
}

const DEFAULTS: WasmLimits = { inputBytes: 256 * 1024, memoryBytes: 512 * 1024 * 1024, growthBytes: 16 * 1024 * 1024 };

/** Beginning of the refusal for a built-in that failed. */
export const FAILED_BUILTIN = 'The built-in function ';

/** How a module is loaded. */
interface WasmOptions {
  readonly entrypoints: readonly string[];
  readonly limits?: Partial<WasmLimits>;
}

/** A compiled policy with its data. Evaluation is synchronous, so there is no concurrent use. */
export class WasmPolicy {
  readonly #from: LoadableModule;
  readonly #data: string | Uint8Array;
  readonly #limits: WasmLimits;
  #instance: WasmInstance | undefined;

  /**
   * Loads `wasm` with `data` (a JSON object, or its bytes in UTF-8), or uses an instance that was made from them.
   * Throws POLICY_INVALID if it is not a policy, has not all of `entrypoints`, or needs a built-in that is not
   * supplied. The SDK would report these only at the first decision.
   */
  constructor(
    wasm: Uint8Array,
    data: string | Uint8Array,
    { instance, ...options }: WasmOptions & { readonly instance?: WasmInstance },
  ) {
    this.#limits = { ...DEFAULTS, ...options.limits };
    this.#data = data;
    try {
      this.#instance = instance ?? WasmInstance.load(openModule(wasm, this.#limits.memoryBytes), exactBuffer(data));
    } catch (thrown) {
      throw unloadable(thrown);
    }
    this.#from = this.#instance.from;
    const known = new Set(this.#instance.entrypoints);
    const missing = options.entrypoints.filter((name) => !known.has(name));
    if (missing.length > 0)
      throw new TollgateError('POLICY_INVALID', {
        detail: `The compiled policy has no entry point ${missing.join(', ')}.`,
      });
  }

  /** Does the same as the constructor with data that another thread loaded, in time slices. Throws the same. */
  static async copy(
    wasm: Uint8Array,
    data: string | Uint8Array,
    { image, ...options }: WasmOptions & { readonly image: MemoryImage },
  ): Promise<WasmPolicy> {
    const { memoryBytes } = { ...DEFAULTS, ...options.limits };
    const instance = await Promise.resolve()
      .then(() => WasmInstance.copy(openModule(wasm, memoryBytes), image))
      .catch((thrown: unknown) => {
        throw unloadable(thrown);
      });
    return new WasmPolicy(wasm, data, { ...options, instance });
  }

  /** Returns the loaded data, for `copy` in another thread. */
  image(): MemoryImage {
    return (this.#instance ??= this.#load()).image();
  }

  /**
   * Evaluates `entrypoint` with `inputText`, one JSON object that Tollgate made. `time` (RFC 3339) is the policy's
   * clock. Returns the result object. Throws POLICY_FAILED for anything else.
   */
  evaluate(entrypoint: string, inputText: string, time = ''): Readonly<Record<string, unknown>> {
    this.#checkInput(inputText);
    let results: unknown;
    let failures: readonly FailureSite[];
    try {
      const instance = (this.#instance ??= this.#load());
      results = instance.evaluate(entrypoint, inputText, { time });
      failures = instance.takeFailures();
      if (instance.growth > this.#limits.growthBytes) this.#instance = instance.renewed();
    } catch (thrown) {
      // A trap leaves the memory undefined. The next call makes a new instance from the text of the data.
      this.#instance = undefined;
      throw failure('The policy stopped during the decision.', { cause: thrown });
    }
    const result = onlyResult(results);
    if (failures.length > 0) refuseFailed(failures, result.enforced);
    return result;
  }

  /** Names of the module's entry points. */
  get entrypoints(): readonly string[] {
    return (this.#instance ??= this.#load()).entrypoints;
  }

  /** Current size of the memory in bytes; 0 after the instance was dropped. */
  get memoryBytes(): number {
    return this.#instance?.bytes ?? 0;
  }

  #load(): WasmInstance {
    return WasmInstance.load(this.#from, exactBuffer(this.#data));
  }

  /** The instance refuses what is not JSON. Rules that test for absence would allow other values. */
  #checkInput(text: string): void {
    if (!text.startsWith('{')) throw failure('The input of the policy is not an object.');
    if (!isWellFormed(text)) throw failure('The input of the policy contains half of a surrogate pair.');
    const bytes = Buffer.byteLength(text);
    const { inputBytes: limit } = this.#limits;
    if (bytes > limit)
      throw failure(`The input of the policy has ${bytes} bytes; the limit is ${limit}.`, {
        next: 'Send smaller arguments.',
      });
  }
}

/** The SDK reads the whole buffer of a view. A pooled buffer would contain other data. */
function exactBuffer(data: string | Uint8Array): ArrayBuffer {
  if (typeof data !== 'string') return new Uint8Array(data).buffer;
  const bytes = new TextEncoder().encode(data);
  return bytes.byteLength === bytes.buffer.byteLength ? bytes.buffer : bytes.slice().buffer;
}

function failure(detail: string, more: Pick<Refusal, 'next' | 'cause'> = {}): TollgateError {
  return new TollgateError('POLICY_FAILED', { detail, ...more });
}

function unloadable(thrown: unknown): TollgateError {
  return thrown instanceof TollgateError
    ? thrown
    : new TollgateError('POLICY_INVALID', { detail: 'The compiled policy cannot be loaded.', cause: thrown });
}

function onlyResult(results: unknown): Readonly<Record<string, unknown>> {
  const list: readonly unknown[] = Array.isArray(results) ? results : [];
  const result: unknown = (list[0] as { result?: unknown } | undefined)?.result;
  if (list.length === 1 && isJsonObject(result)) return result;
  throw failure('The policy returned no decision.');
}

/**
 * Throws POLICY_FAILED if a built-in failed that an enforced rule leads to. `enforced` tells by package whether its
 * rules are enforced; '' stands for all other packages.
 */
function refuseFailed(failures: readonly FailureSite[], enforced: unknown): void {
  const counts = isJsonObject(enforced) ? enforced : {};
  const isEnforced = (rule: string): boolean => {
    const parts = rule.split('.');
    const owner =
      parts
        .map((_, length) => parts.slice(0, parts.length - length).join('.'))
        .find((name) => Object.hasOwn(counts, name)) ?? '';
    return counts[owner] !== false;
  };
  const failed = failures.find(({ reachedBy }) => reachedBy.length === 0 || reachedBy.some(isEnforced));
  if (failed === undefined) return;
  const place = failed.at.replace(/\.tollgate_(?:open_)?(deny|ask|allow|expose)_?.*$/, '.$1');
  throw failure(`${FAILED_BUILTIN}${failed.builtin} failed in ${place}: its arguments have no result.`);
}

/** Node 20 has this method. The language level that the project compiles for does not declare it. */
function isWellFormed(text: string): boolean {
  return (text as unknown as { isWellFormed(): boolean }).isWellFormed();
}
