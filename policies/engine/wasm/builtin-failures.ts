/**
 * Rewrites the WebAssembly of user Rego so that the host learns of a built-in that fails. OPA's WebAssembly makes its
 * result undefined instead, and then a deny rule would not match.
 */
import { longPattern } from '../../../catalogs/text/long-pattern.ts';
import {
  CODE_SECTION,
  CUSTOM_SECTION,
  functionNames,
  IMPORT_SECTION,
  KIND,
  readImport,
  sectionsOf,
  WasmReader,
} from './wasm-module.ts';

const TYPE_SECTION = 1;
const FUNCTION_SECTION = 3;
/** The custom section that lists the rewritten calls. */
const SITES = 'tollgate-builtins';
/** Names that OPA gives to the user's functions in WebAssembly. */
const USER = /^g\d+\.data\.((?!tollgate\.).+)$/;
/**
 * Names that OPA 0.70 and later give to built-ins in WebAssembly. Built-ins that cannot fail are left out: comparisons,
 * type tests, membership, walk. `min` and `max` are undefined for an empty collection; that is not a failure.
 */
const FALLIBLE = longPattern()`
  ^(?:opa_(?:agg_(?:count|product|sort|sum)|arith_|array_(?:concat|reverse|slice)$|base64_|bits_|builtin\d|cidr_
  |glob_match|json_(?:is_valid|marshal|unmarshal)$|numbers_range|regex_|sets?_(?:intersection|union|diff)|strings_
  |to_number)|builtin_(?!member))`;
/** Built-ins that the host runs. */
const HOSTED = /^opa_builtin\d$/;
/** Instructions that the code of OPA uses (WebAssembly core specification 2.0, section 5.4). */
const OP = {
  block: 0x02,
  if: 0x04,
  end: 0x0b,
  br: 0x0c,
  brIf: 0x0d,
  brTable: 0x0e,
  call: 0x10,
  callIndirect: 0x11,
  localGet: 0x20,
  localTee: 0x22,
  i32Const: 0x41,
  i64Const: 0x42,
  f32Const: 0x43,
  f64Const: 0x44,
  i32Eqz: 0x45,
} as const;
const [I32, VOID] = [0x7f, 0x40];

/** A call of a built-in in user Rego. */
export interface BuiltinCallSite {
  /** Almost the name in Rego. Absent for a built-in that the host runs; the host knows its name. */
  readonly builtin?: string;
  /** The rule or function of the call. */
  readonly at: string;
  /** Rules below `policy` that lead to the call, without that prefix. Empty if unknown. */
  readonly reachedBy: readonly string[];
}

/**
 * Returns a module in which every built-in that user Rego calls reports its failure to the host. It calls `opa_abort`
 * with the negative number of the call site (from 1), and the evaluation continues. A module without user Rego is
 * returned unchanged. Throws Error for a module that OPA did not build.
 */
export function reportBuiltinFailures(wasm: Uint8Array): Uint8Array {
  const module = readModule(wasm);
  const users = [...module.names].flatMap(([index, name]) =>
    index >= module.imported.length && USER.test(name) ? [{ index, owner: dotted(USER.exec(name)?.[1] ?? '') }] : [],
  );
  return users.length === 0 ? wasm : new Rewriter(wasm, module).rewrite(users);
}

/** Returns the call sites of a module. The first one has the number 1. */
export function readCallSites(module: WebAssembly.Module): readonly BuiltinCallSite[] {
  const [section] = WebAssembly.Module.customSections(module, SITES);
  return section === undefined ? [] : (JSON.parse(new TextDecoder().decode(section)) as readonly BuiltinCallSite[]);
}

interface Module {
  readonly sections: readonly { readonly id: number; readonly start: number; readonly end: number }[];
  readonly names: ReadonlyMap<number, string>;
  /** Type indexes of the imported functions. */
  readonly imported: readonly number[];
  /** Type indexes of the module's own functions. */
  readonly types: readonly number[];
  /** Number of parameters, by type index. */
  readonly parameters: readonly number[];
  readonly bodies: readonly { readonly start: number; readonly end: number }[];
}

interface User {
  readonly index: number;
  readonly owner: string;
}

class Rewriter {
  readonly #wasm: Uint8Array;
  readonly #module: Module;
  readonly #abort: number;
  readonly #sites: BuiltinCallSite[] = [];
  readonly #wrappers: { readonly type: number; readonly body: readonly number[] }[] = [];

  constructor(wasm: Uint8Array, module: Module) {
    this.#wasm = wasm;
    this.#module = module;
    this.#abort =
      [...module.names].find(([index, name]) => index < module.imported.length && /^opa_abort_?$/.test(name))?.[0] ??
      missing('opa_abort');
  }

  rewrite(users: readonly User[]): Uint8Array {
    const calls = new Map(
      users.map((user) => [
        user.index,
        callsIn(this.#wasm, this.#module.bodies[user.index - this.#module.imported.length]),
      ]),
    );
    const reached = reachOf(users, calls);
    const bodies = new Map(
      users.map((user) => [
        user.index - this.#module.imported.length,
        this.#body(user, calls.get(user.index) ?? [], reached.get(user.index) ?? []),
      ]),
    );
    const { sections, types, bodies: old } = this.#module;
    const made = sections.flatMap(({ id, start, end }) => {
      if (id === FUNCTION_SECTION)
        return section(
          id,
          concat([
            unsigned(types.length + this.#wrappers.length),
            this.#wasm.subarray(skipNumber(this.#wasm, start), end),
            this.#wrappers.flatMap(({ type }) => unsigned(type)),
          ]),
        );
      if (id !== CODE_SECTION) return section(id, this.#wasm.subarray(start, end));
      const kept = old.map(({ start: from, end: to }, at) => bodies.get(at) ?? this.#wasm.subarray(from, to));
      return section(
        id,
        concat([
          unsigned(old.length + this.#wrappers.length),
          ...[...kept, ...this.#wrappers.map(({ body }) => body)].flatMap((body) => [unsigned(body.length), body]),
        ]),
      );
    });
    const name = new TextEncoder().encode(SITES);
    const sites = section(
      CUSTOM_SECTION,
      concat([unsigned(name.length), name, new TextEncoder().encode(JSON.stringify(this.#sites))]),
    );
    return concat([this.#wasm.subarray(0, 8), ...made, ...sites]);
  }

  /** Returns the body of a function whose calls of built-ins go to wrappers. */
  #body(user: User, calls: readonly Call[], reachedBy: readonly string[]): Uint8Array {
    const { start, end } =
      this.#module.bodies[user.index - this.#module.imported.length] ?? missing<Module['bodies'][number]>('a body');
    const wrappers = new Map<number, number>();
    const parts: (Uint8Array | readonly number[])[] = [];
    let from = start;
    for (const { at, next, target } of calls) {
      const name = target === undefined ? '' : (this.#module.names.get(target) ?? '');
      if (target === undefined || !FALLIBLE.test(name)) continue;
      const site = { ...(HOSTED.test(name) ? {} : { builtin: regoName(name) }), at: user.owner, reachedBy };
      const wrapper = wrappers.get(target) ?? this.#wrap(target, site);
      wrappers.set(target, wrapper);
      parts.push(this.#wasm.subarray(from, at), unsigned(wrapper));
      from = next;
    }
    return concat([...parts, this.#wasm.subarray(from, end)]);
  }

  /** Adds a function that calls `target`, and reports to the host if the result is 0. Returns its index. */
  #wrap(target: number, site: BuiltinCallSite): number {
    const { imported, types, parameters } = this.#module;
    const type = target < imported.length ? imported[target] : types[target - imported.length];
    const count = parameters[type ?? -1];
    if (type === undefined || count === undefined) return missing('a type');
    this.#sites.push(site);
    const given = Array.from({ length: count }, (_, number) => [OP.localGet, ...unsigned(number)]).flat();
    const check = [
      OP.localTee,
      ...unsigned(count),
      OP.i32Eqz,
      OP.if,
      VOID,
      OP.i32Const,
      ...signed(-this.#sites.length),
      OP.call,
      ...unsigned(this.#abort),
      OP.end,
    ];
    this.#wrappers.push({
      type,
      body: [1, 1, I32, ...given, OP.call, ...unsigned(target), ...check, OP.localGet, ...unsigned(count), OP.end],
    });
    return imported.length + types.length + this.#wrappers.length - 1;
  }
}

/** Returns the Rego name: `opa_strings_split` is `split`, `opa_regex_match` is `regex.match`. */
function regoName(name: string): string {
  return name
    .replace(/^(?:opa_(?:agg_|arith_|strings_)?|builtin_)/, '')
    .replace(/^cidr_/, 'net.cidr_')
    .replace(/^(array|base64|bits|glob|graph|json|numbers|object|regex)_/, '$1.');
}

/** Returns `policy["a-b"].deny` as `policy.a-b.deny`. */
function dotted(name: string): string {
  return name.replaceAll(/\.?\["((?:[^"\\]|\\.)*)"\]/g, '.$1');
}

/**
 * Returns the rules below `policy` that lead to each function. Empty if any function calls another by a computed name.
 */
function reachOf(
  users: readonly User[],
  calls: ReadonlyMap<number, readonly Call[]>,
): ReadonlyMap<number, readonly string[]> {
  const reached = new Map(users.map(({ index }) => [index, new Set<string>()]));
  if ([...calls.values()].some((list) => list.some(({ target }) => target === undefined))) return new Map();
  for (const { index, owner } of users) {
    const name = /^policy\.(.+)$/.exec(owner)?.[1];
    const waiting = name === undefined ? [] : [index];
    for (let at = waiting.pop(); at !== undefined && name !== undefined; at = waiting.pop()) {
      if (reached.get(at)?.has(name) !== false) continue;
      reached.get(at)?.add(name);
      waiting.push(...(calls.get(at) ?? []).flatMap(({ target }) => (target === undefined ? [] : [target])));
    }
  }
  return new Map([...reached].map(([index, names]) => [index, [...names].sort()]));
}

interface Call {
  /** Position of the function's number, and of what follows it. */
  readonly at: number;
  readonly next: number;
  /** Absent if the function is computed at run time. */
  readonly target?: number;
}

/** Returns the calls in one function. Throws Error for an instruction that OPA does not use. */
function callsIn(wasm: Uint8Array, body = missing<Module['bodies'][number]>('a body')): readonly Call[] {
  const reader = new WasmReader(wasm, body.start);
  for (let left = reader.number(); left > 0; left -= 1) {
    reader.number();
    reader.skip(1);
  }
  const calls: Call[] = [];
  while (reader.position < body.end) {
    const op = reader.byte();
    const at = reader.position;
    if (op !== OP.call && op !== OP.callIndirect) skipImmediate(reader, op);
    else {
      const target = reader.number();
      calls.push({ at, next: reader.position, ...(op === OP.call ? { target } : {}) });
      if (op === OP.callIndirect) reader.number();
    }
  }
  if (reader.position !== body.end) throw new Error('a function of the module has a wrong length');
  return calls;
}

function skipImmediate(reader: WasmReader, op: number): void {
  const isBlock = op >= OP.block && op <= OP.if;
  if (isBlock || op === 0x3f || op === 0x40) return reader.skip(1);
  if (op === OP.f32Const) return reader.skip(4);
  if (op === OP.f64Const) return reader.skip(8);
  if (op === OP.i32Const || op === OP.i64Const) while (reader.byte() >= 0x80);
  else if (op === OP.brTable) for (let left = reader.number(); left >= 0; left -= 1) reader.number();
  else for (let left = indexCount(op); left > 0; left -= 1) reader.number();
}

/** Returns how many numbers follow an instruction. */
function indexCount(op: number): number {
  if (op >= 0x28 && op <= 0x3e) return 2;
  if (op === OP.br || op === OP.brIf || (op >= OP.localGet && op <= 0x26)) return 1;
  if (op > 0xc4) throw new Error(`unknown instruction ${op}`);
  return 0;
}

function readModule(wasm: Uint8Array): Module {
  const sections = [...sectionsOf(wasm)];
  const names = new Map<number, string>();
  const [imported, types, parameters, bodies]: [number[], number[], number[], Module['bodies'][number][]] = [
    [],
    [],
    [],
    [],
  ];
  for (const { id, start, end } of sections) {
    const reader = new WasmReader(wasm, start);
    if (id === CUSTOM_SECTION) for (const [index, name] of functionNames(reader, end)) names.set(index, name);
    else if (id === TYPE_SECTION) parameters.push(...repeat(reader, () => readType(reader)));
    else if (id === IMPORT_SECTION)
      imported.push(
        ...repeat(reader, () => readImport(reader)).flatMap(({ kind, value }) =>
          kind === KIND.function ? [value] : [],
        ),
      );
    else if (id === FUNCTION_SECTION) types.push(...repeat(reader, () => reader.number()));
    else if (id === CODE_SECTION) bodies.push(...repeat(reader, () => readBody(reader)));
  }
  return { sections, names, imported, types, parameters, bodies };
}

function repeat<T>(reader: WasmReader, read: () => T): readonly T[] {
  return Array.from({ length: reader.number() }, read);
}

/** Returns the number of parameters of a function type. */
function readType(reader: WasmReader): number {
  reader.byte();
  const count = reader.number();
  reader.skip(count);
  reader.skip(reader.number());
  return count;
}

function readBody(reader: WasmReader): Module['bodies'][number] {
  const end = reader.number() + reader.position;
  const body = { start: reader.position, end };
  reader.position = end;
  return body;
}

function section(id: number, content: Uint8Array): readonly (Uint8Array | readonly number[])[] {
  return [[id, ...unsigned(content.length)], content];
}

function skipNumber(wasm: Uint8Array, at: number): number {
  const reader = new WasmReader(wasm, at);
  reader.number();
  return reader.position;
}

function concat(parts: readonly (Uint8Array | readonly number[])[]): Uint8Array {
  const whole = new Uint8Array(parts.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

/** Unsigned LEB128. */
function unsigned(value: number): readonly number[] {
  return value < 0x80 ? [value] : [(value & 0x7f) | 0x80, ...unsigned(value >>> 7)];
}

/** Signed LEB128. */
function signed(value: number): readonly number[] {
  return value >= -0x40 && value < 0x40 ? [value & 0x7f] : [(value & 0x7f) | 0x80, ...signed(value >> 7)];
}

function missing<T = never>(what: string): T {
  throw new Error(`the module has no ${what}`);
}
