import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { EXIT } from '../../facade/cli/command-io.ts';
import { loadConfig } from '../../facade/config/load-config.ts';
import { cli, dataOf } from '../cli/terminal.ts';
import { Project } from '../config/project.ts';
import { approveAll } from '../consent/approve-servers.ts';
import { inFull } from '../harness/full-tests.ts';
import { RUNS_ALL } from '../harness/slices.ts';
import { verifies } from '../verifies.ts';

/** Makes a project with these files. `policies` names the sources. */
function project(files: Readonly<Record<string, string>>, policies = '[policies/git]'): Project {
  const made = new Project();
  made.write('tollgate.yaml', `policies: ${policies}\nprincipals: [{id: mia}]\n`);
  for (const [name, text] of Object.entries(files)) made.write(name, text);
  return made;
}

const rego = (...rules: readonly string[]): Readonly<Record<string, string>> => ({
  'policies/git/git.rego': ['package policy.git', ...rules, ''].join('\n\n'),
});
const check = async (files: Readonly<Record<string, string>>, policies?: string): Promise<readonly string[]> =>
  (await cli(project(files, policies), ['policy', 'check'])).out
    .trim()
    .split('\n')
    .map((line) => line.replace('policies/git/', ''));
const ID = '# METADATA\n# custom:\n#   id: one\n';

/** Rules with a fault, and its first line in the output. */
const FAULTS: readonly (readonly [name: string, rule: string, line: RegExp])[] = [
  [
    'a built-in of the network',
    `${ID}deny contains "x" if http.send({"method": "get", "url": "x"}).status_code == 1`,
    /^git\.rego:6:22: error: undefined function http\.send; a policy cannot use the network; put the facts into data\.json/,
  ],
  [
    'a built-in in a helper',
    `${ID}deny contains "x" if odd(input.run)\n\nodd(x) if rand.intn(x, 2) == 1`,
    /^git\.rego:8:11: error: undefined function rand\.intn; a policy has no source of random numbers/,
  ],
  [
    'a clock that is not there',
    `${ID}deny contains "x" if time.diff(1, 2) == [1]`,
    /time\.diff; to read the time, use time\.now_ns/,
  ],
  [
    'a verb of sprintf',
    `${ID}deny contains sprintf("%q", [input.run])`,
    /^git\.rego:6:23: error: sprintf has no %q here; use %s for strings/,
  ],
  [
    'sprintf with too few values',
    `${ID}deny contains sprintf("%s and %d, 100 %%", [input.run])`,
    /error: sprintf has 2 verbs and 1 values/,
  ],
  [
    'a comparison that contradicts another',
    `${ID}deny contains "x" if {
	input.effect.tool == "read"
	input.labels[_] == "l"
	"bash" == input.effect.tool
}`,
    /^git\.rego:9:2: error: this rule can never match: input\.effect\.tool cannot be "read" and "bash" at the same time/,
  ],
  [
    'a server that is none',
    `${ID}deny contains "x" if input.effect.server == "worspace"`,
    /^git\.rego:6:45: error: there is no server "worspace"\. Did you mean "workspace"\?/,
  ],
  [
    'a role that nobody has',
    `${ID}deny contains "x" if input.principal.role in {"user", "nope"}`,
    /^git\.rego:6:55: error: there is no principal with the role "nope"\. Known names: user\./,
  ],
  [
    'a group, with not',
    `${ID}deny contains "x" if not "ops" in input.principal.groups`,
    /error: there is no principal in the group "ops"/,
  ],
  [
    'a label that nothing gives',
    `${ID}deny contains "x" if "secrt" in input.labels`,
    /error: there is no label "secrt"\. Did you mean "secret"\?/,
  ],
  [
    'a tool that the workspace has not',
    `${ID}deny contains "x" if {
	input.effect.server == "workspace"
	input.effect.tool == "raed"
}`,
    /^git\.rego:8:23: error: workspace has no tool "raed"\. Did you mean "read"\?/,
  ],
  [
    'an argument that the tool has not',
    `${ID}deny contains "x" if {
	input.effect.server == "workspace"
	input.effect.tool == "read"
	startswith(input.effect.arguments.pth, "x")
}`,
    /^git\.rego:9:13: error: read has no argument "pth"\. Did you mean "path"\?/,
  ],
  [
    'a value that the argument does not take',
    `${ID}deny contains "x" if {
	input.effect.server == "workspace"
	input.effect.tool == "read"
	input.effect.arguments.limit == "3"
}`,
    /error: limit is a whole number, never "3"/,
  ],
  [
    'literals that differ',
    `${ID}deny contains "x" if 1 == 2`,
    /error: this rule can never match: both sides are different literals/,
  ],
  [
    'a name that differs from itself',
    `${ID}deny contains "x" if {\n\tx := input.run\n\tx != x\n}`,
    /^git\.rego:8:2: error: this rule can never match: both sides are equal/,
  ],
  [
    'a verb among others',
    `${ID}deny contains "x" if input.effect.verb in {"raed", "read"}`,
    /^git\.rego:6:44: error: a verb is one of read, write, destructive, execute, never "raed"/,
  ],
  [
    'a plan',
    `${ID}deny contains "x" if input.plan != "aproved"`,
    /error: a plan is one of none, pending, approved, never "aproved"/,
  ],
  [
    'an id that is none',
    'deny contains {"id": "Bad ID!", "message": "m"} if input.run',
    /^git\.rego:3:1: error: the id "Bad ID!" must be a string of lower-case letters/,
  ],
  [
    'an id of Tollgate itself',
    'deny contains {"id": "default-deny", "message": "m"} if input.run',
    /error: "default-deny" is an id that Tollgate uses itself/,
  ],
  [
    'one id for two rules',
    `deny contains {"id": "a", "message": "m"} if input.run

ask contains {"id": "a", "message": "m"} if input.run`,
    /^git\.rego:5:1: error: the id "a" is already used at (policies\/git\/)?git\.rego:3; choose another id/,
  ],
  [
    'a field beside a function that is not there',
    `${ID}deny contains "x" if strts_with(input.run, "x")

ask contains {"id": "y", "message": "m"} if input.efect.verb == "read"`,
    /^git\.rego:6:22: error: undefined function strts_with\n?.*/,
  ],
  [
    'a verb that no call has',
    `${ID}deny contains "x" if input.effect.verb == "delete"`,
    /error: a verb is one of read, write, destructive, execute, never "delete"/,
  ],
  [
    'a body that is false',
    `${ID}deny contains "x" if {\n\tinput.run\n\tfalse\n}`,
    /^git\.rego:8:2: error: this rule can never match: an expression is `false`/,
  ],
  [
    'the member of another tool',
    'deny contains {"msg": "x"} if input.run',
    /^git\.rego:3:1: error: a member of `deny` cannot be used: unknown key "msg"/,
  ],
  [
    'a member that is no text',
    'deny contains 5 if input.run',
    /^git\.rego:3:15: error: a reason is a string, or \{"id"/,
  ],
  [
    'an id that is no text',
    'deny contains {"id": 1, "message": "m"} if input.run',
    /error: id of a reason must be a string/,
  ],
  [
    'an object where a text is read',
    `${ID}deny contains "x" if {\n\tsome p in input.effect.paths\n\tstartswith(p, "src")\n}`,
    /^git\.rego:8:2: error: startswith: invalid argument\(s\); expected \(string, string\), given \(object of argument, inside, path, string\)/,
  ],
  [
    'an answer of a type that opa does not know as yet',
    `${ID}deny contains "x" if {\n\tupper(4, word)\n\tword != input.run\n}`,
    /error: upper: invalid argument\(s\); expected \(string, string\), given \(number, any\)/,
  ],
  [
    'a name that gets no value',
    'deny contains {"id": "x", "message": msg} if input.run',
    /error: var msg is unsafe; it gets no value/,
  ],
  [
    'a brace that is not closed',
    'deny contains "x" if {\n\tinput.run\n',
    /^git\.rego:\d+:1: error: unexpected eof token; a bracket, brace or quote is not closed/,
  ],
  ['deny as a boolean', 'deny if input.run', /^git\.rego:3:1: error: `deny` must be a set: write `deny contains/],
  [
    'Rego v0',
    'deny[msg] { msg := input.run }',
    /^git\.rego:3:1: error: `if` keyword is required before rule body; this is Rego v0; in v1 write/,
  ],
  [
    'a field that the input has not',
    `${ID}deny contains "x" if input.efect`,
    /error: undefined ref: input\.efect; known names: /,
  ],
  [
    'an id that is none',
    '# METADATA\n# custom:\n#   id: no spaces\ndeny contains "x" if input.run',
    /^git\.rego:3:1: error: custom\.id must be a string of lower-case letters/,
  ],
  [
    'the id of a reason of ours',
    '# METADATA\n# custom:\n#   id: default-deny\ndeny contains "x" if input.run',
    /"default-deny" is an id that Tollgate uses itself/,
  ],
  [
    'a severity that is none',
    '# METADATA\n# custom:\n#   severity: 5\ndeny contains {"id": "x", "message": "m"} if input.run',
    /custom\.severity must be one of low, medium, high, critical/,
  ],
  [
    'a remediation that is none',
    `# METADATA
# custom:
#   remediation: [a]
deny contains {"id": "x", "message": "m"} if input.run`,
    /custom\.remediation must be a string/,
  ],
];

/** Rules with a doubt, and its first line in the output. */
const DOUBTS: typeof FAULTS = [
  [
    'a text without an id',
    'deny contains "x" if input.run',
    /^git\.rego:3:1: warning: the reason has no id, so refusals call it policy\.git/,
  ],
  [
    'a tool with its server in one name',
    `${ID}deny contains "x" if input.effect.tool == "workspace.read"`,
    /^git\.rego:6:22: warning: input\.effect\.tool does not contain the server; write input\.effect\.server == "workspace" and input\.effect\.tool == "read"/,
  ],
  [
    'a helper that nobody uses',
    `${ID}deny contains "x" if used(input.run)\n\nused(x) if x\n\nidle := 1`,
    /^git\.rego:10:1: warning: no rule uses idle/,
  ],
  [
    'a test outside of a file of tests',
    `${ID}deny contains "x" if input.run\n\ntest_x if true`,
    /^git\.rego:8:1: warning: test_x runs only in a file \*_test\.rego/,
  ],
];

/** Faults that opa reports only if no file has one that it finds earlier. */
const LATE = [
  'an object where a text is read',
  'an answer of a type that opa does not know as yet',
  'a name that gets no value',
];
const TOGETHER = FAULTS.filter(([name]) => !LATE.includes(name));
const APART = FAULTS.filter(([name]) => LATE.includes(name));

/** Returns a project with one file for each rule. */
function oneFileEach(rows: typeof FAULTS): Project {
  return project(
    Object.fromEntries(
      rows.map(([, rule], number) => [
        `policies/git/f${number}.rego`,
        `package policy.f${number}\n\n${rule.replaceAll('id: one', `id: one-${number}`)}\n`,
      ]),
    ),
  );
}

/** Returns the names of the rows whose file does not begin its findings with the expected line. */
function withoutLine(rows: typeof FAULTS, out: string): readonly string[] {
  const lines = out.replaceAll('policies/git/', '').split('\n');
  return rows.flatMap(([name, , expected], number) => {
    const first = lines.find((line) => line.startsWith(`f${number}.rego:`)) ?? '';
    const shown = first.replaceAll(`f${number}.rego`, 'git.rego').replaceAll(`policy.f${number}`, 'policy.git');
    return expected.test(shown) ? [] : [name];
  });
}

describe('policy check', () => {
  it('counts the rules if there are no faults', async () => {
    const sound = rego(`${ID}deny contains "x" if input.effect.tool == "bash"`);
    expect(await check(sound)).toEqual(['ok: 0 YAML rules, 1 rule in 1 file of Rego']);
  });

  it('warns of Rego next to a named policy, because its rules are not used', async () => {
    const files = { 'policies/rules.yaml': 'rules: []\n', 'policies/mine.rego': 'package policy.mine\n' };
    expect(await check(files, '[policies/rules.yaml]')).toEqual([
      expect.stringMatching(/^policies\/mine\.rego:1:1: warning: the file is next to a policy, but is not read/),
      'ok: 0 YAML rules, 1 warning',
    ]);
  });

  it.each(RUNS_ALL ? FAULTS : APART)('refuses %s at its place', async (_name, rule, expected) => {
    const lines = await check(rego(rule));
    expect(lines[0]).toMatch(expected);
    expect(lines.at(-1)).toMatch(/^\d errors?/);
  });

  inFull('refuses each of the others at its place, if every file has one', async () => {
    const { out } = await cli(oneFileEach(TOGETHER), ['policy', 'check']);
    expect(withoutLine(TOGETHER, out)).toEqual([]);
    expect(out).toMatch(/\n\d\d errors, 1 warning\n$/);
  });

  // Proves the same as the next test, one by one.
  it.each(RUNS_ALL ? DOUBTS : [])('warns of %s, and lets it pass', async (_name, rule, expected) => {
    const answer = await cli(project(rego(rule)), ['policy', 'check']);
    expect(answer.out.replace('policies/git/', '')).toMatch(expected);
    expect(answer).toMatchObject({
      code: EXIT.ok,
      out: expect.stringMatching(/1 rule in 1 file of Rego, 1 warning\n$/) as string,
    });
  });

  it('warns of each doubt, and lets all pass', async () => {
    const { code, out } = await cli(oneFileEach(DOUBTS), ['policy', 'check']);
    expect(withoutLine(DOUBTS, out)).toEqual([]);
    expect([code, out]).toEqual([EXIT.ok, expect.stringMatching(/4 rules in 4 files of Rego, 4 warnings\n$/)]);
  });

  it('counts rules that other files read as used', async () => {
    const files = {
      ...rego(
        `${ID}deny contains "x" if input.run`,
        'default limit := 1',
        'limit := 2 if input.run',
        'one(x) := x',
        'two := 2',
        'three := data.policy.git.two',
      ),
      'policies/git/other.rego': `package policy.other

import data.policy.git as g

allow contains {"id": "a", "message": "m"} if {
	g.one(1) == g.limit
	data.policy.git.three == 2
}
`,
    };
    expect(await check(files)).toEqual(['ok: 0 YAML rules, 2 rules in 2 files of Rego']);
  });

  it('reports the faults of all files, also of YAML, and no file hides another', async () => {
    const answer = await cli(
      project(
        {
          ...rego(`${ID}deny contains "x" if http.send({}).x`),
          'policies/git/broken.rego': 'package policy.broken\n\ndeny contains "x" if {\n',
          'policies/git/shape.rego': 'package policy.shape\n\nallow := true\n',
          'policies/git/extra.yaml': 'rules: []\n',
          'policies/git/data.yaml': 'words: [a]\n',
          'policies/rules.yaml': 'rules:\n  - {id: a, outcome: deni, when: {}}\n  - {id: B, outcome: deny, when: {}}\n',
        },
        '[policies/git, policies/rules.yaml]',
      ),
      ['policy', 'check', '--json'],
    );
    const { ok, findings, errors, warnings } = dataOf<{
      ok: boolean;
      errors: number;
      warnings: number;
      findings: readonly { file: string; severity: string }[];
    }>(answer.out);
    expect([answer.code, ok, errors + warnings]).toEqual([EXIT.usage, false, findings.length]);
    expect([...new Set(findings.map(({ file, severity }) => `${severity} ${file}`))]).toEqual([
      'error policies/git/broken.rego',
      'warning policies/git/extra.yaml',
      'error policies/git/git.rego',
      'error policies/git/shape.rego',
      'error policies/rules.yaml',
    ]);
  });

  it.each([
    ['paths of commands', 'deny', '{verbs: [execute], paths: ["**/.env"]}', 'rules cannot see paths other than `cwd`'],
    ['hosts of bash', 'ask', '{tools: [workspace.bash], hosts: [evil.example]}', undefined],
    ['paths of all verbs', 'deny', '{paths: ["**/.env"]}', undefined],
    ['paths of commands that are allowed', 'allow', '{verbs: [execute], paths: ["src/**"]}', undefined],
  ])('warns only of a rule that sees less than it seems to: %s', async (_name, outcome, when, expected) => {
    const { out } = await cli(
      project(
        { 'policies/rules.yaml': `rules: [{id: a, outcome: ${outcome}, when: ${when}}]\n` },
        '[policies/rules.yaml]',
      ),
      ['policy', 'check'],
    );
    if (expected === undefined) expect(out).not.toContain('warning');
    else
      expect(out).toMatch(
        new RegExp(`^policies/rules\\.yaml:1:\\d+: warning: ${expected}.*\nok: 1 YAML rule, 1 warning\n$`),
      );
  });

  it('says once what to write for a tool without its server', async () => {
    const { out } = await cli(
      project(
        { 'policies/rules.yaml': 'rules: [{id: a, outcome: deny, when: {tools: [read]}}]\n' },
        '[policies/rules.yaml]',
      ),
      ['policy', 'check'],
    );
    expect(out).toBe(
      `policies/rules.yaml:1:47: error: "read" is not a tool: write server.tool, here workspace.read, or server.* for all tools of a server
1 error
`,
    );
  });

  inFull('accepts two bodies of one rule, an unnamed server, and names of another configuration', async () => {
    expect(
      await check(
        rego(
          'deny contains {"id": "a", "message": "m"} if input.effect.server == "workspace"',
          'deny contains {"id": "a", "message": "m"} if input.effect.tool == "read"',
          'ask contains {"id": "b", "message": "m"} if not input.effect.arguments.anything == 1',
        ),
      ),
    ).toEqual(['ok: 0 YAML rules, 3 rules in 1 file of Rego']);
    const both = await check(
      rego(
        `${ID}deny contains "x" if strts_with(input.run, "x")`,
        'ask contains {"id": "y", "message": "m"} if input.efect.verb == "read"',
      ),
    );
    expect(both.slice(0, 2)).toEqual([
      expect.stringContaining('git.rego:6:22: error: undefined function strts_with'),
      expect.stringMatching(/^git\.rego:8:45: error: undefined ref: input\.efect; known names: clock, effect, /),
    ]);
    expect(await check(rego(`${ID}deny contains "x" if input.effect.tool == "raed"`))).toEqual([
      'git.rego:6:43: warning: no server has a tool "raed". Did you mean "read"?',
      'ok: 0 YAML rules, 1 rule in 1 file of Rego, 1 warning',
    ]);
    const bare = new Project();
    bare.write(
      'a.rego',
      `package policy.a

deny contains {"id": "one", "message": "m"} if {
	input.effect.server == "gitt"
	input.principal.role == "nope"
}
`,
    );
    expect((await cli(bare, ['policy', 'check', 'a.rego'])).out).toBe('ok: 0 YAML rules, 1 rule in 1 file of Rego\n');
  });

  it('checks names by the approved definitions of a server, and warns once of a server without them', async () => {
    const rules = [
      '{tools: [bank.trnsfer]}',
      '{tools: [bank.transfer], args: {amonut: {max: 5}}}',
      '{tools: [bank.transfer], args: {amount: {equals: "5"}}}',
      '{tools: [bank.transfer], verbs: [write]}',
      '{servers: [bank], args: {memo: {present: true}}}',
      '{tools: [mail.send]}',
      '{tools: [mail.snd]}',
      '{tools: [any.thing]}',
      '{tools: ["mail.*"]}',
    ];
    const made = project(
      {
        'policies/rules.yaml': `rules:
${rules.map((when, number) => `  - {id: r${number}, outcome: deny, when: ${when}}\n`).join('')}`,
      },
      '[policies/rules.yaml]',
    );
    const remote = (name: string): string => `${name}: {url: "https://${name}.example/mcp"}`;
    made.write(
      'tollgate.yaml',
      `${readFileSync(made.file, 'utf8')}servers:
${['bank', 'mail', 'any'].map((name) => `  ${remote(name)}\n`).join('')}`,
    );
    const unknown = await cli(made, ['policy', 'check']);
    expect(unknown).toMatchObject({
      code: 0,
      out: expect.stringContaining(
        'policies/rules.yaml:2:36: warning: bank is not approved yet, so rules about its tools and ' +
          'arguments cannot be checked; approve it, and check again\n',
      ) as string,
    });
    expect(unknown.out).toMatch(/ok: 9 YAML rules, 3 warnings\n$/);
    expect((await cli(made, ['check'])).err.match(/is not approved yet/g)).toHaveLength(3);
    const config = loadConfig(made.file, { env: {}, home: made.home });
    await approveAll(
      config,
      ['bank'],
      [
        {
          name: 'transfer',
          inputSchema: {
            type: 'object',
            properties: { amount: { type: 'integer' }, memo: { type: 'string' } },
            additionalProperties: false,
          },
        },
      ],
    );
    await approveAll(config, ['any']);
    const faults = [
      'policies/rules.yaml:2:44: error: bank has no tool "bank.trnsfer". Did you mean "bank.transfer"?',
      'policies/rules.yaml:3:67: error: transfer has no argument "amonut". Did you mean "amount"?',
      'policies/rules.yaml:4:84: error: amount is a whole number, never "5", so it can never match; ' +
        'write it without quotes',
      'policies/rules.yaml:5:60: error: no call of transfer is write, so the rule can never match; ' +
        'its verbs are destructive',
    ];
    const { code, out } = await cli(made, ['policy', 'check']);
    expect({ code, out: out.split('\n').slice(0, 4) }).toEqual({ code: EXIT.usage, out: faults });
    expect(out).not.toContain('any is not');
    const whole = await cli(made, ['check']);
    expect(whole).toMatchObject({ code: EXIT.usage, err: expect.stringContaining('POLICY_INVALID') as string });
    for (const fault of faults) expect(whole.err).toContain(fault.replace(' error:', ''));
  });

  it('checks and tests the whole policy with a draft in the place of one source' + verifies('AD-139'), async () => {
    const rule = (id: string, outcome: string, verb = 'read'): string =>
      `rules:\n  - {id: ${id}, when: {verbs: [${verb}]}, outcome: ${outcome}, message: m}\n`;
    const made = project(
      {
        'policies/one.yaml': rule('one', 'allow'),
        'policies/two.yaml': rule('two', 'allow', 'write'),
        'draft.yaml': rule('two', 'deny'),
        'policies/rules_suite.yaml': 'cases:\n  - {name: reads, call: {tool: read, args: {path: a}}, expect: allow}\n',
      },
      '[policies/one.yaml, policies/two.yaml]',
    );
    made.write('tollgate.yaml', `${readFileSync(made.file, 'utf8')}expose: {primitives: workspace}\n`);
    const tried = (...words: readonly string[]): ReturnType<typeof cli> => cli(made, ['policy', ...words]);
    const draft = ['--against', 'draft.yaml', '--instead-of', 'policies/one.yaml'];
    expect(await tried('check')).toMatchObject({ code: 0, out: 'ok: 2 YAML rules\n' });
    // Alone, the draft has no fault.
    expect(await tried('check', 'draft.yaml')).toMatchObject({ code: 0 });
    const twice = await tried('check', ...draft);
    expect(twice.code).toBe(EXIT.usage);
    expect(twice.out).toMatch(/^policies\/(one|two)\.yaml:2:\d+: error: .*two/);
    expect(await tried('test')).toMatchObject({ code: 0 });
    made.write('draft.yaml', rule('one', 'deny'));
    expect(await tried('check', ...draft)).toMatchObject({ code: 0, out: 'ok: 2 YAML rules\n' });
    expect(await tried('test', ...draft)).toMatchObject({ code: 1, out: expect.stringContaining('FAIL') as string });
    expect(await tried('check', '--against', 'draft.yaml')).toMatchObject({
      code: EXIT.usage,
      err: expect.stringContaining('--instead-of') as string,
    });
  });

  it('needs no opa for YAML rules, and reports their faults before it needs opa for Rego', async () => {
    const yaml = { 'policies/rules.yaml': 'rules: [{id: a, outcome: deny, when: {}}]\n' };
    expect(
      await cli(project(yaml, '[policies/rules.yaml]'), ['policy', 'check', '--opa', '/nowhere/opa']),
    ).toMatchObject({ code: 0, out: 'ok: 1 YAML rule\n' });
    const both = { ...rego('deny contains "x" if input.run'), 'policies/rules.yaml': 'rules: [{id: a}]\n' };
    expect(
      (await cli(project(both, '[policies/git, policies/rules.yaml]'), ['policy', 'check', '--opa', '/nowhere/opa']))
        .out,
    ).toMatch(/^policies\/rules\.yaml:1:9: error/);
    expect(
      await cli(project(rego('deny contains "x" if input.run')), ['policy', 'check', '--opa', '/nowhere/opa']),
    ).toMatchObject({ code: EXIT.usage, err: expect.stringContaining('OPA_MISSING') as string });
  });

  it('checks named files instead of those of the configuration, and Rego without a configuration', async () => {
    const made = project({
      ...rego(`${ID}deny contains "x" if input.run`),
      'draft/a.rego': 'package policy.draft\n\nallow := 1\n',
    });
    expect((await cli(made, ['policy', 'check', 'draft'])).out).toMatch(/^draft\/a\.rego:3:1: error/);
    const bare = new Project();
    bare.write('a.rego', `package policy.a\n\n${ID}deny contains "x" if input.run\n`);
    expect(await cli(bare, ['policy', 'check', 'a.rego'])).toMatchObject({
      code: 0,
      out: 'ok: 0 YAML rules, 1 rule in 1 file of Rego\n',
    });
    expect(await cli(bare, ['policy', 'check', 'nothing'])).toMatchObject({
      code: EXIT.usage,
      err: expect.stringContaining('USAGE: nothing does not exist.') as string,
    });
    expect(await cli(new Project(), ['policy', 'check', '.'])).toMatchObject({
      code: EXIT.usage,
      err: expect.stringContaining('USAGE: This folder contains no rules, no Rego and no bundle.') as string,
    });
  });

  inFull('finds faults that only appear when all sources are combined', async () => {
    const files = {
      ...rego(`${ID}deny contains "x" if input.run`),
      'policies/b/git.rego':
        'package policy.git\n\n# METADATA\n# custom:\n#   id: two\nask contains "x" if input.run\n',
    };
    expect((await check(files, '[policies/git, {path: policies/b, mode: shadow}]'))[0]).toMatch(
      /policy\.git is in two sources with different modes/,
    );
    const both = {
      ...rego(`${ID}deny contains "x" if input.run`),
      'policies/r.yaml': 'rules:\n  - {id: one, outcome: deny, when: {verbs: [write]}}\n',
    };
    expect((await check(both, '[policies/git, policies/r.yaml]'))[0]).toMatch(
      /^policies\/r\.yaml:2:10: error: the id "one" is already used at git\.rego:6; ids are unique across YAML and Rego/,
    );
  });
});
