/** Tests which rules, Rego and budgets are about requests of other kinds than calls of tools. */
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { Ajv } from 'ajv';
import fc from 'fast-check';
import { afterAll, describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { canonicalUri } from '../../catalogs/readers/urls.ts';
import { callInputText } from '../../policies/engine/policy-input.ts';
import { loadPolicy } from '../../policies/engine/policy-loader.ts';
import { EFFECT_KINDS, type EffectKind, type Policy, REQUEST_KINDS } from '../../policies/port.ts';
import { packageRoot } from '../../policies/rego/opa-program.ts';
import type { PolicySettings } from '../../policies/rules/policy-settings.ts';
import { blocksOf, PAGES } from '../docs/markdown.ts';
import { partOf, roundsOf } from '../harness/slices.ts';
import { verifies } from '../verifies.ts';
import {
  type CallOf,
  callOf,
  documentOf,
  PRINCIPAL,
  parts,
  policyOf,
  problemsOf,
  profile,
  regoSource,
  scratch,
  settings,
  toolOf,
} from './policy-fixture.ts';
import { decideInFull, facts, principals, requests, rules, SERVERS, SETTINGS } from './random-policies.ts';

const OTHERS = EFFECT_KINDS.filter((kind) => kind !== 'tool');
const opened: Policy[] = [];
afterAll(() => opened.forEach((policy) => policy.close()));

async function outcomesOf(policy: Policy, calls: readonly CallOf[]): Promise<readonly string[]> {
  const outcomes: string[] = [];
  for (const call of calls) outcomes.push((await policy.call(callOf(call))).outcome);
  return outcomes;
}

const ofKind = (kind: EffectKind): CallOf => ({ kind });

interface YamlRules {
  readonly rules: readonly { readonly id: string; readonly outcome: string; readonly when: object }[];
}

/** The rules of the starters, of the documentation, and none that name kinds. */
function writtenRules(): ReadonlyMap<string, YamlRules['rules']> {
  const folder = path.join(packageRoot(), 'policies', 'starter');
  const starters = readdirSync(folder)
    .filter((name) => !name.endsWith('_suite.yaml'))
    .map((name) => [name, readFileSync(path.join(folder, name), 'utf8')] as const);
  const blocks = PAGES.flatMap(blocksOf)
    .filter(({ language, text }) => language === 'yaml' && /^rules:/m.test(text))
    .map(({ page, line, text }) => [`${page}:${line}`, text] as const);
  return new Map(
    [...starters, ...blocks].map(([name, text]) => {
      const { rules: written } = parse(text) as YamlRules;
      return [
        name,
        (written ?? []).filter(({ when }) => typeof when === 'object' && when !== null && !('kind' in when)),
      ] as const;
    }),
  );
}

/** A configuration in which the caller reaches every server that the rules name. */
function settingsFor(written: YamlRules['rules']): PolicySettings {
  const names = written.flatMap(({ when }) => {
    const { tools = [], servers = [] } = when as { readonly tools?: string[]; readonly servers?: string[] };
    return [...servers, ...tools.map((tool) => tool.split('.', 1)[0] ?? '')].filter((name) => !name.includes('*'));
  });
  const all = [...new Set([...SERVERS, ...names])];
  return settings({ servers: all.map((name) => ({ name })), profiles: [profile({ servers: all })] });
}

describe('a rule without kind', () => {
  it('is about tools if it allows, and about every kind if it denies or asks' + verifies('PR-P01'), async () => {
    const allow = { id: 'yes', outcome: 'allow', when: {} };
    const all = EFFECT_KINDS.map(ofKind);
    const allowing = await policyOf([allow]);
    expect(await outcomesOf(allowing, all)).toEqual(['allow', ...OTHERS.map(() => 'deny')]);
    expect(await outcomesOf(await policyOf([{ id: 'ask', outcome: 'ask', when: {} }]), all)).toEqual(
      EFFECT_KINDS.map(() => 'ask'),
    );
    const both = [
      { id: 'yes', outcome: 'allow', when: { kind: [...EFFECT_KINDS] } },
      { id: 'no', outcome: 'deny', when: { paths: ['**/.env'] } },
      { id: 'trial', outcome: 'deny', mode: 'warn', when: { paths: ['**/.env.old'] } },
    ];
    const policy = await policyOf(both);
    const on = (kind: EffectKind, inside: string): CallOf => ({ kind, inside: [inside] });
    expect(
      await outcomesOf(
        policy,
        EFFECT_KINDS.map((kind) => on(kind, 'a/.env')),
      ),
    ).toEqual(EFFECT_KINDS.map(() => 'deny'));
    expect(
      await outcomesOf(
        policy,
        EFFECT_KINDS.map((kind) => on(kind, 'a/env')),
      ),
    ).toEqual(EFFECT_KINDS.map(() => 'allow'));
    for (const kind of EFFECT_KINDS)
      expect((await policy.call(callOf(on(kind, '.env.old')))).shadow).toMatchObject([{ id: 'trial', would: 'deny' }]);
  });

  it.each(partOf([...writtenRules()], 8))('opens no other kind: %s' + verifies('PR-P02'), (_name, written) => {
    const own = settingsFor(written);
    const decide = decideInFull(written, { settings: own });
    fc.assert(
      fc.property(
        principals,
        requests,
        fc.constantFrom(...own.servers.map(({ name }) => name), 'workspace'),
        facts,
        (over, request, server, call) => {
          const names = written.flatMap(({ when }) => (when as { readonly tools?: string[] }).tools ?? []);
          for (const tool of [request.tool, ...names.map((name) => name.slice(name.indexOf('.') + 1))]) {
            const { outcome } = decide(
              callOf({ principal: { ...over, profiles: ['work'] }, ...call, ...request, server, tool }),
            );
            expect(outcome).not.toBe('allow');
          }
        },
      ),
      { numRuns: 30 },
    );
  });

  it('opens no other kind, for random rules' + verifies('PR-P02'), () => {
    const kindless = rules.map((all) => all.filter((rule) => !('kind' in (rule as { when: object }).when)));
    fc.assert(
      fc.property(
        kindless,
        principals,
        fc.array(fc.tuple(requests, facts), { minLength: 8, maxLength: 8 }),
        (all, over, calls) => {
          const decide = decideInFull(all, { settings: SETTINGS });
          for (const [request, call] of calls)
            expect(decide(callOf({ principal: over, ...call, ...request })).outcome).not.toBe('allow');
        },
      ),
      { numRuns: roundsOf(100, 40) },
    );
  });

  it('does not hide or show lists of other kinds by what is about tools' + verifies('PR-P04'), async () => {
    const policy = await policyOf(
      [
        { id: 'tools', outcome: 'allow', when: {} },
        { id: 'manual', outcome: 'allow', when: { kind: 'resource', servers: ['git'], uri: 'docs://manual/**' } },
        { id: 'prompts', outcome: 'allow', when: { kind: 'prompt' } },
        { id: 'form', outcome: 'deny', when: { asks: { fields: ['*password*'] } } },
      ],
      {
        settings: settings({
          servers: [{ name: 'git', gated: { brief: ['writes'] }, tools: { allow: ['status'] } }, { name: 'mail' }],
          profiles: [profile({ expose: [{ tool: 'git.*', pins: { a: 1 } }] })],
        }),
      },
    );
    const listed = await policy.list(PRINCIPAL, [
      toolOf(),
      ...OTHERS.map((kind) => toolOf({ kind, tool: 'brief' })),
      toolOf({ kind: 'resource', server: 'mail' }),
    ]);
    expect(listed.map(({ verdict }) => verdict)).toEqual([
      'always',
      'maybe',
      'always',
      'never',
      'never',
      'never',
      'never',
      'never',
    ]);
    expect(listed.map(({ expose }) => expose.length)).toEqual([1, 0, 0, 0, 0, 0, 0, 0]);
    expect(listed[1]).toMatchObject({ says: [{ outcome: 'allow', say: 'every URI is docs://manual/**' }] });
    expect(await outcomesOf(policy, [{ kind: 'prompt', tool: 'brief' }])).toEqual(['allow']);
  });
});

describe('user Rego', () => {
  const cache = scratch();
  const regoPolicy = async (rego: string): Promise<Policy> => {
    const folder = scratch({ 'a.rego': `package policy.a\n\n${rego}\n` });
    const policy = await loadPolicy(parts({ folder, cache, sources: [regoSource(folder)] }));
    opened.push(policy);
    return policy;
  };

  it('opens another kind only by a rule whose own text reads the kind' + verifies('PR-P03'), async () => {
    const policy = await regoPolicy(
      [
        'import input.effect as effect',
        'allow contains {"id": "all", "message": "m", "obligations": {"labels": ["tools"]}} if input.effect.server == "git"',
        'allow contains {"id": "docs", "message": "m"} if {\n\teffect.kind == "resource"\n\teffect.tool == "docs"\n}',
        'allow contains {"id": "helped", "message": "m"} if is_prompt',
        'allow contains {"id": "whole", "message": "m"} if kind_in(input.effect)',
        'ask contains {"id": "roots", "message": "m"} if input.effect.tool == "roots"',
        'is_prompt if input.effect.kind == "prompt"',
        'kind_in(it) if it.kind == "completion"',
      ].join('\n\n'),
    );
    const calls: readonly CallOf[] = [
      {},
      { kind: 'resource', tool: 'docs' },
      { kind: 'resource', tool: 'other' },
      { kind: 'prompt' },
      { kind: 'completion' },
      { kind: 'roots', tool: 'roots' },
    ];
    expect(await outcomesOf(policy, calls)).toEqual(['allow', 'allow', 'deny', 'deny', 'deny', 'ask']);
    expect((await policy.call(callOf({ kind: 'resource', tool: 'docs' }))).obligations.labels).toEqual([]);
    const listed = await policy.list(
      PRINCIPAL,
      calls.map(({ kind = 'tool', tool = 'status' }) => toolOf({ kind, tool })),
    );
    expect(listed.map(({ verdict }) => verdict)).toEqual(['always', 'always', 'never', 'never', 'never', 'maybe']);
  });

  it('denies and asks about every kind', async () => {
    const policy = await regoPolicy(
      'deny contains "No." if input.effect.server == "mail"\n\nallow contains "All." if input.effect.kind',
    );
    expect(
      await outcomesOf(
        policy,
        EFFECT_KINDS.map((kind) => ({ kind, server: 'mail' })),
      ),
    ).toEqual(EFFECT_KINDS.map(() => 'deny'));
    expect(await outcomesOf(policy, EFFECT_KINDS.map(ofKind))).toEqual(EFFECT_KINDS.map(() => 'allow'));
  });
});

describe('a budget', () => {
  it('may be about kinds; without, it counts requests of every kind' + verifies('PR-P06'), async () => {
    const policy = await policyOf([{ id: 'all', outcome: 'allow', when: { kind: [...EFFECT_KINDS] } }], {
      settings: settings({
        budgets: [
          { id: 'all', scope: 'run', calls: 9, when: {} },
          { id: 'asks', scope: 'run', calls: 2, when: { kind: ['sampling', 'elicitation'] } },
          { id: 'docs', scope: 'run', calls: 3, when: { kind: 'resource', server: 'git' } },
        ],
      }),
    });
    const idsOf = async (call: CallOf): Promise<readonly string[]> =>
      (await policy.call(callOf(call))).obligations.budgets.map(({ id }) => id);
    expect(await idsOf({})).toEqual(['all']);
    expect(await idsOf({ kind: 'sampling' })).toEqual(['all', 'asks']);
    expect(await idsOf({ kind: 'resource' })).toEqual(['all', 'docs']);
    expect(await idsOf({ kind: 'resource', server: 'mail' })).toEqual(['all']);
  });
});

describe('the input', () => {
  it('always names the kind, and fits its schema' + verifies('PR-P08'), () => {
    const schema = JSON.parse(readFileSync(path.join(packageRoot(), 'policies/schemas/input.json'), 'utf8')) as object;
    const check = new Ajv({ allowUnionTypes: true }).compile(schema);
    const calls: readonly CallOf[] = [
      {},
      { kind: 'resource', uri: 'DOCS://a/%61' },
      { kind: 'elicitation', asks: { mode: 'form', fields: ['name'] } },
      { kind: 'sampling', asks: { maxTokens: 5 } },
    ];
    const inputs = calls.map(
      (call) => JSON.parse(callInputText(callOf(call), { project: true })) as { effect: object },
    );
    for (const input of inputs) expect([check(input), check.errors]).toEqual([true, null]);
    expect(inputs.map(({ effect }) => effect)).toMatchObject([
      { kind: 'tool' },
      { kind: 'resource', uri: 'DOCS://a/%61', address: 'docs://a/a' },
      { kind: 'elicitation', asks: { mode: 'form', fields: ['name'] } },
      { kind: 'sampling', asks: { maxTokens: 5 } },
    ]);
  });

  it('of a call has no URI, because its rules would not read it', async () => {
    const policy = await policyOf([{ id: 'all', outcome: 'allow', when: {} }]);
    expect(() => policy.call(callOf({ uri: 'docs://a' }))).toThrow(/A call of a tool has no URI/);
  });

  it.each([
    ['docs://a/b?c=/../d#e', 'docs://a/b?c=/../d#e'],
    ['DOCS://A/%7e%2d', 'docs://A/~-'],
    ['file:///a%20b', 'file:///a%20b'],
    ['urn:isbn:1', 'urn:isbn:1'],
    ['mem:', 'mem:'],
    ['file:/a', ''],
    ['file://host/a', ''],
    ['FILE:////a', ''],
    ['docs://a//b', ''],
    ['docs://a/..', ''],
    ['docs:../a', ''],
    ['docs://a/%2E%2e/b', ''],
    ['docs://a/b%2fc', ''],
    ['docs://a/b%5Cc', ''],
    ['docs://a/b\\c', ''],
    ['docs://a/b%2520', ''],
    ['docs://ä', ''],
    ['a b:c', ''],
    ['/a', ''],
    ['', ''],
    [`docs:${'a'.repeat(70_000)}`, ''],
  ])('reads %.40s in one way or not at all', (uri, canonical) => {
    expect(canonicalUri(uri)).toBe(canonical);
  });
});

describe('a rule that can never match is refused' + verifies('PR-P09'), () => {
  it.each([
    [{ kind: 'resorce' }, 'deny', /"resorce" is not one of .*Did you mean "resource"/],
    [{ kind: ['prompts'] }, 'deny', /"prompts" is not one of .*Did you mean "prompt"/],
    [{ kind: [] }, 'deny', /an empty list never matches/],
    [{ kind: 'sampling', paths: ['a'] }, 'deny', /no request of the kind sampling has paths/],
    [{ kind: 'resource', commands: ['ls'] }, 'ask', /no request of the kind resource has commands/],
    [{ kind: 'tool', uri: 'docs://a' }, 'deny', /no request of the kind tool has uri/],
    [{ uri: 'docs://a' }, 'allow', /a rule that allows is about tools unless it has `kind`; add kind: \[resource, /],
    [{ asks: { maxTokens: { max: 5 } } }, 'allow', /add kind: sampling/],
    [{ asks: { mode: 'url', maxTokens: { max: 5 } } }, 'deny', /no request of the kind elicitation has asks.maxTokens/],
    [{ asks: { maxTokens: { min: 6, max: 5 } } }, 'deny', /no number is at least 6 and at most 5/],
    [{ kind: 'prompt', verbs: ['write'] }, 'deny', /a request of the kind prompt is never write.*its verb is read/],
    [{ kind: 'resource', uri: 'a/**' }, 'deny', /is not a URI/],
    [{ kind: 'resource', uri: ['docs://a/../b'] }, 'deny', /can match no URI/],
    [{ kind: 'resource', uri: ['docs://a/%61'] }, 'deny', /write it as docs:\/\/a\/a/],
    [{ kind: 'resource', uri: ['docs://a**'] }, 'deny', /must stand alone/],
    [{ kind: 'resource', uri: ['docs://a/{id}'] }, 'deny', /only \* and \*\* are wildcards/],
  ])('%j, %s', async (when, outcome, message) => {
    const problems = await problemsOf(policyOf([{ id: 'it', outcome, when }]));
    expect(problems).toHaveLength(1);
    expect(problems[0]).toMatch(message);
  });

  it('but not a rule about several kinds of which one can match, or about names that are no tools', async () => {
    const offered = new Map([['git', [{ name: 'status', inputSchema: {}, semantics: { verb: 'read' } }] as const]]);
    const written = [
      { id: 'a', outcome: 'deny', when: { kind: ['sampling', 'roots'], paths: ['a'] } },
      { id: 'b', outcome: 'allow', when: { kind: 'prompt', tools: ['git.brief'] } },
      { id: 'c', outcome: 'deny', when: { servers: ['git'], paths: ['**/.env'] } },
      { id: 'd', outcome: 'deny', when: { kind: 'resource', tools: ['git.resources/read'] } },
    ];
    (await policyOf(written, { offered })).close();
    expect(
      await problemsOf(policyOf([{ id: 'e', outcome: 'deny', when: { tools: ['git.brief'] } }], { offered })),
    ).toMatchObject([
      /git has no tool "git.brief"/.source ? expect.stringContaining('git has no tool "git.brief"') : '',
    ]);
  });

  it('also if a rule that denies every kind covers it', async () => {
    const problems = await problemsOf(
      policyOf([
        { id: 'docs', outcome: 'allow', when: { kind: 'resource', servers: ['git'] } },
        { id: 'no', outcome: 'deny', when: { kind: ['resource', 'prompt'] } },
      ]),
    );
    expect(problems).toMatchObject([expect.stringContaining('"no" (rules.yaml:2) denies every call')]);
  });
});

describe('a program', () => {
  it('is not bound by a rule about other requests, and an owner is told' + verifies('PR-P10'), async () => {
    const policy = await policyOf([
      { id: 'yes', outcome: 'allow', when: { kind: 'resource', paths: ['a/**'] } },
      { id: 'no', outcome: 'deny', when: { kind: 'resource', paths: ['b/**'] } },
      { id: 'all', outcome: 'deny', when: { paths: ['c/**'] } },
    ]);
    expect(policy.confinement('git').hidden.inside).toEqual(['c/**']);
    expect(policy.unbound(['git'])).toEqual([
      'rules.yaml:2:1: "no" does not bind the program of git: it is about other requests than calls of tools; leave out `kind`',
    ]);
    policy.close();
  });
});

it('each kind but tool has a verb, and each but prompt a method', () => {
  expect(Object.keys(REQUEST_KINDS)).toEqual(OTHERS);
  expect(Object.entries(REQUEST_KINDS).flatMap(([kind, { method }]) => (method === undefined ? [kind] : []))).toEqual([
    'prompt',
  ]);
});

it('rules about other kinds are no candidates for a call of a tool' + verifies('PR-P11'), async () => {
  const { compileRules } = await import('../../policies/rules/rule-compiler.ts');
  const { index, list } = compileRules(
    [
      documentOf([
        { id: 'a', outcome: 'allow', when: {} },
        { id: 'b', outcome: 'deny', when: { servers: ['git'] } },
        { id: 'c', outcome: 'allow', when: { kind: 'resource' } },
        { id: 'd', outcome: 'deny', when: { uri: 'docs://a' } },
        { id: 'e', outcome: 'ask', when: { kind: ['tool', 'prompt'], verbs: ['read'] } },
      ]),
    ],
    '/w',
  );
  const idsIn = ({ tool, server, verb, any }: (typeof index)['tools']): readonly string[] =>
    [...[tool, server, verb].flatMap((part) => Object.values(part).flat()), ...any]
      .map((number) => list[number]?.reason.id ?? '')
      .sort();
  expect(idsIn(index.tools)).toEqual(['a', 'b', 'e']);
  expect(idsIn(index.others)).toEqual(['b', 'c', 'd', 'e']);
});
