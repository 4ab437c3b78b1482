/**
 * Tests SIGTERM, off and kill while the main thread is stuck: the watchdog ends and records the process. It runs
 * dist/.
 * Covers: facade/cli/serving, facade/serve, facade/runtime.
 */

import { spawn } from 'node:child_process';
import { readdirSync, readFileSync, renameSync, rmSync } from 'node:fs';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { cli, server } from '../cli/terminal.ts';
import { Project } from '../config/project.ts';
import { inFull } from '../harness/full-tests.ts';
import { partOf } from '../harness/slices.ts';
import { verifies } from '../verifies.ts';
import { Child, isRunning, MAIN, startedIn } from './child.ts';

const PRELOAD = path.join(import.meta.dirname, '..', 'fixtures', 'stuck.mjs');
const CONFIG = (starts: string): string => `version: 1
workspace: ./workspace
state: ./state
servers: {chaos: ${server(['chaos.mjs'], `env: {CHAOS_STARTS: ${JSON.stringify(starts)}}`)}}
profiles: {default: {servers: [chaos], expose: {primitives: workspace, tools: ["chaos.*"]}}}
principals: [{id: agent, stdio: true}]
rules: [{id: rest, outcome: allow, when: {}}]
`;

let project: Project;
let child: Child;
let file: string;
let starts: string;

const env = (): Record<string, string> => ({
  NODE_OPTIONS: `--import ${pathToFileURL(PRELOAD).href}`,
  TOLLGATE_TEST_STUCK: file,
});
const cpuOf = (pid: number): number =>
  Number.parseInt(readFileSync(`/proc/${pid}/task/${pid}/schedstat`, 'latin1'), 10) / 1e6;
/** Time that all threads of a process have run or waited for a processor, ms. */
const busyMs = (pid: number): number =>
  readdirSync(`/proc/${pid}/task`)
    .flatMap((thread) => readFileSync(`/proc/${pid}/task/${thread}/schedstat`, 'latin1').split(' ').slice(0, 2))
    .reduce((sum, ns) => sum + Number(ns) / 1e6, 0);
const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

/** Blocks the main thread. Resolves when it has used this much processor time since then. */
async function stick(forMs: number, pid = Number(child.process.pid)): Promise<number> {
  const before = cpuOf(pid);
  project.write('stuck', '');
  while (isRunning(pid) && cpuOf(pid) - before < forMs) await pause(20);
  return before;
}

/** Waits until a process does nothing, so that all its threads have started. */
async function settle(pid: number): Promise<void> {
  for (let [last, quiet] = [busyMs(pid), 0]; quiet < 3; ) {
    await pause(300);
    const now = busyMs(pid);
    quiet = now - last < 30 ? quiet + 1 : 0;
    last = now;
  }
}

/** Returns the last processor time that /proc showed before the process ended. */
async function usedUntilEnd(before: number): Promise<number> {
  const pid = Number(child.process.pid);
  let used = 0;
  for (;;) {
    try {
      used = cpuOf(pid) - before;
    } catch {
      return used;
    }
    if (!isRunning(pid)) return used;
    await pause(20);
  }
}

const records = (): readonly Record<string, unknown>[] => {
  const folder = path.join(project.folder, 'state', 'audit');
  return readdirSync(folder)
    .filter((name) => name.endsWith('.jsonl'))
    .flatMap((name) =>
      readFileSync(path.join(folder, name), 'utf8')
        .trim()
        .split('\n')
        .map((line) => JSON.parse(line) as Record<string, unknown>),
    );
};

beforeEach(async () => {
  project = new Project();
  file = path.join(project.folder, 'stuck');
  starts = path.join(project.folder, 'starts');
  project.write('workspace/README.md', '# Hello\n');
  project.write('tollgate.yaml', CONFIG(starts));
  await project.approve();
  child = new Child(project, ['run'], { env: env() });
  await child.hello();
  await child.call('chaos_echo', { token: 'x' });
});
afterEach(async () => {
  await child.kill('SIGKILL');
  project.remove();
});

describe.skipIf(process.platform !== 'linux')(
  'SIGTERM/off/kill while the main thread is stuck' + verifies('TR-42', 'TR-43'),
  // The limits are processor time, which a busy machine gives late.
  { timeout: 300_000 },
  () => {
    inFull('ends the process after 5 s of processor time, with a record, a message and no server left', async () => {
      const pids = startedIn(starts);
      expect(pids.length).toBeGreaterThan(0);
      const before = await stick(0);
      const used = await usedUntilEnd(before);
      expect((await child.ended).signal).toBe('SIGKILL');
      expect(used).toBeGreaterThan(4_500);
      expect(used).toBeLessThan(9_000);
      expect(child.err).toContain('its main thread used');
      const [record] = records().filter(({ type }) => type === 'process');
      expect(record).toMatchObject({ event: 'stuck', outcome: 'error', limitMs: 5_000 });
      expect(record).not.toHaveProperty('reason');
      expect((await cli(project, ['audit', 'verify', '--json'])).code).toBe(8);
      expect((await cli(project, ['audit', 'list', '--type', 'process', '--json'])).out).toContain('"stuck"');
      await expect.poll(() => pids.filter(isRunning)).toEqual([]);
    });

    const stops: readonly (readonly [string, string, () => unknown])[] = [
      ['SIGTERM', 'signal', () => child.process.kill('SIGTERM')],
      ['off', 'switch', () => cli(project, ['off'])],
      ['kill of a server', 'switch', () => cli(project, ['kill', 'chaos'])],
    ];
    inFull.each(partOf(stops, 2))('%s: ends the process after 2 s', async (_name, reason, stop) => {
      await stick(300);
      await stop();
      // The time that the command itself took does not count.
      const used = isRunning(Number(child.process.pid)) ? await usedUntilEnd(cpuOf(Number(child.process.pid))) : 0;
      expect((await child.ended).signal).toBe('SIGKILL');
      expect(used).toBeLessThan(4_500);
      expect(records().find(({ type }) => type === 'process')).toMatchObject({ limitMs: 2_000, reason });
    });

    it('ends the process 2 s after its client has gone', async () => {
      const ping = `${JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'ping' })}\n`;
      const script = `
        const { spawn } = require('node:child_process');
        const c = spawn(process.execPath, ${JSON.stringify([MAIN, 'run'])}, { stdio: ['pipe', 'pipe', 'ignore'] });
        c.stdout.once('data', () => console.log(c.pid));
        c.stdin.write(${JSON.stringify(ping)});
        setInterval(() => 0, 1000);`;
      const client = spawn(process.execPath, ['-e', script], {
        cwd: project.folder,
        env: { PATH: process.env.PATH ?? '', HOME: project.home, ...env() },
        stdio: ['ignore', 'pipe', 'ignore'],
      });
      const pid = await new Promise<number>((resolve) =>
        client.stdout.once('data', (text: Buffer) => resolve(Number(text.toString()))),
      );
      await expect
        .poll(() => records().filter(({ type, pid: writer }) => type === 'opened' && writer === pid).length)
        .toBe(1);
      // The watchdog thread reads the pid of the parent only after it has started.
      await settle(pid);
      await stick(300, pid);
      client.kill('SIGKILL');
      const before = cpuOf(pid);
      while (isRunning(pid)) {
        expect(cpuOf(pid) - before).toBeLessThan(4_500);
        await pause(20);
      }
      await expect
        .poll(() => records().find(({ type, reason }) => type === 'process' && reason === 'parent'))
        .toMatchObject({ limitMs: 2_000 });
    });

    inFull('does not end a process that only waits, or that knew of the switch before', async () => {
      await cli(project, ['off']);
      await cli(project, ['on']);
      project.write('stuck.new', 'sleep');
      renameSync(path.join(project.folder, 'stuck.new'), file);
      await pause(7_000);
      rmSync(file);
      expect((await child.call('chaos_echo', { token: 'y' })).result?.isError ?? false).toBe(false);
      expect(records().filter(({ type }) => type === 'process')).toEqual([]);
    });
  },
);
