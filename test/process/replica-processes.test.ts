/**
 * Tests replicas as processes over one state folder: a killed home, its servers, labels and lists, and a drain.
 * Covers: facade/cli/serving, facade/serve, facade/runtime.
 */

import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { server } from '../cli/terminal.ts';
import { Project } from '../config/project.ts';
import { inFull } from '../harness/full-tests.ts';
import { verifies } from '../verifies.ts';
import { Child } from './child.ts';
import { addressOf, callTool, type FleetAddress, type FleetAnswer, openSession, send } from './fleet-client.ts';

const children: Child[] = [];
const projects: Project[] = [];
afterEach(async () => {
  await Promise.all(children.splice(0).map((child) => child.kill('SIGKILL')));
  for (const project of projects.splice(0)) project.remove();
});

interface Process extends FleetAddress {
  readonly child: Child;
}

const RULES = `rules:
  - {id: all, outcome: allow, when: {}}
  - {id: no-read-after-secret, outcome: deny, when: {labels: [secret], tools: [workspace.read]}}
`;

/** Starts replicas. The results of the server have the label secret. */
async function start(count: number): Promise<{ readonly project: Project; readonly replicas: readonly Process[] }> {
  const project = new Project();
  projects.push(project);
  project.write('workspace/README.md', '# Hello\n');
  project.write(
    'tollgate.yaml',
    `version: 1
workspace: ./workspace
servers: {chaos: ${server(['chaos.mjs'], 'labels: [secret]')}}
principals: [{id: local, profiles: [p]}]
profiles: {p: {servers: [chaos], expose: {tools: ["chaos.*"]}}}
audit: {folder: ./audit}
listen: {port: 0, replicaPort: 0}
${RULES}`,
  );
  await project.approve();
  const replicas: Process[] = [];
  for (let number = 0; number < count; number += 1) {
    const child = new Child(project, ['serve', '--json']);
    children.push(child);
    replicas.push({ ...(await addressOf(child)), child });
  }
  return { project, replicas };
}

/** Returns the lines of the log with records of a type. */
function linesOf(project: Project, type: string): readonly string[] {
  const folder = path.join(project.folder, 'audit');
  return readdirSync(folder)
    .filter((name) => name.endsWith('.jsonl'))
    .flatMap((name) => readFileSync(path.join(folder, name), 'utf8').split('\n'))
    .filter((line) => line.includes(`"type":"${type}"`));
}

/** Returns the events of sessions in the log, with their codes. */
function sessionEvents(project: Project): readonly string[] {
  return linesOf(project, 'session')
    .map((line) => JSON.parse(line) as { event: string; code?: string })
    .map(({ event, code }) => (code === undefined ? event : `${event} ${code}`));
}

const list = (at: FleetAddress, session: string): Promise<FleetAnswer> =>
  send(at, { session, body: { jsonrpc: '2.0', id: 3, method: 'tools/list' } });
const echo = { name: 'chaos_echo', arguments: { text: 'hello' } };
const read = { name: 'read', arguments: { path: 'README.md' } };

describe('replicas as processes', () => {
  inFull(
    'continue a session after its home was killed with a call under way, which is lost and recorded' +
      verifies('FL-07'),
    async () => {
      const { project, replicas } = await start(3);
      const [home, second, third] = replicas as [Process, Process, Process];
      const session = await openSession(home);
      const { text } = await list(second, session);
      expect(text).toContain('"chaos_hang"');
      expect((await callTool(third, session, echo)).text).toContain('hello');
      const running = callTool(second, session, { name: 'chaos_hang', arguments: {} });
      await expect.poll(() => linesOf(project, 'intent').some((line) => line.includes('chaos_hang'))).toBe(true);
      await home.child.kill('SIGKILL');
      expect((await running).text).toContain('REPLICA_LOST');
      for (const replica of [second, third, second]) {
        const answer = await callTool(replica, session, echo);
        expect([answer.status, answer.text]).toEqual([200, expect.stringContaining('hello')]);
      }
      expect(sessionEvents(project).filter((event) => event !== 'opened')).toEqual(['lost REPLICA_LOST', 'continued']);
    },
  );

  it('keep what a session has read, so that no replica allows what its home refused' + verifies('FL-07'), async () => {
    const { replicas } = await start(2);
    const [home, second] = replicas as [Process, Process];
    const session = await openSession(home);
    expect((await callTool(home, session, read)).text).toContain('Hello');
    expect((await callTool(home, session, echo)).text).toContain('hello');
    expect((await callTool(home, session, read)).text).toContain('no-read-after-secret');
    await home.child.kill('SIGKILL');
    expect((await callTool(second, session, read)).text).toContain('no-read-after-secret');
  });

  inFull('hand over at SIGTERM without a refused request' + verifies('FL-09'), async () => {
    const { project, replicas } = await start(2);
    const [home, second] = replicas as [Process, Process];
    const session = await openSession(home);
    const statuses: number[] = [];
    let isOver = false;
    const load = (async () => {
      while (!isOver) statuses.push((await callTool(second, session, echo)).status);
    })();
    const served = async (more: number): Promise<void> => {
      const enough = statuses.length + more;
      await expect.poll(() => statuses.length).toBeGreaterThanOrEqual(enough);
    };
    await served(10);
    expect(await home.child.kill('SIGTERM')).toEqual({ code: 0, signal: null });
    await served(10);
    isOver = true;
    await load;
    expect(new Set(statuses)).toEqual(new Set([200]));
    expect(sessionEvents(project)).not.toContain('lost REPLICA_LOST');
  });
});
