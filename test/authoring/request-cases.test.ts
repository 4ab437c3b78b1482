/** Tests suites and `policy why` with requests of other kinds than calls of tools. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { openRecorder } from '../../facade/audit/recording/recorder.ts';
import { EXIT } from '../../facade/cli/command-io.ts';
import { cli, dataOf } from '../cli/terminal.ts';
import { Project } from '../config/project.ts';
import { type CallOf, callOf, policyOf, profile, settings } from '../engine/policy-fixture.ts';
import { endedCall } from '../recording/recording-setup.ts';
import { verifies } from '../verifies.ts';

const RULES = `rules:
  - {id: look, outcome: allow, when: {verbs: [read]}}
  - {id: manual, outcome: allow, when: {kind: resource, servers: [docs], uri: ["docs://manual/**", "file:///**"]}}
  - {id: prompts, outcome: allow, when: {kind: prompt}}
  - {id: forms, outcome: ask, when: {kind: elicitation}}
  - {id: passwords, outcome: deny, when: {asks: {fields: ["*password*"]}}}
  - {id: few-tokens, outcome: allow, when: {kind: sampling, asks: {maxTokens: {max: 100}}}}
  - {id: no-secrets, outcome: deny, when: {paths: ["**/.env"]}}
  - {id: no-evil, outcome: deny, when: {hosts: [evil.example]}}
`;
const CONFIG = `policies: [policies/rules.yaml]
servers: {docs: {url: "https://docs.example/mcp"}}
profiles: {default: {servers: [docs]}}
`;

let project: Project;
beforeAll(() => {
  project = new Project();
  project.write('policies/rules.yaml', RULES);
  project.write('tollgate.yaml', CONFIG);
});
afterAll(() => project.remove());

async function suite(cases: readonly string[]): ReturnType<typeof cli> {
  project.write('x_suite.yaml', `cases:\n${cases.map((one, at) => `  - {name: c${at}, ${one}}\n`).join('')}`);
  return cli(project, ['policy', 'test', 'x_suite.yaml']);
}

describe('a case about a request', () => {
  it('needs only its kind, its server and what the rules read' + verifies('PR-P12'), async () => {
    const inside = `file://${project.folder}/app/.env`;
    expect(
      await suite([
        'effect: {kind: resource, server: docs, uri: "docs://manual/intro"}, expect: allow, reason: manual',
        'effect: {kind: resource, server: docs, uri: "docs://manual/../x"}, expect: deny, reason: default-deny',
        `effect: {kind: resource, server: docs, uri: "${inside}"}, expect: deny, reason: no-secrets`,
        'effect: {kind: resource, server: docs, uri: "file:///etc/hosts"}, expect: allow, reason: manual',
        'effect: {kind: resource, server: docs, uri: "file://host/x"}, expect: deny, reason: no-secrets',
        'effect: {kind: completion, server: docs, uri: "https://evil.example/a"}, expect: deny, reason: no-evil',
        'effect: {kind: prompt, server: docs, tool: brief}, expect: allow, reason: prompts',
        'effect: {kind: prompt, server: docs, tool: brief}, expect: maybe',
        'effect: {kind: roots, server: docs}, expect: never',
        'effect: {kind: elicitation, server: docs, asks: {mode: form, fields: [name]}}, expect: ask',
        'effect: {kind: elicitation, server: docs, asks: {mode: form, fields: [password]}}, expect: deny',
        'effect: {kind: sampling, server: docs, asks: {maxTokens: 100}}, expect: allow, reason: few-tokens',
        'effect: {kind: sampling, server: docs, asks: {maxTokens: 101}}, expect: deny, reason: default-deny',
      ]),
    ).toMatchObject({ code: EXIT.ok, err: '', out: expect.stringMatching(/^13 passed, 0 failed\./) as unknown });
  });

  it.each([
    ['effect: {kind: resorce, server: docs}, expect: deny', /"resorce" is not one of .*Did you mean "resource"/s],
    ['effect: {kind: prompt, server: docs}, expect: deny', /the name of the prompt is missing; add `tool`/],
    ['effect: {server: docs, tool: x}, expect: deny', /a call of a tool needs `verb`/],
    ['effect: {server: docs, verb: read}, expect: deny', /the name of the tool is missing/],
    ['effect: {server: docs, verb: read, tool: x, uri: "docs://a"}, expect: deny', /has no `uri`; write its `kind`/],
    ['effect: {server: docs, verb: read, tool: x}, expect: never', /is a verdict of a list/],
  ])('is refused: %s', async (one, message) => {
    const { code, err } = await suite([one]);
    expect([code, err.replace(/\s+/g, ' ')]).toEqual([EXIT.usage, expect.stringMatching(message)]);
  });
});

describe('policy inputs', () => {
  it('writes recorded requests as cases that pass' + verifies('PR-P12'), async () => {
    const config = project.config(`${CONFIG}audit: {facts: full}\n`);
    const recorder = openRecorder({
      state: config.state,
      settings: config.audit,
      digest: String,
      now: () => Date.now(),
      onFault: (error) => expect.fail(error.message),
    });
    const policy = await policyOf((parse(RULES) as { rules: unknown[] }).rules, {
      settings: settings({ servers: [{ name: 'docs' }], profiles: [profile({ servers: ['docs'] })] }),
    });
    const effects: readonly CallOf[] = [
      { kind: 'resource', tool: 'resources/read', uri: 'docs://manual/intro' },
      { kind: 'resource', tool: 'resources/read', uri: 'file:///srv/.env' },
      { kind: 'elicitation', tool: 'elicitation/create', verb: 'write', asks: { mode: 'form', fields: ['password'] } },
    ];
    for (const [at, effect] of effects.entries()) {
      const input = callOf({ server: 'docs', ...effect });
      const ended = endedCall(`id-${at}`);
      recorder?.note({ ...ended, judged: { input, decision: await policy.call(input) } } as typeof ended);
    }
    await recorder?.close();
    policy.close();
    const { out } = await cli(project, ['policy', 'inputs', '--sample', '9']);
    expect((parse(out) as { cases: { effect: object }[] }).cases.map(({ effect }) => effect)).toEqual(
      expect.arrayContaining([
        expect.objectContaining({ kind: 'resource', uri: 'file:///srv/.env', paths: [], urls: [] }),
        expect.objectContaining({ kind: 'elicitation', asks: { mode: 'form', fields: ['password'] } }),
      ]),
    );
    project.write('x_suite.yaml', out.replaceAll('profiles:\n        - work', 'profiles:\n        - default'));
    expect((await cli(project, ['policy', 'test', 'x_suite.yaml'])).out).toMatch(/^3 passed, 0 failed/);
  });
});

describe('policy why', () => {
  const why = (...args: readonly string[]): ReturnType<typeof cli> =>
    cli(project, ['policy', 'why', ...args, '--json']);
  interface Why {
    readonly decision: { readonly outcome: string; readonly reasons: readonly { readonly id: string }[] };
    readonly rules: readonly { readonly id: string; readonly fired: boolean; readonly conditions: readonly object[] }[];
    readonly flips: readonly { readonly outcome: string; readonly changes: readonly { readonly text: string }[] }[];
  }

  it.each([
    [['resource:docs', 'docs://manual/intro'], 'allow', 'manual'],
    [['prompt:docs', 'brief'], 'allow', 'prompts'],
    [['elicitation:docs', '{"asks": {"mode": "form", "fields": ["password"]}}'], 'deny', 'passwords'],
    [['sampling:docs', '{"asks": {"maxTokens": 5}}'], 'allow', 'few-tokens'],
    [['roots:docs'], 'deny', 'default-deny'],
  ])('%j is explained' + verifies('PR-P12'), async (args, outcome, reason) => {
    const { out } = await why(...args);
    const { decision } = dataOf<Why>(out);
    expect([decision.outcome, decision.reasons[0]?.id]).toEqual([outcome, reason]);
  });

  it('tells that a rule is about tools, and which URI would be allowed', async () => {
    const { rules, flips } = dataOf<Why>((await why('resource:docs', 'docs://other')).out);
    expect(rules.find(({ id }) => id === 'look')).toMatchObject({
      fired: false,
      conditions: [
        { field: 'kind', written: 'tool', holds: false, facts: [{ name: 'kind', value: 'resource' }] },
        { field: 'verbs', holds: true },
      ],
    });
    expect(flips).toContainEqual(
      expect.objectContaining({
        outcome: 'allow',
        changes: [expect.objectContaining({ text: 'the URI matched docs://manual/**' })],
      }),
    );
  });

  it.each([
    [['resorce:docs', 'docs://a'], 'There is no kind \\"resorce\\" of requests. Did you mean \\"resource\\"?'],
    [['tool:docs', 'x'], 'There is no kind \\"tool\\" of requests.'],
    [['prompt:docs'], 'the name of the prompt is missing'],
    [['elicitation:docs', '{"asks": {"mode": "frm"}}'], 'is not one of form, url.'],
    [['elicitation:docs', '{asks'], 'The fields of the request are not JSON.'],
  ])('%j is refused', async (args, message) => {
    const { code, err } = await why(...args);
    expect([code, err]).toEqual([EXIT.usage, expect.stringContaining(message)]);
  });
});
