import { describe, expect, it } from 'vitest';
import type { PolicyParts } from '../../policies/engine/compiled-parts.ts';
import { loadPolicy } from '../../policies/engine/policy-loader.ts';
import { suggest } from '../../policies/rules/policy-problems.ts';
import { compileRules } from '../../policies/rules/rule-compiler.ts';
import { callOf, documentOf, parts, policyOf, problemsOf, scratch, WORKSPACE } from '../engine/policy-fixture.ts';

/** Returns the problems of a rules file with this text. */
const faultsOf = (text: string, over: Partial<PolicyParts> = {}): Promise<readonly string[]> => {
  const folder = scratch({ 'r.yaml': text });
  return problemsOf(
    loadPolicy(parts({ folder, sources: [{ path: `${folder}/r.yaml`, kind: 'yaml', mode: 'enforce' }], ...over })),
  );
};

const rule = (lines: string): string => `rules:\n  - id: a\n    outcome: deny\n${lines.replace(/^/gm, '    ')}\n`;

describe('a faulty rule is refused at its place', () => {
  it.each([
    [
      'an unknown key, with what was meant',
      rule('when: {verb: [read]}'),
      'r.yaml:4:12: unknown key "verb". Did you mean "verbs"?',
    ],
    [
      'one thing where a list stands',
      rule('when: {verbs: read}'),
      'r.yaml:4:19: "read" is not of type array; write a list: [read].',
    ],
    [
      'a number in quotes',
      rule('when: {args: {x: {max: "5"}}}'),
      '"5" is not of type number; write it without quotes.',
    ],
    ['a number instead of a string', rule('when: {}\nmessage: 5'), '5 is not of type string; write it in quotes.'],
    [
      'a time with one digit',
      rule('when: {time: {from: "9:00", zone: UTC}}'),
      '"9:00" does not fit: HH:MM with two digits each, such as 09:00.',
    ],
    ['an unknown key of the rule', rule('whem: {}\nwhen: {}'), 'r.yaml:4:5: unknown key "whem". Did you mean "when"?'],
    [
      'an unknown key of a test',
      rule('when: {args: {x: {equal: 1}}}'),
      'r.yaml:4:23: unknown key "equal". Did you mean "equals"?',
    ],
    ['an unknown key of the file', 'rule: []\nrules: []\n', 'r.yaml:1:1: unknown key "rule". Did you mean "rules"?'],
    ['a missing id', 'rules:\n  - outcome: deny\n    when: {}\n', 'r.yaml:2:5: "id" is missing'],
    ['a missing when', 'rules:\n  - id: a\n    outcome: deny\n', 'r.yaml:2:5: "when" is missing'],
    ['missing rules', 'rules:\n', 'r.yaml:1:7: the value is missing'],
    ['an id with blanks', 'rules:\n  - {id: A b, outcome: deny, when: {}}\n', 'r.yaml:2:10: "A b" does not fit'],
    [
      'an unknown outcome',
      'rules:\n  - {id: a, outcome: denyy, when: {}}\n',
      'r.yaml:2:22: "denyy" is not one of allow, ask, deny. Did you mean "deny"?',
    ],
    [
      'an unknown verb',
      rule('when: {verbs: [raed]}'),
      'r.yaml:4:20: "raed" is not one of read, write, destructive, execute. Did you mean "read"?',
    ],
    ['an unknown mode', rule('mode: dry\nwhen: {}'), 'r.yaml:4:11: "dry" is not one of'],
    ['an empty list', rule('when: {paths: []}'), 'r.yaml:4:19: an empty list never matches'],
    ['an empty test', rule('when: {args: {x: {}}}'), 'r.yaml:4:22: the value is empty'],
    ['a star among names', rule('when: {roles: ["dev*"]}'), 'r.yaml:4:20: "dev*" does not fit'],
    ['an empty message', rule('message: ""\nwhen: {}'), 'r.yaml:4:14: "" must NOT have fewer than 1 characters'],
    [
      'a bad glob',
      rule('when: {paths: ["src/[ab]"]}'),
      'r.yaml:4:20: "src/[ab]" contains [: only * and ** are wildcards',
    ],
    ['a bad host', rule('when: {hosts: ["https://a.b"]}'), 'r.yaml:4:20: "https://a.b" is not a host'],
    ['a bad tool', rule('when: {tools: [status]}'), 'r.yaml:4:20: "status" is not a tool'],
    ['a pattern that matches every tool', rule('when: {tools: ["*.*"]}'), 'matches every tool'],
    ['a command with syntax', rule('when: {commands: ["rm *"]}'), 'r.yaml:4:23: "rm *" is not a list of literal words'],
    ['a bad argument path', rule('when: {args: {a..b: {present: true}}}'), '"a..b" is not a path'],
    [
      'a regular expression that RE2 does not know',
      rule('when: {args: {x: {pattern: "(?=a)"}}}'),
      'r.yaml:4:32: "(?=a)" is not an RE2 regular expression',
    ],
    [
      'a regular expression that is broken',
      rule('when: {args: {x: {pattern: "(a"}}}'),
      '"(a" is not an RE2 regular expression',
    ],
    ['min above max', rule('when: {args: {x: {min: 2, max: 1}}}'), 'no number is at least 2 and at most 1'],
    ['a number that is a text', rule('when: {args: {x: {min: 2, prefix: a}}}'), 'cannot be both a number'],
    [
      'a server that does not exist',
      rule('when: {servers: [gti]}'),
      'r.yaml:4:22: there is no server "gti". Did you mean "git"?',
    ],
    ['a tool of such a server', rule('when: {tools: [gitt.push]}'), 'there is no server "gitt". Did you mean "git"?'],
    [
      'a profile that does not exist',
      rule('when: {profiles: [wrok]}'),
      'there is no profile "wrok". Did you mean "work"?',
    ],
    [
      'tools and servers that never meet',
      rule('when: {tools: [git.push], servers: [mail]}'),
      '"git.push" can never match',
    ],
    ['obligations of a deny', rule('when: {}\nobligations: {timeoutMs: 5}'), 'cannot have obligations'],
    [
      'an id of Tollgate itself',
      'rules:\n  - {id: default-deny, outcome: deny, when: {}}\n',
      'is an id that Tollgate uses itself',
    ],
    ['broken YAML', 'rules:\n  - {id: a\n', 'r.yaml:'],
  ])('%s', async (_name, text, expected) => {
    expect((await faultsOf(text)).join('\n')).toContain(expected);
  });

  it('a pattern of an allow that does not match the whole value', async () => {
    const text = (pattern: string): string =>
      `rules:\n  - id: a\n    outcome: allow\n    when: {args: {url: {pattern: "${pattern}"}}}\n`;
    for (const pattern of ['https://a', '^https://a', 'a$'])
      expect(await faultsOf(text(pattern))).toEqual([expect.stringContaining('begin it with ^ and end it with $')]);
  });

  it('two rules with the same id, even in two files', async () => {
    const folder = scratch({
      'a.yaml': 'rules:\n  - {id: x, outcome: deny, when: {servers: [git]}}\n',
      'b.yaml': `rules:
  - {id: y, outcome: ask, when: {verbs: [read]}}
  - {id: x, outcome: allow, when: {verbs: [write]}}
`,
    });
    const sources = ['a', 'b'].map(
      (name) => ({ path: `${folder}/${name}.yaml`, kind: 'yaml', mode: 'enforce' }) as const,
    );
    expect(await problemsOf(loadPolicy(parts({ folder, sources })))).toEqual([
      'b.yaml:3:10: the id "x" is already used at a.yaml:2; choose another id',
    ]);
  });

  it('reports all problems, and the first one in the message', async () => {
    const load = policyOf([
      { id: 'a', outcome: 'deny', when: { paths: ['~'] } },
      { id: 'b', outcome: 'deny', when: { hosts: ['A'] } },
      { id: 'c', outcome: 'deny', when: { servers: ['nope'] } },
    ]);
    await expect(load).rejects.toMatchObject({
      code: 'POLICY_INVALID',
      message: expect.stringMatching(/^rules\.yaml:1:1: .*\(and 2 more\)$/) as string,
    });
  });

  it('does not show absolute paths', async () => {
    const folder = scratch();
    const missing = loadPolicy(
      parts({ folder, sources: [{ path: `${folder}/none.yaml`, kind: 'yaml', mode: 'enforce' }] }),
    );
    await expect(missing).rejects.toMatchObject({
      code: 'POLICY_INVALID',
      message: 'The rules none.yaml cannot be read.',
    });
    const outside = loadPolicy(
      parts({ folder: `${folder}/sub`, sources: [{ path: `${folder}/none.yaml`, kind: 'yaml', mode: 'enforce' }] }),
    );
    await expect(outside).rejects.toMatchObject({ message: 'The rules none.yaml cannot be read.' });
  });

  it('suggests only similar words', () => {
    expect([
      suggest('raed', ['read', 'write']),
      suggest('xyz', ['read']),
      suggest('ab', ['ba']),
      suggest('a'.repeat(70), ['a']),
    ]).toEqual([' Did you mean "read"?', '', '', '']);
  });
});

describe('modes', () => {
  const rules = [
    { id: 'yes', outcome: 'allow', when: {} },
    { id: 'no', outcome: 'deny', when: { verbs: ['read'] } },
  ];

  it.each([
    ['enforce', 'enforce', 'deny', []],
    ['enforce', 'warn', 'allow', ['no']],
    ['enforce', 'shadow', 'allow', ['no']],
    ['enforce', 'off', 'allow', []],
    ['warn', 'enforce', 'deny', ['no', 'yes']],
    ['shadow', 'warn', 'deny', ['no', 'yes']],
    ['off', 'enforce', 'deny', []],
  ] as const)('a document in %s with its denying rule in %s', async (document, mode, outcome, shadow) => {
    const policy = await policyOf([], { rules: [documentOf([rules[0], { ...rules[1], mode }], { mode: document })] });
    const decision = await policy.call(callOf());
    expect([decision.outcome, decision.shadow.map(({ id }) => id).sort()]).toEqual([outcome, shadow]);
  });

  it('reports what a shadow rule would have decided, without its obligations', async () => {
    const policy = await policyOf([
      { id: 'yes', outcome: 'allow', when: {} },
      {
        id: 'small',
        outcome: 'ask',
        mode: 'shadow',
        message: 'Big.',
        when: { verbs: ['read'] },
        obligations: { caps: { bytes: 1024 } },
      },
    ]);
    expect(await policy.call(callOf())).toMatchObject({
      outcome: 'allow',
      obligations: { caps: {} },
      shadow: [{ id: 'small', message: 'Big.', file: 'rules.yaml', line: 2, would: 'ask' }],
    });
  });

  it('does not use shadow rules in lists', async () => {
    const policy = await policyOf([
      { id: 'yes', outcome: 'allow', when: {} },
      { id: 'no', outcome: 'deny', mode: 'shadow', when: {} },
    ]);
    expect(await policy.list(callOf().principal, [{ server: 'git', tool: 'x', verb: 'read' }])).toMatchObject([
      { verdict: 'always' },
    ]);
  });
});

describe('the index', () => {
  const kindOf = (when: object): string => {
    const { tools: index } = compileRules([documentOf([{ id: 'a', outcome: 'deny', when }])], WORKSPACE).index;
    return [
      ...Object.entries(index.tool).map(([key]) => `tool ${key}`),
      ...Object.entries(index.server).map(([key]) => `server ${key}`),
      ...Object.entries(index.verb).map(([key]) => `verb ${key}`),
      ...index.any.map(() => 'any'),
    ].join(', ');
  };

  it.each([
    [{ tools: ['git.push', 'git.pull'] }, 'tool git.push, tool git.pull'],
    [{ tools: ['git.push', 'mail.*'] }, 'server git, server mail'],
    [{ tools: ['git.*', 'git.x'] }, 'server git'],
    [{ tools: ['*.push'], servers: ['git'] }, 'server git'],
    [{ tools: ['*.push'], verbs: ['write'] }, 'verb write'],
    [{ tools: ['*.push'] }, 'any'],
    [{ servers: ['git', 'git'], verbs: ['read'] }, 'server git'],
    [{ verbs: ['read', 'write'] }, 'verb read, verb write'],
    [{ paths: ['a'] }, 'any'],
  ])('puts %j into its most specific part', (when, expected) => {
    expect(kindOf(when)).toBe(expected);
  });
});
