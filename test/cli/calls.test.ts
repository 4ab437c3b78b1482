/**
 * Tests `tollgate call`, and the names and arguments that `try`, `call` and `tools` accept, over a real server.
 * Covers: facade/cli.
 */

import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { EXIT } from '../../facade/cli/command-io.ts';
import { schemaText } from '../../facade/cli/serving/schema-text.ts';
import { Project } from '../config/project.ts';
import { inFull } from '../harness/full-tests.ts';
import { partOf } from '../harness/slices.ts';
import { Child } from '../process/child.ts';
import { verifies } from '../verifies.ts';
import { type Answer, cli, dataOf, server, start } from './terminal.ts';

const CONFIG = `version: 1
workspace: ./workspace
servers:
  story: ${server(['story-server.mjs'], 'semantics: {echo: read, count: read}, tools: {deny: [hidden]}')}
  dead: ${server(['chaos.mjs', 'crash-at-start'])}
  chaos: ${server(['chaos.mjs'])}
principals:
  - {id: me, owner: true, stdio: true}
  - {id: agent, profiles: [stories], stdio: true}
  - {id: coder, profiles: [code], stdio: true}
  - {id: stuck, profiles: [hanging], stdio: true}
  - {id: unlucky, profiles: [stories, broken], stdio: true}
# A command starts all servers of its principal, so most of these tests use one with one server.
profiles:
  code: {servers: [story], expose: {tools: [story.echo], code: true}}
  hanging: {servers: [chaos], expose: {tools: [chaos.hang]}}
  broken: {servers: [dead], expose: {tools: [{tool: dead.echo, name: renamed}]}}
  stories:
    servers: [story]
    expose:
      primitives: workspace
      tools: [story.echo, story.count, story.fail, story.throw, story.picture, story.rows, story.open, story.wipe,
        story.hidden, {tool: story.pair, name: one}, {tool: story.pair, name: two}]
approvals: {waitMs: 300}
budgets: [{id: few, scope: principal, calls: 1, when: {tool: story.count}}]
rules:
  - {id: all, outcome: allow, when: {}}
  - {id: asks, outcome: ask, message: Somebody must look., when: {tools: [story.open]}}
  - {id: no-wiping, outcome: deny, message: Never., when: {tools: [story.wipe]}}
`;

let project: Project;

beforeAll(async () => {
  project = new Project();
  project.write('workspace/README.md', '# Hello\n');
  project.write('tollgate.yaml', CONFIG);
  await project.approve();
});
afterAll(() => project.remove());

const call = (...words: readonly string[]): Promise<Answer> => cli(project, ['call', ...words, '--as', 'agent']);
const records = async (): Promise<readonly Readonly<Record<string, unknown>>[]> =>
  (await cli(project, ['audit', 'export'])).out
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => dataOf<Readonly<Record<string, unknown>>>(line));

describe('call', () => {
  it(
    'makes the call by the path of every call, and records the owner and the principal' + verifies('FH-30'),
    async () => {
      expect(await call('story_echo', '{"text": "hi"}')).toEqual({ code: EXIT.ok, out: 'hi\n', err: '' });
      const all = (await records()).filter(({ exposed }) => exposed === 'story_echo');
      const both = { by: 'me', user: 'somebody', principal: { id: 'agent', profiles: ['stories'] } };
      expect(all).toMatchObject([
        { type: 'intent', ...both },
        { type: 'outcome', executed: 'yes', ...both },
      ]);
      expect((await records()).find(({ type }) => type === 'session')).toMatchObject({ event: 'opened', ...both });
      expect((await cli(project, ['audit', 'list'])).out).toContain('by me');
    },
  );

  it('is for owners only: the one that --by names, else the only one of this user' + verifies('FH-30'), async () => {
    expect(await call('story_echo', 'text=hi', '--by', 'agent')).toEqual({
      code: EXIT.auth,
      out: '',
      err: 'IDENTITY: "agent" is no owner over stdio, and only an owner calls by hand.\nUse --by with one of: me.\n',
    });
    expect(await cli(project, ['call', 'story_echo', 'text=hi', '--as', 'agent'], { user: 'agent' })).toMatchObject({
      code: EXIT.auth,
      out: '',
    });
    project.write('two.yaml', CONFIG.replace('- {id: me,', '- {id: olga, owner: true, stdio: true}\n  - {id: me,'));
    expect(await cli(project, ['call', 'story_echo', '-c', 'two.yaml'])).toMatchObject({
      code: EXIT.auth,
      err: expect.stringContaining('may be several owners.\nUse --by with one of: olga, me.') as unknown,
    });
  });

  inFull(
    'prints text on stdout, and on stderr what is no text; --json prints the result' + verifies('FH-31'),
    async () => {
      expect(await call('workspace.read', 'path=README.md')).toMatchObject({ code: EXIT.ok, out: '# Hello\n' });
      expect(await call('story_picture')).toMatchObject({
        code: EXIT.ok,
        out: '',
        err: expect.stringContaining('a block of type image (image/png, 12 characters of base64)') as unknown,
      });
      expect(dataOf((await call('story_rows', 'count=2', '--json')).out)).toMatchObject({
        structuredContent: { rows: [0, 1] },
      });
    },
  );

  inFull('ends with the exit code of its refusal, or 6 if the tool failed' + verifies('FH-31'), async () => {
    expect(await call('story_fail')).toEqual({
      code: EXIT.toolError,
      out: 'the tool says no\n',
      err: 'The tool reports a failure.\n',
    });
    expect(await call('story_throw')).toMatchObject({
      code: EXIT.toolError,
      out: '',
      err: expect.stringMatching(/^TOOL_FAILED: .*the server says no\n.*tollgate audit show [0-9a-f]{8}-/) as unknown,
    });
    expect(await call('story_echo')).toMatchObject({
      code: EXIT.refused,
      err: expect.stringMatching(/^ARGS_INVALID: text: is required\n/) as unknown,
    });
    expect(await call('story_count', 'lines=2')).toMatchObject({ code: EXIT.ok });
    expect(await call('story_count', 'lines=1', '--json')).toMatchObject({
      code: EXIT.refused,
      out: '',
      err: expect.stringContaining('"code":"BUDGET_EXCEEDED"') as unknown,
    });
  });

  inFull(
    'ends with 7 and the command that decides if a rule asks, and runs once after the approval' + verifies('FH-32'),
    async () => {
      const asked = await call('story_open', 'path=x');
      expect(asked).toMatchObject({ code: EXIT.approval, out: '' });
      const [, id = ''] = /^Decide: tollgate approvals show (\w+)\. /m.exec(asked.err) ?? [];
      const { binding } = dataOf<{ binding: string }>(
        (await cli(project, ['approvals', 'show', id, '--as', 'me', '--json'])).out,
      );
      expect(await cli(project, ['approvals', 'approve', id, '--as', 'me', '--yes', binding])).toMatchObject({
        code: EXIT.ok,
      });
      expect(await call('story_open', 'path=x')).toMatchObject({ code: EXIT.ok, out: 'opened x\n' });
      expect(await call('story_open', 'path=x')).toMatchObject({ code: EXIT.approval });
    },
  );

  inFull(
    'works while a Tollgate with the same state runs, and that one keeps its sessions' + verifies('FH-32'),
    async () => {
      const child = new Child(project, ['run', '--as', 'agent']);
      await child.hello();
      expect(await call('story_echo', 'text=both')).toMatchObject({ code: EXIT.ok, out: 'both\n' });
      expect(
        (await child.ask('tools/call', { name: 'story_echo', arguments: { text: 'still' } })).result,
      ).toMatchObject({
        content: [{ text: 'still' }],
      });
      child.process.stdin.end();
      await child.ended;
    },
  );

  it('is cancelled by a signal, which its record shows' + verifies('FH-33'), async () => {
    const running = start(project, ['call', 'chaos_hang', '--as', 'stuck']);
    const last = async () => (await records()).findLast(({ exposed }) => exposed === 'chaos_hang');
    await expect.poll(last, { timeout: 20_000 }).toMatchObject({ type: 'intent' });
    running.stop();
    expect(await running.ended).toMatchObject({
      code: EXIT.unexpected,
      out: '',
      err: expect.stringMatching(/^CANCELLED: You stopped the call\.\n/) as unknown,
    });
    expect(await last()).toMatchObject({ type: 'outcome', code: 'CANCELLED', executed: 'unknown', by: 'me' });
  });
});

describe('the arguments of call and try', () => {
  inFull('are an object, pairs with the types of the schema, or a file' + verifies('FH-34'), async () => {
    project.write('args.json', '{"text": "from a file"}');
    expect((await call('story_echo', '@args.json')).out).toBe('from a file\n');
    expect((await call('story_echo', 'text=a=b c')).out).toBe('a=b c\n');
    const effect = async (...words: readonly string[]): Promise<unknown> =>
      dataOf<{ notes: unknown }>((await cli(project, ['try', ...words, '--as', 'agent', '--json'])).out).notes;
    // A number is a number, so nothing had to be repaired.
    expect(await effect('story_count', 'lines=3')).toEqual([]);
  });

  it.each([
    [['story_echo', '@gone.json'], 'The arguments cannot be read from "gone.json": there is no such file.'],
    [['story_echo', 'text=a', 'text=b'], 'An object names the same key twice.'],
    [['story_echo', '{"text":', '"x"}'], 'is no pair of a name and a value.'],
    [['story_echo', 'hello'], 'The arguments are not JSON.'],
  ] as const)('refuse %j' + verifies('FH-34'), async (words, expected) => {
    for (const command of partOf(['call', 'try'], 1))
      expect(await cli(project, [command, ...words, '--as', 'agent'])).toMatchObject({
        code: EXIT.usage,
        out: '',
        err: expect.stringContaining(expected) as unknown,
      });
  });
});

describe('the name of a tool in call, try and tools', () => {
  const named = (command: string, name: string): Promise<Answer> => cli(project, [command, name, '--as', 'unlucky']);

  it.each([
    ['stroy_echo', 'call', 'did you mean "story_echo"?'],
    ['story.ecko', 'try', 'did you mean "story.echo"?'],
    ['raed', 'tools', 'did you mean "read"?'],
    ['story_wipe', 'tools', 'policy never allows it (no-wiping: Never.'],
    ['story.leak', 'call', 'its server offers it, but no entry of `expose` shows it'],
    ['story.pair', 'try', 'it is shown as one, two'],
  ])(
    '%s in %s gets its own reason, not that of a broken server' + verifies('FH-35'),
    async (name, command, expected) => {
      const { code, out, err } = await named(command, name);
      expect([code, out]).toEqual([EXIT.refused, '']);
      expect(err.replaceAll(/\s+/g, ' ')).toContain(
        `UNKNOWN_TOOL: The agent unlucky does not see a tool "${name}": ${expected}`,
      );
      expect(err).not.toContain('ended with exit code');
    },
  );

  it.each([
    ['dead_echo', 'call'],
    ['dead.echo', 'tools'],
    ['renamed', 'try'],
  ])('%s in %s gets the reason of its own server that cannot be reached' + verifies('FH-35'), async (name, command) => {
    expect(await named(command, name)).toMatchObject({
      code: EXIT.server,
      err: expect.stringContaining('Server "dead" ended with exit code 7') as unknown,
    });
  });
});

describe('tools NAME', () => {
  it('shows effect, verdict, rules, entry, arguments in words and the next commands' + verifies('FH-36'), async () => {
    const { code, out, err } = await cli(project, ['tools', 'story.count', '--as', 'agent']);
    expect([code, err]).toEqual([EXIT.ok, '']);
    for (const row of [
      /^name {8}story_count$/m,
      /^does {8}read$/m,
      /^verdict {5}always allowed for agent$/m,
      /^rule {8}all: .*\(tollgate\.yaml:\d+\)$/m,
      /^shown by {4}story\.count$/m,
      /^ {2}lines {2}integer, required: >= 1$/m,
      /^try {9}tollgate try story_count lines=… --as agent$/m,
      /^call {8}tollgate call story_count lines=… --as agent$/m,
    ])
      expect(out).toMatch(row);
    expect((await cli(project, ['tools', 'one', '--as', 'agent'])).out).toMatch(/^shown by {4}story\.pair$/m);
  });

  it('shows a schema that contains itself, choices and lists in bounded rows' + verifies('FH-36'), () => {
    const node = {
      type: 'object',
      properties: { next: { $ref: '#/$defs/node' }, all: { type: 'array', items: { $ref: '#/$defs/node' } } },
    };
    const texts = schemaText({
      properties: {
        tree: { $ref: '#/$defs/node' },
        kind: { enum: ['a', 'b'], default: 'a', description: 'Which\n  one.' },
        size: { anyOf: [{ type: 'integer', maximum: 5 }, { type: 'null' }] },
        many: { type: 'array', items: { type: 'string', minLength: 1 }, minItems: 2 },
      },
      required: ['tree'],
      $defs: { node },
    });
    const rows = texts.map((row) => row.replaceAll(/ +/g, ' ').trim());
    expect(rows).toContain('kind one of "a", "b", default "a": Which one.');
    expect(rows).toContain('size integer (at most 5) or null');
    expect(rows).toContain('many list of string (at least 1 characters) (at least 2 items)');
    expect(rows[0]).toBe('tree object, required');
    expect(rows.length).toBeLessThan(30);
    const wide = Object.fromEntries(Array.from({ length: 300 }, (_, at) => [`p${at}`, { type: 'string' }]));
    expect(schemaText({ properties: wide })).toHaveLength(101);
    expect(schemaText({ type: 'object' })).toEqual(['  none']);
  });
});

describe('call run_code', () => {
  it('shows where the syntax of code is wrong, in rows of its own' + verifies('CM-27'), async () => {
    const { code, err } = await cli(project, ['call', 'run_code', '{"code": "const x = ;"}', '--as', 'coder']);
    expect([code, err.split('\n').slice(0, 3)]).toEqual([
      EXIT.unexpected,
      ['CODE_SYNTAX: SyntaxError at line 1:11: Unexpected token', '  1 | const x = ;', `${' '.repeat(16)}^`],
    ]);
    expect(err).toMatch(/\nCorrect the code and send it again\. Its record: tollgate audit show [0-9a-f-]+\n$/);
  });
});
