/**
 * Tests that a policy compiled in a thread equals one compiled in the main thread: revision, decisions, problems.
 * Covers: facade/runtime.
 */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { loadPolicyInThread } from '../../policies/engine/compilation-thread.ts';
import type { PolicyParts } from '../../policies/engine/compiled-parts.ts';
import { compileParts, loadPolicy } from '../../policies/engine/policy-loader.ts';
import { readyParts } from '../../policies/engine/policy-start.ts';
import { flattenParts, flattenPolicy, reviveParts, revivePolicy } from '../../policies/engine/transferable-policy.ts';
import { callOf, documentOf, parts } from '../engine/policy-fixture.ts';
import { roundsOf } from '../harness/slices.ts';
import { configure, Reloadable } from './edited-project.ts';

const THREAD = path.resolve(import.meta.dirname, '..', '..', 'dist', 'code', 'compile-thread.cjs');

let folder: string;
beforeAll(() => void (folder = mkdtempSync(path.join(tmpdir(), 'tollgate-apart-'))));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** Returns enough rules for a compilation in a thread. */
function many(more = '', message = 'It is so.'): string {
  const rules = Array.from(
    { length: 200 },
    (_, number) =>
      `  - id: r${number} # ä ✓
    outcome: ${number % 2 === 0 ? 'allow' : 'deny'}
    message: ${message}
    when: {tools: ["git.t${number}"], args: {n: {min: ${number}}}, hosts: ["h${number}.example.org"]}
`,
  );
  return `rules:\n${rules.join('')}${more}`;
}

/** A rule that closes paths for some callers. */
const PERSONAL = '  - {id: own-paths, outcome: deny, when: {roles: [agent], paths: ["secret/**"]}}\n';

function written(text: string, over: Partial<PolicyParts> = {}): PolicyParts {
  const file = path.join(folder, 'rules.yaml');
  writeFileSync(file, text);
  return parts({
    folder,
    sources: [{ path: file, kind: 'yaml', mode: 'warn', modes: [{ profile: 'work', mode: 'enforce' }] }],
    rules: [documentOf([{ id: 'own', outcome: 'allow', when: { verbs: ['read'] } }])],
    ...over,
  });
}

function threads(): number {
  return process.getActiveResourcesInfo().filter((name) => name === 'Worker' || name === 'MessagePort').length;
}

async function refusalOf(loading: Promise<unknown>): Promise<unknown> {
  const thrown = await loading.then(
    () => undefined,
    (error: unknown) => error,
  );
  expect(thrown).toBeInstanceOf(TollgateError);
  const { code, message, next, data } = thrown as TollgateError;
  return { code, message, next, data };
}

describe('a policy that was compiled in a thread', () => {
  it('has the same revision, rules, decisions and listed tools', async () => {
    const given = written(many());
    const before = threads();
    const [apart, here] = await Promise.all([loadPolicyInThread(given, THREAD), loadPolicy(given)]);
    expect([apart.revision, apart.rules]).toEqual([here.revision, here.rules]);
    const calls = [callOf(), callOf({ server: 'git', tool: 't3', verb: 'write' })];
    for (const call of calls) expect(await apart.call(call)).toEqual(await here.call(call));
    const tools = [
      { name: 't1', inputSchema: { type: 'object', properties: { m: {} } }, semantics: { verb: 'read' } as const },
    ];
    expect((await here.findUnoffered('git', tools)).length).toBeGreaterThan(100);
    expect(await apart.findUnoffered('git', tools)).toEqual(await here.findUnoffered('git', tools));
    expect(apart.unbound(['workspace', 'git'])).toEqual(here.unbound(['workspace', 'git']));
    await expect.poll(threads, { timeout: 20_000 }).toBeLessThanOrEqual(before);
  });

  it.each([
    [
      'in the form, in names and between rules',
      many(
        `  - {id: r1, outcome: maybe}
  - {id: r2, outcome: allow, when: {servers: [gti]}}
  - {id: x, outcome: allow, when: {tools: ["git.t0"], args: {n: {pattern: "(?=a)"}}}}
`,
      ),
    ],
    ['in the YAML', many('  - {id: ')],
  ])('has the same problems at the same places: %s', async (_what, text) => {
    const given = written(text);
    expect(await refusalOf(loadPolicyInThread(given, THREAD))).toEqual(await refusalOf(loadPolicy(given)));
  });

  it('has the same problems in rules that were read before, at their places', async () => {
    const rules = [
      documentOf([
        { id: 'a', outcome: 'allow', when: { servers: ['gti'] } },
        { id: 'b', outcome: 'allow', when: { tools: ['mial.x'] } },
      ]),
    ];
    const given = written(many(), { rules });
    expect(await refusalOf(loadPolicyInThread(given, THREAD))).toEqual(await refusalOf(loadPolicy(given)));
  });

  it('needs the program opa in the same cases', async () => {
    mkdirSync(path.join(folder, 'rego'), { recursive: true });
    writeFileSync(path.join(folder, 'rego', 'a.rego'), 'package policy.a\n');
    const given = written(many(), {
      sources: [{ path: path.join(folder, 'rego'), kind: 'rego', mode: 'enforce' }],
      opa: '/nowhere/opa',
    });
    expect(await refusalOf(loadPolicyInThread(given, THREAD))).toMatchObject({ code: 'OPA_MISSING' });
    expect(await refusalOf(loadPolicyInThread(given, THREAD))).toEqual(await refusalOf(loadPolicy(given)));
  });

  it('is compiled in the main thread if it has few rules', async () => {
    expect(
      (
        await loadPolicyInThread(
          parts({ rules: [documentOf([{ id: 'a', outcome: 'allow', when: {} }])] }),
          '/nowhere.js',
        )
      ).rules,
    ).toBe(1);
  });
});

describe('a policy is refused if the thread', () => {
  it.each([
    ['throws', 'throw new Error("x")'],
    ['ends without a message', 'process.exit(0)'],
    ['does not load', 'import "./nowhere.mjs"'],
  ])(
    '%s',
    async (what, code) => {
      const file = path.join(folder, `${what.replaceAll(' ', '-')}.mjs`);
      writeFileSync(file, code);
      const before = threads();
      expect(await refusalOf(loadPolicyInThread(written(many()), file))).toMatchObject({
        code: 'POLICY_INVALID',
        message: 'The policy could not be compiled: the compilation thread ended too early.',
      });
      await expect.poll(threads, { timeout: 20_000 }).toBeLessThanOrEqual(before);
    },
    60_000,
  );
});

describe('the transferable form of a policy', () => {
  it('keeps every place, also of parts that do not exist', () => {
    fc.assert(
      fc.property(
        fc.jsonValue({ maxDepth: 4 }),
        fc.array(fc.oneof(fc.string(), fc.nat(3)), { maxLength: 4 }),
        (value, extra) => {
          const found = new Map<string, number>();
          const number = (at: readonly (string | number)[]): number => {
            const id = JSON.stringify(at.map(String));
            found.set(id, found.get(id) ?? found.size + 1);
            return found.get(id) ?? 0;
          };
          const exists = (at: readonly (string | number)[]): boolean =>
            at.length === 0 ||
            at.reduce<unknown>(
              (inner, key) =>
                typeof inner === 'object' && inner !== null && Object.hasOwn(inner, key) && key !== 'length'
                  ? (inner as Record<string, unknown>)[key]
                  : exists,
              value,
            ) !== exists;
          const placeOf = (
            at: readonly (string | number)[],
            part: 'key' | 'value',
          ): { line: number; column: number } => {
            const own = at.map((_, index) => at.slice(0, at.length - index)).find(exists) ?? [];
            return { line: number(own), column: part === 'key' || own.length < at.length ? 1 : 2 };
          };
          const [document] = reviveParts(
            structuredClone(flattenParts(parts({ rules: [documentOf([], { value, placeOf })] }))),
            parts().readYaml,
          ).rules;
          const walk = (inner: unknown, at: readonly string[]): void => {
            for (const part of ['key', 'value'] as const)
              for (const path of [at, [...at, ...extra]])
                expect(document?.placeOf(path, part)).toEqual(placeOf(path, part));
            if (typeof inner === 'object' && inner !== null)
              for (const [name, one] of Object.entries(inner)) walk(one, [...at, name]);
          };
          walk(value, []);
        },
      ),
      { numRuns: roundsOf(100, 40) },
    );
  });

  it('keeps rules and their places', async () => {
    const before = readyParts(await compileParts(written(many(PERSONAL))));
    const after = await revivePolicy(structuredClone(flattenPolicy(before)));
    expect([after.confining, Buffer.from(after.data).toString(), after.revision]).toEqual([
      before.confining,
      Buffer.from(before.data).toString(),
      before.revision,
    ]);
    expect([after.confining.personal.length, after.confining.free.length]).toEqual([1, 1]);
    expect([...after.rulesByServer.keys()]).toEqual([...before.rulesByServer.keys()]);
    const located = [...(before.rulesByServer.get('git') ?? [])];
    expect(located).toHaveLength(200);
    [...(after.rulesByServer.get('git') ?? [])].forEach(({ rule, mode, at }, index) => {
      const before = located[index];
      expect([rule, mode]).toEqual([before?.rule, before?.mode]);
      for (const place of [[], ['when'], ['when', 'tools', 0], ['when', 'args', 'n', 'min'], ['when', 'nothing', 1]])
        for (const part of ['key', 'value'] as const) expect(at(place, part)).toEqual(before?.at(place, part));
    });
  });
});

it('a reload compiles a large policy in a thread, refuses one with an error, and ends the thread', async () => {
  const rules = (message: string, more = ''): string =>
    [
      'rules:\n',
      ...Array.from(
        { length: 300 },
        (_, number) =>
          `  - {id: r${number}, outcome: deny, message: ${message}, ` +
          `when: {verbs: [read], paths: ["secret/${number}/**"]}}\n`,
      ),
      `  - {id: all, outcome: allow, when: {}}\n${more}`,
    ].join('');
  const facade = await new Reloadable({
    'tollgate.yaml': configure(),
    'rules.yaml': rules('No.'),
    'workspace/a.txt': 'a',
  }).start();
  try {
    const before = threads();
    const session = facade.open('local');
    facade.write('rules.yaml', rules('Not now.'));
    await facade.reload();
    const { revision } = facade.assembled.deps.policy();
    expect(facade.records('config').at(-1)).toMatchObject({ event: 'reloaded', revision });
    expect((await facade.call(session, 'read', { path: 'secret/299/x' })).text).toContain('Not now.');
    facade.write('rules.yaml', rules('Never.', '  - {id: all, outcome: allow, when: {}}\n'));
    await expect(facade.reload()).rejects.toMatchObject({
      code: 'POLICY_INVALID',
      message: expect.stringContaining('the id "all" is already used at rules.yaml:') as string,
    });
    expect(facade.assembled.deps.policy().revision).toBe(revision);
    expect((await facade.call(session, 'read', { path: 'a.txt' })).text).toBe('a');
    await expect.poll(threads, { timeout: 20_000 }).toBeLessThanOrEqual(before);
  } finally {
    await facade.close();
  }
}, 60_000);
