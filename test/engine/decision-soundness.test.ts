import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { type DecisionReading, readCallDecision } from '../../policies/engine/decision-reader.ts';
import { callInputText } from '../../policies/engine/policy-input.ts';
import { ENTRYPOINTS, readLibrary } from '../../policies/engine/policy-library.ts';
import { WasmPolicy } from '../../policies/engine/wasm/wasm-policy.ts';
import type { CallDecision, ListTool, Principal } from '../../policies/port.ts';
import { compileSettings } from '../../policies/rules/policy-settings.ts';
import { compileRules } from '../../policies/rules/rule-compiler.ts';
import { findRuleFaults } from '../../policies/rules/rule-faults.ts';
import { verifies } from '../verifies.ts';
import {
  type CallOf,
  callOf,
  documentOf,
  PRINCIPAL,
  policyOf,
  profile,
  settings,
  toolOf,
  WORKSPACE,
} from './policy-fixture.ts';

const OUTCOMES = ['deny', 'ask', 'allow'] as const;
const VERBS = ['read', 'write', 'execute'] as const;
const SERVERS = ['git', 'mail'] as const;
const TOOLS = ['get', 'put', 'x.y'] as const;

/** Small vocabularies, so that generated rules and calls often match. */
const some = <T>(values: readonly T[]) => fc.uniqueArray(fc.constantFrom(...values), { minLength: 1, maxLength: 2 });
const fields = {
  tools: some(['git.get', 'git.put', 'mail.x.y', 'git.*', '*.get', 'mail.p*', '*.*t', 'git.x.*']),
  servers: some(SERVERS),
  verbs: some(VERBS),
  roles: some(['developer', 'guest']),
  groups: some(['staff', 'ops']),
  profiles: some(['work', 'play']),
  labels: some(['secret', 'public']),
  paths: some(['src/**', '**/*.pem', 'a', '/etc/**']),
  insideWorkspace: fc.boolean(),
  commands: some(['ls', 'git push']),
  opaque: fc.boolean(),
  hosts: some(['a.b', '*.b']),
  urls: some(['https://a.b/x/**', 'http://*']),
  time: fc.constantFrom({ days: ['fri'], zone: 'UTC' }, { from: '22:00', to: '06:00', zone: 'Europe/Berlin' }),
  trust: some(['internal', 'external']),
  owner: fc.boolean(),
  args: fc.constantFrom({ n: { min: 2 } }, { n: { equals: 1 } }, { s: { prefix: 'a' } }, { s: { present: true } }),
};
/** A few fields at a time, because a rule with all of them never matches. */
const whens = fc
  .subarray(Object.keys(fields) as (keyof typeof fields)[], { maxLength: 3 })
  .chain((names) => fc.record(Object.fromEntries(names.map((name) => [name, fields[name] as fc.Arbitrary<unknown>]))));
const SETTINGS = settings({
  profiles: [
    profile({
      expose: [
        { tool: 'git.*', pins: {} },
        { tool: 'mail.*', pins: {} },
      ],
    }),
    profile({ name: 'play', servers: ['mail'], primitives: {} }),
    profile({ name: 'careful', servers: ['git'], primitives: {}, plan: true }),
  ],
});
const LIBRARY = readLibrary().wasm;
const rules = fc
  .array(
    fc.record({
      outcome: fc.constantFrom(...OUTCOMES),
      mode: fc.constantFrom('enforce', 'enforce', 'enforce', 'shadow', 'off'),
      when: whens,
    }),
    { maxLength: 8 },
  )
  .map((all) => all.map((rule, number) => ({ id: `r${number}`, ...rule })))
  .filter(
    (all) => findRuleFaults(compileRules([documentOf(all)], WORKSPACE), { settings: SETTINGS }, LIBRARY).length === 0,
  );
const principals = fc.record({
  role: fc.constantFrom('developer', 'guest'),
  groups: fc.subarray(['staff', 'ops']),
  profiles: fc.constantFrom(['work'], ['work', 'play'], ['play'], ['play', 'careful'], ['work', 'careful'], []),
  owner: fc.boolean(),
});
const facts = fc.record({
  inside: fc.subarray(['src/a', 'a', 'k.pem']),
  outside: fc.subarray(['/etc/x', '../odd']),
  hosts: fc.subarray(['a.b', 'c.b', '']),
  urls: fc.subarray(['https://a.b/x/y', 'http://c.b/', 'https://a.b//x']),
  time: fc.constantFrom('2026-11-20T10:00:00Z', '2026-11-21T23:00:00Z'),
  plan: fc.constantFrom('none' as const, 'pending' as const, 'approved' as const),
  commands: fc.constantFrom(undefined, 'opaque' as const, [['ls']], [['git', 'push'], ['ls']]),
  args: fc.constantFrom({}, { n: 1 }, { n: '3' }, { n: 3, s: 'ab' }, { s: ['a'] }),
  labels: fc.subarray(['secret', 'public']),
});
const targets = fc.record({
  server: fc.constantFrom(...SERVERS),
  tool: fc.constantFrom(...TOOLS),
  verb: fc.constantFrom(...VERBS),
});

function decide(all: readonly unknown[], naive = false): (call: CallOf) => CallDecision {
  const { list, index, zones } = compileRules([documentOf(all)], WORKSPACE);
  const scanned = { tool: {}, server: {}, verb: {}, any: list.map((_, number) => number) };
  const config = {
    version: 1,
    ...compileSettings(SETTINGS),
    rules: { list, index: naive ? scanned : index },
    modes: {},
    mode: 'enforce',
    places: {},
    rego: {},
  };
  const wasm = new WasmPolicy(LIBRARY, JSON.stringify({ config }), { entrypoints: [ENTRYPOINTS.call] });
  return (call) =>
    wasm.evaluate(ENTRYPOINTS.call, callInputText(callOf(call), { project: true, zones })) as unknown as CallDecision;
}

describe('precedence', () => {
  /** All ways in which three rules can be absent, or present with each outcome, enforced or in mode shadow. */
  it('deny overrides ask, ask overrides allow, and no match is a deny, for every combination', () => {
    const kinds = [
      undefined,
      ...OUTCOMES.flatMap((outcome) => [
        { outcome, mode: 'enforce' },
        { outcome, mode: 'shadow' },
      ]),
    ];
    for (const first of kinds)
      for (const second of kinds)
        for (const third of kinds) {
          const all = [first, second, third].flatMap((kind, number) =>
            kind === undefined
              ? []
              : [{ id: `r${number}`, ...kind, when: [{}, { servers: ['git'] }, { verbs: ['read'] }][number] }],
          );
          const enforced = all.filter(({ mode }) => mode === 'enforce').map(({ outcome }) => outcome);
          const expected = OUTCOMES.find((outcome) => enforced.includes(outcome)) ?? 'deny';
          const { outcome, reasons, shadow } = decide(all)({});
          expect([all, outcome]).toEqual([all, expected]);
          expect(reasons.map(({ id }) => id).sort()).toEqual(
            enforced.length === 0
              ? ['default-deny']
              : all
                  .filter((rule) => rule.mode === 'enforce' && rule.outcome === expected)
                  .map(({ id }) => id)
                  .sort(),
          );
          expect(shadow).toHaveLength(all.length - enforced.length);
        }
  }, 120_000);

  it('without rules every call is denied', async () => {
    const policy = await policyOf([]);
    expect(await policy.call(callOf())).toMatchObject({ outcome: 'deny', reasons: [{ id: 'default-deny' }] });
    expect(await policy.list(PRINCIPAL, [toolOf()])).toMatchObject([
      { verdict: 'never', reasons: [{ id: 'default-deny' }], expose: [] },
    ]);
  });
});

describe('the index', () => {
  it('only narrows: a decision equals that of a scan of all rules', () => {
    fc.assert(
      fc.property(rules, principals, targets, facts, (all, principal, target, call) => {
        const given = { principal, ...target, ...call };
        const order = (decision: CallDecision & { readonly reading?: DecisionReading | null }): unknown => ({
          ...decision,
          reading: decision.reading && {
            rules: [...decision.reading.rules].sort(),
            matched: [...decision.reading.matched].sort(),
            parts: decision.reading.parts,
          },
          reasons: [...decision.reasons].sort((a, b) => (a.id < b.id ? -1 : 1)),
          shadow: [...decision.shadow].sort((a, b) => (a.id < b.id ? -1 : 1)),
        });
        expect(order(decide(all)(given))).toEqual(order(decide(all, true)(given)));
      }),
      { numRuns: 250 },
    );
  }, 120_000);
});

describe('a constant decision', () => {
  it('equals the decision that would be made again, after any calls', async () => {
    await fc.assert(
      fc.asyncProperty(
        rules,
        principals,
        fc.array(fc.tuple(targets, facts), { minLength: 6, maxLength: 12 }),
        async (all, over, calls) => {
          const policy = await policyOf(all, { settings: SETTINGS });
          const principal: Principal = { ...PRINCIPAL, ...over };
          const anew = decide(all);
          for (const [target, call] of [...calls, ...calls]) {
            const given = { principal: over, ...target, ...call };
            expect(await policy.call({ ...callOf(given), principal })).toEqual(
              readCallDecision(anew(given) as unknown as Record<string, unknown>),
            );
          }
        },
      ),
      { numRuns: 60 },
    );
  }, 120_000);
});

describe('lists and calls agree', () => {
  const tools: readonly ListTool[] = SERVERS.flatMap((server) =>
    TOOLS.flatMap((tool) => [
      ...VERBS.map((verb) => ({ server, tool, verb })),
      { server, tool, verb: 'execute' as const, verbs: ['execute', 'read'] as const },
      { server, tool, verb: 'read' as const, facts: [] },
      { server, tool, verb: 'execute' as const, facts: ['command', 'urls'] as const },
    ]),
  );
  /** What a call of the tool can carry, if the list knows it. */
  const carried = (call: CallOf, { facts: known }: ListTool): CallOf => ({
    ...call,
    ...(known?.includes('paths') === false ? { inside: [], outside: [] } : {}),
    ...(known?.includes('urls') === false ? { hosts: [], urls: [] } : {}),
    ...(known?.includes('command') === false ? { commands: undefined } : {}),
  });

  it('no hidden tool is callable, no tool listed always is denied, and a maybe promises neither' +
    verifies('CY-11', 'CY-16'), async () => {
    await fc.assert(
      fc.asyncProperty(rules, principals, fc.array(facts, { minLength: 5, maxLength: 5 }), async (all, over, calls) => {
        const policy = await policyOf(all, { settings: SETTINGS });
        const principal: Principal = { ...PRINCIPAL, ...over };
        const decisions = await policy.list(principal, tools);
        for (const [number, tool] of tools.entries()) {
          for (const verb of tool.verbs ?? [tool.verb])
            for (const call of calls) {
              const { outcome } = await policy.call(
                callOf({ principal: over, server: tool.server, tool: tool.tool, verb, ...carried(call, tool) }),
              );
              const verdict = decisions[number]?.verdict;
              expect([verdict, outcome]).not.toEqual(['never', 'allow']);
              expect([verdict, outcome]).not.toEqual(['never', 'ask']);
              if (verdict === 'always') expect(outcome).toBe('allow');
            }
        }
      }),
      { numRuns: 80 },
    );
  }, 240_000);

  it('a tool in a long list, where each kind is decided once, has the same verdict as alone', async () => {
    await fc.assert(
      fc.asyncProperty(rules, principals, async (all, over) => {
        const policy = await policyOf(all, { settings: SETTINGS });
        const principal: Principal = { ...PRINCIPAL, ...over };
        const alone = [];
        for (const tool of tools) alone.push(...(await policy.list(principal, [tool])));
        expect(await policy.list(principal, tools)).toEqual(alone);
      }),
      { numRuns: 30 },
    );
  }, 120_000);

  it.each([
    [
      'a static deny hides',
      [
        { outcome: 'allow', when: {} },
        { outcome: 'deny', when: { tools: ['git.status'] } },
      ],
      'never',
    ],
    [
      'a deny by role hides',
      [
        { outcome: 'allow', when: {} },
        { outcome: 'deny', when: { roles: ['developer'] } },
      ],
      'never',
    ],
    [
      'a deny of another role does not',
      [
        { outcome: 'allow', when: {} },
        { outcome: 'deny', when: { roles: ['guest'] } },
      ],
      'always',
    ],
    [
      'a deny that reads arguments leaves it open',
      [
        { outcome: 'allow', when: {} },
        { outcome: 'deny', when: { args: { x: { present: true } } } },
      ],
      'maybe',
    ],
    [
      'an ask leaves it open',
      [
        { outcome: 'allow', when: {} },
        { outcome: 'ask', when: {} },
      ],
      'maybe',
    ],
    ['an ask alone leaves it open', [{ outcome: 'ask', when: { servers: ['git'] } }], 'maybe'],
    ['an allow of paths leaves it open', [{ outcome: 'allow', when: { paths: ['a'] } }], 'maybe'],
    ['an allow of this server is certain', [{ outcome: 'allow', when: { servers: ['git'] } }], 'always'],
    ['an allow of another server has no effect', [{ outcome: 'allow', when: { servers: ['mail'] } }], 'never'],
    ['an allow of the only verb is certain', [{ outcome: 'allow', when: { verbs: ['read'] } }], 'always'],
    ['an allow of another verb has no effect', [{ outcome: 'allow', when: { verbs: ['write'] } }], 'never'],
  ])('%s', async (_name, all, verdict) => {
    const policy = await policyOf(all.map((rule, number) => ({ id: `r${number}`, ...rule })));
    expect(await policy.list(PRINCIPAL, [toolOf()])).toMatchObject([{ verdict }]);
  });

  it.each([
    [
      'an allow of paths has no effect on a tool without paths',
      { outcome: 'allow', when: { paths: ['a'] } },
      [],
      'never',
    ],
    [
      'an allow of the inside, of a tool with URLs only, is none',
      { outcome: 'allow', when: { insideWorkspace: true } },
      ['urls'],
      'never',
    ],
    [
      'an allow of paths, of a tool with paths, leaves it open',
      { outcome: 'allow', when: { paths: ['a'] } },
      ['paths'],
      'maybe',
    ],
    [
      'an allow of commands, of a tool without one, is none',
      { outcome: 'allow', when: { commands: ['ls'] } },
      ['paths'],
      'never',
    ],
    [
      'an allow of plain commands, of a tool without one, is none',
      { outcome: 'allow', when: { opaque: false } },
      ['paths'],
      'never',
    ],
    [
      'an allow of hosts, of a tool with URLs, leaves it open',
      { outcome: 'allow', when: { hosts: ['a.b'] } },
      ['urls'],
      'maybe',
    ],
    [
      'an ask of URLs, of a tool without any, is none',
      { outcome: 'ask', when: { urls: ['https://a.b'] } },
      [],
      'never',
    ],
    [
      'an allow of arguments leaves every tool open',
      { outcome: 'allow', when: { args: { a: { present: true } } } },
      [],
      'maybe',
    ],
    [
      'an allow of hours leaves every tool open',
      { outcome: 'allow', when: { time: { days: ['mon'], zone: 'UTC' } } },
      [],
      'maybe',
    ],
    ['an unknown tool stays open', { outcome: 'allow', when: { paths: ['a'] } }, undefined, 'maybe'],
  ] as const)('%s', async (_name, rule, known, verdict) => {
    const policy = await policyOf([{ id: 'r', ...rule }]);
    expect(await policy.list(PRINCIPAL, [toolOf(known === undefined ? {} : { facts: known })])).toMatchObject([
      { verdict },
    ]);
  });

  it('tools for owners only are hidden from all others, and refused' + verifies('CY-11'), async () => {
    const policy = await policyOf([
      { id: 'yes', outcome: 'allow', when: {} },
      { id: 'owners', outcome: 'deny', when: { tools: ['git.status'], owner: false } },
    ]);
    for (const [owner, verdict, outcome] of [
      [true, 'always', 'allow'],
      [false, 'never', 'deny'],
      [undefined, 'never', 'deny'],
    ] as const) {
      const principal: Principal = owner === undefined ? PRINCIPAL : { ...PRINCIPAL, owner };
      expect([
        owner,
        (await policy.list(principal, [toolOf()]))[0]?.verdict,
        (await policy.call({ ...callOf(), principal })).outcome,
      ]).toEqual([owner, verdict, outcome]);
    }
  });

  it('a deny on facts that the tool cannot carry does not change its verdict', async () => {
    const policy = await policyOf([
      { id: 'yes', outcome: 'allow', when: {} },
      { id: 'no', outcome: 'deny', when: { paths: ['**/.env'] } },
    ]);
    expect(
      (await policy.list(PRINCIPAL, [toolOf({ facts: [] }), toolOf({ facts: ['paths'] }), toolOf()])).map(
        ({ verdict }) => verdict,
      ),
    ).toEqual(['always', 'maybe', 'maybe']);
  });

  it('a tool whose arguments decide the verb is certain only if every verb is', async () => {
    const policy = await policyOf([
      { id: 'look', outcome: 'allow', when: { verbs: ['read'] } },
      { id: 'run', outcome: 'allow', when: { servers: ['git'], verbs: ['read', 'execute'] } },
      { id: 'no', outcome: 'deny', when: { servers: ['mail'], verbs: ['execute'] } },
    ]);
    const two = { verb: 'execute', verbs: ['execute', 'read'] } as const;
    expect(
      (
        await policy.list(PRINCIPAL, [
          toolOf(two),
          toolOf({ server: 'mail', ...two }),
          toolOf({ server: 'mail', verb: 'read' }),
          toolOf({ server: 'mail', verb: 'execute' }),
        ])
      ).map(({ verdict }) => verdict),
    ).toEqual(['always', 'maybe', 'always', 'never']);
  });
});

describe('the list', () => {
  it(
    'shows primitives if a profile puts the server behind them, and other tools if a rule exposes them' +
      verifies('CY-11', 'CY-13'),
    async () => {
      const expose = [
        { tool: 'git.get_*', pins: {} },
        { tool: 'git.push', name: 'push', description: 'Pushes.', risk: ['network'], pins: { branch: 'main' } },
      ] as const;
      const profiles = [
        profile({
          primitives: { read: [{ server: 'git' }], write: [{ server: 'workspace' }] },
          expose,
          schemaProfile: 'openai',
        }),
        profile({ name: 'files', servers: [], primitives: { read: [{ server: 'mail' }] }, expose: [] }),
      ];
      const policy = await policyOf([{ id: 'all', outcome: 'allow', when: {} }], { settings: settings({ profiles }) });
      const tools = [
        toolOf({ tool: 'get_a' }),
        toolOf({ tool: 'push' }),
        toolOf(),
        toolOf({ tool: 'cat', primitive: 'read' }),
        toolOf({ server: 'mail', tool: 'cat', primitive: 'read' }),
        toolOf({ server: 'workspace', tool: 'bash', primitive: 'bash' }),
      ];
      const shown = async (names: readonly string[]) =>
        (await policy.list({ ...PRINCIPAL, profiles: names }, tools)).map(({ expose: shownAs }) => shownAs);
      expect(await shown(['work'])).toEqual([
        [{ pins: {} }],
        [{ name: 'push', description: 'Pushes.', risk: ['network'], pins: { branch: 'main' } }],
        [],
        [{ name: 'read', pins: {} }],
        [],
        [],
      ]);
      expect((await shown(['work', 'files'])).slice(3, 5)).toEqual([[], [{ name: 'read', pins: {} }]]);
      expect((await policy.list(PRINCIPAL, [toolOf()]))[0]?.schemaProfile).toBe('openai');
      expect((await policy.list({ ...PRINCIPAL, profiles: ['files'] }, [toolOf()]))[0]).toMatchObject({
        verdict: 'never',
        schemaProfile: 'portable',
        reasons: [{ id: 'profile' }],
      });
    },
  );

  it('gives the reasons for a maybe: what denies or asks first, at most five', async () => {
    const policy = await policyOf([
      { id: 'all', outcome: 'allow', when: {} },
      ...Array.from({ length: 9 }, (_, number) => ({
        id: `p${number}`,
        outcome: 'ask',
        when: { paths: [`d${number}/**`] },
      })),
    ]);
    expect((await policy.list(PRINCIPAL, [toolOf()]))[0]?.reasons.map(({ id }) => id)).toEqual([
      'p0',
      'p1',
      'p2',
      'p3',
      'p4',
    ]);
  });

  it('decides thousands of tools, each with its own verdict, and an empty list', async () => {
    const policy = await policyOf([
      {
        id: 'even',
        outcome: 'allow',
        when: { tools: Array.from({ length: 1500 }, (_, number) => `git.t${number * 2}`) },
      },
    ]);
    const tools = Array.from({ length: 3000 }, (_, number) => toolOf({ tool: `t${number}` }));
    const decisions = await policy.list(PRINCIPAL, tools);
    expect(decisions.map(({ verdict }) => verdict)).toEqual(
      tools.map((_, number) => (number % 2 === 0 ? 'always' : 'never')),
    );
    expect(await policy.list(PRINCIPAL, [])).toEqual([]);
  });
});
