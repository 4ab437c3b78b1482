/**
 * Tests Tollgate as process 1 of a container, where no other process reaps the orphans of sandboxes.
 * Covers: facade/runtime, facade/call, facade/state.
 */

import { spawnSync } from 'node:child_process';
import { chmodSync, chownSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { isUnreaped } from '../../adapters/sandbox/bubblewrap/bubblewrap-arguments.ts';
import { inFull } from '../harness/full-tests.ts';
import { verifies } from '../verifies.ts';

const ROOT = path.join(import.meta.dirname, '..', '..');
const FIXTURES = path.join(ROOT, 'test', 'fixtures');

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(path.join(tmpdir(), 'tollgate-first-'));
  chmodSync(folder, 0o755);
  mkdirSync(path.join(folder, 'workspace'));
  if (process.getuid?.() === 0) chownSync(path.join(folder, 'workspace'), 4711, 4711);
});
afterEach(() => rmSync(folder, { recursive: true, force: true, maxRetries: 3 }));

/** A program that starts, calls and ends sandboxed servers in each way, and prints which processes are left. */
const program = (workspace: string): string => `
import { readdirSync, readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { ServerPool } from ${JSON.stringify(path.join(ROOT, 'dist', 'adapters', 'supervisor', 'server-pool.js'))};
const workspace = ${JSON.stringify(workspace)};
const settings = {
  name: 'one',
  transport: 'stdio',
  command: process.execPath,
  args: [${JSON.stringify(path.join(FIXTURES, 'chaos.mjs'))}],
  env: {},
  headers: {},
  isolation: 'sandbox',
  connectTimeoutMs: 60000,
  maxRetries: 3,
  reconnectBackoffMs: 100,
  cwd: workspace,
  sandbox: {
    filesystem: { allowRead: [${JSON.stringify(FIXTURES)}], allowWrite: [workspace], denyRead: [] },
    network: { allowedDomains: [] },
    limits: { memoryMb: 512, processes: 64, fileMb: 64 },
  },
};
const options = {
  host: { workspace, hidden: [], secrets: () => Promise.resolve('') },
  onStderr: () => undefined,
  grace: { closeMs: 20000, termMs: 300 },
};
const limits = { timeoutMs: 60000, hardTimeoutMs: 60000 };
const answers = [];
for (const way of ['stop', 'crash', 'kill']) {
  const pool = new ServerPool({ servers: 1, connections: 1 }, options);
  const server = pool.add(settings);
  const args = { text: '{}', value: {}, exact: true };
  const call = (tool) => server
    .call({ tool, args, scope: 's', signal: new AbortController().signal, ...limits })
    .then(({ value }) => value.content[0].text, ({ code }) => code);
  answers.push(await call('echo'));
  if (way === 'crash') answers.push(await call('crash'));
  if (way === 'kill') server.killNow();
  await pool.stopAll();
}
const describeProcess = (pid) => {
  try { return readFileSync('/proc/' + pid + '/stat', 'utf8').split(' ').slice(1, 3).join(' '); } catch { return ''; }
};
const others = () => readdirSync('/proc')
  .filter((name) => /^\\d+$/.test(name) && name !== '1').map(describeProcess).filter((line) => line !== '');
for (let tries = 0; tries < 400 && others().length > 0; tries += 1) await sleep(50);
console.log(JSON.stringify({ pid: process.pid, answers, left: others() }));
process.exit(0);
`;

describe('Tollgate as process 1', () => {
  inFull('leaves no process and no zombie behind, however its servers end' + verifies('ST-56'), ({ skip }) => {
    skip(process.getuid?.() !== 0, 'Only root can make a PID namespace of sandboxes.');
    const { stdout, stderr } = spawnSync(
      'unshare',
      [
        '--pid',
        '--fork',
        '--kill-child',
        '--mount-proc',
        process.execPath,
        '--input-type=module',
        '-e',
        program(path.join(folder, 'workspace')),
      ],
      { encoding: 'utf8', timeout: 120_000 },
    );
    expect(JSON.parse(stdout === '' ? JSON.stringify(stderr) : stdout)).toEqual({
      pid: 1,
      answers: ['{}', '{}', 'TOOL_CRASHED', '{}'],
      left: [],
    });
  });

  it('and Node.js as process 1 are recognized by their process names' + verifies('ST-56'), () => {
    expect(
      ['node\n', 'npm exec tollga\n', 'MainThread\n', 'systemd\n', 'tini\n', 'sh\n', 'nodemanager\n'].map((comm) =>
        isUnreaped(comm),
      ),
    ).toEqual([true, true, true, false, false, false, false]);
  });
});
