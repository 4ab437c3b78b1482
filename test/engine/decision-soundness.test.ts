import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { noteOpaqueCommand, readCallDecision } from '../../policies/engine/decision-reader.ts';
import { type CallDecision, EFFECT_KINDS, type ListTool, type Principal } from '../../policies/port.ts';
import { partOf, roundsOf } from '../harness/slices.ts';
import { verifies } from '../verifies.ts';
import { type CallOf, callOf, PRINCIPAL, policyOf, profile, settings, toolOf } from './policy-fixture.ts';
import {
  decideInFull,
  facts,
  OUTCOMES,
  principals,
  requests,
  rules,
  SERVERS,
  SETTINGS,
  TOOLS,
  targets,
  VERBS,
} from './random-policies.ts';

const decide = (all: readonly unknown[], naive = false): ((call: CallOf) => CallDecision) => {
  const one = decideInFull(all, { naive });
  return (call) => one(callOf(call)) as unknown as CallDecision;
};

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
        for (const third of partOf(kinds, 3)) {
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
        const order = (decision: CallDecision): unknown => ({
          ...decision,
          reasons: [...decision.reasons].sort((a, b) => (a.id < b.id ? -1 : 1)),
          shadow: [...decision.shadow].sort((a, b) => (a.id < b.id ? -1 : 1)),
        });
        expect(order(decide(all)(given))).toEqual(order(decide(all, true)(given)));
      }),
      { numRuns: roundsOf(250, 50) },
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
              noteOpaqueCommand(readCallDecision(anew(given) as unknown as Record<string, unknown>), callOf(given)),
            );
          }
        },
      ),
      { numRuns: roundsOf(60, 20) },
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
      ...EFFECT_KINDS.map((kind) => ({ kind, server, tool, verb: 'read' as const })),
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
    verifies('CY-11', 'CY-16', 'PR-P04'), async () => {
    await fc.assert(
      fc.asyncProperty(
        rules,
        principals,
        fc.array(fc.tuple(facts, requests), { minLength: 5, maxLength: 5 }),
        async (all, over, calls) => {
          const policy = await policyOf(all, { settings: SETTINGS });
          const principal: Principal = { ...PRINCIPAL, ...over };
          const decisions = await policy.list(principal, tools);
          for (const [number, tool] of tools.entries()) {
            for (const verb of tool.verbs ?? [tool.verb])
              for (const [call, request] of calls) {
                // A request of this kind has its own facts.
                const own = request.kind === tool.kind ? request : { kind: tool.kind ?? 'tool' };
                const { outcome } = await policy.call(
                  callOf({
                    ...own,
                    principal: over,
                    server: tool.server,
                    tool: tool.tool,
                    verb,
                    ...carried(call, tool),
                  }),
                );
                const verdict = decisions[number]?.verdict;
                expect([verdict, outcome]).not.toEqual(['never', 'allow']);
                expect([verdict, outcome]).not.toEqual(['never', 'ask']);
                if (verdict === 'always') expect(outcome).toBe('allow');
              }
          }
        },
      ),
      { numRuns: roundsOf(80, 10) },
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
      { numRuns: roundsOf(30, 10) },
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
