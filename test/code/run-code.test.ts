/** Tests run_code through a whole facade: what code gets from tools, what the model gets from code, and its records. */

import { execFileSync } from 'node:child_process';
import { afterEach, describe, expect, it } from 'vitest';
import { inFull } from '../harness/full-tests.ts';
import { partOf } from '../harness/slices.ts';
import type { TestFacade } from '../stories/facade.ts';
import { verifies } from '../verifies.ts';
import { type CodeFacadeOptions, callsMade, runCode, startCodeFacade } from './code-facade.ts';

const facades: TestFacade[] = [];
afterEach(async () => {
  await Promise.all(facades.splice(0).map((one) => one.close()));
});

async function start(options: CodeFacadeOptions = {}): Promise<TestFacade> {
  const facade = await startCodeFacade(options);
  facades.push(facade);
  return facade;
}

describe('values in code', () => {
  inFull(
    'come from import and require, at once or as promises, as data, texts, errors and handles' +
      verifies('HA-12', 'HA-36', 'CM-25'),
    async () => {
      const facade = await start();
      const { result } = await runCode(
        facade,
        `import { echo, rows } from 'host:mcp-stories';
const { fail, picture } = require('host:mcp-stories');
const many: string[] = await Promise.all([1, 2, 3].map((n) => echo.async({ text: 'p' + n })));
console.log('printed', rows({ count: 2 }).rows.length);
return { one: echo({ text: 'hi' }), awaited: await echo({ text: 'ho' }), many, error: fail(), picture: picture() };`,
      );
      const [text, image] = result?.content ?? [];
      expect(text?.text).toMatch(/^printed 2\n/);
      expect(JSON.parse(String(text?.text).split('\n')[1] ?? '')).toEqual({
        one: 'hi',
        awaited: 'ho',
        many: ['p1', 'p2', 'p3'],
        error: { error: 'the tool says no' },
        picture: { handle: 'b1', type: 'image', mimeType: 'image/png', bytes: 8 },
      });
      expect(image).toMatchObject({ type: 'image', mimeType: 'image/png', data: 'iVBORw0KGgo=' });
    },
  );

  inFull(
    'cross whole up to 1 MB; a longer one is the handle of a spill that code and agent can read' +
      verifies('HA-11', 'CM-26'),
    async () => {
      const facade = await start();
      const session = facade.open('alice');
      const { text } = await runCode(
        facade,
        `const { count } = require('host:mcp-stories');
const { read } = require('host:tollgate');
const whole = count({ lines: 90_000 });
const cut = count({ lines: 200_000 });
const page = read({ path: cut.spill, offset: 1, limit: 2 });
return [typeof whole, whole.length, Object.keys(cut).sort(), cut.bytes > 1_000_000, String(page).slice(0, 5)];`,
        session,
      );
      expect(JSON.parse(text)).toEqual(['string', 978_893, ['bytes', 'head', 'spill'], true, expect.any(String)]);
    },
  );

  inFull(
    'reach the model only if they are returned or printed, and through the shaper' + verifies('CM-26'),
    async () => {
      const facade = await start();
      const { text } = await runCode(
        facade,
        `const { count } = require('host:mcp-stories');
count({ lines: 5_000 });
return count({ lines: 9_000 });`,
      );
      expect(Buffer.byteLength(text)).toBeLessThan(31_000);
      expect(text).toContain('spill://');
    },
  );

  it('are refused like the arguments of any call' + verifies('CM-27'), async () => {
    const facade = await start();
    const { text } = await runCode(facade, `return require('host:mcp-stories').echo({ tex: 1 });`);
    expect(JSON.parse(text)).toEqual({
      code: 'ARGS_INVALID',
      error: expect.stringContaining('tex is not an argument here; did you mean text?'),
    });
  });
});

describe('records of calls that code makes', () => {
  it(
    'name the call of run_code as their parent, and are those of direct calls otherwise' + verifies('CM-28'),
    async () => {
      const facade = await start();
      const session = facade.open('alice');
      await facade.call(session, 'stories_echo', { text: 'same' });
      await runCode(facade, `require('host:mcp-stories').echo({ text: 'same' })`, session);
      const records = facade.callRecords();
      const outer = records.find(({ type, tool }) => type === 'intent' && tool === 'run_code');
      const [direct, inner] = ['intent', 'outcome'].flatMap((wanted) => [
        records.filter(({ type, tool }) => type === wanted && tool === 'echo'),
      ]);
      for (const [one, other] of [direct, inner] as readonly (readonly Record<string, unknown>[])[]) {
        expect(other?.parent).toBe(outer?.id);
        const varying = ['id', 'seq', 'ts', 'prev', 'hash', 'parent', 'ms', 'upstreamMs', 'obligations'];
        const facts = (record = {}): unknown =>
          Object.fromEntries(Object.entries(record).filter(([key]) => !varying.includes(key)));
        expect(facts(other)).toEqual(facts(one));
      }
    },
  );

  inFull('count for the budgets of the session' + verifies('CM-28'), async () => {
    const facade = await start({ more: 'budgets: [{id: few, scope: session, calls: 3, when: {tool: echo}}]' });
    const { text } = await runCode(
      facade,
      `return [1, 2, 3, 4].map((n) => require('host:mcp-stories').echo({ text: 'n' + n }));`,
    );
    expect(JSON.parse(text)).toEqual(['n1', 'n2', 'n3', { code: 'BUDGET_EXCEEDED', error: expect.any(String) }]);
    expect(callsMade(facade)).toEqual({ echo: 3 });
  });

  inFull('start no server before the first call' + verifies('HA-13', 'HA-14', 'CM-29'), async () => {
    const facade = await start();
    const session = facade.open('alice');
    await facade.list(session);
    await facade.assembled.gateway.close().catch(() => undefined);
    facades.splice(0);
    const again = await start({ folder: facade.folder });
    const later = again.open('alice');
    for (const [tool, args] of [
      ['list_modules', {}],
      ['module_info', { module: 'host:mcp-stories' }],
    ] as const)
      expect((await again.call(later, tool, args)).text).toContain('echo');
    const health = (): string | undefined => again.assembled.catalog.servers.get('stories')?.adapter.health().state;
    expect(health()).not.toBe('healthy');
    await runCode(again, `require('host:mcp-stories').echo({ text: 'x' })`, later);
    expect(health()).toBe('healthy');
  });
});

describe('bad input', () => {
  const cases = [
    ['a syntax error', 'const x = ;', 'CODE_SYNTAX', /line 1:\d+[\s\S]*\^/],
    ['an unknown module', `require('host:mcp-storie')`, 'CODE_FAILED', /did you mean host:mcp-stories\?/],
    ['an unknown function', `require('host:mcp-stories').ecko()`, 'CODE_FAILED', /did you mean echo\?/],
    ['an endless loop', 'for (;;);', 'CODE_LIMIT', /ran longer than 300 ms/],
    [
      'too many calls',
      `for (let n = 0; n < 9; n++) require('host:mcp-stories').echo({text: 'x'})`,
      'CODE_LIMIT',
      /calls/,
    ],
    ['a thrown error', `console.log('before'); throw new Error('mine')`, 'CODE_FAILED', /mine[\s\S]*before/],
  ] as const;
  it.each(partOf(cases, 2))('%s is a clear error' + verifies('CM-27'), async (_, code, expected, text) => {
    const facade = await start({ more: 'code: {timeMs: 300, calls: 5}' });
    const answer = await runCode(facade, code);
    expect([answer.code, answer.text]).toEqual([expected, expect.stringMatching(text)]);
    expect(answer.text).not.toMatch(/at .*\.[cm]?[jt]s:|node:internal/);
    expect(facade.callRecords().at(-1)).toMatchObject({ code: expected, executed: 'yes' });
  });

  it('a result that does not fit its schema is an error to the code' + verifies('CM-27'), async () => {
    const facade = await start({ more: 'caps: {validateOutput: strict}' });
    const { text } = await runCode(facade, `return require('host:mcp-stories').liar();`);
    expect(JSON.parse(text)).toEqual({ code: 'OUTPUT_INVALID', error: expect.stringContaining('schema') });
  });

  inFull('a server that vanishes is an error to the code, which goes on' + verifies('CM-27'), async () => {
    const facade = await start();
    const running = runCode(
      facade,
      `const { slow, echo } = require('host:mcp-stories');
return [echo({ text: 'before' }), slow({ ms: 30_000 }), echo({ text: 'after' })];`,
    );
    await expect.poll(() => facade.callRecords().some(({ tool }) => tool === 'slow')).toBe(true);
    const pids = execFileSync('pgrep', ['-P', String(process.pid), '-f', 'story-server.mjs'], { encoding: 'utf8' });
    for (const pid of pids.trim().split('\n')) process.kill(Number(pid), 'SIGKILL');
    const { code, text } = await running;
    expect(code).toBe('');
    const [before, vanished, after] = JSON.parse(text) as readonly unknown[];
    expect([before, vanished]).toEqual(['before', { code: 'TOOL_CRASHED', error: expect.any(String) }]);
    // Whether the supervisor has started the server again or not, the code gets an answer.
    if (after !== 'after') expect(after).toEqual({ code: 'SERVER_UNAVAILABLE', error: expect.any(String) });
    expect(facade.callRecords().filter(({ tool }) => tool === 'slow')).toMatchObject([
      { type: 'intent' },
      { type: 'outcome', code: 'TOOL_CRASHED', executed: 'unknown' },
    ]);
  });

  it('of module_info suggests names' + verifies('CM-29'), async () => {
    const facade = await start();
    const session = facade.open('alice');
    const wrong = await facade.call(session, 'module_info', { module: 'host:mcp-storys' });
    expect(wrong.text).toContain('Did you mean host:mcp-stories?');
    const named = await facade.call(session, 'module_info', { module: 'stories', functions: ['eco'] });
    expect(named.text).toContain('Did you mean echo?');
  });
});

describe('what an owner adds', () => {
  it('variables stay between the runs of a session, within their limit' + verifies('CM-38'), async () => {
    const facade = await start({ more: 'code: {variables: 100}' });
    const session = facade.open('alice');
    await runCode(facade, 'vars.count = 1', session);
    expect((await runCode(facade, 'vars.count += 1; return vars', session)).text).toBe('{"count":2}');
    const long = await runCode(facade, `vars.long = 'x'.repeat(200)`, session);
    expect([long.code, long.text]).toEqual(['CODE_LIMIT', expect.stringContaining('keeps 100 at most')]);
    expect((await runCode(facade, 'return vars.count', session)).text).toBe('2');
    expect((await runCode(facade, 'return vars')).text).toBe('{}');
  });

  it('there are no variables unless the profile says so' + verifies('CM-38'), async () => {
    const facade = await start();
    expect((await runCode(facade, 'return typeof vars')).text).toBe('undefined');
  });

  inFull(
    'a snippet is a tool: its arguments are checked, its calls are decided, a reload changes it' + verifies('CM-39'),
    async () => {
      const facade = await startCodeFacade({
        more: `code:
  snippets:
    greet:
      file: snippets/greet.ts
      description: Greets somebody.
      input: {type: object, properties: {who: {type: string}}, required: [who], additionalProperties: false}
`,
        files: {
          'snippets/greet.ts': `import { echo, wipe } from 'host:mcp-stories';\nreturn [echo({ text: 'Hi ' + args.who }), wipe().code];`,
        },
      });
      facades.push(facade);
      const session = facade.open('alice');
      expect((await facade.list(session)).find(({ name }) => name === 'greet')).toMatchObject({
        description: expect.stringContaining('Greets somebody.'),
      });
      expect((await facade.call(session, 'greet', { whom: 'A' })).code).toBe('ARGS_INVALID');
      const answer = await facade.call(session, 'greet', { who: 'Ada' });
      expect(answer.code).toBe('APPROVAL_REQUIRED');
      expect(callsMade(facade)).toEqual({ echo: 1 });
    },
  );
});
