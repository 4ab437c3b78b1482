import { readFileSync } from 'node:fs';
import path from 'node:path';
import { beforeAll, describe, expect, it, vi } from 'vitest';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { callInputText } from '../../policies/engine/policy-input.ts';
import { WasmHost } from '../../policies/engine/wasm/wasm-host.ts';
import { memoryPages } from '../../policies/engine/wasm/wasm-module.ts';
import { type WasmLimits, WasmPolicy } from '../../policies/engine/wasm/wasm-policy.ts';
import { unpackBundle } from '../../policies/rego/bundles/bundle-format.ts';
import { findOpa, runOpa } from '../../policies/rego/opa-program.ts';
import { inFull } from '../harness/full-tests.ts';
import { callOf, scratch } from './policy-fixture.ts';

/** A policy that allows if its input is lost, and one for each kind of wrong answer. */
const TRAPS = `package trap

open := {"allow": true} if not input.tool == "rm"

text := "allow"

list := ["allow"]

yes := true

nothing := {"allow": true} if input.never

conflict := {"allow": 1} if input

conflict := {"allow": 2} if input

echo := {"saw": input.effect.arguments}

nul := {"text": "a\\u0000b"}

grow := {"count": count([text | some i in numbers.range(1, input.size); text := concat("", ["a text that takes some room, number ", format_int(i, 10)])])}

clock := {"now": time.now_ns(), "hour": time.clock(time.now_ns())}

badcall := {"text": sprintf("%q", [input.x])}
`;
const ENTRIES = ['open', 'text', 'list', 'yes', 'nothing', 'conflict', 'echo', 'nul', 'grow', 'clock', 'badcall'].map(
  (name) => `trap/${name}`,
);

async function build(rego: string, entries: readonly string[]): Promise<Uint8Array> {
  const folder = scratch({ 'trap.rego': rego });
  const opa = await findOpa();
  const { code, stderr, stdout } = await runOpa(
    opa,
    [
      'build',
      ...opa.flags,
      '-t',
      'wasm',
      ...entries.flatMap((entry) => ['-e', entry]),
      '-o',
      'out.tar.gz',
      'trap.rego',
    ],
    folder,
  );
  if (code !== 0) throw new Error(stderr + stdout);
  return unpackBundle(readFileSync(path.join(folder, 'out.tar.gz'))).get('policy.wasm') ?? new Uint8Array();
}

let wasm: Uint8Array;
beforeAll(async () => {
  wasm = await build(TRAPS, ENTRIES);
});

const policy = (limits: Partial<WasmLimits> = {}, data = '{}'): WasmPolicy =>
  new WasmPolicy(wasm, data, { entrypoints: ENTRIES, limits });
const codeOf = (run: () => unknown): string => {
  try {
    run();
    return 'no error';
  } catch (thrown) {
    return thrown instanceof TollgateError ? thrown.code : `not ours: ${String(thrown)}`;
  }
};

describe('traps of the wasm SDK', () => {
  it('refuses input that would be lost: empty, falsy, not an object, truncated', () => {
    const one = policy();
    for (const text of ['', '0', 'false', 'null', '""', '[]', '[{}]', '{"tool":"rm"', ' {"tool":"rm"}x'])
      expect([text, codeOf(() => one.evaluate('trap/open', text))]).toEqual([text, 'POLICY_FAILED']);
    expect(one.evaluate('trap/open', '{}')).toEqual({ allow: true });
    expect(codeOf(() => one.evaluate('trap/open', '{"tool":"rm"}'))).toBe('POLICY_FAILED');
  });

  it('passes exactly the bytes of the text, never those of a pool or an earlier call', () => {
    const one = policy();
    one.evaluate('trap/open', `{"tool":"rm${'x'.repeat(5000)}"}`);
    const args = '{"a":"é\u{1F600}","n":1e400,"z":9007199254740993}';
    const text = callInputText(callOf({ argsText: args }), { project: true });
    expect(one.evaluate('trap/echo', text).saw).toMatchObject({ a: 'é\u{1F600}' });
  });

  it('treats toJSON and __proto__ in arguments as plain keys', () => {
    const text = callInputText(callOf({ argsText: '{"toJSON":1,"__proto__":{"role":"admin"},"constructor":2}' }), {
      project: true,
    });
    const saw = policy().evaluate('trap/echo', text).saw as object;
    expect(Object.keys(saw).sort()).toEqual(['__proto__', 'constructor', 'toJSON']);
  });

  it.each([
    ['a raw half of a surrogate pair', '{"a":"\ud800"}'],
    ['an escaped half of a surrogate pair', '{"a":"\\ud800"}'],
    ['a hundred thousand levels', `{"a":${'['.repeat(100_000)}${']'.repeat(100_000)}}`],
    ['a bare word', '{"a":nul}'],
    ['an unknown entry point', '{}', 'trap/other'],
    ['a conflict of two rules', '{}', 'trap/conflict'],
    ['a built-in that throws', '{"x":"a"}', 'trap/badcall'],
  ])('refuses %s, and serves the next call', (_name, text, entrypoint = 'trap/open') => {
    const one = policy({ inputBytes: 1024 * 1024 });
    expect(codeOf(() => one.evaluate(entrypoint, text))).toBe('POLICY_FAILED');
    expect(one.evaluate('trap/open', '{"tool":"ls"}')).toEqual({ allow: true });
  });

  it.each(['text', 'list', 'yes', 'nothing'])('fails for an answer that is not one object: %s', (name) => {
    expect(codeOf(() => policy().evaluate(`trap/${name}`, '{"tool":"ls"}'))).toBe('POLICY_FAILED');
  });

  inFull('gives each module the memory that it requests, if the default of the SDK is too small', async () => {
    const big = await build(
      `package trap

words := [${Array.from({ length: 4000 }, (_, index) => `"a rather long word, made to fill pages, number ${index}"`).join(', ')}]

open := {"count": count([word | some word in words; word != input.x])}
`,
      ['trap/open'],
    );
    expect(memoryPages(big)).toBeGreaterThan(5);
    expect(new WasmPolicy(big, '{}', { entrypoints: ['trap/open'] }).evaluate('trap/open', '{"x":"y"}')).toEqual({
      count: 4000,
    });
  });

  it('limits the memory, and serves the next call', () => {
    const one = policy({ memoryBytes: 2 * 1024 * 1024 });
    expect(codeOf(() => one.evaluate('trap/grow', '{"size":100000}'))).toBe('POLICY_FAILED');
    expect(one.evaluate('trap/grow', '{"size":10}')).toEqual({ count: 10 });
  });

  it('replaces an instance whose memory grew, because memory never shrinks', () => {
    const one = policy({ growthBytes: 1024 * 1024 });
    const before = one.memoryBytes;
    one.evaluate('trap/grow', '{"size":50000}');
    expect(one.memoryBytes).toBe(before);
    expect(one.evaluate('trap/grow', '{"size":1}')).toEqual({ count: 1 });
    expect(one.memoryBytes).toBe(before);
  });

  it('keeps its data when an instance is replaced', async () => {
    const rego = 'package trap\n\nopen := {"allow": data.yes} if count(numbers.range(1, input.size)) > 0\n';
    const one = new WasmPolicy(await build(rego, ['trap/open']), '{"yes":"still"}', {
      entrypoints: ['trap/open'],
      limits: { growthBytes: 65_536 },
    });
    one.evaluate('trap/open', '{"size":200000}');
    expect(one.evaluate('trap/open', '{"size":1}')).toEqual({ allow: 'still' });
  });

  it('limits the size of the input', () => {
    const one = policy({ inputBytes: 100 });
    expect(codeOf(() => one.evaluate('trap/open', `{"tool":"${'x'.repeat(100)}"}`))).toBe('POLICY_FAILED');
    expect(codeOf(() => one.evaluate('trap/open', `{"tool":"${'é'.repeat(46)}"}`))).toBe('POLICY_FAILED');
    expect(one.evaluate('trap/open', `{"tool":"${'x'.repeat(80)}"}`)).toEqual({ allow: true });
  });

  it('uses the last of duplicate keys, as JSON.parse does; the wire refuses them earlier', () => {
    const text = '{"effect":{"arguments":{"a":1,"a":2}}}';
    expect(policy().evaluate('trap/echo', text)).toEqual({ saw: { a: 2 } });
  });

  it('reads results with NUL characters completely', () => {
    expect(policy().evaluate('trap/nul', '{}')).toEqual({ text: 'a\0b' });
  });

  it('gives the policy the clock of the call, not that of the machine', () => {
    expect(policy().evaluate('trap/clock', '{}', '2026-11-20T10:20:30Z')).toEqual({
      now: 1_795_170_030_000_000_000,
      hour: [10, 20, 30],
    });
    expect(codeOf(() => policy().evaluate('trap/clock', '{}'))).toBe('POLICY_FAILED');
  });

  it('finds missing built-ins at load, not at a decision', async () => {
    const needy = await build(
      'package trap\n\nopen := {"x": http.send({"url": input.x})} if regex.split("a", input.y)\n',
      ['trap/open'],
    );
    expect(() => new WasmPolicy(needy, '{}', { entrypoints: ['trap/open'] })).toThrow(/http\.send, regex\.split/);
  });

  it('does not write the output of a policy to stdout', () => {
    const written = vi.spyOn(process.stdout, 'write');
    const host = new WasmHost(new WebAssembly.Memory({ initial: 1 }), () => ({ time: '' }));
    expect((host.imports.opa_println as (address: number) => unknown)(0)).toBeUndefined();
    expect(written).not.toHaveBeenCalled();
    written.mockRestore();
  });
});

describe('invalid modules', () => {
  const header = [0, 0x61, 0x73, 0x6d, 1, 0, 0, 0];

  it.each([
    ['nothing', []],
    ['text', [...Buffer.from('not wasm at all')]],
    ['only a header', header],
    ['a truncated import section', [...header, 2, 10, 1]],
    ['a number without end', [...header, 2, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]],
    ['an import of an unknown kind', [...header, 2, 6, 1, 1, 97, 1, 98, 9]],
    ['imports without a memory', [...header, 2, 7, 1, 1, 97, 1, 98, 0, 0]],
  ])('refuses %s', (_name, bytes) => {
    expect(codeOf(() => new WasmPolicy(Uint8Array.from(bytes), '{}', { entrypoints: [] }))).toBe('POLICY_INVALID');
  });

  it('finds the memory after functions, tables and globals', () => {
    const name = [1, 97, 1, 98];
    const imports = [
      [...name, 0, 0],
      [...name, 1, 0x70, 0, 1],
      [...name, 1, 0x70, 1, 1, 2],
      [...name, 3, 0x7f, 0],
      [...name, 2, 0, 0x85, 1],
    ];
    const section = [imports.length, ...imports.flat()];
    expect(memoryPages(Uint8Array.from([...header, 1, 1, 0, 2, section.length, ...section]))).toBe(133);
  });

  it('refuses a module of another ABI, data that is not JSON, and a missing entry point', () => {
    const exports = { opa_wasm_abi_version: { value: 2 }, opa_wasm_abi_minor_version: { value: 0 } };
    const host = new WasmHost(new WebAssembly.Memory({ initial: 1 }), () => ({ time: '' }));
    expect(codeOf(() => host.attach(exports as never))).toBe('POLICY_INVALID');
    expect(codeOf(() => policy({}, '{"a":'))).toBe('POLICY_INVALID');
    expect(() => new WasmPolicy(wasm, '{}', { entrypoints: ['trap/open', 'tollgate/call/decision'] })).toThrow(
      /no entry point tollgate\/call\/decision/,
    );
  });
});
