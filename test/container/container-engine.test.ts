/**
 * Tests servers in containers of a real engine: through a facade, at its end, and after it was killed.
 * Covers: adapters/sandbox.
 */

import { spawn, spawnSync } from 'node:child_process';
import { copyFileSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import path from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest';
import { launch } from '../../adapters/stdio/launch.ts';
import type { ServerSettings } from '../../adapters/supervisor/server-settings.ts';
import { cli } from '../cli/terminal.ts';
import { Project } from '../config/project.ts';
import { inFull } from '../harness/full-tests.ts';
import { partOf } from '../harness/slices.ts';
import { IMAGE } from '../sandbox/probe-runs.ts';
import { own } from '../sandbox/probe-targets.ts';
import { startFacade, type TestFacade } from '../stories/facade.ts';
import { verifies } from '../verifies.ts';

const FIXTURES = path.join(import.meta.dirname, '..', 'fixtures');
const VALUE = 'value-that-no-list-of-processes-shows';

let project: Project;
let facade: TestFacade;
let host: Server;
let workspace: string;

beforeAll(async () => {
  project = new Project();
  workspace = path.join(project.folder, 'workspace');
  mkdirSync(workspace);
  own(workspace);
  host = createServer((_, response) => response.end('hello from the host'));
  await new Promise<void>((resolve) => host.listen(0, '127.0.0.1', resolve));
  const server = (script: string, word: string, more: string): string =>
    `
    command: node
    args: [${path.join(FIXTURES, script)}, ${word}]
    isolation: container
    env: {LEVEL: ${VALUE}}
    sandbox: {image: "${IMAGE}", filesystem: {allowRead: [${FIXTURES}], allowWrite: ["."]}${more}}`;
  facade = await startFacade(
    `version: 1
workspace: ./workspace
state: ./state
servers:
  chaos: ${server('chaos.mjs', 'ok', '')}
  stubborn: ${server('chaos.mjs', 'stubborn', '')}
  reach: ${server('reaching-server.mjs', 'x', `, network: {allowedDomains: ["127.0.0.1:${port()}"]}`)}
  absent: {command: no-such-program, isolation: container, sandbox: {image: "${IMAGE}"}}
  imageless: {command: node, isolation: container, sandbox: {image: "localhost/tollgate-none:1"}}
principals: [{id: alice, stdio: true, owner: true}]
profiles:
  default:
    servers: [chaos, stubborn, reach, absent, imageless]
    expose: {tools: ["chaos.*", "stubborn.*", "reach.*", "absent.*", "imageless.*"]}
rules: [{id: all, outcome: allow, when: {}}]
`,
    { folder: project.folder },
  );
});

afterAll(async () => {
  await facade.close();
  host.close();
  project.remove();
});

beforeEach(({ skip }) => skip(IMAGE === '', 'This machine has no container engine.'));

const port = (): number => (host.address() as AddressInfo).port;
const podman = (args: readonly string[]): string => spawnSync('podman', args, { encoding: 'utf8' }).stdout;
/** Returns the containers that a Tollgate process started, in any state. */
const containersOf = (pid: number): readonly string[] =>
  podman(['ps', '--all', '--filter', `name=^tollgate-${pid}-`, '--format', '{{.Names}}'])
    .split('\n')
    .filter((name) => name !== '');
const argumentLists = (): string =>
  readdirSync('/proc')
    .filter((pid) => /^\d+$/.test(pid))
    .map((pid) => {
      try {
        return readFileSync(`/proc/${pid}/cmdline`, 'latin1');
      } catch {
        return '';
      }
    })
    .join('\n');

describe('a server in a container, through the facade', () => {
  inFull(
    'is listed and called, gets only its own variables, and no process list shows their values' +
      verifies('HA-31', 'CY-24'),
    { timeout: 90_000 },
    async () => {
      const session = facade.open('alice');
      // A list waits only a limited time for a slow server.
      await vi.waitFor(
        async () =>
          expect((await facade.list(session)).map(({ name }) => name)).toEqual(
            expect.arrayContaining(['chaos_echo', 'stubborn_echo', 'reach_reach']),
          ),
        { timeout: 60_000, interval: 500 },
      );
      expect(await facade.call(session, 'chaos_echo', { n: 1 })).toMatchObject({ code: '', text: '{"n":1}' });
      const { env, cwd } = JSON.parse((await facade.call(session, 'chaos_env', {})).text) as {
        env: Record<string, string>;
        cwd: string;
      };
      expect(env).toMatchObject({ LEVEL: VALUE, HOME: '/tmp' });
      expect(
        Object.keys(env).filter((name) => !['LEVEL', 'HOME', 'PATH', 'HOSTNAME', 'TERM', 'container'].includes(name)),
      ).toEqual([]);
      expect(cwd).toBe('/');
      expect(argumentLists()).toContain('--name\0tollgate-');
      expect(argumentLists()).not.toContain(VALUE);
    },
  );

  it('reaches an allowed address through the proxy, and no other' + verifies('PF-02'), async () => {
    const session = facade.open('alice');
    expect((await facade.call(session, 'reach_reach', { url: `http://127.0.0.1:${port()}/` })).text).toBe(
      '200 hello from the host',
    );
    expect((await facade.call(session, 'reach_reach', { url: 'http://127.0.0.1:9999/' })).text).not.toContain('hello');
  });

  it('starts again after a crash, in another container', async () => {
    const session = facade.open('alice');
    expect((await facade.call(session, 'chaos_crash', {})).code).toBe('TOOL_CRASHED');
    expect((await facade.call(session, 'chaos_echo', { n: 2 })).text).toBe('{"n":2}');
  });

  it.each([
    ['absent', 'it must be a program of the image'],
    ['imageless', 'podman pull localhost/tollgate-none:1'],
  ])('says what to do if it cannot start, and this is not a crash: %s', async (name, fix) => {
    const answer = await facade.call(facade.open('alice'), `${name}_x`, {});
    expect(answer).toMatchObject({ code: 'SANDBOX_UNAVAILABLE', text: expect.stringContaining(fix) as string });
    expect(
      facade
        .records()
        .filter(
          ({ server, event }) =>
            server === name && event !== 'start.failed' && event !== undefined && /crash|restart/.test(String(event)),
        ),
    ).toEqual([]);
  });

  it('is removed with its container by kill, even if it ignores SIGTERM', async () => {
    const session = facade.open('alice');
    expect((await facade.call(session, 'stubborn_echo', { n: 3 })).text).toBe('{"n":3}');
    const before = containersOf(process.pid).length;
    expect((await cli(project, ['kill', 'stubborn'])).code).toBe(0);
    expect((await facade.call(session, 'stubborn_echo', {})).code).toBe('SERVER_UNAVAILABLE');
    await vi.waitFor(() => expect(containersOf(process.pid).length).toBe(before - 1), {
      timeout: 20_000,
      interval: 200,
    });
  });

  it('leaves no container at the end of the facade', async () => {
    expect(containersOf(process.pid)).not.toEqual([]);
    await facade.close();
    await vi.waitFor(() => expect(containersOf(process.pid)).toEqual([]), { timeout: 20_000, interval: 200 });
  });
});

const stubborn = (): ServerSettings => ({
  name: 'stubborn',
  transport: 'stdio',
  command: 'node',
  args: [path.join(FIXTURES, 'chaos.mjs'), 'stubborn'],
  env: {},
  headers: {},
  isolation: 'container',
  connectTimeoutMs: 10_000,
  maxRetries: 0,
  reconnectBackoffMs: 100,
  sandbox: {
    image: IMAGE,
    filesystem: { allowRead: [FIXTURES], allowWrite: [], denyRead: [] },
    network: { allowedDomains: [] },
    limits: { memoryMb: 256, processes: 64, fileMb: 16 },
  },
});

describe('an image of your own', () => {
  it('can be built as docs/sandbox.md says, and its id starts the server', async () => {
    const page = readFileSync(path.join(import.meta.dirname, '..', '..', 'docs', 'sandbox.md'), 'utf8');
    const dockerfile = /```text\n(FROM [^]*?)```/.exec(page)?.[1] ?? '';
    const lines = (/```sh\n(podman build[^]*?)```/.exec(page)?.[1] ?? '')
      .trim()
      .split('\n')
      .map((line) => line.replaceAll(/tickets/g, 'tollgate-tickets'));
    const folder = path.join(project.folder, 'tollgate-tickets');
    mkdirSync(folder);
    copyFileSync(path.join(FIXTURES, 'chaos.mjs'), path.join(folder, 'index.js'));
    writeFileSync(path.join(folder, 'package.json'), '{"type": "module"}');
    writeFileSync(path.join(folder, 'Dockerfile'), dockerfile.replace(/^FROM .*/, `FROM ${IMAGE}`));
    const outputs = lines.map((line) =>
      spawnSync('sh', ['-c', line], { cwd: project.folder, encoding: 'utf8' }).stdout.trim(),
    );
    const image = outputs.at(-1) ?? '';
    expect(image).toMatch(/^[0-9a-f]{64}$/);
    const { sandbox, ...rest } = stubborn();
    const { child, kill } = await launch(
      {
        ...rest,
        args: ['/app/index.js'],
        sandbox: { ...sandbox!, image, filesystem: { allowRead: [], allowWrite: [], denyRead: [] } },
      },
      { workspace, hidden: [], secrets: () => Promise.resolve('') },
    );
    const answer = new Promise((resolve) => {
      child.stdout.once('data', (chunk: Buffer) => resolve(chunk.toString('utf8')));
      child.once('exit', (code) => resolve(`ended with ${code}`));
    });
    child.stdin.write('{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}\n');
    expect(await answer).toContain('"name":"chaos"');
    kill();
    await vi.waitFor(() => expect(containersOf(process.pid)).toEqual([]), { timeout: 20_000, interval: 200 });
    podman(['rmi', '--force', 'tollgate-tickets']);
  });
});

describe('a container', () => {
  it('that was killed during its creation is removed', async () => {
    const host = { workspace, hidden: [], secrets: () => Promise.resolve('') };
    const delays = partOf([0, 40, 120, 250], 2);
    const all = await Promise.all(
      delays.map(async (ms) => {
        const { child, kill } = await launch(stubborn(), host);
        const ended = new Promise((resolve) => child.once('exit', resolve));
        setTimeout(kill, ms);
        return ended;
      }),
    );
    expect(all).toHaveLength(delays.length);
    // The arguments of podman's monitor process contain its name, even if podman's own list has lost the container.
    await vi.waitFor(
      () =>
        expect([containersOf(process.pid), argumentLists().includes(`tollgate-${process.pid}-`)]).toEqual([[], false]),
      { timeout: 20_000, interval: 200 },
    );
  });

  inFull(
    'of a killed Tollgate is removed by the next one, unlike that of a running one' + verifies('HA-31'),
    async () => {
      const dist = path.join(import.meta.dirname, '..', '..', 'dist', 'adapters', 'stdio', 'launch.js');
      const program = `const {launch} = await import(${JSON.stringify(dist)});
const host = {workspace: ${JSON.stringify(workspace)}, hidden: [], secrets: async () => ''};
const {child} = await launch(${JSON.stringify(stubborn())}, host);
child.stdout.once('data', () => console.log('started'));
child.stdin.write('{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}\\n');`;
      const start = async (): Promise<import('node:child_process').ChildProcess> => {
        const child = spawn(process.execPath, ['--input-type=module', '-e', program], {
          stdio: ['ignore', 'pipe', 'inherit'],
        });
        await new Promise((resolve, reject) => {
          child.stdout.once('data', resolve);
          child.once('exit', () => reject(new Error('it did not start: see above')));
        });
        return child;
      };
      const [killed, running] = await Promise.all([start(), start()]);
      killed.kill('SIGKILL');
      await new Promise((resolve) => killed.once('exit', resolve));
      const [left, kept] = [containersOf(killed.pid ?? 0), containersOf(running.pid ?? 0)];
      expect([left.length, kept.length]).toEqual([1, 1]);
      vi.resetModules();
      const { findContainerEngine } = await import('../../adapters/sandbox/container/container-engine.ts');
      await findContainerEngine();
      expect([containersOf(killed.pid ?? 0), containersOf(running.pid ?? 0)]).toEqual([[], kept]);
      running.kill('SIGKILL');
      podman(['rm', '--force', '--time', '0', ...kept]);
    },
  );
});
