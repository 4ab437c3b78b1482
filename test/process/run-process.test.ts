/**
 * Tests `tollgate run` as a process: its ends, the processes that remain, and that stdout has only the protocol.
 * Covers: facade/cli/serving, facade/serve, facade/runtime.
 */

import { readdirSync } from 'node:fs';
import path from 'node:path';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { afterEach, beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { server } from '../cli/terminal.ts';
import { Project } from '../config/project.ts';
import { inFull } from '../harness/full-tests.ts';
import { partOf } from '../harness/slices.ts';
import { verifies } from '../verifies.ts';
import { Child, isRunning, MAIN, startedIn } from './child.ts';

let project: Project;
let started: string;
const children: Child[] = [];

function run(...argv: readonly string[]): Child {
  const child = new Child(project, ['run', ...argv], { env: { TOLLGATE_LOG: 'debug' } });
  children.push(child);
  return child;
}

/** A configuration of two servers that write their pids: one follows the protocol, one has the given mode. */
async function configure(mode: string): Promise<void> {
  const chaos = (name: string): string => server(['chaos.mjs', name], `env: {CHAOS_STARTS: ${started}}`);
  project.write(
    'tollgate.yaml',
    `version: 1
workspace: ./workspace
bash: {isolation: direct}
servers: {good: ${chaos('ok')}, other: ${chaos(mode)}}
profiles:
  default:
    servers: [good, other]
    expose: {primitives: workspace, tools: ["good.*", "other.echo", "other.noisy", "other.flood"]}
rules: [{id: all, outcome: allow, when: {}}]
`,
  );
  await project.approve();
}

/** A process, and the pids of its servers and of its shell session. */
interface Busy {
  readonly child: Child;
  readonly servers: readonly number[];
  readonly shell: number;
  readonly pids: readonly number[];
}

/** Starts a process with both servers and a shell session. */
async function busy(mode = 'ok'): Promise<Busy> {
  await configure(mode);
  const child = run();
  await child.hello();
  await child.ask('tools/list');
  await child.call('bash', { action: 'start', wait_ms: 1, command: `echo $$ > ${started}.shell; exec sleep 1000` });
  await expect.poll(() => startedIn(started), { timeout: 20_000 }).toHaveLength(2);
  await expect.poll(() => startedIn(`${started}.shell`), { timeout: 20_000 }).toHaveLength(1);
  const servers = startedIn(started);
  const [shell = 0] = startedIn(`${started}.shell`);
  const pids = [...servers, shell];
  expect(pids.filter(isRunning)).toEqual(pids);
  return { child, servers, shell, pids };
}

/** Returns the remaining files of cut outputs. */
function spilled(): readonly string[] {
  const state = path.join(project.home, '.local', 'state', 'tollgate');
  return readdirSync(state, { recursive: true, encoding: 'utf8' }).filter((name) => /spills\/./.test(name));
}

beforeEach(() => {
  project = new Project();
  project.write('workspace/README.md', '# Hello\n');
  started = path.join(project.folder, 'started');
});
afterEach(async () => {
  await Promise.all(children.splice(0).map((child) => child.kill('SIGKILL')));
  project.remove();
});

describe('the end of tollgate run' + verifies('HA-07'), () => {
  inFull('comes with the end of its input: exit code 0, and no process remains', async () => {
    const { child, pids } = await busy();
    child.process.stdin.end();
    expect(await child.ended).toEqual({ code: 0, signal: null });
    expect(pids.filter(isRunning)).toEqual([]);
    expect(spilled()).toEqual([]);
  });

  inFull.each(partOf(['SIGTERM', 'SIGINT', 'SIGHUP'] as const, 1))(
    'comes with %s: exit code 0, and no process remains',
    async (signal) => {
      const { child, pids } = await busy();
      expect(await child.kill(signal)).toEqual({ code: 0, signal: null });
      expect(pids.filter(isRunning)).toEqual([]);
    },
  );

  inFull('comes at once with a second signal, and ends a server that delays it', async () => {
    const { child, pids } = await busy('stubborn');
    child.process.kill('SIGTERM');
    // The session ends first. The process waits for the server that does not end.
    await expect.poll(() => pids.filter(isRunning).length, { timeout: 20_000 }).toBe(1);
    expect(await child.kill('SIGTERM')).toEqual({ code: 1, signal: null });
    await expect.poll(() => pids.filter(isRunning), { timeout: 20_000 }).toEqual([]);
  });

  inFull('by SIGKILL leaves no server running, because each sees the end of its input', async () => {
    const { child, servers, shell } = await busy();
    // A shell command does not see the end of an input. The sandbox ends it with its parent.
    onTestFinished(() => void process.kill(shell, 'SIGKILL'));
    expect(await child.kill('SIGKILL')).toEqual({ code: null, signal: 'SIGKILL' });
    await expect.poll(() => servers.filter(isRunning), { timeout: 20_000 }).toEqual([]);
  });

  inFull('comes also while it waits for a server that never answers', async () => {
    await configure('mute');
    const child = run();
    await child.hello();
    void child.ask('tools/list');
    await expect.poll(() => startedIn(started), { timeout: 20_000 }).toHaveLength(2);
    child.process.stdin.end();
    expect(await child.ended).toEqual({ code: 0, signal: null });
    expect(startedIn(started).filter(isRunning)).toEqual([]);
  });

  it('comes with a signal during the start', async () => {
    await configure('ok');
    const child = run();
    await expect.poll(() => child.err, { timeout: 20_000, interval: 5 }).not.toBe('');
    expect((await child.kill('SIGTERM')).code).toBe(0);
  });

  inFull('comes when the client goes away during a call', async () => {
    const { child, pids } = await busy();
    void child.call('good_hang', {});
    void child.call('good_slow', { ms: 10 });
    await expect.poll(() => child.out, { timeout: 20_000 }).toContain('"slow"');
    child.process.stdout.destroy();
    child.process.stdin.end();
    expect((await child.ended).code).toBe(0);
    expect(pids.filter(isRunning)).toEqual([]);
  });
});

describe('the stdout of tollgate run' + verifies('CY-22', 'CY-25'), () => {
  inFull.each(partOf(['noise', 'asks', 'stderr-flood'], 2))(
    'has only the protocol with a server with %s and the most verbose log',
    async (mode) => {
      await configure(mode);
      const child = run();
      await child.hello();
      await child.ask('tools/list');
      const replies = await Promise.all([
        child.call('other_noisy', { a: 1 }),
        child.call('other_flood', {}),
        child.call('other_echo', { a: 1 }),
        child.call('good_crash', {}),
      ]);
      child.process.stdin.write('this is no message\n');
      await expect.poll(() => child.lines.some(({ id }) => id === null), { timeout: 20_000 }).toBe(true);
      child.process.stdin.end();
      expect((await child.ended).code).toBe(0);
      expect(child.lines.filter(({ jsonrpc }) => jsonrpc !== '2.0')).toEqual([]);
      expect(replies.map(({ result }) => result?.content?.[0]?.text?.slice(0, 16))).toEqual([
        'behind noise',
        'after the flood',
        '{"a":1}',
        expect.stringContaining('Server "good"'),
      ]);
      // The stderr of servers is in the log under their names, and nowhere else.
      if (mode === 'stderr-flood') expect(child.err).toMatch(/"server":"other","msg":"line 1"/);
      expect(child.out).not.toContain('line 1');
    },
  );

  it('serves a client of the SDK that starts the process itself', async () => {
    await configure('ok');
    const client = new Client({ name: 'test', version: '1' });
    const transport = new StdioClientTransport({
      command: process.execPath,
      args: [MAIN, 'run', '--config', project.file],
      env: { PATH: process.env.PATH ?? '', HOME: project.home },
      stderr: 'ignore',
    });
    await client.connect(transport);
    const pid = transport.pid ?? 0;
    // On a busy machine, a server may take longer than the list waits. Then it is in the next list.
    await expect
      .poll(async () => (await client.listTools()).tools.map(({ name }) => name), { timeout: 20_000 })
      .toContain('good_echo');
    expect(await client.callTool({ name: 'read', arguments: { path: 'README.md' } })).toMatchObject({
      content: [{ text: expect.stringContaining('# Hello') }],
    });
    await client.close();
    await expect.poll(() => [pid, ...startedIn(started)].filter(isRunning), { timeout: 20_000 }).toEqual([]);
  });
});
