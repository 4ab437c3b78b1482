/** Tests approvals of calls that code makes: a run stops, a person sees what would follow, and the run goes on. */

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { cli } from '../cli/terminal.ts';
import type { Project } from '../config/project.ts';
import { inFull } from '../harness/full-tests.ts';
import type { TestFacade } from '../stories/facade.ts';
import { verifies } from '../verifies.ts';
import { type CodeFacadeOptions, callsMade, runCode, startCodeFacade } from './code-facade.ts';

let folder: string;
const facades: TestFacade[] = [];
beforeEach(() => {
  folder = mkdtempSync(path.join(tmpdir(), 'tollgate-loop-'));
});
afterEach(async () => {
  await Promise.all(facades.splice(0).map((one) => one.close()));
  rmSync(folder, { recursive: true, force: true, maxRetries: 3 });
});

async function start(options: CodeFacadeOptions = {}): Promise<TestFacade> {
  const facade = await startCodeFacade({ folder, ...options });
  facades.push(facade);
  return facade;
}

/** Runs a command of the owner, and returns its JSON. Fails if the command does. */
async function owner(...words: readonly string[]): Promise<Record<string, unknown>> {
  const { out, err, code } = await cli({ folder, home: folder } as Project, [...words, '--as', 'boss', '--json']);
  expect({ code, err: err.replaceAll(/No call waits.*\n/g, '') }).toMatchObject({ code: 0 });
  return JSON.parse(out) as Record<string, unknown>;
}

interface Plan {
  readonly id: string;
  readonly binding: string;
  readonly coderun: {
    readonly id: string;
    readonly code: string;
    readonly end: string;
    readonly made: readonly Record<string, unknown>[];
    readonly planned: readonly Record<string, unknown>[];
    readonly proposal: { readonly max: number; readonly where: unknown; readonly withinMs: number };
  };
}

/** Returns the only request that waits. */
async function waiting(): Promise<Plan> {
  const { approvals } = (await owner('approvals', 'list')) as { approvals: readonly { id: string; state: string }[] };
  const pending = approvals.filter(({ state }) => state === 'pending');
  expect(pending).toHaveLength(1);
  return (await owner('approvals', 'show', pending[0]?.id ?? '')) as unknown as Plan;
}

/** Approves the only request that waits. */
async function approve(...how: readonly string[]): Promise<Plan> {
  const plan = await waiting();
  await owner('approvals', 'approve', plan.id, '--yes', plan.binding, ...how);
  return plan;
}

const LOOP = `import { echo, open } from 'host:mcp-stories';
const names = ['a', 'b', 'c'].map((name) => echo({ text: name }));
const done = [];
for (const name of names) done.push(open({ path: name + '.txt' }));
return done;`;

describe('the plan of a run that waits', () => {
  inFull(
    'shows the code, what ran, and the calls that follow; reads run, writes do not' + verifies('CM-30'),
    async () => {
      const facade = await start();
      const answer = await runCode(facade, LOOP);
      expect(answer.code).toBe('APPROVAL_REQUIRED');
      expect(answer.text).toContain('makes no call twice');
      const { coderun } = await waiting();
      expect(coderun.code).toBe(LOOP);
      expect(coderun.made).toEqual(
        ['a', 'b', 'c'].map((text, at) => ({
          seq: at + 1,
          tool: 'stories.echo',
          args: `{"text":"${text}"}`,
          outcome: 'done',
        })),
      );
      expect(coderun.planned).toEqual(
        ['a', 'b', 'c'].map((name, at) => ({
          seq: at + 4,
          tool: 'stories.open',
          args: `{"path":"${name}.txt"}`,
          outcome: 'ask',
        })),
      );
      expect(coderun.proposal).toEqual({
        max: 3,
        withinMs: 600_000,
        where: {
          type: 'object',
          properties: { path: { enum: ['a.txt', 'b.txt', 'c.txt'] } },
          required: ['path'],
          additionalProperties: false,
        },
      });
      expect(callsMade(facade)).toEqual({ echo: 3 });
    },
  );

  inFull(
    'executes, records and budgets the reads that would follow, and shows the model none of it' + verifies('CM-31'),
    async () => {
      const facade = await start();
      const answer = await runCode(
        facade,
        `const { echo, open, pair } = require('host:mcp-stories');
open({ path: 'x' });
const secret = echo({ text: 'only-in-the-plan' });
console.log(secret);
pair({ a: 'written', 'odd key!': secret });
return secret;`,
      );
      const { coderun } = await waiting();
      expect(coderun.planned.map(({ tool, outcome }) => [tool, outcome])).toEqual([
        ['stories.open', 'ask'],
        ['stories.pair', 'allow'],
      ]);
      expect(callsMade(facade)).toEqual({ echo: 1 });
      const codes = facade.records().filter(({ code }) => code === 'PLANNED');
      expect(codes.map(({ type, tool }) => [type, tool])).toEqual([
        ['decision', 'open'],
        ['decision', 'pair'],
      ]);
      expect(answer.text).not.toContain('only-in-the-plan');
    },
  );

  it('ends where the code uses the result of a call that was not made, and says so' + verifies('CM-32'), async () => {
    const facade = await start();
    await runCode(
      facade,
      `const { open } = require('host:mcp-stories');
const first = open({ path: 'x' });
if (first.error) open({ path: 'y' });
open({ path: 'z' });`,
    );
    const { coderun } = await waiting();
    expect(coderun.planned).toHaveLength(1);
    expect(coderun.end).toBe('The code uses the result of call 1, so it is not known what follows.');
  });
});

describe('an approval of a loop', () => {
  inFull('lets the run make its calls, each once, and the values come from the log' + verifies('CM-33'), async () => {
    const facade = await start();
    const session = facade.open('alice');
    await runCode(facade, LOOP, session);
    await approve('--loop');
    const answer = await runCode(facade, LOOP, session);
    expect(answer.text).toMatch(/^\[tollgate: this continues run \w{10}; no call was made twice]\n/);
    expect(answer.text).toContain('["opened a.txt","opened b.txt","opened c.txt"]');
    expect(callsMade(facade)).toEqual({ echo: 3, open: 3 });
    const used = facade.records().filter(({ type, event }) => type === 'approval' && event === 'used');
    expect(used.map(({ covers, uses }) => [covers, uses])).toEqual([
      ['loop', 1],
      ['loop', 2],
      ['loop', 3],
    ]);
  });

  inFull('refuses the call after the last one by name' + verifies('CM-34'), async () => {
    const facade = await start();
    await runCode(facade, LOOP);
    await approve('--loop', '--max', '2');
    const { text } = await runCode(facade, LOOP);
    expect(JSON.parse(text.slice(text.indexOf('\n') + 1))).toEqual([
      'opened a.txt',
      'opened b.txt',
      { error: expect.stringContaining('The approval covers 2 calls, and all of them were made.'), code: 'LOOP_SPENT' },
    ]);
    expect(callsMade(facade)).toMatchObject({ open: 2 });
  });

  inFull('refuses a call with other arguments by name' + verifies('CM-34'), async () => {
    const facade = await start();
    await runCode(facade, LOOP);
    await approve('--loop', '--where', '{"properties": {"path": {"pattern": "^[ac]"}}}');
    const { text } = await runCode(facade, LOOP);
    const values = JSON.parse(text.slice(text.indexOf('\n') + 1)) as readonly unknown[];
    expect(values[1]).toMatchObject({ code: 'LOOP_MISMATCH' });
    expect(callsMade(facade)).toMatchObject({ open: 2 });
  });

  inFull('refuses a late call by name' + verifies('CM-34'), async () => {
    const facade = await start();
    await runCode(facade, LOOP);
    await approve('--loop', '--within', '1s');
    await new Promise((resolve) => setTimeout(resolve, 1_100));
    const { text } = await runCode(facade, LOOP);
    expect(text.match(/LOOP_LATE/g)).toHaveLength(3);
    expect(callsMade(facade)).toEqual({ echo: 3 });
  });

  inFull('is for one run: other code asks again' + verifies('CM-34'), async () => {
    const facade = await start();
    await runCode(facade, LOOP);
    await approve('--loop');
    const other = await runCode(facade, `${LOOP}\n// other`);
    expect(other.code).toBe('APPROVAL_REQUIRED');
    expect(callsMade(facade)).toEqual({ echo: 6 + 0 });
  });

  inFull('works with Promise.all' + verifies('CM-35'), async () => {
    const facade = await start();
    const code = `const { open } = require('host:mcp-stories');
return Promise.all([1, 2, 3, 4, 5].map((n) => open.async({ path: 'file-' + n })));`;
    await runCode(facade, code);
    expect((await waiting()).coderun.planned).toHaveLength(5);
    await approve('--loop');
    expect((await runCode(facade, code)).text).toContain(
      JSON.stringify([1, 2, 3, 4, 5].map((n) => `opened file-${n}`)),
    );
    expect(callsMade(facade)).toEqual({ open: 5 });
  });

  it(
    'cannot be given where none was asked for, or with a schema that cannot be checked' + verifies('CM-34'),
    async () => {
      const facade = await start();
      await facade.call(facade.open('alice'), 'stories_wipe', {});
      const { id, binding } = await waiting();
      const words = ['approvals', 'approve', id, '--as', 'boss', '--yes', binding, '--loop'];
      const none = await cli({ folder, home: folder } as Project, words);
      expect(none.err).toContain('was not asked for by code');
      const bare = await cli({ folder, home: folder } as Project, [...words.slice(0, -1), '--max', '3']);
      expect(bare.err).toContain('belong to --loop');
    },
  );
});

describe('an approval of one call of a run', () => {
  it('covers this call alone: the next one asks' + verifies('CM-36'), async () => {
    const facade = await start();
    await runCode(facade, LOOP);
    await approve();
    expect((await runCode(facade, LOOP)).code).toBe('APPROVAL_REQUIRED');
    expect(callsMade(facade)).toEqual({ echo: 3, open: 1 });
    const { coderun } = await waiting();
    expect(coderun.made.map(({ seq, outcome }) => [seq, outcome])).toEqual([1, 2, 3, 4].map((seq) => [seq, 'done']));
  });

  inFull(
    'goes on at once while the caller waits, and a denial is an answer to the code' + verifies('CM-36'),
    async () => {
      const facade = await start({ waitMs: 20_000 });
      const running = runCode(facade, `const { wipe } = require('host:mcp-stories');\nreturn [wipe(), 'after'];`);
      await expect.poll(async () => (await facade.assembled.deps.approvals) !== undefined).toBe(true);
      const { id } = await expect
        .poll(async () => ((await owner('approvals', 'list')) as { approvals: unknown[] }).approvals.length)
        .toBe(1)
        .then(waiting);
      await owner('approvals', 'deny', id, '--reason', 'Not today.');
      const { text } = await running;
      expect(text).toContain('Not today.');
      expect(JSON.parse(text)).toEqual([
        { error: expect.stringContaining('boss has denied this call'), code: 'DENIED' },
        'after',
      ]);
      expect(callsMade(facade)).toEqual({});
    },
  );

  inFull('survives a restart of Tollgate' + verifies('CM-37'), async () => {
    const first = await start();
    await runCode(first, LOOP);
    const { coderun } = await approve('--loop');
    await first.close();
    facades.splice(0);
    const second = await start();
    const answer = await second.call(second.open('alice'), 'run_code', { resume: coderun.id });
    expect(answer.text).toContain('["opened a.txt","opened b.txt","opened c.txt"]');
    expect(callsMade(second)).toEqual({ echo: 3, open: 3 });
  });

  inFull('belongs to the principal: no other can continue or discard the run' + verifies('CM-37'), async () => {
    const facade = await start();
    await runCode(facade, LOOP);
    const { coderun } = await waiting();
    const alice = facade.open('alice');
    expect((await facade.call(alice, 'run_code', { discard: coderun.id })).text).toContain('is forgotten');
    expect((await facade.call(alice, 'run_code', { resume: coderun.id })).code).toBe('ARGS_INVALID');
  });
});
