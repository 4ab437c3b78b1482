/**
 * Tests approvals of calls over real processes: agents that wait or race, and an owner at another terminal.
 * Covers: facade/cli/serving, facade/serve, facade/runtime.
 */

import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { cli, dataOf, server } from '../cli/terminal.ts';
import { Project } from '../config/project.ts';
import { inFull } from '../harness/full-tests.ts';
import { roundsOf } from '../harness/slices.ts';
import { verifies } from '../verifies.ts';
import { Child, type Reply } from './child.ts';

const config = (waitMs: number, log: string): string => `version: 1
workspace: ./workspace
state: ./state
approvals: {waitMs: ${waitMs}}
servers: {chaos: ${server(['chaos.mjs'], `env: {CHAOS_LOG: ${JSON.stringify(log)}}`)}}
principals: [{id: agent, stdio: true}, {id: olga, owner: true, stdio: true}]
profiles: {default: {servers: [chaos], expose: {primitives: workspace, tools: ["chaos.*"]}}}
rules:
  - {id: looks, outcome: ask, message: Look first., when: {tools: [chaos.echo, chaos.hang]}}
  - {id: rest, outcome: allow, when: {}}
`;

/** Agents that race for one approval, and the calls of each. */
const PROCESSES = roundsOf(5, 2);
const CALLS_OF_EACH = 50 / PROCESSES;

interface Listed {
  readonly approvals: readonly { readonly id: string; readonly binding: string; readonly state: string }[];
}

let project: Project;
let log: string;
const children: Child[] = [];

async function begin(waitMs: number): Promise<void> {
  project.write('tollgate.yaml', config(waitMs, log));
  await project.approve();
}

async function run(): Promise<Child> {
  const child = new Child(project, ['run', '--as', 'agent']);
  children.push(child);
  await child.hello();
  await child.ask('tools/list');
  return child;
}

const codeOf = ({ result }: Reply): unknown => result?._meta?.['tollgate/code'] ?? 'ok';
const owner = (...words: readonly string[]) => cli(project, ['approvals', ...words, '--as', 'olga', '--json']);
const listed = async (): Promise<Listed['approvals']> => dataOf<Listed>((await owner('list')).out).approvals;
const carriedOut = (): number =>
  existsSync(log)
    ? readFileSync(log, 'utf8')
        .split('\n')
        .filter((line) => line !== '').length
    : 0;

async function approve(): Promise<void> {
  const [one] = await listed();
  expect((await owner('approve', one?.id ?? '', '--yes', one?.binding.slice(0, 12) ?? '')).code).toBe(0);
}

beforeEach(() => {
  project = new Project();
  log = path.join(project.folder, 'carried-out');
  project.write('workspace/README.md', '# Hello\n');
});
afterEach(async () => {
  await Promise.all(children.splice(0).map((child) => child.kill('SIGKILL')));
  project.remove();
});

describe('one approval of a call', () => {
  it('allows exactly one execution to fifty concurrent callers in several processes' + verifies('PF-08'), async () => {
    await begin(0);
    const all = await Promise.all(Array.from({ length: PROCESSES }, run));
    const call = (child: Child): Promise<Reply> => child.call('chaos_echo', { token: 'once' });
    expect(codeOf(await call(all[0] as Child))).toBe('APPROVAL_REQUIRED');
    await approve();
    const replies = await Promise.all(all.flatMap((child) => Array.from({ length: CALLS_OF_EACH }, () => call(child))));
    const codes = replies.map(codeOf);
    expect(codes.filter((code) => code === 'ok')).toHaveLength(1);
    expect(codes.filter((code) => code === 'APPROVAL_REQUIRED')).toHaveLength(49);
    expect(carriedOut()).toBe(1);
    // The others share one new request.
    expect((await listed()).map(({ state }) => state)).toEqual(['pending']);
  });

  inFull('counts as used if the process dies during the call', async () => {
    await begin(0);
    const child = await run();
    expect(codeOf(await child.call('chaos_hang', { token: 'dies' }))).toBe('APPROVAL_REQUIRED');
    await approve();
    void child.call('chaos_hang', { token: 'dies' });
    await expect.poll(async () => (await listed()).length, { timeout: 20_000 }).toBe(0);
    await child.kill('SIGKILL');
    expect(codeOf(await (await run()).call('chaos_hang', { token: 'dies' }))).toBe('APPROVAL_REQUIRED');
  });
});

describe('a call that waits in one process', () => {
  it('is announced on stderr with the command to show it, and goes on after an approval in another process', async () => {
    await begin(60_000);
    const child = await run();
    const reply = child.call('chaos_echo', { token: 'waits' });
    await expect
      .poll(() => child.err, { timeout: 20_000 })
      .toMatch(
        /^agent waits for approval of chaos\.echo \(rule looks: Look first\.\)\. Decide: tollgate approvals show [2-9a-z]{10}$/m,
      );
    await approve();
    expect(codeOf(await reply)).toBe('ok');
    expect(carriedOut()).toBe(1);
  });

  inFull('delays neither the end of the input nor a signal', async () => {
    await begin(60_000);
    for (const [token, end] of [
      ['end', (child: Child) => void child.process.stdin.end()],
      ['signal', (child: Child) => void child.process.kill('SIGTERM')],
    ] as const) {
      const child = await run();
      const reply = child.call('chaos_echo', { token });
      await expect.poll(() => child.err, { timeout: 20_000 }).toContain('waits for approval');
      end(child);
      expect(codeOf(await reply)).toBe('APPROVAL_REQUIRED');
      expect((await child.ended).code).toBe(0);
    }
  });
});
