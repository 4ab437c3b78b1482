/** Tests what a signal does to a call that runs: it is cancelled at its server, recorded, and nothing new begins. */
import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { cli, dataOf, server } from '../cli/terminal.ts';
import { Project } from '../config/project.ts';
import { verifies } from '../verifies.ts';
import { Child } from './child.ts';

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

/** A process in which a call hangs on a server of this mode. */
async function hang(mode: string): Promise<void> {
  project.write('tollgate.yaml', `version: 1
workspace: ./workspace
servers: {chaos: ${server(['chaos.mjs', mode], `env: {CHAOS_LOG: ${path.join(project.folder, 'ran')}}`)}}
profiles: {default: {servers: [chaos], expose: {primitives: workspace, tools: ["chaos.*"]}}}
rules: [{id: all, outcome: allow, when: {}}]
`);
  await project.approve();
  child = new Child(project, ['run']);
  await child.hello();
  await child.ask('tools/list');
  void child.call('chaos_hang', { token: 'running' });
  await expect.poll(ran, { timeout: 20_000 }).toBe('running\n');
}

const records = async (type: string): Promise<readonly Record<string, unknown>[]> => dataOf((await cli(project, ['audit', 'list', '--all', '--type', type, '--json'])).out);
const ran = (): string => (existsSync(path.join(project.folder, 'ran')) ? readFileSync(path.join(project.folder, 'ran'), 'utf8') : '');
const END = { exposed: 'chaos_hang', code: 'CANCELLED', executed: 'unknown' };

describe('a signal in the middle of a call' + verifies('HA-07', 'PF-09'), () => {
  it.each(['SIGTERM', 'SIGINT'] as const)('%s: the call is cancelled and has its end on record, the chain is closed', async (signal) => {
    await hang('ok');
    expect(await child.kill(signal)).toEqual({ code: 0, signal: null });
    expect(await records('intent')).toHaveLength(1);
    expect(await records('outcome')).toEqual([expect.objectContaining(END)]);
    expect(dataOf((await cli(project, ['audit', 'verify', '--json'])).out)).toMatchObject({ ok: true, chains: [{ state: 'closed' }] });
  });

  it('what comes while it drains does not run; a second signal ends it now', async () => {
    await hang('stubborn');
    child.process.kill('SIGTERM');
    await expect.poll(() => records('outcome'), { timeout: 20_000 }).toEqual([expect.objectContaining(END)]);
    child.process.stdin.write(`${JSON.stringify({ jsonrpc: '2.0', id: 99, method: 'tools/call', params: { name: 'chaos_echo', arguments: { token: 'late' } } })}\n`);
    await sleep(300);
    expect(await child.kill('SIGTERM')).toEqual({ code: 1, signal: null });
    expect(ran()).toBe('running\n');
    expect(await records('intent')).toHaveLength(1);
  });
});
