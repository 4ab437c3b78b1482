/**
 * Tests what a host can do with servers: restart one, refresh its tools, and what prevents this.
 * Covers: facade/serve/host.
 */

import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { KillSwitch } from '../../facade/consent/switch/kill-switch.ts';
import { openState } from '../../facade/state/sqlite-state.ts';
import { inFull } from '../harness/full-tests.ts';
import { isRunning } from '../process/child.ts';
import { verifies } from '../verifies.ts';
import { type Answered, type HostBench, hostConfig, startHost, TOKENS, until } from './host-bench.ts';

let folder: string;
let host: HostBench | undefined;

beforeEach(() => {
  folder = mkdtempSync(path.join(tmpdir(), 'tollgate-host-servers-'));
});
afterEach(async () => {
  await host?.close();
  host = undefined;
  rmSync(folder, { recursive: true, force: true, maxRetries: 3 });
});

const start = async (chaos = '', approved?: readonly string[]): Promise<HostBench> =>
  (host = await startHost(
    hostConfig({ chaos }).replace('id: host, profiles: [reach, harbor]', 'id: host, profiles: [reach]'),
    { folder, startsFile: path.join(folder, 'starts'), ...(approved !== undefined && { approved }) },
  ));
const call = (bench: HostBench, name: string): Promise<Answered> => bench.ask('POST /calls', { name });
const restart = (bench: HostBench, server = 'chaos'): Promise<Answered> =>
  bench.ask('POST /servers/restart', { server });
const pids = (): number[] =>
  existsSync(path.join(folder, 'starts'))
    ? readFileSync(path.join(folder, 'starts'), 'utf8').trim().split('\n').map(Number)
    : [];
const events = (bench: HostBench): readonly unknown[] =>
  bench.facade
    .records()
    .filter(({ type }) => type === 'server')
    .map(({ event }) => event);

describe('a server that a host restarts' + verifies('ST-78', 'HE-15'), () => {
  it('gets a new process without any state of the old one, and the restart is recorded with its owner', async () => {
    const bench = await start();
    expect((await call(bench, 'chaos_echo')).status).toBe(200);
    const [pid = 0] = pids();
    expect(await restart(bench)).toMatchObject({
      status: 200,
      value: { server: 'chaos', state: 'healthy', tools: 29 },
    });
    expect([pids().length, isRunning(pid)]).toEqual([2, false]);
    expect((await call(bench, 'chaos_echo')).status).toBe(200);
    expect(pids()).toHaveLength(2);
    expect(bench.facade.records().find(({ event }) => event === 'restart')).toMatchObject({
      type: 'server',
      server: 'chaos',
      by: 'host',
      outcome: 'allow',
    });
    expect(events(bench)).toEqual(expect.arrayContaining(['started', 'restart', 'stopped']));
  });

  it('may start again after it was given up', async () => {
    const bench = await start(', maxRetries: 0');
    expect((await call(bench, 'chaos_crash')).value.error.code).toBe('TOOL_CRASHED');
    expect((await call(bench, 'chaos_echo')).value.error.code).toBe('SERVER_UNAVAILABLE');
    expect((await restart(bench)).status).toBe(200);
    expect((await call(bench, 'chaos_echo')).status).toBe(200);
  });

  it('ends each running call with an error, and two concurrent restarts are one', async () => {
    const bench = await start();
    const running = call(bench, 'chaos_hang');
    await until(() => bench.facade.records().some(({ type, tool }) => type === 'intent' && tool === 'hang'));
    expect((await Promise.all([restart(bench), restart(bench)])).map(({ status }) => status)).toEqual([200, 200]);
    expect((await running).value.error.code).toBe('TOOL_CRASHED');
    expect(pids()).toHaveLength(2);
  });

  it('stays down while people have decided against it, and only an owner can restart it', async () => {
    const bench = await start('', []);
    expect(await restart(bench)).toMatchObject({ value: { error: { retryable: false } } });
    for (const [server, code] of [
      ['workspace', 'WIRE_PARAMS'],
      ['nothing', 'WIRE_PARAMS'],
      ['No Name', 'WIRE_PARAMS'],
    ] as const)
      expect((await restart(bench, server)).value.error.code).toBe(code);
    for (const [what, body] of [
      ['POST /servers/restart', { server: 'chaos' }],
      ['POST /servers/sync', {}],
      ['GET /servers'],
    ] as [string, object?][])
      expect(await bench.ask(what, body, { token: TOKENS.alice })).toMatchObject({
        status: 403,
        value: { error: { code: 'IDENTITY' } },
      });
    expect(pids()).toEqual([]);
  });

  it('stays down under the kill switch and the master switch', async () => {
    const bench = await start();
    const state = openState(bench.facade.assembled.config.state);
    const by = { since: new Date().toISOString(), by: 'test' };
    const switches = new KillSwitch(state);
    await switches.throw({ server: 'chaos', ...by });
    expect((await restart(bench)).value.error).toMatchObject({
      code: 'SERVER_UNAVAILABLE',
      message: expect.stringContaining('kill switch'),
    });
    await switches.lift();
    await switches.throw(by);
    for (const what of ['restart', 'sync'])
      expect((await bench.ask(`POST /servers/${what}`, { server: 'chaos' })).value.error.code).toBe('SWITCHED_OFF');
    await switches.lift();
    await state.close();
    expect(pids()).toEqual([]);
    expect((await restart(bench)).status).toBe(200);
  });
});

describe('a refresh of tools by a host' + verifies('ST-78', 'HE-15'), () => {
  it('asks one server, or all running ones, and returns the differences', async () => {
    const bench = await start();
    expect((await bench.ask('POST /servers/sync', {})).value).toEqual({ servers: [], failed: [] });
    expect(pids()).toEqual([]);
    expect((await bench.ask('POST /servers/sync', { server: 'chaos' })).value.servers).toMatchObject([
      { server: 'chaos', state: 'healthy', tools: 29, removed: [] },
    ]);
    // The first entry of the fixture's list has another name each time.
    const again = (await bench.ask('POST /servers/sync', {})).value;
    expect(again).toMatchObject({
      failed: [],
      servers: [
        {
          server: 'chaos',
          added: [expect.stringMatching(/^listed-/)],
          removed: [expect.stringMatching(/^listed-/)],
          changed: [],
        },
      ],
    });
    expect(pids()).toHaveLength(1);
    expect((await bench.ask('GET /servers')).value.servers).toEqual(
      expect.arrayContaining([
        expect.objectContaining({ name: 'chaos', state: 'healthy', tools: 29 }),
        expect.objectContaining({ name: 'workspace' }),
      ]),
    );
    expect(bench.facade.records().find(({ event }) => event === 'sync')).toMatchObject({ type: 'server', by: 'host' });
  });

  inFull('reports the error of a server that cannot be listed, and does not delay the others', async () => {
    const bench = await start(', timeoutMs: 1000');
    expect((await bench.ask('POST /servers/sync', { server: 'everything' })).status).toBe(200);
    const broken = await startHost(
      hostConfig()
        .replace(
          'isolation: direct, connectTimeoutMs: 20000, env:',
          'isolation: direct, connectTimeoutMs: 20000, lifetime: on-demand, env:',
        )
        .replace('chaos.mjs]', 'chaos.mjs, crash-at-start]')
        .replace('id: host, profiles: [reach, harbor]', 'id: host, profiles: [reach]'),
    );
    try {
      const answer = await broken.ask('POST /servers/sync', { server: 'chaos' });
      expect(answer.value.error).toMatchObject({ code: 'SERVER_UNAVAILABLE', retryable: true });
    } finally {
      await broken.close();
    }
  });
});
