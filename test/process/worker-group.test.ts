/**
 * Tests `tollgate serve --workers` as processes: one port, sessions on all workers, the end of one, signals, metrics.
 * Covers: facade/cli/serving, facade/serve, facade/runtime.
 */

import { once } from 'node:events';
import { copyFileSync, readdirSync, readFileSync, renameSync } from 'node:fs';
import { type AddressInfo, createServer } from 'node:net';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { Project } from '../config/project.ts';
import { inFull } from '../harness/full-tests.ts';
import { partOf } from '../harness/slices.ts';
import { verifies } from '../verifies.ts';
import { Child, isRunning, MAIN } from './child.ts';
import { addressOf, callTool, type FleetAddress, openSession, send } from './fleet-client.ts';

const CONFIG = `version: 1
workspace: ./workspace
rules: [{id: all, outcome: allow, when: {}}]
audit: {folder: ./audit}
listen: {port: 0}
`;
const READ = { name: 'read', arguments: { path: 'README.md' } };

let project: Project;
let child: Child;
let at: FleetAddress;

/** Returns the pids of the workers. */
function workers(of = child): readonly number[] {
  const pid = of.process.pid ?? 0;
  return readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').trim().split(' ').filter(Boolean).map(Number);
}

/** Waits until a condition holds. A test that waits for ever ends by its deadline. */
async function until(holds: () => boolean | Promise<boolean>): Promise<void> {
  while (!(await holds())) await new Promise((resolve) => setTimeout(resolve, 50));
}

/** Returns what `/metrics` says of the sessions of each worker that answers. */
async function sessionsBySlot(): Promise<readonly string[]> {
  const { text } = await send(at, { method: 'GET', path: '/metrics' });
  return text.match(/^tollgate_sessions\{worker="\d",transport="http"\}/gm) ?? [];
}

const sessionEvents = (): readonly string[] =>
  readdirSync(path.join(project.folder, 'audit'))
    .filter((name) => name.endsWith('.jsonl'))
    .flatMap((name) => readFileSync(path.join(project.folder, 'audit', name), 'utf8').split('\n'))
    .filter((line) => line.includes('"type":"session"'))
    .map((line) => (JSON.parse(line) as { event: string }).event);

beforeAll(async () => {
  project = new Project();
  project.write('workspace/README.md', '# Hello\n');
  project.write('tollgate.yaml', CONFIG);
  child = new Child(project, ['serve', '--json', '--workers', '2']);
  at = await addressOf(child);
  await until(() => workers().length === 2);
});
afterAll(async () => {
  await child.kill('SIGKILL');
  project.remove();
});

describe('tollgate serve --workers', () => {
  it('serves every session on every connection, and announces itself once' + verifies('FL-32'), async () => {
    const sessions = await Promise.all(Array.from({ length: 6 }, () => openSession(at)));
    for (const session of [...sessions, ...sessions]) {
      const answer = await callTool(at, session, READ);
      expect([answer.status, answer.text.includes('Hello')]).toEqual([200, true]);
    }
    expect(child.lines).toHaveLength(1);
    expect(child.err.match(/is listening on/g)).toHaveLength(1);
  });

  it('joins the metrics of all workers, with a label' + verifies('FL-33'), async () => {
    await until(async () => new Set(await sessionsBySlot()).size === 2);
    const { text } = await send(at, { method: 'GET', path: '/metrics' });
    const heads = text.split('\n').filter((line) => line.startsWith('# TYPE'));
    expect(new Set(heads).size).toBe(heads.length);
  });

  inFull(
    'continues sessions after a worker was killed, and starts another one' + verifies('FL-32', 'FL-07'),
    async () => {
      const sessions = await Promise.all(Array.from({ length: 6 }, () => openSession(at)));
      for (const victim of workers()) {
        process.kill(victim, 'SIGKILL');
        await until(() => !isRunning(victim));
        for (const session of sessions) expect((await callTool(at, session, READ)).status).toBe(200);
        await until(async () => (await sessionsBySlot()).length === 2);
      }
      expect(sessionEvents()).toContain('continued');
    },
  );

  inFull('applies an edit in all workers, and ends with all of them' + verifies('FL-32'), async () => {
    project.write('tollgate.yaml', CONFIG.replace('outcome: allow', 'outcome: deny'));
    child.process.kill('SIGHUP');
    const session = await openSession(at);
    const isRefused = async (): Promise<boolean> => !(await callTool(at, session, READ)).text.includes('Hello');
    await until(async () => (await Promise.all([isRefused(), isRefused(), isRefused(), isRefused()])).every(Boolean));
    const running = workers();
    expect(await child.kill('SIGTERM')).toEqual({ code: 0, signal: null });
    expect(running.filter((pid) => isRunning(pid))).toEqual([]);
  });

  /** Starts a group of one worker, kills it, and returns the pid of the next one as soon as it runs. */
  async function restarted(): Promise<{ readonly other: Child; readonly pid: number }> {
    const other = new Child(project, ['serve', '--json', '--workers', '1']);
    onTestFinished(async () => void (await other.kill('SIGKILL')));
    await addressOf(other);
    const [victim = 0] = workers(other);
    process.kill(victim, 'SIGKILL');
    const next = (): number | undefined => workers(other).find((pid) => pid !== victim && isRunning(pid));
    await until(() => next() !== undefined);
    return { other, pid: next() ?? 0 };
  }

  const moments = [0, 150, 300, 450, 2_000];
  inFull.each(partOf(moments, 2))(
    'ends in order if the stop comes %d ms after a worker is started again' + verifies('FL-32'),
    async (ms) => {
      const { other } = await restarted();
      await new Promise((resolve) => setTimeout(resolve, ms));
      expect(await other.kill('SIGTERM')).toEqual({ code: 0, signal: null });
    },
  );

  inFull('ends in order if a stop follows a signal to reload while a worker starts' + verifies('FL-32'), async () => {
    const { other } = await restarted();
    other.process.kill('SIGHUP');
    // The signals must not arrive as one.
    await new Promise((resolve) => setTimeout(resolve, 20));
    expect(await other.kill('SIGTERM')).toEqual({ code: 0, signal: null });
  });

  inFull('keeps a worker that starts when the configuration must be read again' + verifies('FL-32'), async () => {
    const { other, pid } = await restarted();
    // The first process passes the signal on when the worker is ready. Then the worker reads the configuration.
    await until(() => {
      other.process.kill('SIGHUP');
      return other.err.includes('Reloaded: policy revision');
    });
    expect(workers(other)).toEqual([pid]);
    expect(other.err.match(/Worker 0 ended/g)).toHaveLength(1);
    expect(await other.kill('SIGTERM')).toEqual({ code: 0, signal: null });
  });

  inFull.each(partOf([0, 200, 400], 1))(
    'leaves no worker if the first process is killed %d ms after one is started again' + verifies('FL-32'),
    async (ms) => {
      const { other, pid } = await restarted();
      await new Promise((resolve) => setTimeout(resolve, ms));
      await other.kill('SIGKILL');
      await until(() => !isRunning(pid));
    },
  );

  inFull('starts a worker later that the system could not start' + verifies('FL-32'), async () => {
    const node = path.join(project.folder, 'node');
    copyFileSync(process.execPath, node);
    const other = new Child(project, ['serve', '--json', '--workers', '1'], { program: [node, MAIN] });
    onTestFinished(async () => void (await other.kill('SIGKILL')));
    await addressOf(other);
    renameSync(node, `${node}.away`);
    process.kill(workers(other)[0] ?? 0, 'SIGKILL');
    await until(() => other.err.includes('Worker 0 ended (ENOENT)'));
    renameSync(`${node}.away`, node);
    await until(() => workers(other).length === 1);
    expect(await other.kill('SIGTERM')).toEqual({ code: 0, signal: null });
  });

  it('ends as one process does if it cannot start', async () => {
    const other = new Child(project, ['serve', '--workers', '2', '--config', 'missing.yaml'], { asItIs: true });
    const single = new Child(project, ['serve', '--config', 'missing.yaml'], { asItIs: true });
    const [group, one] = await Promise.all([other.ended, single.ended]);
    expect(group).toEqual(one);
    expect(other.err).toContain('missing.yaml');
  });

  inFull('ends if the port for other replicas is in use' + verifies('FL-32'), async () => {
    const taken = createServer().listen(0, '127.0.0.1');
    await once(taken, 'listening');
    onTestFinished(() => void taken.close());
    const { port } = taken.address() as AddressInfo;
    project.write('taken.yaml', CONFIG.replace('port: 0', `port: 0, replicaPort: ${port}`));
    for (const more of [[], ['--workers', '2']]) {
      const other = new Child(project, ['serve', ...more, '--config', 'taken.yaml'], { asItIs: true });
      onTestFinished(async () => void (await other.kill('SIGKILL')));
      expect(await other.ended).toEqual({ code: 2, signal: null });
      expect(other.err).toContain('EADDRINUSE');
    }
  });
});
