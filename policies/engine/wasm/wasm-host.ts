/** The imports of policy WebAssembly: our built-ins only, and no way to write to stdout. */
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { BUILTINS, type Moment } from './builtins.ts';

/**
 * The functions of OPA's WebAssembly ABI 1.2+ that the host calls (https://www.openpolicyagent.org/docs/latest/wasm/).
 */
export interface WasmExports {
  readonly builtins: () => number;
  readonly eval: (context: number) => number;
  readonly opa_eval_ctx_new: () => number;
  readonly opa_eval_ctx_set_input: (context: number, value: number) => void;
  readonly opa_eval_ctx_set_data: (context: number, value: number) => void;
  readonly opa_eval_ctx_set_entrypoint: (context: number, entrypoint: number) => void;
  readonly opa_eval_ctx_get_result: (context: number) => number;
  readonly opa_heap_ptr_set: (address: number) => void;
  readonly opa_json_dump: (address: number) => number;
  readonly opa_json_parse: (address: number, length: number) => number;
  readonly opa_malloc: (length: number) => number;
  readonly opa_wasm_abi_version: WebAssembly.Global;
  readonly opa_wasm_abi_minor_version: WebAssembly.Global;
}

/** The imports of one instance. The SDK's own imports would replace our built-ins by its own, and print to stdout. */
export class WasmHost {
  readonly imports: Record<string, WebAssembly.ImportValue>;
  minorVersion = 0;
  readonly #memory: WebAssembly.Memory;
  readonly #moment: () => Moment;
  readonly #names = new Map<number, string>();
  #exports: WasmExports | undefined;
  /** The built-in of BUILTINS that failed last. */
  #lastFailed = '';
  #failures = new Map<number, string>();
  #bytes = Buffer.alloc(0);

  constructor(memory: WebAssembly.Memory, moment: () => Moment) {
    this.#memory = memory;
    this.#moment = moment;
    const call = (id: number, _context: number, ...addresses: number[]): number => this.#call(id, addresses);
    this.imports = {
      memory,
      opa_abort: (address: number) => {
        // A negative address is the number of a failed call; see builtin-failures.ts.
        if (address < 0) return void this.#failures.set(-address, this.#lastFailed);
        throw new Error(`abort: ${this.text(address)}`);
      },
      // stdout carries the MCP protocol, so the output of a policy is dropped.
      opa_println: () => undefined,
      opa_builtin0: call,
      opa_builtin1: call,
      opa_builtin2: call,
      opa_builtin3: call,
      opa_builtin4: call,
    };
  }

  /** Checks ABI and built-ins. Throws POLICY_INVALID. */
  attach(exports: WasmExports): void {
    const major: unknown = exports.opa_wasm_abi_version?.value;
    const minor: unknown = exports.opa_wasm_abi_minor_version?.value;
    if (major !== 1 || typeof minor !== 'number' || minor < 2)
      throw new TollgateError('POLICY_INVALID', {
        detail: 'The policy was compiled for a WebAssembly ABI older than 1.2.',
      });
    this.minorVersion = minor;
    const missing = this.requiredBuiltins(exports).filter((name) => !BUILTINS.has(name));
    if (missing.length > 0) {
      throw new TollgateError('POLICY_INVALID', {
        detail: `The policy uses built-in functions that are not supplied here: ${missing.sort().join(', ')}.`,
        next: 'Build it with policies/rego/capabilities.json; then opa reports the place of each.',
      });
    }
  }

  /** Returns the names of the built-ins that the module imports from its host. */
  requiredBuiltins(exports: WasmExports): readonly string[] {
    this.#exports = exports;
    const ids = this.#read(exports.opa_json_dump(exports.builtins())) as Readonly<Record<string, number>>;
    for (const [name, id] of Object.entries(ids)) this.#names.set(id, name);
    return Object.keys(ids);
  }

  /**
   * Returns the failed calls since the last call of this method: the number of each and, if BUILTINS has it, its name.
   */
  takeFailures(): ReadonlyMap<number, string> {
    const taken = this.#failures;
    if (taken.size > 0) this.#failures = new Map();
    return taken;
  }

  #call(id: number, addresses: readonly number[]): number {
    const name = this.#names.get(id) ?? '';
    const builtin = BUILTINS.get(name);
    const exports = this.#exports;
    if (builtin === undefined || exports === undefined) throw new Error(`no built-in ${id}`);
    const text = builtin(
      addresses.map((address) => this.#read(exports.opa_json_dump(address))),
      this.#moment(),
    );
    if (text === undefined) {
      this.#lastFailed = name;
      return 0;
    }
    const length = Buffer.byteLength(text);
    const address = exports.opa_malloc(length);
    this.bytes.write(text, address);
    const value = exports.opa_json_parse(address, length);
    if (value === 0) throw new Error('a built-in returned invalid JSON');
    return value;
  }

  #read(address: number): unknown {
    return JSON.parse(this.text(address));
  }

  /** Returns the text at an address, up to the first NUL. */
  text(address: number): string {
    const { bytes } = this;
    return bytes.toString('utf8', address, bytes.indexOf(0, address));
  }

  /** The memory. Do not keep it: it is another object after the memory has grown. */
  get bytes(): Buffer {
    const { buffer } = this.#memory;
    if (this.#bytes.buffer !== buffer) this.#bytes = Buffer.from(buffer);
    return this.#bytes;
  }
}
