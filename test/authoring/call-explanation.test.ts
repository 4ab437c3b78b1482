/**
 * Tests the answer to "why": what matched, what almost matched, which expression failed, and that every reported flip
 * is correct.
 */

import { writeFileSync } from 'node:fs';
import path from 'node:path';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { explainCall, readsOf } from '../../policies/authoring/why/call-explanation.ts';
import { findFlips } from '../../policies/authoring/why/decision-flips.ts';
import type { Explanation, Flip } from '../../policies/authoring/why/explanation-format.ts';
import type { PolicyParts } from '../../policies/engine/compiled-parts.ts';
import {
  type CallOf,
  callOf,
  documentOf,
  parts,
  policyOf,
  profile,
  regoSource,
  scratch,
  settings,
} from '../engine/policy-fixture.ts';
import { inFull } from '../harness/full-tests.ts';
import { roundsOf } from '../harness/slices.ts';
import { verifies } from '../verifies.ts';

const RULES = [
  { id: 'sources', outcome: 'allow', when: { verbs: ['read', 'write'], paths: ['src/**'] } },
  { id: 'admins', outcome: 'allow', when: { roles: ['admin'], insideWorkspace: true } },
  { id: 'no-secrets', outcome: 'deny', message: 'Closed.', when: { paths: ['**/.env', '**/*.pem'] } },
  {
    id: 'office',
    outcome: 'allow',
    when: { commands: ['cat'], time: { days: ['mon-fri'], from: '08:00', to: '18:00', zone: 'Europe/Berlin' } },
  },
  { id: 'push', outcome: 'ask', when: { commands: ['cat secret'] } },
];

function why(call: CallOf, rules: readonly unknown[] = RULES, over: Partial<PolicyParts> = {}): Promise<Explanation> {
  return explainCall(
    parts({ rules: [documentOf(rules)], ...over }),
    callOf({ server: 'workspace', tool: 'read', ...call }),
  );
}

const said = ({ outcome, changes }: Flip): string => `${outcome} if ${changes.map(({ text }) => text).join(' and ')}`;
const flipsOf = ({ flips }: Explanation): readonly string[] => flips.map(said);
const ids = (rules: Explanation['rules'], fired: boolean): readonly string[] =>
  rules.filter((rule) => rule.fired === fired).map(({ id }) => id);

describe('an explanation', () => {
  it('names the rule that matched, its place, and the facts that each of its conditions read', async () => {
    const { decision, rules } = await why({ inside: ['config/.env'], args: { path: 'config/.env' } });
    expect(decision.outcome).toBe('deny');
    expect(rules[0]).toMatchObject({
      id: 'no-secrets',
      fired: true,
      file: 'rules.yaml',
      line: 3,
      message: 'Closed.',
      mode: 'enforce',
      conditions: [
        {
          field: 'paths',
          written: ['**/.env', '**/*.pem'],
          holds: true,
          facts: [{ name: 'path', value: 'config/.env' }],
        },
      ],
    });
  });

  it('names near rules, and the condition that failed in each', async () => {
    const { rules, others } = await why({ inside: ['README.md'], args: { path: 'README.md' } });
    expect(ids(rules, false)).toEqual(['sources', 'admins', 'no-secrets']);
    expect(rules[0]?.conditions.map(({ field, holds }) => [field, holds])).toEqual([
      ['verbs', true],
      ['paths', false],
    ]);
    expect(others).toBe(2);
  });

  it('leaves out rules that no change of this call could make match', async () => {
    const { rules } = await why({ inside: ['README.md'], args: { path: 'README.md' } });
    expect(rules.map(({ id }) => id)).not.toContain('push');
  });

  it('shows rules that are not enforced, without counting them', async () => {
    const { rules, decision } = await why({ inside: ['a'], args: {} }, [
      { id: 'watch', outcome: 'deny', mode: 'shadow', when: { verbs: ['read'] } },
      { id: 'open', outcome: 'allow', when: {} },
    ]);
    expect(decision.outcome).toBe('allow');
    expect(rules.find(({ id }) => id === 'watch')).toMatchObject({ fired: true, mode: 'shadow' });
  });

  it('covers every field of `when`, so that new fields need no change', async () => {
    const when = {
      tools: ['git.status'],
      servers: ['git'],
      verbs: ['read'],
      roles: ['developer'],
      groups: ['web'],
      principals: ['mia'],
      origins: ['editor'],
      profiles: ['work'],
      labels: ['public'],
      paths: ['src/**'],
      insideWorkspace: true,
      hosts: ['a.example'],
      commands: ['git'],
      opaque: false,
      args: { 'n.m': { min: 1, present: true } },
    };
    const call: CallOf = {
      server: 'git',
      tool: 'status',
      inside: ['src/a'],
      hosts: ['a.example'],
      commands: [['git', 'log']],
      labels: ['public'],
      args: { n: { m: 3 } },
    };
    const whole = await why(call, [{ id: 'all', outcome: 'allow', when }]);
    expect(whole.rules[0]?.conditions.map(({ field }) => field)).toEqual([
      ...Object.keys(when).filter((name) => name !== 'insideWorkspace' && name !== 'args'),
      'args.n.m',
    ]);
    expect(whole.rules[0]?.conditions.every(({ holds, facts }) => holds && facts.length > 0)).toBe(true);
    const broken = await why({ ...call, args: { n: { m: 0 } } }, [{ id: 'all', outcome: 'allow', when }]);
    expect(broken.rules[0]?.conditions.filter(({ holds }) => !holds)).toEqual([
      expect.objectContaining({ field: 'args.n.m', facts: [{ name: 'arguments.n.m', value: 0 }] }),
    ]);
    expect(flipsOf(broken)).toEqual(['allow if arguments.n.m were at least 1']);
  });
});

/** Rules in which one tests the argument `a`. */
const testing = (outcome: 'allow' | 'deny', tests: unknown): readonly unknown[] => [
  ...(outcome === 'deny' ? [{ id: 'open', outcome: 'allow', when: {} }] : []),
  { id: 'r', outcome, when: { args: { a: tests } } },
];

describe('the smallest change', () => {
  it.each<readonly [string, CallOf, readonly string[]]>([
    ['a path', { inside: ['README.md'], args: { path: 'README.md' } }, ['allow if the path matched src/**']],
    [
      'a path outside',
      { outside: ['/etc/x'], args: { path: '/etc/x' }, principal: { role: 'admin' } },
      ['allow if the path lay in the workspace', 'allow if the path matched src/**'],
    ],
    [
      'the wrong time',
      { verb: 'execute', commands: [['cat', 'x']], time: '2026-11-22T10:00:00Z' },
      ['allow if the call came within mon-fri 08:00-18:00 Europe/Berlin'],
    ],
    [
      'an asked command',
      { verb: 'execute', commands: [['cat', 'secret']], args: { command: 'cat secret' } },
      [
        'allow if an owner approved this call',
        'allow if the rule push (rules.yaml:5:1) had the exception exceptCommands: ["cat secret"]',
      ],
    ],
    [
      'one of several commands',
      {
        verb: 'execute',
        commands: [
          ['cat', 'x'],
          ['cat', 'secret'],
        ],
      },
      ['allow if an owner approved this call', 'allow if the command were none of cat secret'],
    ],
  ])('of %s' + verifies('FH-73'), async (_name, call, expected) => {
    expect([...flipsOf(await why(call))].sort()).toEqual([...expected].sort());
  });

  it.each<readonly [string, unknown, unknown, string]>([
    ['max', { min: 2, max: 5 }, { a: 9 }, 'allow if arguments.a were at least 2 and at most 5'],
    ['min', { min: 2 }, { a: 1 }, 'allow if arguments.a were at least 2'],
    ['absent', { present: false }, { a: 1 }, 'allow if arguments.a were absent'],
  ])('of an argument: %s', async (_name, tests, args, expected) => {
    expect(flipsOf(await why({ server: 'git', tool: 'status', args }, testing('allow', tests)))).toEqual([expected]);
  });

  it.each<readonly [string, unknown, unknown, string]>([
    ['min', { min: 2 }, { a: 9 }, 'allow if arguments.a were less than 2'],
    ['present', { present: true }, { a: 1 }, 'allow if arguments.a were absent'],
  ])('of a denied argument: %s', async (_name, tests, args, expected) => {
    expect(flipsOf(await why({ server: 'git', tool: 'status', args }, testing('deny', tests)))).toEqual([expected]);
  });

  it.each<readonly [string, 'allow' | 'deny', Record<string, unknown>, CallOf, string]>([
    ['hosts', 'allow', { hosts: ['*.example.org'] }, { hosts: ['bad.example'] }, 'the host matched *.example.org'],
    [
      'hosts, exact',
      'allow',
      { hosts: ['a.example'] },
      { urls: ['https://b.example/x'] },
      'the host matched a.example',
    ],
    [
      'labels',
      'deny',
      { labels: ['untrusted'] },
      { labels: ['untrusted', 'x'] },
      'labels had no untrusted, as in another run',
    ],
    [
      'a part of a command',
      'deny',
      { commands: ['rm'] },
      { commands: [['ls'], ['rm']] },
      'the command were none of rm',
    ],
    [
      'an option',
      'deny',
      { commands: ['git push --force'] },
      { commands: [['git', 'push', '--force']] },
      'the command had no --force',
    ],
    [
      'time',
      'deny',
      { time: { from: '09:00', to: '12:00', zone: 'UTC' } },
      {},
      'the call came outside of 09:00-12:00 UTC',
    ],
  ])('of a rule on %s', async (_name, outcome, when, call, expected) => {
    const rules = [
      ...(outcome === 'deny' ? [{ id: 'open', outcome: 'allow', when: {} }] : []),
      { id: 'r', outcome, when },
    ];
    expect(flipsOf(await why({ server: 'git', tool: 'status', ...call }, rules))).toContain(`allow if ${expected}`);
  });

  it('keeps the name of the file, or the path of the URL', async () => {
    const { flips } = await why({ outside: ['/etc/deep/x.md'], args: { path: '/etc/deep/x.md' } });
    expect(flips[0]?.changes[0]?.to).toBe('src/x.md');
    const hosts = await why({ server: 'git', tool: 'status', urls: ['https://b.example/x'] }, [
      { id: 'r', outcome: 'allow', when: { hosts: ['a.example'] } },
    ]);
    expect(hosts.flips[0]?.changes[0]?.to).toBe('https://a.example/x');
  });

  it.each<readonly [string, 'allow' | 'deny', Record<string, unknown>, CallOf]>([
    ['another verb', 'allow', { verbs: ['write'] }, {}],
    ['another tool', 'allow', { tools: ['git.log'] }, {}],
    ['another server', 'allow', { servers: ['mail'] }, {}],
    ['another caller', 'allow', { principals: ['ann'] }, {}],
    ['another role', 'allow', { roles: ['admin'] }, {}],
    ['another group', 'allow', { groups: ['core'] }, {}],
    ['another origin', 'allow', { origins: ['ci'] }, {}],
    ['an owner as caller', 'allow', { owner: true }, {}],
    ['no role', 'deny', { roles: ['developer'] }, {}],
    ['a label', 'allow', { labels: ['public'] }, {}],
    ['another command', 'allow', { commands: ['ls'] }, { commands: [['rm']] }],
    ['another command than an unreadable one', 'allow', { opaque: false }, { commands: 'opaque' }],
    ['a file that the rule names', 'allow', { paths: ['docs/a.md'] }, { inside: ['b.md'], args: { path: 'b.md' } }],
    [
      'another file than a closed one',
      'deny',
      { paths: ['**/.env'], args: { path: { present: true } } },
      { inside: ['.env'], args: {} },
    ],
    ['a host that no one knows', 'deny', { hosts: ['bad.example'] }, { hosts: ['bad.example'] }],
    ['a value that the rule names', 'allow', { args: { a: { equals: 'main' } } }, { args: { a: 'x' } }],
    ['one of the values', 'allow', { args: { a: { in: [1, 2] } } }, { args: { a: 3 } }],
    ['a prefix that the rule names', 'allow', { args: { a: { prefix: 'v1' } } }, { args: { a: 'x' } }],
    ['an argument without a value', 'allow', { args: { a: { present: true } } }, {}],
    ['any other value', 'deny', { args: { a: { equals: 'x' } } }, { args: { a: 'x' } }],
    ['a larger number', 'deny', { args: { a: { max: 9 } } }, { args: { a: 9 } }],
  ])('is never %s' + verifies('FH-73'), async (_name, outcome, when, call) => {
    const rules = [
      ...(outcome === 'deny' ? [{ id: 'open', outcome: 'allow', when: {} }] : []),
      { id: 'r', outcome, when },
    ];
    const { flips } = await why({ server: 'git', tool: 'status', ...call }, rules);
    expect(flips.filter(({ changes }) => changes.some(({ fact }) => fact !== 'rule'))).toEqual([]);
  });

  it('names another caller if an owner asks', async () => {
    const rules = [{ id: 'r', outcome: 'allow', when: { roles: ['admin'] } }];
    expect(flipsOf(await why({ principal: { owner: true } }, rules))).toEqual(['allow if principal.role were admin']);
  });

  it('may be an exception of the rule, with its place' + verifies('FH-73'), async () => {
    const rules = [
      { id: 'open', outcome: 'allow', when: {} },
      { id: 'closed', outcome: 'deny', when: { paths: ['secrets/**'] } },
    ];
    const call = { inside: ['secrets/a'], args: { path: 'secrets/a' } };
    expect(flipsOf(await why(call, rules))).toEqual([
      'allow if the rule closed (rules.yaml:2:1) had the exception except: ["secrets/a"]',
    ]);
    const control = { ...rules[1], id: 'control-files' };
    expect(flipsOf(await why(call, [rules[0], control]))).toEqual([]);
  });

  it('is not searched for an allowed call', async () => {
    expect((await why({ inside: ['src/a'], args: { path: 'src/a' } })).flips).toEqual([]);
  });

  it('can end a refusal by the configuration: a profile that has the server', async () => {
    const two = settings({ profiles: [profile({ servers: [] }), profile({ name: 'ops', servers: ['git'] })] });
    expect(
      flipsOf(
        await why(
          { server: 'git', tool: 'status', principal: { owner: true } },
          [{ id: 'open', outcome: 'allow', when: {} }],
          { settings: two },
        ),
      ),
    ).toEqual(['allow if principal.profiles had ops']);
  });

  it('reports only what it proved', async () => {
    expect((await why({ server: 'git', tool: 'status' }, [])).flips).toEqual([]);
    expect(
      (
        await why({ server: 'git', tool: 'status', args: { a: 'x' } }, [
          { id: 'r', outcome: 'allow', when: { args: { a: { pattern: '^v[0-9]+$' } } } },
        ])
      ).flips,
    ).toEqual([]);
  });

  it('is minimal and correct for any rules and calls', async () => {
    const field = fc.oneof(
      fc.record({ paths: fc.subarray(['src/**', '**/.env', 'docs/*', '/etc/**'], { minLength: 1 }) }),
      fc.record({ verbs: fc.subarray(['read', 'write'], { minLength: 1 }) }),
      fc.record({ roles: fc.subarray(['admin', 'developer'], { minLength: 1 }) }),
      fc.record({ labels: fc.subarray(['secret', 'public'], { minLength: 1 }) }),
      fc.record({ args: fc.record({ n: fc.record({ max: fc.integer({ min: 0, max: 9 }) }) }) }),
    );
    const rule = fc.record({
      outcome: fc.constantFrom('allow', 'ask', 'deny'),
      fields: fc.array(field, { minLength: 1, maxLength: 3 }),
    });
    const call = fc.record({
      verb: fc.constantFrom('read' as const, 'write' as const),
      inside: fc.subarray(['src/a', '.env', 'x'], { maxLength: 1 }),
      labels: fc.subarray(['secret', 'public']),
      n: fc.integer({ min: 0, max: 9 }),
    });
    await fc.assert(
      fc.asyncProperty(fc.array(rule, { minLength: 1, maxLength: 4 }), call, async (drawn, { n, ...facts }) => {
        const rules = drawn.map(({ outcome, fields }, number) => ({
          id: `r${number}`,
          outcome,
          when: Object.assign({}, ...fields) as object,
        }));
        const found = await why({ ...facts, args: { n, path: facts.inside[0] } }, rules).catch(
          (thrown: { code?: string }) =>
            thrown.code === 'POLICY_INVALID' ? undefined : Promise.reject(thrown as Error),
        );
        // A load refuses rules of which one makes another useless.
        fc.pre(found !== undefined);
        const { flips, decision } = found;
        const sizes = flips.map(({ changes }) => changes.length);
        expect(flips.every(({ outcome }) => outcome !== decision.outcome)).toBe(true);
        expect(sizes.every((size) => size >= 1 && size <= 3)).toBe(true);
        expect(sizes).toEqual([...sizes].sort());
      }),
      { numRuns: roundsOf(25, 10) },
    );
  });

  it('makes no more decisions than its budget', async () => {
    let decided = 0;
    const candidates = Array.from({ length: 30 }, (_, number) => ({
      fact: `f${number}`,
      from: 0,
      to: 1,
      text: '',
      apply: <T>(input: T): T => input,
    }));
    const flips = await findFlips({
      input: callOf(),
      outcome: 'deny',
      candidates,
      budget: 100,
      decide: () => Promise.resolve(void (decided += 1)),
    });
    expect([flips, decided]).toEqual([[], 100]);
  });
});

const REGO = `package policy.team

deny contains {"id": "big", "message": "Too long."} if {
	input.effect.verb == "write"
	count(input.effect.arguments.text) > 10
}

allow contains {"id": "ops", "message": "Ops."} if {
	input.principal.role == "ops"
	some fact in input.effect.paths
	endswith(fact.path, ".md")
}

allow contains {"id": "noon", "message": "Noon."} if {
	[hour, _, _] := time.clock(time.now_ns())
	hour == 12
}
`;

describe('rego', () => {
  const rego = (): Partial<PolicyParts> => {
    const folder = scratch();
    writeFileSync(path.join(folder, 'team.rego'), REGO);
    return { folder, sources: [regoSource(path.join(folder, 'team.rego'))] };
  };

  inFull('names the first failed expression of each rule with its line, and none of rules that matched', async () => {
    const { expressions, decision } = await why(
      { inside: ['a.md'], args: { path: 'a.md' }, time: '2026-11-20T12:30:00Z' },
      [],
      rego(),
    );
    expect(decision.reasons[0]?.id).toBe('noon');
    expect(expressions).toEqual([
      { rule: 'policy.team.deny', file: 'team.rego', line: 4, text: 'input.effect.verb == "write"' },
      { rule: 'policy.team.allow', file: 'team.rego', line: 9, text: 'input.principal.role == "ops"' },
    ]);
  });

  inFull('uses the time of the call as the clock', async () => {
    const { expressions } = await why({ inside: ['a.md'], args: {} }, [], rego());
    expect(expressions.at(-1)).toEqual({ rule: 'policy.team.allow', file: 'team.rego', line: 16, text: 'hour == 12' });
  });

  inFull('finds flips by constants of the rules, each proved', async () => {
    const flips = flipsOf(await why({ inside: ['a.md'], args: { path: 'a.md' } }, [], rego()));
    expect(flips).toEqual([expect.stringMatching(/^allow if the call came at 2026-11-20T12/)]);
  });

  inFull('finds a flip by a length', async () => {
    const flips = (
      await why(
        { verb: 'write', inside: ['a.md'], args: { text: 'x'.repeat(20) }, time: '2026-11-20T12:30:00Z' },
        [],
        rego(),
      )
    ).flips;
    expect(flips.flatMap(({ changes }) => changes).find(({ fact }) => fact === 'arguments.text')?.to).toHaveLength(10);
  });

  it('says that opa is missing, and still explains YAML', async () => {
    const given = rego();
    const policyParts = parts({ ...given, rules: [documentOf(RULES)] });
    await expect(explainCall({ ...policyParts, opa: '/nowhere/opa' }, callOf())).rejects.toMatchObject({
      code: 'OPA_MISSING',
    });
  });
});

describe('what rules read', () => {
  it('is listed by name for existing rules', async () => {
    const reads = await readsOf(parts({ rules: [documentOf(RULES)] }), [
      'no-secrets',
      'office',
      'gone',
      'default-deny',
    ]);
    expect([...reads]).toEqual([
      ['no-secrets', ['path']],
      ['office', ['command', 'time']],
    ]);
  });
});

it('the engine that explains also decides', async () => {
  const policy = await policyOf(RULES);
  const { decision, revision } = await why({ inside: ['src/a'], args: {} });
  expect(decision).toEqual(
    await policy.call(callOf({ server: 'workspace', tool: 'read', inside: ['src/a'], args: {} })),
  );
  expect(revision).toBe(policy.revision);
});
