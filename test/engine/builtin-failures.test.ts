/** Tests built-ins of user Rego that fail: OPA makes them undefined, and a deny that reads them would not match. */

import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { CAPABILITIES_FILE } from '../../policies/engine/policy-library.ts';
import { loadPolicy } from '../../policies/engine/policy-loader.ts';
import { reportBuiltinFailures } from '../../policies/engine/wasm/builtin-failures.ts';
import { openModule, WasmInstance } from '../../policies/engine/wasm/wasm-instance.ts';
import type { CallDecision, Policy } from '../../policies/port.ts';
import { unpackBundle } from '../../policies/rego/bundles/bundle-format.ts';
import { findOpa, runOpa } from '../../policies/rego/opa-program.ts';
import { inFull } from '../harness/full-tests.ts';
import { partOf, RUNS_ALL, roundsOf } from '../harness/slices.ts';
import { verifies } from '../verifies.ts';
import { callOf, PRINCIPAL, parts, regoSource, scratch, toolOf } from './policy-fixture.ts';

const cache = scratch();

async function withRego<T>(
  files: Readonly<Record<string, string>>,
  work: (policy: Policy) => Promise<T>,
  modes: Readonly<Record<string, 'enforce' | 'shadow'>> = { '': 'enforce' },
): Promise<T> {
  const folder = scratch(files);
  const sources = Object.entries(modes).map(([file, mode]) =>
    regoSource(file === '' ? folder : `${folder}/${file}`, mode),
  );
  const policy = await loadPolicy(parts({ folder, cache, sources }));
  try {
    return await work(policy);
  } finally {
    policy.close();
  }
}

const ALLOW = '\n\nallow contains {"id": "all", "message": "m"}\n';
const deny = (body: string): string =>
  `package policy.team\n\ndeny contains {"id": "no", "message": "m"} if { ${body} }${ALLOW}`;
const said = async (policy: Policy, args: unknown): Promise<string> => {
  try {
    return ((await policy.call(callOf({ args }))) satisfies CallDecision).outcome;
  } catch (thrown) {
    return (thrown as Error & { code?: string }).code + ': ' + (thrown as Error).message;
  }
};

describe('a built-in function of user Rego that fails', () => {
  const ROWS = [
    ['to_number(input.effect.arguments.n) > 5', { n: '9' }, 'deny', { n: 'x' }, 'to_number'],
    ['regex.match(input.effect.arguments.p, "abc")', { p: 'b' }, 'deny', { p: '(' }, 'regex.match'],
    ['startswith(input.effect.arguments.path, "/etc")', { path: '/etc/x' }, 'deny', { path: ['/etc/x'] }, 'startswith'],
    ['input.effect.arguments.n / input.effect.arguments.d > 5', { n: 9, d: 1 }, 'deny', { n: 9, d: 0 }, 'divide'],
    ['json.unmarshal(input.effect.arguments.j).x == 1', { j: '{"x":1}' }, 'deny', { j: '{' }, 'json.unmarshal'],
    [
      'net.cidr_contains("10.0.0.0/8", input.effect.arguments.a)',
      { a: '10.0.0.1' },
      'deny',
      { a: 'ten' },
      'net.cidr_contains',
    ],
    ['base64.decode(input.effect.arguments.b) == "x"', { b: 'eA==' }, 'deny', { b: '!' }, 'base64.decode'],
    [
      'time.parse_rfc3339_ns(input.effect.arguments.t) > 0',
      { t: '2026-01-01T00:00:00Z' },
      'deny',
      { t: 'noon' },
      'time.parse_rfc3339_ns',
    ],
    [
      'some x in input.effect.arguments.all; lower(x) == "evil"',
      { all: ['Evil'] },
      'deny',
      { all: ['good', 5, 'x'] },
      'lower',
    ],
  ] as const;
  /** The policy that each row asks: its own one, or one for all, which is built once. */
  const policyFor = (body: string): string =>
    RUNS_ALL
      ? deny(body)
      : `package policy.team\n\n${ROWS.map(([one], number) => `deny contains {"id": "no-${number}", "message": "m"} if { ${one} }`).join('\n\n')}${ALLOW}`;

  it.each(partOf(ROWS, 3))('refuses the call: %s' + verifies('TR-87'), async (body, good, outcome, bad, builtin) => {
    await withRego({ 'a.rego': policyFor(body) }, async (policy) => {
      expect(await said(policy, good)).toBe(outcome);
      expect(await said(policy, bad)).toBe(
        `POLICY_FAILED: The built-in function ${builtin} failed in policy.team.deny: its arguments have no result.`,
      );
      // A missing argument is not a failure, and the worker continues.
      expect(await said(policy, {})).toBe('allow');
      expect(await said(policy, good)).toBe(outcome);
    });
  });

  inFull(
    'refuses the call also in a helper, in a comprehension and under `not`, unless a guard prevents the failure' +
      verifies('TR-87'),
    async () => {
      const helper = {
        'h.rego': 'package helpers.words\n\nbig(x) if to_number(x) > 5\n',
        'a.rego': `package policy.team

import data.helpers.words

deny contains {"id": "no", "message": "m"} if words.big(input.effect.arguments.n)${ALLOW}`,
      };
      await withRego(helper, async (policy) => {
        expect([
          await said(policy, { n: '9' }),
          await said(policy, { n: '1' }),
          await said(policy, { n: 'x' }),
        ]).toEqual([
          'deny',
          'allow',
          expect.stringMatching(/^POLICY_FAILED: The built-in function to_number failed in helpers\.words\.big:/),
        ]);
      });
      await withRego(
        { 'a.rego': deny('count([x | some x in input.effect.arguments.all; x % 2 == 0]) > 1') },
        async (policy) => {
          expect([await said(policy, { all: [2, 4] }), await said(policy, { all: [2, 'x'] })]).toEqual([
            'deny',
            expect.stringMatching(/^POLICY_FAILED/),
          ]);
        },
      );
      await withRego(
        {
          'a.rego': `package policy.team

allow contains {"id": "all", "message": "m"} if not startswith(input.effect.arguments.path, "/etc")
`,
        },
        async (policy) => {
          expect([await said(policy, { path: 'a' }), await said(policy, { path: ['/etc'] })]).toEqual([
            'allow',
            expect.stringMatching(/^POLICY_FAILED/),
          ]);
        },
      );
      await withRego(
        { 'a.rego': deny('is_string(input.effect.arguments.path); startswith(input.effect.arguments.path, "/etc")') },
        async (policy) => {
          expect([await said(policy, { path: ['/etc'] }), await said(policy, { path: '/etc/x' })]).toEqual([
            'allow',
            'deny',
          ]);
        },
      );
    },
  );

  it(
    'refuses nothing if its package is not enforced, also in a helper that only such packages call' + verifies('TR-87'),
    async () => {
      const files = {
        'h.rego': 'package helpers.words\n\nbig(x) if to_number(x) > 5\n',
        'a.rego': `package policy.team

import data.helpers.words

deny contains {"id": "no", "message": "m"} if words.big(input.effect.arguments.n)

deny contains {"id": "no2", "message": "m"} if lower(input.effect.arguments.n) == "x"
`,
        'b.rego': `package policy.team.other${ALLOW}

deny contains {"id": "no3", "message": "m"} if upper(input.effect.arguments.u) == "X"
`,
      };
      await withRego(
        files,
        async (policy) => {
          expect([
            await said(policy, { n: 'x' }),
            await said(policy, { n: ['x'] }),
            await said(policy, { u: 'x' }),
            await said(policy, { u: [] }),
          ]).toEqual(['allow', 'allow', 'deny', expect.stringMatching(/^POLICY_FAILED.*policy\.team\.other\.deny/)]);
        },
        { 'a.rego': 'shadow', 'b.rego': 'enforce', 'h.rego': 'enforce' },
      );
    },
  );

  it('in a list leaves the list complete; calls report the failure', async () => {
    await withRego({ 'a.rego': deny('to_number(input.effect.tool) > 5') }, async (policy) => {
      expect((await policy.list(PRINCIPAL, [toolOf()])).map(({ verdict }) => verdict)).toEqual(['maybe']);
      expect(await said(policy, {})).toMatch(/^POLICY_FAILED/);
    });
  });
});

interface Declared {
  readonly name: string;
  readonly infix?: string;
  readonly decl: { readonly args?: readonly unknown[] };
}

/** Not functions of values, or functions that stop the evaluation when they fail (policies/engine/wasm/builtins.ts). */
const APART = new Set([
  'eq',
  'assign',
  'print',
  'trace',
  'rego.metadata.rule',
  'rego.metadata.chain',
  'rego.parse_module',
  'sprintf',
  'strings.any_prefix_match',
  'strings.any_suffix_match',
  'walk',
]);
/** For an empty collection: undefined in opa too with strict errors; the last one is undefined in WebAssembly only. */
const EMPTY = new Set(['max', 'min', 'object.union_n']);

describe('the module that reports failures', () => {
  const builtins = (
    JSON.parse(readFileSync(CAPABILITIES_FILE, 'utf8')) as { builtins: readonly Declared[] }
  ).builtins.filter(({ name }) => !APART.has(name) && !name.startsWith('internal.'));
  const called = builtins.map(({ name, infix, decl }, number) => {
    const args = (decl.args ?? []).map((_, at) => `input.a${at}`);
    return `f${number} := x if x := ${infix === undefined ? `${name}(${args.join(', ')})` : args.join(` ${infix} `)}

done contains ${number} if f${number} != input.z`;
  });

  it(
    'reports exactly the built-ins that have no result in opa, for values of every type' + verifies('TR-87'),
    async () => {
      const folder = scratch({ 'a.rego': ['package policy.p', ...called].join('\n\n') });
      const opa = await findOpa();
      expect(
        await runOpa(
          opa,
          ['build', ...opa.flags, '-t', 'wasm', '-e', 'policy/p/done', '-o', 'o.tar.gz', 'a.rego'],
          folder,
        ),
      ).toMatchObject({ code: 0 });
      const wasm = unpackBundle(readFileSync(path.join(folder, 'o.tar.gz'))).get('policy.wasm') ?? new Uint8Array();
      const instance = WasmInstance.load(
        openModule(reportBuiltinFailures(wasm), 64 * 1024 * 1024),
        new TextEncoder().encode('{}').buffer as ArrayBuffer,
      );
      const values = ['x', '(', '2', 7, -1.5, true, null, [1, 2], ['a'], [], { a: 1 }, {}];
      let failed = 0;
      for (const [at, one] of partOf([...values.entries()], 4)) {
        const input = JSON.stringify({
          a0: one,
          a1: values[(at * 5 + 1) % values.length],
          a2: values[(at * 7 + 2) % values.length],
          z: 'nothing is this',
        });
        writeFileSync(path.join(folder, 'input.json'), input);
        const run = await runOpa(
          opa,
          ['eval', ...opa.flags, '-i', 'input.json', '-d', 'a.rego', '--format', 'raw', 'data.policy.p.done'],
          folder,
        );
        const done = new Set(JSON.parse(run.stdout) as readonly number[]);
        instance.evaluate('policy/p/done', input, { time: '2026-01-01T00:00:00Z' });
        const noticed = new Set(
          instance.takeFailures().map((failure) => builtins[Number(/\d+$/.exec(failure.at)?.[0])]?.name),
        );
        const missing = builtins
          .filter(({ name }, number) => !done.has(number) && !EMPTY.has(name))
          .map(({ name }) => name);
        failed += missing.length;
        expect([input, [...noticed].filter((name) => !EMPTY.has(name ?? '')).sort()]).toEqual([input, missing.sort()]);
      }
      expect(failed).toBeGreaterThan(roundsOf(200, 60));
    },
  );

  it.each(['to_number("x")', 'regex.match("(", "abc")', 'startswith(["/etc"], "/etc")', '1 / 0'])(
    'refuses what opa refuses with strict errors: %s',
    async (call) => {
      const folder = scratch({
        'a.rego': `package a\n\nanswer := ${call.replace(/"x"|"\("|\["\/etc"\]|0$/, 'input.a')}\n`,
      });
      writeFileSync(
        path.join(folder, 'input.json'),
        JSON.stringify({
          a: JSON.parse(/"x"|"\("|\["\/etc"\]|0$/.exec(call.replace(/\)$/, ')'))?.[0] ?? 'null') as unknown,
        }),
      );
      const opa = await findOpa();
      const ask = (...more: readonly string[]) =>
        runOpa(opa, ['eval', ...opa.flags, ...more, '-i', 'input.json', '-d', 'a.rego', 'data.a.answer'], folder);
      expect([(await ask()).code, (await ask('--strict-builtin-errors')).code]).toEqual([0, 2]);
    },
  );

  it('is unchanged without user Rego; an unknown form is refused', () => {
    const library = readFileSync(new URL('../../policies/lib/policy.wasm', import.meta.url));
    expect(reportBuiltinFailures(library)).toBe(library);
    expect(() => reportBuiltinFailures(new Uint8Array([1, 2, 3]))).toThrow('not a wasm module');
  });
});
