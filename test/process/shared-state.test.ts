/**
 * Tests processes that share one state folder, and the log that a killed process leaves.
 * Covers: facade/cli/serving, facade/serve, facade/runtime.
 */
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { cli, dataOf, server } from '../cli/terminal.ts';
import { Project } from '../config/project.ts';
import { verifies } from '../verifies.ts';
import { Child, type Reply } from './child.ts';

const CONFIG = `version: 1
workspace: ./workspace
servers: {chaos: ${server(['chaos.mjs'])}}
profiles: {default: {servers: [chaos], expose: {primitives: workspace, tools: ["chaos.*"]}}}
rules: [{id: all, outcome: allow, when: {}}]
budgets:
  - {id: ten, scope: principal, calls: 10, when: {server: chaos, tool: echo}}
  - {id: some, scope: principal, calls: 300, when: {server: chaos, tool: seen}}
`;

let project: Project;
const children: Child[] = [];

async function run(): Promise<Child> {
  const child = new Child(project, ['run']);
  children.push(child);
  await child.hello();
  await child.ask('tools/list');
  return child;
}

const codeOf = ({ result }: Reply): unknown => result?._meta?.['tollgate/code'] ?? 'ok';

beforeEach(async () => {
  project = new Project();
  project.write('workspace/README.md', '# Hello\n');
  project.write('tollgate.yaml', CONFIG);
  await project.approve();
});
afterEach(async () => {
  await Promise.all(children.splice(0).map((child) => child.kill('SIGKILL')));
  project.remove();
});

describe('two processes on one state folder', () => {
  it('share one budget: ten of forty concurrent calls run' + verifies('HB-05'), async () => {
    const both = await Promise.all([run(), run()]);
    const replies = await Promise.all(
      both.flatMap((child) => Array.from({ length: 20 }, (_, n) => child.call('chaos_echo', { n }))),
    );
    const codes = replies.map(codeOf);
    expect(codes.filter((code) => code === 'ok')).toHaveLength(10);
    expect(codes.filter((code) => code === 'BUDGET_EXCEEDED')).toHaveLength(30);
    for (const child of both) child.process.stdin.end();
    await Promise.all(both.map((child) => child.ended));
    const { chains, ok } = dataOf<{ ok: boolean; chains: { state: string }[] }>(
      (await cli(project, ['audit', 'verify', '--json'])).out,
    );
    expect([ok, chains.map(({ state }) => state)]).toEqual([true, ['closed', 'closed']]);
    expect(dataOf((await cli(project, ['audit', 'stats', '--json'])).out)).toMatchObject({ calls: 40, unknown: 0 });
  });
});

describe('two processes that reserve calls ahead', () => {
  it('let exactly the calls of the budget run together' + verifies('FP-02', 'HB-05'), async () => {
    const both = await Promise.all([run(), run()]);
    const counts = await Promise.all(
      both.map(async (child) => {
        let ran = 0;
        for (let n = 0; n < 100; n += 1) {
          const codes = (await Promise.all([1, 2, 3, 4].map(() => child.call('chaos_seen', { n })))).map(codeOf);
          ran += codes.filter((code) => code === 'ok').length;
          if (codes.includes('BUDGET_EXCEEDED')) break;
        }
        return ran;
      }),
    );
    expect(counts.reduce((sum, ran) => sum + ran)).toBe(300);
  });
});

describe('a process that is killed during calls', () => {
  it(
    'leaves a valid log, with the acknowledged calls and the calls with an unknown outcome' + verifies('PF-09'),
    async () => {
      const child = await run();
      const acknowledged = await Promise.all(Array.from({ length: 5 }, (_, n) => child.call('chaos_seen', { n })));
      void child.call('chaos_hang', { n: 1 });
      void child.call('chaos_hang', { n: 2 });
      const unknown = async (): Promise<readonly { exposed: string; executed?: string }[]> =>
        dataOf((await cli(project, ['audit', 'list', '--unknown', '--json'])).out);
      const listed = async (): Promise<readonly { exposed: string }[]> =>
        dataOf((await cli(project, ['audit', 'list', '--type', 'intent', '--json'])).out);
      await expect
        .poll(async () => (await listed()).filter(({ exposed }) => exposed === 'chaos_hang').length, {
          timeout: 20_000,
        })
        .toBe(2);
      expect(await unknown()).toEqual([]);
      await child.kill('SIGKILL');
      const verdict = await cli(project, ['audit', 'verify', '--json']);
      expect(dataOf(verdict.out)).toMatchObject({ ok: true, faults: [] });
      expect((await unknown()).map(({ exposed }) => exposed)).toEqual(['chaos_hang', 'chaos_hang']);
      const decisions = acknowledged.map(
        ({ result }) => (result?._meta?.['tollgate/provenance'] as { decision: string }).decision,
      );
      for (const id of decisions) expect((await cli(project, ['audit', 'show', id])).out).toContain('hash fits');
      // The next process begins its own chain, and finds nothing to repair.
      const next = await run();
      next.process.stdin.end();
      expect((await next.ended).code).toBe(0);
      expect(dataOf((await cli(project, ['audit', 'verify', '--json'])).out)).toMatchObject({ ok: true });
    },
  );
});
