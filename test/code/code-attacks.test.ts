/** Attacks on runs of code: by the code, by other sessions and by the timing of people's decisions. */

import { mkdtempSync, readdirSync, readlinkSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import type { OpenSession } from '../../facade/call/identify.ts';
import { RunLog } from '../../facade/code/run-log.ts';
import { cli } from '../cli/terminal.ts';
import type { Project } from '../config/project.ts';
import { inFull } from '../harness/full-tests.ts';
import type { TestFacade } from '../stories/facade.ts';
import { verifies } from '../verifies.ts';
import { type CodeFacadeOptions, callsMade, runCode, startCodeFacade } from './code-facade.ts';

let folder: string;
const facades: TestFacade[] = [];
beforeEach(() => {
  folder = mkdtempSync(path.join(tmpdir(), 'tollgate-attack-'));
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

async function owner(...words: readonly string[]): Promise<Record<string, unknown>> {
  const { out, err, code } = await cli({ folder, home: folder } as Project, [...words, '--as', 'boss', '--json']);
  expect({ code, err: err.replaceAll(/No call waits.*\n/g, '') }).toMatchObject({ code: 0 });
  return JSON.parse(out) as Record<string, unknown>;
}

interface Asked {
  readonly id: string;
  readonly state: string;
  readonly binding: string;
  readonly coderun: { readonly id: string; readonly proposal: { readonly max: number } };
}

async function pending(): Promise<Asked> {
  const { approvals } = (await owner('approvals', 'list')) as { approvals: readonly Asked[] };
  const open = approvals.filter(({ state }) => state === 'pending');
  expect(open).toHaveLength(1);
  return (await owner('approvals', 'show', open[0]?.id ?? '')) as unknown as Asked;
}

const LABEL_RULES = `
  - {id: marks, outcome: allow, when: {tools: [stories.echo]}, obligations: {labels: [secret]}}
  - {id: reads, outcome: allow, when: {verbs: [read]}}
  - {id: leaks, outcome: deny, when: {tools: [stories.pair], labels: [secret]}}
  - {id: pairs, outcome: allow, when: {tools: [stories.pair]}}
  - {id: asks, outcome: ask, when: {tools: [stories.open]}}`;

it(
  'attack: variables lose the labels of their session when another session continues' + verifies('CM-37'),
  async () => {
    const facade = await start({ rules: LABEL_RULES, more: 'code: {variables: 10kB}' });
    const first = facade.open('alice');
    await runCode(facade, `vars.text = require('host:mcp-stories').echo({ text: 'private text' });`, first);
    const code = `const { open, pair } = require('host:mcp-stories');
open({ path: 'x' });
return pair({ a: vars.text, 'odd key!': '' });`;
    expect((await runCode(facade, code, first)).code).toBe('APPROVAL_REQUIRED');
    const { id, binding } = await pending();
    await owner('approvals', 'approve', id, '--yes', binding);
    const { text } = await runCode(facade, code, facade.open('alice'));
    expect(text).toContain('"code":"DENIED"');
    expect(callsMade(facade)).toEqual({ echo: 1, open: 1 });
  },
);

it('attack: a session for another origin takes over the run of a host' + verifies('CM-37'), async () => {
  const facade = await start();
  const code = `const { echo, open } = require('host:mcp-stories');
const text = echo({ text: 'of the first' });
open({ path: 'x' });
return text;`;
  const first = facade.open('alice') as OpenSession;
  await runCode(facade, code, first);
  const { coderun } = await pending();
  const other = facade.open('alice') as OpenSession;
  other.principal = { ...other.principal, origin: 'https://other.example' };
  const resumed = await facade.call(other, 'run_code', { resume: coderun.id });
  expect([resumed.code, resumed.text]).toEqual(['ARGS_INVALID', expect.stringContaining('There is no run')]);
  expect((await facade.call(other, 'run_code', { discard: coderun.id })).code).toBe('ARGS_INVALID');
  await runCode(facade, code, other);
  expect(callsMade(facade)).toEqual({ echo: 2 });
});

inFull('attack: many runs that never end fill the disk' + verifies('CM-49'), async () => {
  const facade = await start();
  const session = facade.open('alice');
  const codes: string[] = [];
  let last = '';
  for (let n = 0; n <= 32; n += 1) {
    const answer = await runCode(facade, `require('host:mcp-stories').wipe(); // ${n}`, session);
    codes.push(answer.code);
    last = answer.text;
  }
  expect(codes.slice(0, 32)).toEqual(Array.from({ length: 32 }, () => 'APPROVAL_REQUIRED'));
  expect([codes[32], last]).toEqual(['CODE_LIMIT', expect.stringContaining('32 runs have not ended')]);
  const id = /not ended: (\w+)/.exec(last)?.[1];
  expect((await facade.call(session, 'run_code', { discard: id })).text).toContain('is forgotten');
  expect((await runCode(facade, 'return 1;', session)).text).toBe('1');
});

it(
  'attack: allowed calls in the plan make room for more calls that a rule asks about' + verifies('CM-33'),
  async () => {
    const facade = await start({
      rules: `
  - {id: safe, outcome: allow, when: {tools: [stories.open], args: {path: {equals: safe}}}}
  - {id: asks, outcome: ask, when: {tools: [stories.open], args: {path: {equals: bad}}}}`,
    });
    await runCode(
      facade,
      `const { open } = require('host:mcp-stories');
open({ path: 'bad' });
for (let n = 0; n < 9; n += 1) open({ path: 'safe' });`,
    );
    expect((await pending()).coderun.proposal).toMatchObject({
      max: 1,
      where: { properties: { path: { const: 'bad' } } },
    });
  },
);

it(
  'attack: long arguments make terms that no one can read and that hold the event loop' + verifies('CM-33'),
  async () => {
    const facade = await start();
    await runCode(
      facade,
      `const { open } = require('host:mcp-stories');
for (let n = 0; n < 20; n += 1) open({ path: 'x'.repeat(30_000) + n });`,
    );
    const { proposal } = (await pending()).coderun;
    expect(proposal.max).toBe(3);
    expect(JSON.stringify(proposal).length).toBeLessThan(100_000);
  },
);

it('attack: a loop answers a rule that did not ask when it was approved' + verifies('CM-33'), async () => {
  const facade = await start({
    rules: `
  - {id: marks, outcome: allow, when: {tools: [stories.echo]}, obligations: {labels: [secret]}}
  - {id: reads, outcome: allow, when: {verbs: [read]}}
  - {id: asks, outcome: ask, when: {tools: [stories.open]}}
  - {id: leaks, outcome: ask, message: Private data leaves., when: {tools: [stories.open], labels: [secret]}}`,
  });
  const session = facade.open('alice');
  const code = `const { open } = require('host:mcp-stories');
return [open({ path: 'a' }), open({ path: 'b' })];`;
  await runCode(facade, code, session);
  const { id, binding } = await pending();
  await owner('approvals', 'approve', id, '--yes', binding, '--loop');
  await facade.call(session, 'stories_echo', { text: 'private' });
  expect((await runCode(facade, code, session)).code).toBe('APPROVAL_REQUIRED');
  expect(callsMade(facade)).toEqual({ echo: 1 });
});

inFull(
  'attack: the caller changes between the approval of a call and its repetition' + verifies('CM-36'),
  async () => {
    const facade = await start({ waitMs: 30_000 });
    const session = facade.open('alice') as OpenSession;
    const direct = new AbortController();
    // An equal call of its own asks first.
    const asking = facade.call(session, 'stories_open', { path: 'x' }, { signal: direct.signal });
    await expect.poll(async () => ((await owner('approvals', 'list')).approvals as unknown[]).length).toBe(1);
    direct.abort();
    await asking;
    const request = await pending();
    const count = (facts: object): number =>
      facade.records().filter((one) => Object.entries(facts).every(([name, value]) => one[name] === value)).length;
    const code = `const { open, slow } = require('host:mcp-stories');
for (let n = 0; n < 12_000_000; n += 1);
open({ path: 'x' });
slow({ ms: 4_000 });`;
    const stop = new AbortController();
    const running = facade.call(session, 'run_code', { code }, { signal: stop.signal });
    // The dry run reads, so the approval comes between the first look for one and the question.
    await expect.poll(() => count({ tool: 'slow', type: 'intent' }), { timeout: 20_000 }).toBe(1);
    await owner('approvals', 'approve', request.id, '--yes', request.binding);
    await expect.poll(() => count({ event: 'used' }), { timeout: 20_000, interval: 5 }).toBe(1);
    // As after a change of the configuration.
    session.principal = { ...session.principal, groups: ['suspended'] };
    await expect.poll(() => count({ event: 'asked' }), { timeout: 20_000 }).toBe(2);
    stop.abort();
    await running;
    expect(callsMade(facade)).not.toHaveProperty('open');
  },
  60_000,
);

it('attack: runs on a full disk use up the open files of the process' + verifies('CM-40'), () => {
  symlinkSync('/dev/full', path.join(folder, 'full.jsonl'));
  const start = { id: 'full', principal: 'alice', code: '', startedAt: 1, parallel: 8 };
  const full = expect.objectContaining({ code: 'STATE_FAILED' });
  for (let n = 0; n < 3; n += 1) expect(() => RunLog.create(folder, start)).toThrow(full);
  const open = readdirSync('/proc/self/fd').filter((fd) => linkOf(fd) === '/dev/full');
  expect(open).toEqual([]);
});

/** Returns what an open file is; undefined if it was closed meanwhile. */
function linkOf(fd: string): string | undefined {
  try {
    return readlinkSync(path.join('/proc/self/fd', fd));
  } catch {
    return undefined;
  }
}

it('attack: code makes more calls at once than a session may' + verifies('CM-28'), async () => {
  const facade = await start({ more: 'caps: {concurrent: 2}' });
  const { text } = await runCode(
    facade,
    `const { slow } = require('host:mcp-stories');
return (await Promise.all([1, 2, 3, 4, 5, 6].map(() => slow.async({ ms: 100 })))).length;`,
  );
  expect(text).toBe('6');
  let open = 0;
  const most = facade
    .callRecords()
    .filter(({ tool }) => tool === 'slow')
    .map(({ type }) => (open += type === 'intent' ? 1 : -1));
  expect(Math.max(...most)).toBe(2);
});

inFull('attack: an owner is shown the plan of an older policy' + verifies('CM-30'), async () => {
  const facade = await start();
  const code = `const { wipe, pair } = require('host:mcp-stories'); wipe(); pair({ a: '', 'odd key!': '' });`;
  await runCode(facade, code);
  const outcomes = async (): Promise<unknown> =>
    ((await pending()).coderun as unknown as { planned: readonly { outcome: string }[] }).planned.map(
      ({ outcome }) => outcome,
    );
  expect(await outcomes()).toEqual(['ask', 'allow']);
  await owner('approvals', 'deny', (await pending()).id);
  await facade.close();
  facades.splice(0);
  const stricter = await start({
    rules: `
  - {id: asks, outcome: ask, when: {tools: [stories.wipe, stories.pair]}}`,
  });
  expect((await runCode(stricter, code)).code).toBe('APPROVAL_REQUIRED');
  expect(await outcomes()).toEqual(['ask', 'ask']);
});
