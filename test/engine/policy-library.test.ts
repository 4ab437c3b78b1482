/**
 * Tests the Rego library that ships with Tollgate.
 * Covers: policies/engine, policies/lib.
 */
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { Ajv } from 'ajv';
import { beforeAll, describe, expect, it } from 'vitest';
import { copyAssets } from '../../policies/engine/build-assets.ts';
import { listInputText } from '../../policies/engine/policy-input.ts';
import {
  buildLibrary,
  CAPABILITIES_FILE,
  ENTRYPOINTS,
  hashLibrary,
  readLibrary,
  readLibrarySources,
} from '../../policies/engine/policy-library.ts';
import { BUILTINS } from '../../policies/engine/wasm/builtins.ts';
import { WasmPolicy } from '../../policies/engine/wasm/wasm-policy.ts';
import { unpackBundle } from '../../policies/rego/bundles/bundle-format.ts';
import { findOpa, type Opa, packageRoot, runOpa } from '../../policies/rego/opa-program.ts';
import { callAll, makeCapabilities } from '../../policies/rego/rego-capabilities.ts';
import { compileSettings } from '../../policies/rules/policy-settings.ts';
import { compileRules } from '../../policies/rules/rule-compiler.ts';
import { callOf, documentOf, PRINCIPAL, policyOf, scratch, settings, toolOf, WORKSPACE } from './policy-fixture.ts';

let opa: Opa;
beforeAll(async () => {
  opa = await findOpa();
});

const ROOT = packageRoot();

/** A file of the build, and what it is made from: itself, TypeScript, or a schema. */
const SOURCES_OF: readonly (readonly [RegExp, string])[] = [
  [/$/, ''],
  [/\.(d\.ts|js)$/, '.ts'],
  [/\.(d\.ts|js)$/, '.tsx'],
  [/\.check\.cjs$/, '.json'],
  // The bundles.
  [/^(code|\.compiled)\/.*$/, 'esbuild.config.mjs'],
  [/^(.*)\.js\.map$/, '$1.ts'],
];

describe('the shipped library', () => {
  it('equals the build of its sources, byte for byte', async () => {
    const shipped = readLibrary();
    expect(shipped.opa).toBe(opa.version);
    expect(hashLibrary()).toBe(shipped.sourceHash);
    expect(Buffer.from(await buildLibrary(opa)).equals(Buffer.from(shipped.wasm))).toBe(true);
  });

  it('passes opa check in strict mode, opa fmt and its own tests', async () => {
    const run = (...args: readonly string[]) => runOpa(opa, [args[0] ?? '', ...opa.flags, ...args.slice(1)], ROOT);
    expect(await run('check', '--strict', '--capabilities', CAPABILITIES_FILE, 'policies/lib')).toMatchObject({
      code: 0,
      stderr: '',
    });
    const formatted = await run('fmt', '--list', 'policies/lib');
    expect(formatted).toMatchObject({ code: 0, stdout: '' });
    const tested = await run('test', 'policies/lib');
    expect([tested.code, tested.stdout.trim().split('\n').at(-1)]).toEqual([
      0,
      expect.stringMatching(/^PASS: \d+\/\d+$/),
    ]);
  });

  it('has a title and a description for every package, and marks its entry points', () => {
    for (const [name, bytes] of readLibrarySources())
      expect([name, bytes.toString()]).toEqual([
        name,
        expect.stringMatching(/^# METADATA\n# title: .+\n# description: >-\n[^]*\npackage tollgate\.[a-z]+\n/),
      ]);
  });

  it('returns documents that fit the published schema of decisions', async () => {
    const schema = new Ajv({ strict: false }).compile(
      JSON.parse(readFileSync(path.join(ROOT, 'policies/schemas/decision.json'), 'utf8')) as object,
    );
    const policy = await policyOf([
      { id: 'a', outcome: 'allow', when: {}, obligations: { caps: { bytes: 5000 }, timeoutMs: 3, labels: ['x'] } },
      { id: 'b', outcome: 'deny', mode: 'warn', when: {} },
    ]);
    expect([schema({ version: 1, ...(await policy.call(callOf())) }), schema.errors]).toEqual([true, null]);
    const rules = [
      { id: 'a', outcome: 'allow', when: { args: { x: { min: 1 } } } },
      { id: 'b', outcome: 'deny', when: { tools: ['git.push'], paths: ['a'] } },
    ];
    const { list, index } = compileRules([documentOf(rules)], WORKSPACE);
    const config = {
      version: 1,
      ...compileSettings(settings()),
      rules: { list, index },
      modes: {},
      mode: 'enforce',
      places: {},
      rego: {},
    };
    const answer = new WasmPolicy(readLibrary().wasm, JSON.stringify({ config }), {
      entrypoints: [ENTRYPOINTS.list],
    }).evaluate(
      ENTRYPOINTS.list,
      listInputText(PRINCIPAL, [toolOf(), toolOf({ tool: 'push' }), toolOf({ server: 'no' })]),
    );
    expect([schema(answer), schema.errors, answer.tools]).toEqual([
      true,
      null,
      [
        { same: 0, expose: [] },
        expect.objectContaining({ verdict: 'maybe' }),
        expect.objectContaining({ verdict: 'never' }),
      ],
    ]);
  });

  it('has another revision whenever a decision could change', async () => {
    const rule = { id: 'a', outcome: 'allow', when: {} };
    const revisions = await Promise.all(
      [[rule], [rule], [{ ...rule, message: 'x' }], []].map(async (rules) => (await policyOf(rules)).revision),
    );
    expect(revisions[0]).toMatch(/^[0-9a-f]{64}$/);
    expect([revisions[1] === revisions[0], new Set(revisions).size]).toEqual([true, 3]);
  });
});

describe('capabilities.json', () => {
  it('is made from this opa and our built-ins', async () => {
    expect(await makeCapabilities(opa)).toBe(readFileSync(CAPABILITIES_FILE, 'utf8'));
  });

  it('allows only built-ins of WebAssembly and host, and all that the host supplies', async () => {
    const { builtins } = JSON.parse(readFileSync(CAPABILITIES_FILE, 'utf8')) as {
      builtins: readonly { name: string; infix?: string; decl: { args?: readonly unknown[] } }[];
    };
    const names = new Set(builtins.map(({ name }) => name));
    for (const name of BUILTINS.keys()) expect([name, names.has(name)]).toEqual([name, true]);
    for (const name of [
      'http.send',
      'opa.runtime',
      'rand.intn',
      'net.lookup_ip_addr',
      'uuid.rfc4122',
      'regex.split',
      'yaml.unmarshal',
      'io.jwt.decode',
    ])
      expect([name, names.has(name)]).toEqual([name, false]);
    const folder = scratch({
      'all.rego': callAll(
        builtins.filter(
          ({ name, infix }) => infix === undefined && !/^(internal|rego)\.|^(eq|assign|print)$/.test(name),
        ),
      ),
    });
    const built = await runOpa(
      opa,
      [
        'build',
        ...opa.flags,
        '-t',
        'wasm',
        '-e',
        'probe/called',
        '--capabilities',
        CAPABILITIES_FILE,
        '-o',
        'out.tar.gz',
        'all.rego',
      ],
      folder,
    );
    expect(built).toMatchObject({ code: 0 });
    const wasm = unpackBundle(readFileSync(path.join(folder, 'out.tar.gz'))).get('policy.wasm') ?? new Uint8Array();
    expect(() => new WasmPolicy(wasm, '{}', { entrypoints: ['probe/called'] })).not.toThrow();
  });
});

describe('assets', () => {
  it('include files that are not TypeScript, and none that only the sources need', () => {
    const [root, target] = [scratch(), path.join(scratch(), 'dist')];
    const write = (name: string): void => {
      mkdirSync(path.dirname(path.join(root, name)), { recursive: true });
      writeFileSync(path.join(root, name), name);
    };
    for (const name of [
      'policies/lib/a.rego',
      'policies/lib/a_test.rego',
      'policies/a.ts',
      'facade/page.tsx',
      'policies/lib/policy.wasm',
      'catalogs/x/y.yaml',
      'catalogs/notes.md',
      'facade/.hidden',
      'facade/s.json',
      'docs/d.json',
      'test/demo/rules.yaml',
    ])
      write(name);
    const expected = [
      'catalogs/x/y.yaml',
      'facade/s.json',
      'policies/lib/a.rego',
      'policies/lib/policy.wasm',
      'test/demo/rules.yaml',
    ];
    expect(copyAssets(root, target)).toEqual(expected);
    for (const name of expected) expect(readFileSync(path.join(target, name), 'utf8')).toBe(name);
  });

  it('make a build in which the policy loads', () => {
    for (const name of [
      'lib/policy.wasm',
      'lib/policy.json',
      'lib/call.rego',
      'rego/capabilities.json',
      'schemas/rules.json',
      'schemas/input.json',
      'schemas/decision.json',
      'starter/workspace.yaml',
      '../code/policy-worker.cjs',
    ]) {
      expect([name, existsSync(path.join(ROOT, 'dist', 'policies', name))]).toEqual([name, true]);
    }
    expect(
      readdirSync(path.join(ROOT, 'dist', 'policies', 'lib')).filter((name) => name.endsWith('_test.rego')),
    ).toEqual([]);
  });

  it('leave nothing in a build that the sources no longer have', () => {
    const stale = readdirSync(path.join(ROOT, 'dist'), { recursive: true, withFileTypes: true })
      .filter((entry) => entry.isFile())
      .map((entry) => path.relative(path.join(ROOT, 'dist'), path.join(entry.parentPath, entry.name)))
      .filter(
        (name) => !SOURCES_OF.some(([built, source]) => existsSync(path.join(ROOT, name.replace(built, source)))),
      );
    expect(stale).toEqual([]);
  });

  it('overwrite files of an earlier build', () => {
    const [root, target] = [scratch(), scratch()];
    mkdirSync(path.join(root, 'policies'));
    writeFileSync(path.join(root, 'policies', 'a.json'), 'new');
    cpSync(path.join(root, 'policies'), path.join(target, 'policies'), { recursive: true });
    writeFileSync(path.join(target, 'policies', 'a.json'), 'old');
    copyAssets(root, target);
    expect(readFileSync(path.join(target, 'policies', 'a.json'), 'utf8')).toBe('new');
  });
});
