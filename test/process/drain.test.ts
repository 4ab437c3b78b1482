/**
 * Tests a signal during a call: the call is cancelled at its server and recorded, and no new call begins.
 * Covers: facade/cli/serving, facade/serve, facade/runtime.
 */

import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { cli, dataOf, server } from '../cli/terminal.ts';
import { Project } from '../config/project.ts';
import { inFull } from '../harness/full-tests.ts';
import { partOf } from '../harness/slices.ts';
import { verifies } from '../verifies.ts';
import { Child, type Reply } from './child.ts';

let project: Project;
let child: Child;

beforeEach(() => {
  project = new Project();
  project.write('workspace/README.md', '# Hello\n');
});
afterEach(async () => {
  await child.kill('SIGKILL');
  project.remove();
});

/** Starts a process in which a call hangs on a server of this mode, with the response of that call. */
async function hang(mode: string, drainMs = 300): Promise<{ readonly answer: Promise<Reply> }> {
  project.write(
    'tollgate.yaml',
    `version: 1
workspace: ./workspace
servers: {chaos: ${server(['chaos.mjs', mode], `env: {CHAOS_LOG: ${path.join(project.folder, 'ran')}}`)}}
profiles: {default: {servers: [chaos], expose: {primitives: workspace, tools: ["chaos.*"]}}}
rules: [{id: all, outcome: allow, when: {}}]
limits: {drainMs: ${drainMs}}
`,
  );
  await project.approve();
  child = new Child(project, ['run']);
  await child.hello();
  await child.ask('tools/list');
  const answer = child.call('chaos_hang', { token: 'running' });
  await expect.poll(ran, { timeout: 20_000 }).toBe('running\n');
  return { answer };
}

const records = async (type: string): Promise<readonly Record<string, unknown>[]> =>
  dataOf((await cli(project, ['audit', 'list', '--all', '--type', type, '--json'])).out);
const ran = (): string =>
  existsSync(path.join(project.folder, 'ran')) ? readFileSync(path.join(project.folder, 'ran'), 'utf8') : '';
const END = { exposed: 'chaos_hang', code: 'INTERRUPTED', executed: 'unknown' };
const CUT = {
  result: {
    isError: true,
    content: [
      {
        type: 'text',
        text: expect.stringMatching(/^Tollgate stopped while the call ran\.\nThe call may have run/) as string,
      },
    ],
    _meta: { 'tollgate/code': 'INTERRUPTED', 'tollgate/executed': 'unknown', 'tollgate/retryable': false },
  },
};

describe('a signal during a call' + verifies('HA-07', 'PF-09'), () => {
  inFull.each(partOf(['SIGINT', 'SIGTERM'] as const, 1))(
    '%s: cancels the call after the drain time, answers and records it, and closes the chain' + verifies('ST-21'),
    async (signal) => {
      const { answer } = await hang('ok');
      expect(await child.kill(signal)).toEqual({ code: 0, signal: null });
      expect(await answer).toMatchObject(CUT);
      expect(await records('intent')).toHaveLength(1);
      expect(await records('outcome')).toEqual([expect.objectContaining(END)]);
      expect(dataOf((await cli(project, ['audit', 'verify', '--json'])).out)).toMatchObject({
        ok: true,
        chains: [{ state: 'closed' }],
      });
    },
  );

  it(
    'refuses new calls while it drains; a second signal cancels, a third ends the process' + verifies('ST-20', 'ST-21'),
    async () => {
      const { answer } = await hang('stubborn', 3_600_000);
      child.process.kill('SIGTERM');
      // A list is refused after the process received the signal. Before, it is answered.
      await expect
        .poll(async () => (await child.ask('tools/list')).error?.data?.code, { timeout: 20_000 })
        .toBe('SHUTTING_DOWN');
      expect((await child.call('chaos_echo', { token: 'late' })).error?.data?.code).toBe('SHUTTING_DOWN');
      expect(await records('outcome')).toEqual([]);
      child.process.kill('SIGTERM');
      expect(await answer).toMatchObject(CUT);
      expect(await records('outcome')).toEqual([expect.objectContaining(END)]);
      expect(await child.kill('SIGTERM')).toEqual({ code: 1, signal: null });
      expect(ran()).toBe('running\n');
      expect(await records('intent')).toHaveLength(1);
    },
  );
});

describe('the end of the input' + verifies('ST-22'), () => {
  it('cancels a running call after the drain time, answers and records it', async () => {
    const { answer } = await hang('ok');
    child.process.stdin.end();
    expect(await child.ended).toEqual({ code: 0, signal: null });
    expect(await answer).toMatchObject(CUT);
    expect(await records('outcome')).toEqual([expect.objectContaining(END)]);
  });

  inFull('lets the process answer a running call and a list before it ends', async () => {
    project.write(
      'tollgate.yaml',
      `version: 1
workspace: ./workspace
servers: {chaos: ${server(['chaos.mjs'])}}
profiles: {default: {servers: [chaos], expose: {primitives: workspace, tools: ["chaos.*"]}}}
rules: [{id: all, outcome: allow, when: {}}]
limits: {drainMs: 60000}
`,
    );
    await project.approve();
    child = new Child(project, ['run']);
    void child.hello();
    const [list, call] = [child.ask('tools/list'), child.call('chaos_slow', { ms: 1000 })];
    child.process.stdin.end();
    expect(await child.ended).toEqual({ code: 0, signal: null });
    // On a busy machine, the server may take longer than the list waits.
    expect((await list).result?.tools?.map(({ name }) => name)).toContain('read');
    expect((await call).result?.content).toEqual([{ type: 'text', text: 'slow' }]);
  });
});
