/**
 * Tests recordings of whole facades: nothing is in plain text on the disk, no secret is in any answer, and a replay
 * under the same policy changes nothing.
 */

import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { recordingFolder } from '../../facade/audit/recording/recording-files.ts';
import { type readLast, readRecordings } from '../../facade/audit/recording/recording-reader.ts';
import { authoring } from '../../facade/main.ts';
import { policyParts } from '../../facade/runtime/policy-parts.ts';
import type { Replayed } from '../../policies/authoring/authoring-port.ts';
import type { CallDecision } from '../../policies/port.ts';
import { ApprovalOwner } from '../approvals/owner-context.ts';
import { cli, dataOf } from '../cli/terminal.ts';
import { Project } from '../config/project.ts';
import { inFull } from '../harness/full-tests.ts';
import { roundsOf } from '../harness/slices.ts';
import { startFacade, type TestFacade } from '../stories/facade.ts';
import { verifies } from '../verifies.ts';
import { allBytes } from './recording-setup.ts';

const stories = path.join(import.meta.dirname, '..', 'stories', 'pipeline');
const server = path.join(import.meta.dirname, '..', 'fixtures', 'story-server.mjs');
const calls = parse(readFileSync(path.join(stories, 'calls.yaml'), 'utf8')) as readonly {
  readonly name: string;
  readonly call: { readonly tool: string; readonly args: unknown };
}[];
const READS = [...new Set(calls.map(({ call }) => call.tool))].filter(
  (tool) => !['open', 'fetch', 'wipe', 'count', 'nothing-here'].includes(tool),
);
const SECRET = 'story-key-1234567';

const RULES = `rules:
  - { id: sources, outcome: allow, message: "Sources are open.", when: { verbs: [read, write], paths: ["src/**"] } }
  - { id: no-secrets, outcome: deny, when: { paths: ["**/.env"] } }
  - { id: look, outcome: ask, when: { commands: [git push] } }
  - { id: shell, outcome: allow, when: { commands: [git, echo, cat] }, obligations: { caps: { bytes: 5000 } } }
  - id: not-admin-key
    outcome: deny
    when: { tools: [workspace.write], args: { content: { pattern: "forbidden" } } }
`;

const EVEN_SECONDS = `package policy.team

allow contains {"id": "even", "message": "Even seconds."} if {
	[_, _, second] := time.clock(time.now_ns())
	second % 2 == 0
	count(input.effect.arguments) < 3
}
`;

function config(more = '', facts = 'full'): string {
  return `version: 1
workspace: ./workspace
state: ./state
approvals: {waitMs: 0}
audit: {facts: ${facts}, recordings: {keep: 1h}}
servers:
  story:
    command: ${process.execPath}
    args: [${server}]
    env: { STORY_KEY: "\${STORY_KEY}" }
    isolation: direct
    connectTimeoutMs: 20000
    semantics:
      open: { verb: destructive, paths: [path, paths] }
      fetch: { verb: destructive, urls: [url] }
      wipe: destructive
      count: destructive
${READS.map((tool) => `      ${tool}: read`).join('\n')}
principals:
  - { id: dev, role: developer, profiles: [default], stdio: true }
  - { id: bot, profiles: [default], token: "sha256:${'0'.repeat(64)}" }
profiles:
  default: { servers: [story] }
expose: { primitives: workspace, tools: ["story.*"] }
${more}
`;
}

async function start(folder?: string, policies = 'policies: [./rules.yaml]'): Promise<TestFacade> {
  return startFacade(config(policies), {
    files: { 'rules.yaml': RULES },
    env: { STORY_KEY: SECRET },
    ...(folder === undefined ? {} : { folder }),
  });
}

const recordingsOf = ({
  assembled: {
    config: { state, audit },
  },
}: TestFacade): Parameters<typeof readLast>[0] => ({ state, settings: audit.recordings, now: Date.now() });

async function replay(facade: TestFacade): Promise<readonly Replayed[]> {
  const recorded = [...readRecordings(recordingsOf(facade))].flatMap((line) =>
    'recording' in line ? [line.recording] : [],
  );
  const found: Replayed[] = [];
  for await (const one of authoring.replay(policyParts(facade.assembled.config, {}), recorded)) found.push(one);
  return found;
}

describe('recorded stories', () => {
  inFull(
    'get the same decisions when they are replayed under the same policy',
    async () => {
      const facade = await startFacade(config('policies: [./rules.yaml]'), {
        files: { 'rules.yaml': readFileSync(path.join(stories, 'rules.yaml'), 'utf8') },
        env: { STORY_KEY: SECRET },
      });
      const session = facade.open('dev');
      for (const { call } of calls) await facade.call(session, `story_${call.tool}`, call.args);
      const { recorder } = facade.assembled.deps;
      await recorder?.flush();
      const replayed = await replay(facade);
      expect(replayed.length).toBeGreaterThan(calls.length / 2);
      expect(replayed.filter((one) => one.class !== 'unchanged')).toEqual([]);
      const decided = facade
        .records()
        .filter((record) => record.type !== 'outcome' && record.effectDigest !== undefined)
        .map((record) => record.id);
      expect(new Set(replayed.map(({ id }) => id))).toEqual(new Set(decided));
      await facade.close();
    },
    60_000,
  );

  inFull(
    'get the same decisions for any calls, also with user Rego that reads the clock',
    async () => {
      const facade = await startFacade(config('policies: [./rules.yaml, ./rego]'), {
        files: {
          'rules.yaml': RULES,
          'rego/team.rego': EVEN_SECONDS,
        },
        env: { STORY_KEY: SECRET },
      });
      const session = facade.open('dev');
      const count = roundsOf(60, 30);
      const call = fc.oneof(
        fc.tuple(fc.constantFrom('read'), fc.record({ path: fc.constantFrom('src/a', '.env', '../out', 'x') })),
        fc.tuple(fc.constantFrom('write'), fc.record({ path: fc.constantFrom('src/a', 'b'), content: fc.string() })),
        fc.tuple(
          fc.constantFrom('bash'),
          fc.record({ command: fc.constantFrom('git push', 'echo hi', 'rm x', 'echo $HOME') }),
        ),
        fc.tuple(fc.constantFrom('story_echo'), fc.record({ text: fc.string({ unit: 'grapheme' }) })),
        fc.tuple(fc.constantFrom('story_fetch'), fc.record({ url: fc.webUrl() })),
      );
      await fc.assert(
        fc.asyncProperty(call, async ([name, args]) => void (await facade.call(session, name, args))),
        { numRuns: count },
      );
      await facade.assembled.deps.recorder?.flush();
      const replayed = await replay(facade);
      expect(replayed.length).toBeGreaterThanOrEqual(count);
      // A decision that ran out of time is no decision: its call was refused and cannot be replayed.
      const undecided = new Set(
        facade
          .records()
          .filter(({ code }) => code === 'POLICY_FAILED')
          .map(({ id }) => id),
      );
      const [refused, decided] = [
        replayed.filter(({ id }) => undecided.has(id)),
        replayed.filter(({ id }) => !undecided.has(id)),
      ];
      expect(refused.filter((one) => one.class !== 'not-replayable')).toEqual([]);
      expect(decided.filter((one) => one.class !== 'unchanged')).toEqual([]);
      expect(decided.length).toBeGreaterThan(count / 2);
      await facade.close();
    },
    120_000,
  );

  it('do not change a call if they cannot be written, and the audit says so', async () => {
    const facade = await start();
    rmSync(recordingFolder(facade.assembled.config.state), { recursive: true });
    writeFileSync(recordingFolder(facade.assembled.config.state), '');
    const { text } = await facade.call(facade.open('dev'), 'write', { path: 'src/fine.txt', content: 'fine' });
    expect(text).toContain('Created src/fine.txt');
    await facade.assembled.deps.recorder?.flush();
    expect(facade.records().filter(({ event }) => event === 'unrecorded')).toEqual([
      expect.objectContaining({ type: 'config', outcome: 'error', code: 'STATE_FAILED' }),
    ]);
    await facade.close();
  }, 60_000);

  it('do not exist if recording is off', async () => {
    const facade = await startFacade(config('policies: [./rules.yaml]', 'names'), {
      files: { 'rules.yaml': RULES },
      env: { STORY_KEY: SECRET },
    });
    await facade.call(facade.open('dev'), 'bash', { command: 'echo fine' });
    expect(facade.assembled.deps.recorder).toBeUndefined();
    expect(existsSync(path.join(facade.assembled.config.state, 'recording.key'))).toBe(false);
    await facade.close();
  }, 60_000);
});

describe('the commands for recordings', () => {
  const project = new Project();
  const env = { STORY_KEY: SECRET };
  const run = (...argv: string[]): ReturnType<typeof cli> => cli(project, argv, { env, user: 'dev' });
  const state = path.join(project.folder, 'state');
  let byTool: ReadonlyMap<string, string>;

  beforeAll(async () => {
    mkdirSync(path.join(project.folder, 'workspace', 'src'), { recursive: true });
    const facade = await start(project.folder);
    const session = facade.open('dev');
    await facade.call(session, 'read', { path: '.env' });
    await facade.call(session, 'write', { path: 'src/file.txt', content: 'planted-content' });
    await facade.call(session, 'bash', { command: 'git push' });
    await facade.call(session, 'bash', { command: `echo ${SECRET} | cat` });
    await facade.call(session, 'write', { path: 'src/b.txt', content: 'x forbidden x' });
    await facade.call(session, 'read', { path: 'src/nothing.txt' });
    byTool = new Map(
      facade
        .records()
        .filter((record) => record.type === 'decision')
        .map((record) => [String(record.exposed), String(record.id)]),
    );
    await facade.close();
  }, 60_000);
  afterAll(() => rmSync(project.root, { recursive: true, force: true, maxRetries: 3 }));

  it('leave no argument in plain text in the state folder', () => {
    for (const word of ['planted', SECRET, 'forbidden']) expect(allBytes(state), word).not.toContain(word);
  });

  it('why last: prints the last decision, with the facts that it used', async () => {
    const { code, out } = await run('policy', 'why', 'last');
    expect(code).toBe(0);
    expect(out).toContain('ALLOW  read');
    expect(out).toContain('path = src/nothing.txt  matches paths: ["src/**"]  (sources, rules.yaml:2)');
  });

  it('why ID: tells that a budget refused what the rules allowed', async () => {
    const other = new Project();
    mkdirSync(path.join(other.folder, 'workspace', 'src'), { recursive: true });
    const budget = '{id: one, scope: session, calls: 1, when: {tool: write}}';
    const facade = await start(other.folder, `policies: [./rules.yaml]\nbudgets: [${budget}]`);
    const session = facade.open('dev');
    for (const name of ['a', 'b']) await facade.call(session, 'write', { path: `src/${name}.txt`, content: 'y' });
    const id = String(facade.records().findLast(({ code }) => code === 'BUDGET_EXCEEDED')?.id);
    await facade.close();
    const { out, err } = await cli(other, ['policy', 'why', id], { env, user: 'dev' });
    expect([out, err]).toEqual([
      expect.stringMatching(/^ALLOW {2}write/),
      `The rules allowed this call. It ended with BUDGET_EXCEEDED: tollgate audit show ${id}\n`,
    ]);
    other.remove();
  });

  it('why ID: prints a recorded decision, also as JSON', async () => {
    const { out } = await run('policy', 'why', byTool.get('read') ?? '', '--json');
    const why = dataOf<{
      id: string;
      principal: string;
      decision: CallDecision;
      flips: readonly { outcome: string }[];
    }>(out);
    expect(why).toMatchObject({
      id: byTool.get('read'),
      principal: 'dev',
      decision: { outcome: 'deny', reasons: [{ id: 'no-secrets' }] },
    });
    expect(why.flips).toEqual([]);
  });

  inFull(
    'why: explains a written call, and a hidden tool',
    async () => {
      const written = await run('policy', 'why', 'read', '{"path": "docs/notes"}');
      expect(written.out).toContain('DENY  read');
      expect(written.out).toContain('allowed if the path matched src/**  (tried path = src/notes)');
      const hidden = await run('policy', 'why', 'story.wipe');
      expect([hidden.code, hidden.out.split('\n')[0]]).toEqual([0, 'DENY  story.wipe']);
      expect(hidden.err).toContain('hidden from this principal');
      expect((await run('policy', 'why', 'read', '{"path"')).code).toBe(2);
      // Nothing is called, so a user may ask for any principal, also for one that needs a token.
      expect((await run('policy', 'why', 'read', '{"path": "docs/.env"}', '--as', 'bot')).out).toContain('DENY  read');
      expect((await run('try', 'read', '{"path": "docs/.env"}', '--as', 'bot')).err).toContain('IDENTITY');
      expect((await run('policy', 'why', 'read', '{}', '--as', 'bto')).err).toContain('There is no principal "bto".');
    },
    60_000,
  );

  it('why: escapes names from outside, so that they cannot control the terminal', async () => {
    const { out } = await cli(project, ['policy', 'why', 'read', JSON.stringify({ path: 'src/\u001b[2Jx\u202e' })], {
      env,
      user: 'dev',
      isTTY: true,
    });
    expect(out).not.toContain('\u001b[2J');
    expect(out).not.toContain('\u202e');
    expect(out).toContain('src/\\u{1b}[2Jx\\u{202e}');
  });

  it('why: explains an id that only the audit has, and says what recording would add', async () => {
    const away = path.join(project.root, 'away');
    renameSync(recordingFolder(state), away);
    const found = await run('policy', 'why', byTool.get('read') ?? '');
    expect((await run('policy', 'why', (byTool.get('read') ?? '').slice(0, 13))).out).toBe(found.out);
    expect(found.out).toContain('no-secrets  rules.yaml:3  reads path');
    expect(found.out).toMatch(/^DENY {2}read {2}\(dev, /);
    expect(found.err).toContain('audit: {facts: full}');
    const none = await run('policy', 'why', '00000000-0000-4000-8000-000000000000');
    expect([none.code, none.err]).toEqual([1, expect.stringContaining('in the recordings or in the audit log')]);
    expect((await run('policy', 'why', 'last')).code).toBe(1);
    expect((await run('policy', 'replay')).code).toBe(1);
    expect((await run('policy', 'inputs', '--sample', '2')).code).toBe(1);
    renameSync(away, recordingFolder(state));
  });

  it('replay: finds no change under the same policy, and classifies each change under a draft', async () => {
    const same = await run('policy', 'replay', '--fail-on', 'deny-to-allow,allow-to-deny,obligations,not-replayable');
    expect([same.code, same.out]).toEqual([0, '6 recorded calls, decided again\nCLASS      CALLS\nunchanged  6\n']);
    project.write(
      'draft.yaml',
      `rules:
  - { id: open, outcome: allow, when: { verbs: [read] } }
  - { id: shell, outcome: allow, when: { commands: [git, echo, cat] }, obligations: { caps: { bytes: 1024 } } }
  - { id: push, outcome: allow, when: { commands: [git push], opaque: true } }
`,
    );
    const draft = await run('policy', 'replay', '--against', 'draft.yaml', '--json', '--fail-on', 'deny-to-allow');
    expect(draft.code).toBe(3);
    expect(dataOf<{ classes: Record<string, number>; failing: string[] }>(draft.out)).toMatchObject({
      calls: 6,
      unreadable: 0,
      failing: ['deny-to-allow'],
      classes: {
        'deny-to-allow': 1,
        'ask-to-allow': 1,
        'allow-to-deny': 1,
        reasons: 2,
        obligations: 1,
        unchanged: 0,
        'not-replayable': 0,
      },
    });
    const table = await run('policy', 'replay', '--against', 'draft.yaml');
    expect(table.code).toBe(0);
    for (const part of ['deny no-secrets', 'allow open', 'caps: ']) expect(table.out).toContain(part);
  });

  inFull(
    'replay: accepts a whole configuration, a folder and Rego as the draft',
    async () => {
      project.write(
        'other/tollgate.yaml',
        config('rules: [{ id: nothing, outcome: deny, when: {} }]')
          .replace('./state', './elsewhere')
          .replace('./workspace', '../workspace'),
      );
      project.write('folder/rules.yaml', RULES);
      project.write('folder/rules_suite.yaml', 'cases: []');
      project.write(
        'folder/rego/team.rego',
        'package policy.team\n\ndeny contains "No." if input.effect.verb == "read"\n',
      );
      project.write('one.rego', 'package policy.one\n\nallow contains "Yes." if true\n');
      const classes = async (against: string): Promise<Record<string, number>> =>
        dataOf<{ classes: Record<string, number> }>((await run('policy', 'replay', '--json', '--against', against)).out)
          .classes;
      expect(await classes('other/tollgate.yaml')).toMatchObject({ 'allow-to-deny': 3, 'ask-to-deny': 1, reasons: 2 });
      expect(existsSync(path.join(project.folder, 'other', 'elsewhere'))).toBe(false);
      expect(await classes('folder')).toMatchObject({ 'allow-to-deny': 1, reasons: 1, unchanged: 4 });
      expect(await classes('one.rego')).toMatchObject({ 'deny-to-allow': 2, 'ask-to-allow': 1 });
      for (const [against, what] of [
        ['nowhere', 'does not exist'],
        ['workspace', 'contains no rules'],
      ])
        expect((await run('policy', 'replay', '--against', against ?? '')).err).toContain(what);
      expect((await run('policy', 'replay', '--fail-on', 'deny-to-alow')).err).toContain('The classes are');
      expect((await run('policy', 'replay', '--since', 'yesterday')).code).toBe(2);
    },
    120_000,
  );

  it('replay: changes no byte in the state folder', async () => {
    const before = allBytes(state);
    await run('policy', 'replay', '--against', 'draft.yaml');
    expect(allBytes(state)).toBe(before);
  });

  it('inputs: writes a suite of the decisions, different ways first, and documents for opa', async () => {
    const { out } = await run('policy', 'inputs', '--sample', '4');
    const { cases } = parse(out) as { readonly cases: readonly { readonly expect: string; readonly reason: string }[] };
    expect(new Set(cases.map(({ reason }) => reason)).size).toBe(4);
    const written = await run('policy', 'inputs', '--sample', '9', '--out', 'fixtures');
    expect(written.code).toBe(0);
    const tested = await run('policy', 'test', 'fixtures/recorded_suite.yaml');
    expect([tested.code, tested.out]).toEqual([0, expect.stringContaining('6 passed, 0 failed')]);
    const documents = readdirSync(path.join(project.folder, 'fixtures', 'inputs'));
    expect(documents).toHaveLength(6);
    expect(
      JSON.parse(readFileSync(path.join(project.folder, 'fixtures', 'inputs', documents[0] ?? ''), 'utf8')),
    ).toMatchObject({ version: 2, phase: 'call', principal: { id: 'dev' } });
    expect((await run('policy', 'inputs', '--sample', '0')).code).toBe(2);
    expect((await run('policy', 'inputs', '--sample', '1', '--out', 'tollgate.yaml')).code).toBe(2);
  }, 60_000);

  it('print no registered secret, wherever it was', async () => {
    const answers = [
      await run('policy', 'inputs', '--sample', '9'),
      await run('policy', 'inputs', '--sample', '9', '--json'),
      await run('policy', 'replay', '--against', 'one.rego', '--json'),
      await run('policy', 'why', 'bash', JSON.stringify({ command: `echo ${SECRET}` })),
      await run('policy', 'why', 'bash', JSON.stringify({ command: `rm ${SECRET}` }), '--json'),
    ];
    for (const { out, err } of answers) expect(out + err).not.toContain(SECRET);
    expect(answers[3]?.out).toContain('[redacted]');
    expect(readFileSync(path.join(project.folder, 'fixtures', 'recorded_suite.yaml'), 'utf8')).not.toContain(SECRET);
  }, 60_000);
});

describe('policy suggest', () => {
  const project = new Project();
  const run = (...argv: string[]): ReturnType<typeof cli> =>
    cli(project, ['policy', 'suggest', ...argv], { env: { STORY_KEY: SECRET }, user: 'dev' });
  afterAll(() => rmSync(project.root, { recursive: true, force: true, maxRetries: 3 }));

  it('reads what owners approved and refused, and writes nothing' + verifies('FH-70') + verifies('FH-72'), async () => {
    mkdirSync(path.join(project.folder, 'workspace', 'src'), { recursive: true });
    const facade = await start(project.folder);
    expect(await run()).toMatchObject({ code: 1, out: '' });
    const session = facade.open('dev');
    const owner = new ApprovalOwner(facade.assembled.config.state);
    const ask = (command: string): Promise<unknown> => facade.call(session, 'bash', { command });
    for (const command of [
      'git push',
      'git push',
      `git push ${SECRET}`,
      `git push ${SECRET}`,
      'git push a',
      'git push b',
    ]) {
      await ask(command);
      await owner.approve();
      await ask(command);
    }
    await ask('git push b');
    await owner.deny('No.');
    await ask('git push b');
    await owner.close();
    await facade.close();
    const before = unchanged();
    const found = await run('--min', '2');
    expect(unchanged()).toBe(before);
    expect(found.err).toMatch(/^Not suggested: calls with a secret, approved 2 times: no rule may name a secret\.$/m);
    expect(found.out + found.err).not.toContain(SECRET);
    expect(found.out).toContain('# approved 2 times by olga (2), on ');
    expect(found.out).toContain('# in rules.yaml:4:37, rule look, add under when:\n  #   exceptCommands: [git push]\n');
    const { rules } = parse(found.out) as { readonly rules: readonly { readonly id: string }[] };
    expect(rules.map(({ id }) => id)).toEqual(['ask-1-git-push', 'ask-2-git-push', 'allow-git-push']);
    const more = await run('--min', '1', '--json');
    const report = dataOf<{ suggestions: readonly { what: string }[]; unsuggested: readonly { why: string }[] }>(
      more.out,
    );
    expect(report.suggestions.map(({ what }) => what)).toContain('workspace.bash git push a');
    expect(report.unsuggested.map(({ why }) => why)).toContain('an owner refused workspace.bash git push b');
    expect(await run('--min', '0')).toMatchObject({ code: 2, out: '' });
  }, 60_000);

  /** All bytes of the project, apart from the index of the audit, which every command that reads the log updates. */
  function unchanged(): string {
    return readdirSync(project.folder, { recursive: true, encoding: 'utf8' })
      .filter((name) => !name.includes('audit-index') && !name.includes('.db'))
      .map((name) => path.join(project.folder, name))
      .filter((file) => statSync(file).isFile())
      .map((file) => `${file}\n${readFileSync(file, 'latin1')}`)
      .join('\n');
  }
});
