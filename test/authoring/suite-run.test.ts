/**
 * Tests `tollgate policy test` as an author uses it: what passes, what fails with which message, and what is refused
 * before a run.
 */

import { mkdirSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { EXIT } from '../../facade/cli/command-io.ts';
import { findOpa } from '../../policies/rego/opa-program.ts';
import { cli, dataOf } from '../cli/terminal.ts';
import { Project } from '../config/project.ts';
import { inFull } from '../harness/full-tests.ts';
import { RUNS_ALL } from '../harness/slices.ts';
import { verifies } from '../verifies.ts';

const RULES = `rules:
  - id: look
    outcome: allow
    message: Reading is free.
    when: {verbs: [read]}
    obligations: {caps: {bytes: 5000}, labels: [internal]}
  - id: no-secrets
    outcome: deny
    message: Secrets stay closed.
    when: {paths: ["**/.env"]}
  - id: night
    outcome: ask
    when: {verbs: [write], labels: [untrusted]}
`;
const CONFIG = `policies: [policies/rules.yaml]
principals: [{id: mia, role: developer}, {id: tom, role: guest}]
servers: {tracker: {url: "https://tracker.example/mcp", semantics: {get_*: read}}}
profiles: {default: {servers: [tracker]}}
expose: {tools: [{tool: tracker.get_issue, name: issue, pins: {full: false}}]}
budgets: [{id: few, scope: run, calls: 3}]
`;

let project: Project;
beforeAll(() => {
  project = new Project();
  project.write('policies/rules.yaml', RULES);
  project.write('tollgate.yaml', CONFIG);
});
afterAll(() => project.remove());

/** Runs one suite of cases, each a flow map. */
async function suite(cases: readonly string[], ...more: readonly string[]): ReturnType<typeof cli> {
  project.write('x_suite.yaml', `cases:\n${cases.map((one) => `  - {${one}}\n`).join('')}`);
  return cli(project, ['policy', 'test', 'x_suite.yaml', ...more]);
}

const READ = 'as: mia, call: {tool: read, args: {path: a}}';
const ENV = 'as: mia, call: {tool: read, args: {path: .env}}';

describe('cases that pass', () => {
  it('are counted, with the rules that decided', async () => {
    expect(
      await suite([
        `name: a, ${READ}, expect: allow, reason: look, message: free, obligations: {caps: {bytes: ` +
          '5000}, labels: [internal], budgets: [few]}',
        `name: b, ${ENV}, expect: deny, reason: no-secrets`,
        'name: c, as: {id: eve, role: guest, groups: [x], origin: o, owner: true}, call: {tool: ' +
          'write, args: {path: a, content: b}}, labels: [untrusted], run: r, plan: none, expect: ask',
        'name: d, as: tom, call: {tool: issue, args: {id: 1, full: true}}, expect: allow, ' +
          'obligations: {pins: {full: false}}',
        'name: e, as: tom, call: {tool: tracker.get_issue}, expect: always',
        'name: f, as: tom, call: {tool: tracker_drop}, expect: never',
        'name: g, as: tom, call: {tool: edit}, expect: maybe',
        'name: h, as: tom, effect: {verb: read, server: tracker, tool: get_x, urls: [{url: ' +
          '"https://a/", host: a}], paths: [{path: .env, inside: true}], args: {}}, expect: deny, ' +
          'reason: no-secrets',
      ]),
    ).toEqual({ code: EXIT.ok, err: '', out: '8 passed, 0 failed. 3 of 3 YAML rules decided a case.\n' });
  });

  it('are written as JSON with --json', async () => {
    const { out } = await suite([`name: a, ${READ}, expect: allow`], '--json');
    expect(dataOf(out)).toMatchObject({
      passed: true,
      rego: [],
      cases: [
        {
          name: 'a',
          file: 'x_suite.yaml',
          line: 2,
          expected: 'allow',
          got: 'allow',
          reasons: [{ id: 'look', file: 'policies/rules.yaml', line: 2 }],
          faults: [],
        },
      ],
      coverage: {
        rules: {
          total: 3,
          covered: 1,
          percent: 33.3,
          uncovered: [{ rule: 'no-secrets', file: 'policies/rules.yaml', line: 7 }, { rule: 'night' }],
        },
      },
    });
  });
});

describe('a case that fails', () => {
  const FAILING = [
    [`name: a, ${READ}, expect: deny`, 'expected deny, got allow by look (policies/rules.yaml:2)'],
    [
      `name: a, ${ENV}, expect: deny, reason: look`,
      'deny is right, but for another reason: expected look, got no-secrets (policies/rules.yaml:7)',
    ],
    [`name: a, ${ENV}, expect: deny, message: open`, 'no message matches /open/: "Secrets stay closed."'],
    [
      `name: a, ${READ}, expect: allow, obligations: {caps: {bytes: 1}}`,
      'obligation caps is {"bytes":5000,"lines":2000}, not {"bytes":1}',
    ],
    [
      `name: a, ${READ}, expect: allow, obligations: {labels: [internal, public]}`,
      'obligation labels is ["internal"], not ["internal","public"]',
    ],
    [`name: a, ${READ}, expect: allow, obligations: {timeoutMs: 5}`, 'obligation timeoutMs is absent, not 5'],
    ['name: a, as: mia, call: {tool: tracker.drop}, expect: maybe', 'expected maybe, got never by default-deny'],
  ] as const;

  it('says in one line what was expected', async () => {
    const { code, out, err } = await suite(FAILING.map(([one]) => one));
    expect({ code, err, lines: out.split('\n').slice(0, FAILING.length + 1) }).toEqual({
      code: EXIT.unexpected,
      err: '',
      lines: [
        ...FAILING.map(([, fault], number) => `FAIL x_suite.yaml:${number + 2}  a: ${fault}`),
        expect.stringMatching(/^0 passed, 7 failed\. /),
      ],
    });
  });

  // Proves the same as the test before, one by one.
  it.each(RUNS_ALL ? FAILING : [])('says in one line what was expected: %s', async (one, fault) => {
    const { code, out, err } = await suite([one]);
    expect({ code, err, lines: out.split('\n').slice(0, 2) }).toEqual({
      code: EXIT.unexpected,
      err: '',
      lines: [`FAIL x_suite.yaml:2  a: ${fault}`, expect.stringMatching(/^0 passed, 1 failed\. /)],
    });
  });

  it('does not affect others that pass', async () => {
    const { code, out } = await suite([`name: a, ${READ}, expect: allow`, `name: "b \\e[31m", ${READ}, expect: ask`]);
    expect([code, out]).toEqual([
      EXIT.unexpected,
      expect.stringMatching(/^FAIL x_suite\.yaml:3 {2}b \\u\{1b\}\[31m: expected ask[^]*\n1 passed, 1 failed/),
    ]);
  });
});

describe('a suite with faults', () => {
  it.each([
    ['name: a, cal: {tool: read}, expect: allow', 'cal', 'unknown key "cal". Did you mean "call"?'],
    [
      `name: a, ${READ}, expect: alow`,
      'alow',
      '"alow" is not one of allow, ask, deny, always, maybe, never. Did you mean "allow"?',
    ],
    [
      'name: a, as: mya, call: {tool: read, args: {path: a}}, expect: allow',
      'mya',
      'There is no principal "mya"; did you mean "mia"?',
    ],
    [
      'name: a, call: {tool: read, args: {path: a}}, expect: allow',
      '',
      'The case does not name its principal, and there are several: mia, tom.',
    ],
    [
      'name: a, as: {id: x, profiles: [nope]}, call: {tool: read, args: {path: a}}, expect: allow',
      '{id',
      'There is no profile "nope".',
    ],
    ['name: a, as: mia, call: {tool: raed}, expect: allow', 'raed', 'There is no tool "raed"; did you mean "read"?'],
    [
      'name: a, as: mia, call: {tool: trakcer.get_issue}, expect: allow',
      'trakcer',
      'There is no tool "trakcer.get_issue"; did you mean "tracker.get_issue"?',
    ],
    [
      'name: a, as: mia, call: {tool: workspace.raed}, expect: allow',
      'workspace',
      'The workspace has no tool "raed"; did you mean "read"?',
    ],
    ['name: a, as: mia, call: {tool: read, args: {paht: a}}, expect: allow', '{paht', 'path'],
    ['name: a, as: mia, expect: allow', '{', 'a case has either `call` or `effect`; write one of them.'],
    [
      `name: a, ${READ}, effect: {verb: read, server: a, tool: b}, expect: allow`,
      '{',
      'a case has either `call` or `effect`; write one of them.',
    ],
    [
      'name: a, as: mia, effect: {verb: read, server: a, tool: b}, expect: maybe',
      'maybe',
      '"maybe" is a verdict of a list',
    ],
    [`name: a, ${READ}, expect: deny, obligations: {labels: []}`, '{labels', 'only allow and ask have obligations'],
    [`name: a, ${READ}, expect: allow, time: yesterday`, 'yesterday', '"yesterday" is not a time'],
    [`name: a, ${READ}, expect: allow, message: "("`, '"("', 'this is not a regular expression; correct it.'],
    [
      'name: a, as: {id: x, rolle: y}, call: {tool: read, args: {path: a}}, expect: allow',
      'rolle',
      'unknown key "rolle". Did you mean "role"?',
    ],
  ])('is refused with the place and what to write: %s', async (one, anchor, message) => {
    const { code, out, err } = await suite([one]);
    const column = anchor === '' ? 3 : '  - {'.length + (anchor === '{' ? 0 : one.indexOf(anchor) + 1);
    const said = err.split('\n').find((line) => line.startsWith('x_suite.yaml:2:'));
    expect({ code, out, said }).toEqual({ code: EXIT.usage, out: '', said: expect.stringContaining(message) });
    expect(said).toContain(`x_suite.yaml:2:${column}: `);
  });

  it('is refused with all of its faults', async () => {
    const { err } = await suite([
      'name: a, as: mya, call: {tool: read, args: {path: a}}, expect: allow',
      'name: b, as: mia, call: {tool: raed}, expect: allow',
    ]);
    expect(err.split('\n').filter((line) => line.startsWith('x_suite.yaml:'))).toHaveLength(2);
    const mixed = await suite([
      'name: a, cal: 3, call: {tool: read}, expect: allow, message: "("',
      'name: b, as: mya, call: {tool: read}, expect: allow',
    ]);
    expect(mixed.err.split('\n').filter((line) => line.startsWith('x_suite.yaml:'))).toHaveLength(3);
  });

  it('is refused if it is not YAML', async () => {
    project.write('x_suite.yaml', 'cases: [\n');
    expect(await cli(project, ['policy', 'test', 'x_suite.yaml'])).toMatchObject({
      code: EXIT.usage,
      err: expect.stringContaining('x_suite.yaml:2:1: '),
    });
  });
});

describe('the tests to run', () => {
  inFull('are those next to the policies and the configuration, or the named ones', async () => {
    const other = new Project();
    try {
      other.write('policies/rules.yaml', RULES);
      other.write('tollgate.yaml', 'policies: [policies/rules.yaml]\n');
      const one = (name: string): string =>
        `cases: [{name: ${name}, call: {tool: read, args: {path: a}}, expect: allow}]\n`;
      const passed = async (...words: readonly string[]): Promise<string> =>
        (await cli(other, ['policy', 'test', ...words])).out.split(',')[0] ?? '';
      expect(await cli(other, ['policy', 'test'])).toMatchObject({
        code: EXIT.usage,
        err: expect.stringContaining('There are no suites and no Rego tests.'),
      });
      other.write('policies/rules_suite.yaml', one('a'));
      other.write('suite.yaml', one('b'));
      other.write('policies/deeper/suite.yml', one('c'));
      other.write('elsewhere/odd.yaml', one('d'));
      expect(await passed()).toBe('2 passed');
      expect(await passed('policies')).toBe('2 passed');
      expect(await passed('policies', 'policies/rules_suite.yaml', 'elsewhere/odd.yaml')).toBe('3 passed');
      expect(await cli(other, ['policy', 'test', 'elsewhere'])).toMatchObject({
        code: EXIT.usage,
        err: expect.stringContaining('elsewhere contains no suite and no Rego test.'),
      });
      expect(await cli(other, ['policy', 'test', 'nowhere'])).toMatchObject({
        code: EXIT.usage,
        err: expect.stringContaining('nowhere does not exist.'),
      });
    } finally {
      other.remove();
    }
  });

  it('start no server and leave no state', async () => {
    const { out } = await suite([`name: a, ${READ}, expect: allow`]);
    expect(out).toMatch(/^1 passed/);
    expect(project.load(CONFIG).config?.state.startsWith(project.home)).toBe(true);
    await expect(
      import('node:fs/promises').then(({ readdir }) => readdir(project.load(CONFIG).config?.state ?? '')),
    ).rejects.toMatchObject({ code: 'ENOENT' });
  });
});

describe('the stored answers of opa', () => {
  /** Counts how often it is asked for cases. */
  const noted = async (log: string): Promise<string> =>
    `#!/bin/sh\n[ "$1" = eval ] && echo asked >> ${log}\nexec ${(await findOpa()).program} "$@"\n`;

  it('are used for the same case and policy, and not for another case, another policy or a damaged file', async () => {
    const other = new Project();
    other.write('policies/rules.yaml', RULES);
    other.write('tollgate.yaml', CONFIG);
    const away = mkdtempSync(path.join(tmpdir(), 'tollgate-opa-'));
    const [opa, log] = ['opa', 'log'].map((name) => path.join(away, name)) as [string, string];
    writeFileSync(opa, await noted(log), { mode: 0o755 });
    const state = other.load(CONFIG).config?.state ?? '';
    const asked = async (...cases: readonly string[]): Promise<readonly [boolean, string]> => {
      other.write('x_suite.yaml', `cases:\n${cases.map((one, number) => `  - {name: c${number}, ${one}}\n`).join('')}`);
      writeFileSync(log, '');
      const { out } = await cli(other, ['policy', 'test', 'x_suite.yaml', '--opa', opa]);
      return [readFileSync(log, 'utf8') !== '', /\d+ passed, \d+ failed/.exec(out)?.[0] ?? ''];
    };
    const [read, env] = [`${READ}, expect: allow`, `${ENV}, expect: deny`];
    expect(await asked(read)).toEqual([true, '1 passed, 0 failed']);
    expect(await asked(read)).toEqual([true, '1 passed, 0 failed']);
    mkdirSync(state, { recursive: true });
    expect(await asked(read)).toEqual([true, '1 passed, 0 failed']);
    expect(await asked(read)).toEqual([false, '1 passed, 0 failed']);
    expect(await asked(read, env)).toEqual([true, '2 passed, 0 failed']);
    expect(await asked(env, read)).toEqual([false, '2 passed, 0 failed']);
    expect(await asked(env.replace('deny', 'allow'))).toEqual([false, '0 passed, 1 failed']);
    other.write('policies/rules.yaml', RULES.replace('.env', '.envs'));
    expect(await asked(read)).toEqual([true, '1 passed, 0 failed']);
    writeFileSync(path.join(state, 'policy', 'opa-answers.json'), '{"policy": 1, "answers": [');
    expect(await asked(read)).toEqual([true, '1 passed, 0 failed']);
    other.remove();
  });
});

describe('a threshold', () => {
  it('fails below it, and names every rule that decided no case' + verifies('DC-02'), async () => {
    const { code, out } = await suite([`name: a, ${READ}, expect: allow`], '--threshold', '50');
    expect([code, out]).toEqual([
      EXIT.unexpected,
      expect.stringContaining(
        `FAIL YAML rules: 33.3 % covered, 50 % required. Not covered: no-secrets (policies/rules.yaml:7),
  night (policies/rules.yaml:11)
`,
      ),
    ]);
    expect((await suite([`name: a, ${READ}, expect: allow`], '--threshold', '33')).code).toBe(EXIT.ok);
  });

  it('accepts a percentage only', async () => {
    expect(await suite([`name: a, ${READ}, expect: allow`], '--threshold', '101')).toMatchObject({
      code: EXIT.usage,
      err: expect.stringContaining('0 to 100'),
    });
  });
});
