/**
 * Tests supervision across several processes of one state folder: the kill switch, the connection limit, and what a
 * killed facade leaves.
 * Covers: adapters/supervisor.
 */

import { existsSync, readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { MARK_VARIABLE } from '../../adapters/stdio/orphans.ts';
import { cli, dataOf, server } from '../cli/terminal.ts';
import { Project } from '../config/project.ts';
import { inFull } from '../harness/full-tests.ts';
import { Child, isRunning, type Reply, startedIn } from '../process/child.ts';
import { verifies } from '../verifies.ts';

let project: Project;
let starts: string;
const children: Child[] = [];

function configure({ names = ['chaos'], mode = 'ok', limits = '', settings = '', env = '' } = {}): void {
  const list = names
    .map(
      (name) =>
        `${name}: ${server(['chaos.mjs', mode], `env: {CHAOS_STARTS: ${JSON.stringify(starts)}${env}}${settings}`)}`,
    )
    .join(', ');
  const tools = names.map((name) => `"${name}.*"`).join(', ');
  project.write(
    'tollgate.yaml',
    `version: 1
workspace: ./workspace
state: ./state
bash: {isolation: direct}
servers: {${list}}
${limits}
profiles: {default: {servers: [${names.join(', ')}], expose: {primitives: workspace, tools: [${tools}]}}}
rules: [{id: all, outcome: allow, when: {}}]
`,
  );
}

async function run(): Promise<Child> {
  await project.approve();
  const child = new Child(project, ['run']);
  children.push(child);
  await child.hello();
  await child.ask('tools/list');
  return child;
}

const codeOf = ({ result }: Reply): unknown => result?._meta?.['tollgate/code'] ?? 'ok';
const textOf = ({ result }: Reply): string => result?.content?.[0]?.text ?? '';
const gone = async (pids: readonly number[]): Promise<void> =>
  expect.poll(() => pids.filter(isRunning), { timeout: 20_000 }).toEqual([]);

beforeEach(() => {
  project = new Project();
  starts = path.join(project.folder, 'starts');
  project.write('workspace/README.md', '# Hello\n');
});
afterEach(async () => {
  await Promise.all(children.splice(0).map((child) => child.kill('SIGKILL')));
  project.remove();
});

describe('the kill switch' + verifies('CY-23', 'CY-21'), () => {
  inFull(
    'applies in every process from the next call on, ends running calls, is recorded, and can be lifted',
    async () => {
      configure();
      const both = await Promise.all([run(), run()]);
      for (const child of both) expect(codeOf(await child.call('chaos_echo', {}))).toBe('ok');
      const pids = startedIn(starts);
      const hanging = both[1]?.call('chaos_hang', {});
      expect((await cli(project, ['kill', 'chaos'])).err).toMatch(/^chaos is stopped: no call reaches it from now on/);
      for (const child of both) {
        const reply = await child.call('chaos_echo', {});
        expect([codeOf(reply), textOf(reply)]).toEqual([
          'SERVER_UNAVAILABLE',
          expect.stringContaining('Server "chaos" was stopped by the kill switch.'),
        ]);
      }
      expect(codeOf(await (hanging as Promise<Reply>))).toBe('TOOL_CRASHED');
      await gone(pids);
      // A facade that starts now does not start it either.
      const third = await run();
      expect(codeOf(await third.call('chaos_echo', {}))).toBe('SERVER_UNAVAILABLE');
      expect(startedIn(starts)).toHaveLength(pids.length);
      expect(dataOf<{ killed: unknown[] }>((await cli(project, ['kill', '--json'])).out).killed).toMatchObject([
        { server: 'chaos', by: 'somebody' },
      ]);
      expect((await cli(project, ['kill', '--lift'])).err).toBe('Lifted for chaos.\n');
      await expect
        .poll(async () => codeOf(await (both[0] as Child).call('chaos_echo', {})), { timeout: 20_000 })
        .toBe('ok');
      const events = dataOf<{ event: string; by?: string }[]>(
        (await cli(project, ['audit', 'list', '--all', '--type', 'server', '--json'])).out,
      ).map(({ event }) => event);
      expect(
        events.filter((event) => event === 'kill' || event === 'kill.lifted' || event === 'killed').sort(),
      ).toEqual(['kill', 'kill.lifted', 'killed', 'killed']);
      // Consent that another process withdraws ends the server as well.
      expect((await cli(project, ['revoke', 'chaos'])).code).toBe(0);
      for (const child of both) expect(codeOf(await child.call('chaos_echo', {}))).toBe('SERVER_UNAVAILABLE');
      await gone(startedIn(starts));
    },
    180_000,
  );

  it('for all servers also stops the primitives and running commands', async () => {
    configure();
    const child = await run();
    const started = textOf(
      await child.call('bash', { action: 'start', command: 'echo $$; exec sleep 600', wait_ms: 20_000 }),
    );
    const pid = Number(/^(\d+)$/m.exec(started)?.[1]);
    expect(isRunning(pid)).toBe(true);
    expect((await cli(project, ['kill', '--all'])).code).toBe(0);
    expect(codeOf(await child.call('read', { path: 'README.md' }))).toBe('SWITCHED_OFF');
    await gone([pid]);
    await cli(project, ['kill', '--lift']);
    expect(textOf(await child.call('read', { path: 'README.md' }))).toContain('# Hello');
  });

  inFull('accepts names of the configuration, and works without a configuration', async () => {
    configure();
    expect(await cli(project, ['kill', 'choas'])).toMatchObject({
      code: 2,
      err: expect.stringContaining('did you mean "chaos"?'),
    });
    expect(await cli(project, ['kill', 'chaos', '--all'])).toMatchObject({ code: 2 });
    expect((await cli(project, ['kill'])).err).toMatch(/^No server is stopped/);
    const child = await run();
    project.write('tollgate.yaml', 'nonsense: [');
    expect(await cli(project, ['kill', 'chaos'])).toMatchObject({ code: 2 });
    expect(await cli(project, ['kill', 'chaos', '--state', 'state'])).toMatchObject({ code: 0 });
    expect(codeOf(await child.call('chaos_echo', {}))).toBe('SERVER_UNAVAILABLE');
    expect((await cli(project, ['kill', '--lift', 'other', '--state', 'state'])).err).toBe(
      'other was not stopped. To see what is stopped: tollgate kill\n',
    );
  });
});

describe('connections', () => {
  it(
    'are counted over all processes: another process gives up an idle one, but not a busy one' + verifies('HA-05'),
    async () => {
      const ran = path.join(project.folder, 'ran');
      configure({
        names: ['a', 'b'],
        limits: 'limits: {connections: 1}',
        settings: ', connectTimeoutMs: 5000',
        env: `, CHAOS_LOG: ${JSON.stringify(ran)}`,
      });
      const [one, two] = [await run(), await run()];
      expect(codeOf(await one.call('a_echo', {}))).toBe('ok');
      const [pid] = startedIn(starts).slice(-1);
      expect(codeOf(await two.call('b_echo', {}))).toBe('ok');
      await gone([pid as number]);
      const busy = two.call('b_slow', { ms: 9000, token: 'busy' });
      await expect.poll(() => existsSync(ran) && readFileSync(ran, 'utf8')).toContain('busy');
      const refused = await one.call('a_echo', {});
      expect([codeOf(refused), textOf(refused)]).toEqual([
        'SERVER_UNAVAILABLE',
        expect.stringContaining('All 1 connections to servers are in use in all processes.'),
      ]);
      expect(codeOf(await busy)).toBe('ok');
    },
  );
});

describe('a killed facade', () => {
  inFull(
    'leaves only processes that the next facade ends, also outside of their process group, and no used connection' +
      verifies('HA-07'),
    async () => {
      configure({ mode: 'stubborn', limits: 'limits: {connections: 1}' });
      const one = await run();
      expect(codeOf(await one.call('chaos_echo', {}))).toBe('ok');
      const pids = startedIn(starts);
      await one.kill('SIGKILL');
      expect(pids.filter(isRunning)).toEqual(pids);
      const next = await run();
      await gone(pids);
      expect(codeOf(await next.call('chaos_echo', {}))).toBe('ok');
    },
  );

  inFull('leaves no command of a shell without isolation, whatever its process group', async () => {
    configure();
    const one = await run();
    const told = textOf(
      await one.call('bash', {
        action: 'start',
        command: 'setsid sleep 600 & echo "$!"; exec sleep 600',
        wait_ms: 20_000,
      }),
    );
    expect(told).toMatch(/^\d+$/m);
    const owner = textOf(await one.call('bash', { command: `printenv ${MARK_VARIABLE}` })).split('/')[0] ?? '';
    const left = (): readonly number[] =>
      readdirSync('/proc')
        .map(Number)
        .filter((pid) => Number.isInteger(pid) && environmentOf(pid).includes(`${MARK_VARIABLE}=${owner}/`));
    await one.kill('SIGKILL');
    // Short commands have ended by now. The two that sleep have not.
    await expect.poll(() => left().length, { timeout: 20_000 }).toBe(2);
    const pids = left();
    await run();
    await gone(pids);
  });

  it('does not affect the servers of a running facade', async () => {
    configure();
    const one = await run();
    const before = textOf(await one.call('chaos_env', {}));
    await run();
    const after = textOf(await one.call('chaos_env', {}));
    expect((JSON.parse(after) as { pid: number }).pid).toBe((JSON.parse(before) as { pid: number }).pid);
    expect(readFileSync(starts, 'utf8')).not.toBe('');
  });
});

function environmentOf(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/environ`, 'utf8');
  } catch {
    return '';
  }
}
