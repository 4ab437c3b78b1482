/**
 * Tests verdicts of lists with Rego: rules that a list can decide, rules that stay open, and that lists and calls agree
 * under any rules.
 */

import fc from 'fast-check';
import { afterAll, describe, expect, it } from 'vitest';
import { loadPolicy } from '../../policies/engine/policy-loader.ts';
import type { ListTool, Policy, Principal } from '../../policies/port.ts';
import {
  callOf,
  documentOf,
  PRINCIPAL,
  parts,
  profile,
  regoSource,
  scratch,
  settings,
  toolOf,
} from '../engine/policy-fixture.ts';
import { inFull } from '../harness/full-tests.ts';
import { verifies } from '../verifies.ts';

const SETTINGS = settings({
  profiles: [
    profile({ servers: ['git', 'mail', 'workspace'] }),
    profile({ name: 'play', servers: ['mail'], primitives: {} }),
  ],
});
const cache = scratch();
const opened: Policy[] = [];
afterAll(() => opened.forEach((policy) => policy.close()));

const ALL = [{ id: 'all', outcome: 'allow', when: {} }];

async function policyOf(
  rego: string,
  rules: readonly unknown[] = [],
  files: Readonly<Record<string, string>> = {},
): Promise<Policy> {
  const folder = scratch({ 'a.rego': `package policy.a\n\n${rego}\n`, ...files });
  const policy = await loadPolicy(
    parts({ folder, cache, settings: SETTINGS, rules: [documentOf(rules)], sources: [regoSource(folder)] }),
  );
  opened.push(policy);
  return policy;
}

const verdictsOf = async (
  policy: Policy,
  tools: readonly ListTool[],
  over: Partial<Principal> = {},
): Promise<readonly (string | undefined)[]> =>
  (await policy.list({ ...PRINCIPAL, ...over }, tools)).map(({ verdict }) => verdict);

describe('Rego rules that read only the caller and the tool', () => {
  inFull(
    'decide a list: never if they deny, always if they allow and no other rule can match' + verifies('CY-11'),
    async () => {
      const policy = await policyOf(
        [
          `deny contains {"id": "no-bash", "message": "No."} if {
	input.effect.server == "workspace"
	input.effect.tool == "bash"
}`,
          'deny contains {"id": "no-push", "message": "No."} if input.effect.tool in {"push", "pull"}',
          `deny contains {"id": "guests", "message": "No."} if {
	"guest" == input.principal.role
	input.effect.verb != "read"
}`,
          `ask contains {"id": "web", "message": "Ask.", "approval": "group"} if {
	"web" in input.principal.groups
	not input.principal.owner
	input.effect.server == "mail"
}`,
          'allow contains {"id": "reads", "message": "Read."} if input.effect.verb == "read"',
          `allow contains "All of git." if {
	input.principal.id == "mia"
	input.effect.server in ["git"]
}`,
        ].join('\n\n'),
      );
      const tools = [
        toolOf({ server: 'workspace', tool: 'bash' }),
        toolOf({ tool: 'push' }),
        toolOf(),
        toolOf({ verb: 'write' }),
        toolOf({ server: 'mail' }),
        toolOf({ server: 'mail', verb: 'write' }),
        toolOf({ verb: 'write', verbs: ['read', 'write'] }),
      ];
      expect(await verdictsOf(policy, tools)).toEqual([
        'never',
        'never',
        'always',
        'always',
        'maybe',
        'maybe',
        'always',
      ]);
      expect(await verdictsOf(policy, tools, { owner: true })).toEqual([
        'never',
        'never',
        'always',
        'always',
        'always',
        'never',
        'always',
      ]);
      expect(await verdictsOf(policy, tools, { id: 'tom', role: 'guest', groups: [] })).toEqual([
        'never',
        'never',
        'always',
        'never',
        'always',
        'never',
        'maybe',
      ]);
      const [bash] = await policy.list(PRINCIPAL, tools);
      expect(bash?.reasons).toEqual([{ id: 'no-bash', message: 'No.', file: 'a.rego', line: 3 }]);
    },
  );

  inFull('are recognized through helpers, functions, imports, other packages and data', async () => {
    const denies = [
      'is_dev',
      'not is_guest',
      'input.effect.server != "mail"',
      'staff[input.principal.id]',
      'input.effect.tool in risky',
      'risky[input.effect.tool]',
      'served(input.effect.server)',
      'level > 2',
      'who.role == "developer"',
      'names.dev(input.principal)',
      'startswith(input.effect.tool, "deny")',
      'endswith(input.effect.server, "it")',
      'glob.match("deny*", [], input.effect.tool)',
      'regex.match(`^deny\\d+$`, input.effect.tool)',
      'input.principal.origin in data.lists.origins',
      'data.lists.servers[input.effect.server].risky',
      'every group in input.principal.groups { group != "guests" }',
      'count({group | some group in input.principal.groups}) == 2',
      'some group in input.principal.groups\n\tgroup == data.lists.group',
      'is_guest with input.principal.role as "guest"',
      'upper(input.principal.role) == "DEVELOPER"',
      'sprintf("%s.x", [input.effect.server]) == "git.x"',
      'input.phase == "call"',
      'lookup == "git"',
      'data.policy.names.dev(input.principal)',
    ];
    const idle = [
      'is_guest',
      'not is_dev',
      'input.effect.server != "git"',
      'served("mail")',
      'level < 2',
      'input.principal.origin in data.lists.group',
      'startswith(input.effect.tool, "x")',
      'data.lists.servers[input.effect.tool]',
      'data.lists.missing',
    ];
    const rules = [
      ...denies.map((body, at) => [`deny${at}`, body]),
      ...idle.map((body, at) => [`idle${at}`, body]),
    ].map(
      ([tool, body]) =>
        `deny contains {"id": "${tool}", "message": concat(" ", ["No", input.effect.tool])} if {
	${body}
	input.effect.tool == "${tool}"
}`,
    );
    const helpers = [
      'import data.names as names',
      'import input.principal as who',
      ...rules,
      'is_dev if input.principal.role == "developer"',
      'is_guest if input.principal.role == "guest"',
      'staff contains id if some id in ["mia", "tom"]',
      'risky contains name if {\n\tsome at in numbers.range(0, 30)\n\tname := sprintf("deny%d", [at])\n}',
      'served(server) if server == "git"',
      'default level := 1',
      'level := 3 if is_dev else := 2 if is_guest',
      'table[name] := server if {\n\tsome name, server in {"a": "git", "b": "mail"}\n}',
      'lookup := table.a',
    ];
    const names = 'package names\n\ndev(who) if who.role == "developer"\n';
    const policy = await policyOf(helpers.join('\n\n'), ALL, {
      'names.rego': names,
      'names2.rego': names.replace('package names', 'package policy.names'),
      'data.json': JSON.stringify({
        lists: { origins: ['editor'], servers: { git: { risky: true } }, group: 'staff' },
      }),
    });
    const tools = [...denies.keys()].map((at) => toolOf({ tool: `deny${at}` }));
    expect(await verdictsOf(policy, tools)).toEqual(denies.map(() => 'never'));
    expect((await policy.list(PRINCIPAL, tools)).map(({ reasons }) => reasons[0]?.message)).toEqual(
      tools.map(({ tool }) => `No ${tool}`),
    );
    expect(
      await verdictsOf(
        policy,
        [...idle.keys()].map((at) => toolOf({ tool: `idle${at}` })),
      ),
    ).toEqual(idle.map(() => 'always'));
  });

  inFull(
    'leave the verdict open if a rule may read more of the call, but only for tools that fit its first expressions' +
      verifies('CY-16'),
    async () => {
      const open = [
        'input.effect.arguments.force',
        'forced',
        'not forced',
        'reads(input)',
        'reads2(input.effect)',
        'object.get(input, ["effect", "arguments", "force"], false)',
        'walk(input, [["effect", "arguments", "force"], true])',
        'some part in ["arguments"]\n\tinput.effect[part].force',
        'some part in ["effect"]\n\tinput[part].arguments.force',
        'time.now_ns() > 5',
        'late',
        'input.labels != []',
        'input.run == "x"',
        'input.plan == "none"',
        'input.effect.paths',
        'count([path | some path in input.effect.paths]) > 0',
        'every path in input.effect.paths { path.inside }',
        'dev_or with input.principal.role as input.run',
        'data.roles.is(input.principal.role) with data.roles.is as spies',
        'some name\n\tdata.names[name].late',
        'call.arguments.force',
        'table[input.principal.role]',
        'some x\n\tx > 3\n\tx = input.effect.arguments.n',
        'input.effect.command.opaque',
        'input.effect.spill',
        'some n\n\tn > 1\n\tn = [1, 2][_]\n\tinput.run',
        // Local variables with the names of rules: one without a value yet, and two rules that only look recursive.
        'some table\n\ttable > 3\n\ttable = input.effect.arguments.n',
        'round_a',
        'not round_c',
      ];
      const rules = open.map(
        (body, at) =>
          `deny contains {"id": "r${at}", "message": "No."} if {
	input.effect.tool == "open${at}"; is_dev
	${body}
}`,
      );
      const heads = [
        'deny contains {"id": "h0", "message": input.run} if input.effect.tool == "head0"',
        'allow contains {"id": "h1", "message": input.effect.arguments.m} if input.effect.tool == "head1"',
        'ask contains "x" if {\n\tinput.effect.tool == "head2"\n\tinput.run\n}',
      ];
      const helpers = [
        'import input.effect as call',
        ...rules,
        ...heads,
        'forced if input.effect.arguments.force',
        'reads(all) if all.effect.arguments.force',
        'reads2(part) if part.arguments.force',
        'spies(_) if input.run',
        'late if forced',
        'late if time.now_ns() > 6',
        'is_dev if input.principal.role == "developer"',
        'dev_or if input.principal.role',
        'table[role] if {\n\tsome role in ["developer"]\n\tforced\n}',
        'round_a if {\n\tround_b := 1\n\tinput.effect.arguments.n > round_b\n}',
        'round_b if round_c',
        'round_c if round_a',
      ];
      const [names, roles] = [
        'package names\n\nlate_one.late if input.effect.arguments.force\n',
        'package roles\n\nis(role) if role == "developer"\n',
      ];
      const policy = await policyOf(helpers.join('\n\n'), ALL, { 'names.rego': names, 'roles.rego': roles });
      const tools = [...open.keys()].map((at) => toolOf({ tool: `open${at}` }));
      expect(await verdictsOf(policy, tools)).toEqual(open.map(() => 'maybe'));
      // The helper before it is false for guests, and no rule is about the last tool.
      expect(await verdictsOf(policy, [...tools, toolOf()], { role: 'guest' })).toEqual([
        ...open.map(() => 'always'),
        'always',
      ]);
      expect(
        await verdictsOf(
          policy,
          heads.map((_, at) => toolOf({ tool: `head${at}` })),
        ),
      ).toEqual(['maybe', 'maybe', 'maybe']);
    },
  );

  inFull('leave every verdict open if they read the call first, or if a package is read as a whole', async () => {
    const unguarded = await policyOf(
      'deny contains "x" if {\n\tinput.run == "x"\n\tinput.effect.tool == "push"\n}',
      ALL,
    );
    expect(await verdictsOf(unguarded, [toolOf()])).toEqual(['maybe']);
    const whole = await policyOf('deny contains "x" if input.effect.tool == "push"', ALL, {
      'b.rego': 'package policy.b\n\nask contains "y" if count(data.policy.a) > 5\n',
    });
    expect(await verdictsOf(whole, [toolOf(), toolOf({ tool: 'push' })])).toEqual(['always', 'never']);
  });

  it('that fail in a list leave its verdicts open, and refuse calls', async () => {
    const policy = await policyOf(
      `allow contains "x" if {
	input.effect.tool == "push"
	clash == 3
}

clash := 1 if input.principal.id == "mia"

clash := 2 if input.principal.role == "developer"`,
      ALL,
    );
    expect(await verdictsOf(policy, [toolOf(), toolOf({ tool: 'push' })])).toEqual(['maybe', 'maybe']);
    expect(await verdictsOf(policy, [toolOf(), toolOf({ tool: 'push' })], { id: 'tom' })).toEqual(['always', 'always']);
    await expect(Promise.resolve(policy.call(callOf({ tool: 'push' })))).rejects.toMatchObject({
      code: 'POLICY_FAILED',
    });
  });

  inFull('have no effect if they are not enforced; a fault that a list can see hides the tool', async () => {
    const folder = scratch({ 'a.rego': 'package policy.a\n\ndeny contains "x" if input.effect.tool == "push"\n' });
    const shadow = await loadPolicy(
      parts({ folder, cache, settings: SETTINGS, rules: [documentOf(ALL)], sources: [regoSource(folder, 'shadow')] }),
    );
    opened.push(shadow);
    expect(await verdictsOf(shadow, [toolOf({ tool: 'push' })])).toEqual(['always']);
    const [faulty] = await (
      await policyOf('allow contains {"id": "x", "message": level} if input.effect.tool == "push"\n\nlevel := 3', ALL)
    ).list(PRINCIPAL, [toolOf({ tool: 'push' })]);
    expect(faulty).toMatchObject({ verdict: 'never', reasons: [{ id: 'policy-shape', file: 'a.rego', line: 3 }] });
  });
});

describe('lists and calls agree with Rego', () => {
  const part = fc.constantFrom(
    'input.effect.server == "git"',
    'input.effect.server in {"git", "mail"}',
    '"mail" == input.effect.server',
    'input.effect.tool == "get"',
    'input.effect.tool in ["put", "x.y"]',
    'input.effect.verb == "read"',
    'input.effect.verb != "read"',
    'input.effect.kind == "resource"',
    'input.effect.kind != "tool"',
    'input.effect.kind in {"tool", "prompt"}',
    'input.effect.uri == "docs://a"',
    'not input.effect.verb in {"read", "write"}',
    'input.principal.role == "developer"',
    '"staff" in input.principal.groups',
    '"play" in input.principal.profiles',
    'input.principal.owner',
    'not input.principal.owner',
    'input.principal.owner == false',
    'is_staff',
    'not is_staff',
    'owned[input.effect.server]',
    'input.effect.tool in owned.git',
    'startswith(input.effect.tool, "p")',
    'quiet(input.effect.verb)',
    'not quiet(input.effect.verb)',
    'many',
    'large',
    'not large',
    'deep(input)',
    'is_staff with input.principal.groups as ["staff"]',
    'some name in ["get", "put"]\n\tname == input.effect.tool',
    'input.effect.arguments.n > 1',
    'input.effect.server != "git"',
    'not input.effect.tool == "get"',
    'input.effect.arguments.s == "a"',
    'true',
  );
  const HELPERS = [
    'is_staff if "staff" in input.principal.groups',
    'owned.git contains "put"',
    'owned.mail contains tool if {\n\ttool := input.effect.tool\n\tis_staff\n}',
    'quiet(verb) if verb == "read"',
    'quiet(verb) if {\n\tverb == "write"\n\tis_staff\n}',
    'many if count(input.principal.profiles) > 1',
    'large if input.effect.arguments.n > 1',
    'large if many',
    'deep(all) if all.effect.arguments.s == "a"',
  ].join('\n\n');
  const rule = fc.record({
    set: fc.constantFrom('deny', 'deny', 'ask', 'allow', 'allow', 'allow'),
    body: fc.uniqueArray(part, { minLength: 1, maxLength: 3 }),
  });
  const yaml = fc.constantFrom(
    [],
    [{ id: 'all', outcome: 'allow', when: {} }],
    [{ id: 'some', outcome: 'deny', when: { tools: ['git.put'], verbs: ['write'] } }],
  );
  const tools = ['git', 'mail'].flatMap((server) =>
    ['get', 'put', 'x.y'].flatMap((tool): readonly ListTool[] => [
      ...(['read', 'write', 'execute'] as const).map((verb) => ({ server, tool, verb })),
      { server, tool, verb: 'write', verbs: ['read', 'write'] },
      ...(['resource', 'prompt'] as const).map((kind) => ({ kind, server, tool, verb: 'read' as const })),
    ]),
  );
  const principals: readonly Partial<Principal>[] = [
    {},
    { role: 'guest', groups: [], owner: true },
    { profiles: ['work', 'play'], owner: false },
  ];

  it('no hidden tool is callable, and no tool listed always is refused' + verifies('CY-16', 'PR-P04'), async () => {
    const samples = fc.sample(fc.tuple(fc.array(rule, { minLength: 1, maxLength: 4 }), yaml), 4);
    const policies = await Promise.all(
      samples.map(([rules, more]) =>
        policyOf(
          rules
            .map(
              ({ set, body }, number) =>
                `${set} contains {"id": "r${number}", "message": "m"} if {\n\t${body.join('\n\t')}\n}`,
            )
            .join('\n\n') + `\n\n${HELPERS}`,
          more,
        ),
      ),
    );
    for (const policy of policies)
      for (const over of principals) {
        const verdicts = await verdictsOf(policy, tools, over);
        const calls = tools.flatMap((tool, number) =>
          (tool.verbs ?? [tool.verb]).flatMap((verb) =>
            [{} as { n?: number; s?: string }, { n: 2, s: 'a' }].map((args) => ({
              verdict: verdicts[number],
              call: {
                ...callOf({
                  ...(tool.kind === 'resource' ? { kind: tool.kind, uri: `docs://${args.s ?? 'b'}` } : {}),
                  ...(tool.kind === 'prompt' ? { kind: tool.kind } : {}),
                  server: tool.server,
                  tool: tool.tool,
                  verb,
                  args,
                }),
                principal: { ...PRINCIPAL, ...over },
              },
            })),
          ),
        );
        for (const { verdict, call } of calls) {
          const { outcome } = await policy.call(call);
          if (verdict === 'never') expect(outcome).toBe('deny');
          if (verdict === 'always') expect(outcome).toBe('allow');
        }
      }
  });
});
