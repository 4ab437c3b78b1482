/** Tests faults of rules that fit the schema: unknown names, contradictions, wide patterns, rules without effect. */
import { describe, expect, it } from 'vitest';
import { threadMs } from '../../catalogs/text/thread-clock.ts';
import { readYaml } from '../../facade/config/reading/yaml-document.ts';
import { loadPolicy } from '../../policies/engine/policy-loader.ts';
import type { OfferedTool } from '../../policies/port.ts';
import type { PolicySettings, PrincipalSettings } from '../../policies/rules/policy-settings.ts';
import { documentOf, parts, policyOf, problemsOf, profile, scratch, settings } from '../engine/policy-fixture.ts';
import { roundsOf } from '../harness/slices.ts';

const PRINCIPALS: readonly PrincipalSettings[] = [
  { id: 'mia', role: 'developer', groups: ['staff'], profiles: ['work'], client: 'editor' },
  { id: 'tom', role: 'guest', groups: ['web'], profiles: ['play'], client: 'browser' },
];
const SETTINGS = settings({
  principals: PRINCIPALS,
  origins: ['https://app.example/'],
  servers: [{ name: 'git', labels: ['vendor'] }, { name: 'mail' }],
  profiles: [profile(), profile({ name: 'play', servers: ['mail'], primitives: {} })],
});

/** Returns the problems of one rule with these lines under `when:`, or of whole rules. */
async function faultsOf(rules: string, over: Partial<PolicySettings> = {}): Promise<readonly string[]> {
  const text = rules.startsWith('rules:') ? rules : `rules:\n  - id: it\n    ${rules}\n`;
  const folder = scratch({ 'r.yaml': text });
  return loadPolicy(
    parts({
      folder,
      settings: { ...SETTINGS, ...over },
      sources: [{ path: `${folder}/r.yaml`, kind: 'yaml', mode: 'enforce' }],
    }),
  ).then(
    () => [],
    () =>
      problemsOf(
        loadPolicy(
          parts({
            folder,
            settings: { ...SETTINGS, ...over },
            sources: [{ path: `${folder}/r.yaml`, kind: 'yaml', mode: 'enforce' }],
          }),
        ),
      ),
  );
}

const rule = (when: string, outcome = 'deny'): string => `outcome: ${outcome}\n    when: ${when}`;

describe('a name that does not exist', () => {
  it.each([
    [
      'a role',
      '{roles: [develper]}',
      'r.yaml:4:20: there is no principal with the role "develper". Did you mean "developer"?',
    ],
    ['a group', '{groups: [ops]}', '4:21: there is no principal in the group "ops". Known names: staff, web.'],
    ['a principal', '{principals: [max]}', '4:25: there is no principal "max". Did you mean "mia"?'],
    [
      'an origin',
      '{origins: [edtor]}',
      '4:22: there is no client of a principal, and no entry in listen.origins, "edtor". Did you mean "editor"?',
    ],
    ['a label', '{labels: [vender]}', '4:21: there is no label "vender". Did you mean "vendor"?'],
    ['a server', '{servers: [gut]}', '4:22: there is no server "gut". Did you mean "git"?'],
    ['the server of a tool', '{tools: [gut.push]}', '4:20: there is no server "gut". Did you mean "git"?'],
    ['a profile', '{profiles: [wrk]}', '4:23: there is no profile "wrk". Did you mean "work"?'],
    [
      'a time zone',
      '{time: {days: [mon], zone: Europe/Berlin2}}',
      'there is no time zone "Europe/Berlin2". Did you mean "Europe/Berlin"?',
    ],
    [
      'an offset for a time zone',
      '{time: {days: [mon], zone: "+02:00"}}',
      'there is no time zone "+02:00". Write a name such as Europe/Berlin',
    ],
  ])('%s', async (_name, when, expected) => {
    expect((await faultsOf(rule(when))).join('\n')).toContain(expected);
  });

  it.each([
    '{origins: [browser]}',
    '{origins: ["https://app.example"]}',
    '{origins: ["http://localhost:5173"]}',
    '{labels: [secret, untrusted, vendor]}',
    '{trust: [external]}',
    '{tools: ["*.push"]}',
    '{servers: [workspace]}',
  ])('%s exists', async (when) => {
    expect(await faultsOf(rule(when))).toEqual([]);
  });

  it('labels that rules give are known, and callers are not checked if the configuration lists none', async () => {
    expect(
      await faultsOf(
        `rules:
  - {id: a, outcome: allow, when: {verbs: [read]}, obligations: {labels: [seen]}}
  - {id: b, outcome: deny, when: {labels: [seen]}}
`,
      ),
    ).toEqual([]);
    const { principals: _, ...rest } = SETTINGS;
    await expect(
      policyOf([{ id: 'a', outcome: 'deny', when: { roles: ['anybody'] } }], { settings: rest }),
    ).resolves.toBeDefined();
  });
});

describe('a rule that can never match', () => {
  it.each([
    [
      'tools and servers',
      '{tools: [git.push], servers: [mail]}',
      '4:20: "git.push" can never match: `servers` of this rule does not contain git',
    ],
    ['a pattern of servers', '{tools: ["g*.push"], servers: [mail]}', '"g*.push" can never match'],
    [
      'servers and trust',
      '{servers: [git], trust: [internal]}',
      '4:22: "git" can never match: it is external, and `trust` of this rule contains only internal',
    ],
    ['tools and trust', '{tools: [workspace.read], trust: [external]}', '"workspace" can never match: it is internal'],
    [
      'callers that exist only apart',
      '{roles: [developer], groups: [web]}',
      '4:12: no principal fits roles and groups together',
    ],
    ['a profile without the server', '{profiles: [play], servers: [git]}', '4:12: no principal with play reaches git'],
    [
      'a profile without the server of the tool',
      '{profiles: [play], tools: [workspace.read]}',
      'no principal with play reaches workspace',
    ],
    [
      'an absolute glob inside',
      '{paths: [/etc/**], insideWorkspace: true}',
      '4:20: "/etc/**" can never match: it is outside the workspace',
    ],
    [
      'a relative glob outside',
      '{paths: [src/**], insideWorkspace: false}',
      '4:20: "src/**" can never match: it is in the workspace',
    ],
    [
      'a command that both can and cannot be read',
      '{opaque: false, readable: false}',
      '`opaque: false` and `readable: false` never match together',
    ],
    ['min above max', '{args: {n: {min: 2, max: 1}}}', '4:22: no number is at least 2 and at most 1'],
    ['equals below min', '{args: {n: {equals: 1, min: 2}}}', '4:31: 1 does not pass the other tests'],
    ['equals not among the values', '{args: {n: {equals: a, in: [b]}}}', '"a" does not pass the other tests'],
    [
      'a value with another beginning',
      '{args: {n: {in: [ab, b], prefix: a}}}',
      '4:32: "b" does not pass the other tests',
    ],
    ['a number with a prefix test', '{args: {n: {equals: 1, prefix: a}}}', '1 does not pass the other tests'],
    ['an absent value with another test', '{args: {n: {present: false, equals: 1}}}', 'passes no other test'],
    ['an empty list of values', '{args: {n: {in: []}}}', 'an empty list never matches'],
    ['an empty window', '{time: {from: "09:00", to: "09:00", zone: UTC}}', 'a window from 09:00 to 09:00 is empty'],
    ['half a window', '{time: {from: "09:00", zone: UTC}}', '`from` and `to` must be given together'],
    [
      'a tool that the workspace has not',
      '{tools: [workspace.raed]}',
      '4:20: workspace has no tool "workspace.raed". Did you mean "workspace.read"?',
    ],
    ['a verb that no tool has', '{tools: [workspace.read], verbs: [write]}', '4:37: no call of read is write'],
    [
      'commands of a tool without any',
      '{tools: [workspace.read], commands: [rm]}',
      '4:37: no argument of read is known as command',
    ],
    ['hosts of the workspace', '{servers: [workspace], hosts: [a.b]}', 'is known as urls'],
    [
      'an argument that no tool has',
      '{tools: [workspace.read], args: {pth: {present: true}}}',
      '4:44: read has no argument "pth". Did you mean "path"?',
    ],
    [
      'an argument deeper than it goes',
      '{tools: [workspace.read], args: {path.x: {present: true}}}',
      'read has no argument "path.x"',
    ],
    [
      'an argument of several tools',
      '{tools: [workspace.read, workspace.write], args: {colour: {present: true}}}',
      'read, write have no argument "colour". Known arguments: action, path',
    ],
    [
      'a value that the argument does not take',
      '{tools: [workspace.bash], args: {action: {equals: strat}}}',
      '"strat" is not a value of action. Did you mean "start"?',
    ],
    [
      'a number for a text',
      '{tools: [workspace.read], args: {path: {equals: 3}}}',
      '4:59: path is a string, never 3, so it can never match; write it in quotes',
    ],
    [
      'a text for a number',
      '{tools: [workspace.read], args: {limit: {in: [3, "4"]}}}',
      'limit is a whole number, never "4", so it can never match; write it without quotes',
    ],
    [
      'a limit of a text',
      '{tools: [workspace.read], args: {path: {min: 3}}}',
      '`min` tests a number, and path is a string; use another test',
    ],
    [
      'a beginning of a number',
      '{tools: [workspace.read], args: {limit: {prefix: "3"}}}',
      '`prefix` tests a string, and limit is a whole number; use another test',
    ],
    [
      'one of several values',
      '{tools: [workspace.read], args: {action: {in: [list, grep]}}}',
      '"grep" is not a value of action. Its values are file, list',
    ],
  ])('%s', async (_name, when, expected) => {
    expect((await faultsOf(rule(when))).join('\n')).toContain(expected);
  });

  it.each([
    '{tools: ["g*.push"], servers: [git]}',
    '{profiles: [play, work], servers: [git]}',
    '{roles: [developer], groups: [staff], principals: [mia]}',
    '{paths: [/**], insideWorkspace: true}',
    '{paths: ["**/.env"], insideWorkspace: false}',
    '{args: {n: {equals: 2, min: 2, max: 2, in: [2, 2]}}}',
    '{tools: [workspace.edit], args: {edits.old_string: {present: true}}}',
    '{servers: [workspace], args: {command: {prefix: rm}}}',
    '{tools: [git.anything], args: {x: {equals: 1}}}',
    '{tools: [workspace.bash], verbs: [read], args: {action: {in: [poll, list]}}}',
  ])('does not include %s', async (when) => {
    expect(await faultsOf(rule(when))).toEqual([]);
  });
});

describe('a pattern that is wider than it looks', () => {
  it.each([
    [
      'a suffix that is everybody’s',
      '{hosts: ["*.com"]}',
      '"*.com" matches the hosts of anyone who registers a name below it',
    ],
    ['the hosts of a country code', '{hosts: ["a.b", "*.co.uk"]}', '4:27: "*.co.uk" matches the hosts of anyone'],
    [
      'the hosts of a hosting service',
      '{urls: ["https://*.github.io/x"]}',
      '"*.github.io" matches the hosts of anyone',
    ],
    ['every path', '{paths: ["**"]}', '"**" matches every path of the workspace; write insideWorkspace: true'],
    ['one tool name on every server', '{tools: ["*.search"]}', '"*.search" allows any tool with such a name'],
    ['a pattern for any string', '{args: {x: {pattern: "^.*$"}}}', '"^.*$" matches every string'],
    ['a pattern that is not anchored', '{args: {x: {pattern: "^a"}}}', 'begin it with ^ and end it with $'],
    ['a window that is always open', '{time: {days: [mon-sun], zone: UTC}}', 'the window is always open'],
    [
      'a URL without its path in one spelling',
      '{urls: ["https://a.b/%41"]}',
      '"https://a.b/%41" can match no path: write it as /A',
    ],
    ['a URL with a query', '{urls: ["https://a.b/x?y"]}', 'contains ?'],
    ['a host for a URL', '{urls: [a.b]}', '"a.b" is not a URL'],
    ['a URL of any scheme', '{urls: ["*://a.b"]}', 'is not a URL'],
  ])('%s', async (_name, when, expected) => {
    expect((await faultsOf(rule(when, 'allow'))).join('\n')).toContain(expected);
  });

  it.each([
    '{hosts: ["*"]}',
    '{hosts: ["*.corp", "*.example.org", "*.a.co.uk"]}',
    '{paths: [/**]}',
    '{tools: ["*.search"], servers: [git]}',
    '{tools: ["git.*"]}',
    '{}',
  ])('%s is accepted', async (when) => {
    expect(await faultsOf(rule(when, 'allow'))).toEqual([]);
  });

  it('a rule that denies may be wide', async () => {
    for (const when of ['{hosts: ["*.com"]}', '{paths: ["**"]}', '{tools: ["*.search"]}'])
      expect([when, await faultsOf(rule(when))]).toEqual([when, []]);
  });
});

describe('rules against each other', () => {
  const two = (a: string, b: string): string => `rules:\n  - {id: a, outcome: ${a}}\n  - {id: b, outcome: ${b}}\n`;

  it.each([
    ['deny, when: {}', 'allow, when: {verbs: [read]}'],
    ['deny, when: {servers: [git]}', 'allow, when: {tools: [git.push, git.pull]}'],
    ['deny, when: {tools: ["git.p*"]}', 'ask, when: {tools: ["git.pu*"], verbs: [write]}'],
    ['deny, when: {verbs: [read, write]}', 'allow, when: {verbs: [write], roles: [developer]}'],
    ['deny, when: {tools: [git.a, git.b], roles: [developer]}', 'allow, when: {tools: [git.b], roles: [developer]}'],
    ['deny, when: {paths: ["**/.env", "**/x"]}', 'allow, when: {paths: ["**/.env"], insideWorkspace: true}'],
    ['deny, when: {args: {n: {min: 2}}}', 'allow, when: {args: {n: {min: 2}, m: {equals: 1}}}'],
    ['deny, when: {time: {days: [sun], zone: UTC}}', 'allow, when: {servers: [git], time: {days: [sun], zone: UTC}}'],
  ])('%s makes %s useless', async (deny, other) => {
    expect(await faultsOf(two(deny, other))).toEqual([
      expect.stringMatching(/^r\.yaml:3:\d+: "a" \(r\.yaml:2\) denies every call that this rule is about/),
    ]);
    expect(await faultsOf(two(other, deny).replace('id: a', 'id: z'))).toHaveLength(1);
  });

  it.each([
    ['deny, when: {verbs: [read]}', 'allow, when: {}'],
    ['deny, when: {servers: [git]}', 'allow, when: {tools: [git.push, mail.send]}'],
    ['deny, when: {tools: ["git.pu*"]}', 'allow, when: {tools: ["git.p*"]}'],
    ['deny, when: {verbs: [read], roles: [guest]}', 'allow, when: {verbs: [read]}'],
    ['deny, when: {args: {n: {min: 2}}}', 'allow, when: {args: {n: {min: 3}}}'],
    ['deny, mode: shadow, when: {}', 'allow, when: {verbs: [read]}'],
    ['deny, when: {}', 'allow, mode: "off", when: {verbs: [read]}'],
    ['deny, when: {verbs: [read]}', 'deny, when: {verbs: [read], servers: [git]}'],
  ])('%s does not make %s useless', async (deny, other) => {
    expect(await faultsOf(two(deny, other))).toEqual([]);
  });

  it('reports rules that say the same in different spellings', async () => {
    expect(
      await faultsOf(
        two('ask, when: {verbs: [read, write], servers: [git]}', 'ask, when: {servers: [git], verbs: [write, read]}'),
      ),
    ).toEqual([expect.stringContaining('it says the same as "a" (r.yaml:2)')]);
    expect(
      await faultsOf(two('allow, when: {verbs: [read]}', 'allow, when: {verbs: [read]}, obligations: {timeoutMs: 5}')),
    ).toEqual([]);
    expect(await faultsOf(two('deny, when: {verbs: [read]}', 'deny, mode: shadow, when: {verbs: [read]}'))).toEqual([]);
  });

  it('compares thousands of rules within a few seconds', async () => {
    const rules = roundsOf(10_000, 4000);
    const many = Array.from({ length: rules }, (_, number) => ({
      id: `r${number}`,
      outcome: number % 2 === 0 ? 'deny' : 'allow',
      when: { tools: [`git.t${number}`], verbs: ['read'] },
    }));
    const start = threadMs();
    await expect(policyOf(many)).resolves.toMatchObject({ rules });
    expect(threadMs() - start).toBeLessThan(2 * rules);
  });
});

describe('all faults are reported together', () => {
  it('faults of schema, names, contradictions, broken YAML in another file, and Rego', async () => {
    const folder = scratch({
      'a.yaml': `rules:
  - {id: A, outcome: deny, when: {}}
  - {id: b, outcome: deny, when: {roles: [nobody]}}
  - {id: c, outcome: deny, when: {paths: [/etc/**, "a//b"], insideWorkspace: true}}
`,
      'b.yaml': 'rules:\n  - id: d\n    outcome: deny\n   when: {}\n',
      'c.rego': 'package policy.c\n\ndeny contains "x" if input.efect.verb == "read"\n',
    });
    const source = (name: string, kind: 'yaml' | 'rego') =>
      ({ path: `${folder}/${name}`, kind, mode: 'enforce' }) as const;
    const problems = await problemsOf(
      loadPolicy(
        parts({
          folder,
          settings: SETTINGS,
          sources: [source('a.yaml', 'yaml'), source('b.yaml', 'yaml'), source('c.rego', 'rego')],
        }),
      ),
    );
    expect(problems.map((line) => line.split(':').slice(0, 2).join(':'))).toEqual([
      'a.yaml:2',
      'a.yaml:3',
      'a.yaml:4',
      'a.yaml:4',
      'b.yaml:4',
      'c.rego:3',
    ]);
  });

  it('further faults of a rule that does not fit the schema, but no faults that only follow from that', async () => {
    const text = [
      'rules:',
      '  - {id: a, outcome: allow, when: {time: {from: "25:00", to: "18:00", zone: Berlinn}}}',
      '  - {id: b, outcome: denny, when: {roles: [nobody], verbs: [3], paths: ["a//b"]}}',
      '  - {id: c, outcome: deny, when: {vebs: [read]}, obligations: 3}',
      '  - {id: d, outcome: allow, when: {servers: [git], args: {a: {min: x, pattern: "^("}}}}',
      '  - {outcome: deny, when: {servers: [nowhere]}}',
    ].join('\n');
    const faults = await faultsOf(text);
    for (const [line, ...words] of [
      [2, '25:00', 'no time zone'],
      [3, 'denny', 'nobody', '"a//b"', '3 is not'],
      [4, 'vebs', 'obligations|not of type'],
      [5, 'RE2', '"x" is not of type'],
      [6, '"id" is missing'],
    ] as const) {
      const there = faults.filter((fault) => fault.includes(`:${line}:`)).join('\n');
      for (const word of words) expect(there).toMatch(new RegExp(word.replace(/[/"]/g, '.')));
    }
    expect(faults).toHaveLength(12);
  });

  it.each([
    [
      'a condition beside `when`',
      'rules:\n  - id: a\n    outcome: deny\n    when:\n    verbs: [read]\n',
      ['4:5', '5:5'],
      'indent it, so that it is under `when`',
    ],
    [
      'an entry that stands too far left',
      'rules:\n  - id: a\n    outcome: deny\n    when: {}\n - id: b\n',
      ['5:2'],
      'is not below the other `- ` of its list',
    ],
    [
      'a key that stands too far left',
      'rules:\n  - id: a\n    outcome: deny\n   when: {}\n',
      ['4:4'],
      'indent it like the other lines of the entry',
    ],
    [
      'a key that stands too far right',
      'rules:\n  - id: a\n    outcome: deny\n      when: {}\n',
      ['3:14'],
      'the next line is indented deeper',
    ],
    [
      'a key without a blank behind its colon',
      'rules:\n  - id:a\n    outcome: deny\n',
      ['2:5'],
      'write a colon and a space after the key',
    ],
    ['an open bracket', 'rules:\n  - {id: a, when: {verbs: [read}}\n', ['2:32'], 'a closing `]` is missing'],
    [
      'a pattern that is no text',
      'rules:\n  - {id: a, outcome: deny, when: {paths: [**/x]}}\n',
      ['2:43'],
      'quote text that begins with `*`',
    ],
  ])('%s', (_name, text, places, message) => {
    const { problems } = readYaml('r.yaml', text);
    const found = problems.length > 0 ? problems : undefined;
    if (found !== undefined) expect(found.map(({ line, column }) => `${line}:${column}`)).toEqual(places);
    return expect(faultsOf(text).then((lines) => lines.join('\n'))).resolves.toContain(message);
  });
});

describe('the tools of an external server, once it lists them', () => {
  const tool = (name: string, properties: object, over: Partial<OfferedTool> = {}): OfferedTool => ({
    name,
    inputSchema: { type: 'object', properties, additionalProperties: false },
    semantics: { verb: 'destructive' },
    ...over,
  });
  const judge = async (when: object, tools: readonly OfferedTool[], server = 'git'): Promise<readonly string[]> =>
    (await (
      await policyOf([], { rules: [documentOf([{ id: 'it', outcome: 'deny', when }])], settings: SETTINGS })
    ).findUnoffered?.(server, tools)) ?? [];

  it('reports a tool, an argument or a fact that it does not have, with the place', async () => {
    const tools = [
      tool('push', { branch: { type: 'string' }, force: { type: 'boolean' } }),
      tool('log', { branch: { type: 'string' } }),
    ];
    expect(await judge({ tools: ['git.psuh'] }, tools)).toEqual([
      'rules.yaml:1:1: git has no tool "git.psuh". Did you mean "git.push"?',
    ]);
    expect(await judge({ tools: ['git.get_*'] }, tools)).toEqual([
      expect.stringContaining('Its tools are git.push, git.log.'),
    ]);
    expect(await judge({ servers: ['git'], args: { brunch: { equals: 'x' } } }, tools)).toEqual([
      expect.stringContaining('push, log have no argument "brunch". Did you mean "branch"?'),
    ]);
    expect(await judge({ tools: ['git.log'], args: { force: { equals: true } } }, tools)).toEqual([
      expect.stringContaining('log has no argument "force"'),
    ]);
    expect(await judge({ tools: ['git.push'], paths: ['**/x'] }, tools)).toEqual([
      expect.stringContaining('known as paths'),
    ]);
    expect(await judge({ tools: ['git.*'], args: { force: { equals: true } } }, tools)).toEqual([]);
  });

  it('reports a pinned value that no tool accepts, without showing the value', async () => {
    const tools = [tool('push', { force: { type: 'boolean' }, branch: { enum: ['main', 'dev'] } })];
    const pinned = async (pins: object): Promise<readonly string[]> =>
      (await (
        await policyOf([], {
          rules: [documentOf([{ id: 'it', outcome: 'allow', when: { tools: ['git.push'] }, obligations: { pins } }])],
          settings: SETTINGS,
        })
      ).findUnoffered?.('git', tools)) ?? [];
    expect(await pinned({ force: 'secret-4711' })).toEqual([
      'rules.yaml:1:1: push does not accept the value that is pinned to "force": expected boolean',
    ]);
    expect(await pinned({ branch: 'secret-4711' })).toEqual([
      expect.stringMatching(/pinned to "branch": expected one of [^4]*$/),
    ]);
    expect([await pinned({ force: true, branch: 'dev' }), (await pinned({ fore: true })).length]).toEqual([[], 1]);
  });

  it('does not check rules about other servers, or about several', async () => {
    const tools = [tool('push', {})];
    for (const when of [
      { tools: ['mail.send'] },
      { servers: ['git', 'mail'], args: { x: { equals: 1 } } },
      { verbs: ['read'], args: { x: { equals: 1 } } },
      { tools: ['*.nope'] },
    ])
      expect([when, await judge(when, tools)]).toEqual([when, []]);
  });

  it.each([
    ['a reference', { $ref: '#/$defs/a' }],
    ['one of several required schemas', { allOf: [{ type: 'object' }, { properties: { x: {} } }] }],
    ['one of several alternative schemas', { anyOf: [{ properties: { y: {} } }, { properties: { x: {} } }] }],
    ['a list of objects', { type: 'array', items: { type: 'object', properties: { x: {} } } }],
    ['an open map', { type: 'object', additionalProperties: { type: 'string' } }],
    ['an object of any form', { type: 'object' }],
    ['a reference to another document', { $ref: 'https://x.example/s' }],
    ['a reference to itself', { $ref: '#' }],
    ['anything', true],
    ['named by a pattern', { properties: { z: {} }, patternProperties: { '^x': {} } }],
  ])('finds a path through %s', async (_name, inner) => {
    const own = {
      name: 'push',
      inputSchema: { type: 'object', properties: { a: inner, x: {} }, $defs: { a: { properties: { x: {} } } } },
      semantics: { verb: 'read' },
    } as OfferedTool;
    expect(await judge({ tools: ['git.push'], args: { 'a.x': { equals: 1 } } }, [own])).toEqual([]);
  });

  it('checks values only if every schema lists them', async () => {
    const of = (mode: object): readonly OfferedTool[] => [tool('push', { mode })];
    expect(
      await judge({ tools: ['git.push'], args: { mode: { equals: 'fats' } } }, of({ enum: ['fast', 'slow'] })),
    ).toEqual([expect.stringContaining('"fats" is not a value of mode. Did you mean "fast"?')]);
    expect(
      await judge(
        { tools: ['git.push'], args: { mode: { equals: 'x' } } },
        of({ anyOf: [{ enum: ['fast'] }, { type: 'string' }] }),
      ),
    ).toEqual([]);
  });
});
