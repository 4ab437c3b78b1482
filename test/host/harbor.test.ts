/**
 * Harbor's twelve acceptance tests, with their own titles, over the host API with real servers (HB-12).
 * Covers: facade/serve/host.
 */

import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { inFull } from '../harness/full-tests.ts';
import { isRunning } from '../process/child.ts';
import { verifies } from '../verifies.ts';
import { type Answered, type HostBench, hostConfig, PAGE, startHost, until } from './host-bench.ts';

const AT_PAGE = { origin: PAGE, profile: 'harbor' } as const;
let folder: string;
let host: HostBench | undefined;

beforeEach(() => {
  folder = mkdtempSync(path.join(tmpdir(), 'tollgate-harbor-'));
});
afterEach(async () => {
  await host?.close();
  host = undefined;
  rmSync(folder, { recursive: true, force: true, maxRetries: 3 });
});

const start = async (config = hostConfig()): Promise<HostBench> =>
  (host = await startHost(config, { folder, startsFile: path.join(folder, 'starts') }));
const grant = (bench: HostBench, scope: string, more: object = {}): Promise<Answered> =>
  bench.ask('POST /grants', { ...AT_PAGE, scope, kind: 'always', ...more });
const allow = async (bench: HostBench): Promise<void> => {
  for (const scope of ['mcp:tools.list', 'mcp:tools.call', 'mcp:server.connect'])
    expect((await grant(bench, scope)).status).toBe(201);
};
const call = async (bench: HostBench, name: string, args: object = {}): Promise<Answered> =>
  bench.ask('POST /calls', { ...AT_PAGE, name, arguments: args });
const list = (bench: HostBench): Promise<Answered> => bench.ask(`GET /tools?origin=${PAGE}&profile=harbor`);
const pids = (): number[] =>
  existsSync(path.join(folder, 'starts'))
    ? readFileSync(path.join(folder, 'starts'), 'utf8').trim().split('\n').map(Number)
    : [];
const OWNER = { id: 'host', role: 'user', groups: [], profiles: [], origin: 'host', owner: true };
const fresh = async (bench: HostBench): Promise<string> =>
  (await bench.ask('POST /runs', AT_PAGE)).value.run.name as string;

describe("Harbor's acceptance tests", () => {
  inFull('Starting Host spawns configured servers' + verifies('HB-12'), async () => {
    const bench = await start(
      hostConfig({ servers: ['everything', 'chaos'], everything: ', start: eager', chaos: ', start: eager' }),
    );
    bench.facade.assembled.warmUp();
    await until(() =>
      ['everything', 'chaos'].every((name) => bench.facade.assembled.gateway.health(OWNER)[name] === 'healthy'),
    );
    expect(pids()).toHaveLength(1);
    expect((await bench.ask('GET /statistics')).value.servers).toMatchObject({
      everything: 'healthy',
      chaos: 'healthy',
    });
  });

  inFull('Server crash triggers restart up to N retries' + verifies('HB-12'), async () => {
    const bench = await start(hostConfig({ chaos: ', maxRetries: 1' }));
    await allow(bench);
    expect((await call(bench, 'chaos_crash')).value.error.code).toBe('TOOL_CRASHED');
    await until(
      async () =>
        (await bench.ask('POST /calls', { ...AT_PAGE, run: await fresh(bench), name: 'chaos_echo', arguments: {} }))
          .status === 200,
    );
    expect(pids()).toHaveLength(2);
    expect(
      (await bench.ask('POST /calls', { ...AT_PAGE, run: await fresh(bench), name: 'chaos_crash', arguments: {} }))
        .value.error.code,
    ).toBe('TOOL_CRASHED');
    // The only retry is used up, so it is not started again.
    expect(
      (await bench.ask('POST /calls', { ...AT_PAGE, run: await fresh(bench), name: 'chaos_echo', arguments: {} })).value
        .error.code,
    ).toBe('SERVER_UNAVAILABLE');
    expect(pids()).toHaveLength(2);
  });

  it('Server stop cleans up processes' + verifies('HB-12'), async () => {
    const bench = await start();
    await allow(bench);
    expect((await call(bench, 'chaos_echo')).status).toBe(200);
    const [pid = 0] = pids();
    expect(isRunning(pid)).toBe(true);
    await bench.close();
    host = undefined;
    await until(() => !isRunning(pid));
  });

  inFull('Host can list tools from a test server' + verifies('HB-12', 'HB-11'), async () => {
    const bench = await start(hostConfig({ servers: ['everything', 'chaos'] }));
    await allow(bench);
    const tools = (await list(bench)).value.tools as { name: string; inputSchema: unknown }[];
    expect(tools.find(({ name }) => name === 'everything_echo')).toMatchObject({
      inputSchema: { type: 'object', required: ['message'] },
    });
  });

  inFull('Tool names are namespaced serverId/toolName' + verifies('HB-12'), async () => {
    const bench = await start(hostConfig({ servers: ['everything', 'chaos'] }));
    await allow(bench);
    const names = ((await list(bench)).value.tools as { name: string }[]).map(({ name }) => name);
    expect(names.length).toBeGreaterThan(20);
    // Here with an underscore, because MCP clients accept no slash in names.
    expect(names.filter((name) => !/^(everything|chaos)_./.test(name))).toEqual([]);
    expect(names).toEqual(expect.arrayContaining(['everything_echo', 'chaos_echo']));
  });

  it('Without permission, tools.list and tools.call fail' + verifies('HB-12', 'HB-02'), async () => {
    const bench = await start();
    expect((await list(bench)).value.error).toMatchObject({
      code: 'APPROVAL_REQUIRED',
      message: `No one has granted mcp:tools.list to ${PAGE}.`,
    });
    // No server is started to find the tool.
    expect((await call(bench, 'chaos_echo')).value.error.code).toBe('UNKNOWN_TOOL');
    expect(pids()).toEqual([]);
    await grant(bench, 'mcp:server.connect');
    expect(await call(bench, 'chaos_echo')).toMatchObject({
      status: 403,
      value: {
        error: { code: 'APPROVAL_REQUIRED', message: `No one has granted mcp:tools.call to ${PAGE} for chaos.echo.` },
      },
    });
    await grant(bench, 'mcp:tools.call', { kind: 'deny' });
    expect(await call(bench, 'chaos_echo')).toMatchObject({ status: 403, value: { error: { code: 'DENIED' } } });
  });

  it('ALLOW_ONCE works and expires' + verifies('HB-12', 'HB-02'), async () => {
    const bench = await start();
    await grant(bench, 'mcp:server.connect');
    const expiresAt = Date.now() + 60_000;
    const { id } = (await grant(bench, 'mcp:tools.call', { kind: 'once', expiresAt })).value.grant as { id: string };
    expect((await call(bench, 'chaos_echo')).status).toBe(200);
    await bench.ask(`DELETE /grants/${id}`);
    await grant(bench, 'mcp:tools.call', { kind: 'once', expiresAt: Date.now() + 150 });
    await until(
      async () =>
        (await bench.ask('POST /calls', { ...AT_PAGE, run: await fresh(bench), name: 'chaos_echo' })).value.error
          ?.code === 'APPROVAL_REQUIRED',
    );
  });

  it('ALLOW_ALWAYS persists across restarts' + verifies('HB-12', 'HB-02'), async () => {
    const first = await start();
    await allow(first);
    await first.close();
    const second = await start();
    expect((await call(second, 'chaos_echo')).status).toBe(200);
    expect((await list(second)).status).toBe(200);
  });

  inFull('Call known tool succeeds' + verifies('HB-12', 'HB-11'), async () => {
    const bench = await start(hostConfig({ servers: ['everything', 'chaos'] }));
    await allow(bench);
    const answer = await call(bench, 'everything_get-sum', { a: 2, b: 40 });
    expect(answer.value.result.content[0].text).toContain('42');
    expect(answer.value.result._meta['tollgate/provenance']).toMatchObject({ server: 'everything', tool: 'get-sum' });
  });

  it('Unknown tool returns ERR_TOOL_NOT_FOUND' + verifies('HB-12'), async () => {
    const bench = await start();
    await allow(bench);
    expect(await call(bench, 'everything_nothing')).toMatchObject({
      status: 404,
      value: { error: { code: 'UNKNOWN_TOOL' } },
    });
  });

  inFull('Tool timeout returns ERR_TOOL_TIMEOUT' + verifies('HB-12'), async () => {
    const bench = await start(hostConfig({ chaos: ', timeoutMs: 200, hardTimeoutMs: 250' }));
    await allow(bench);
    expect(await call(bench, 'chaos_hang')).toMatchObject({ status: 504, value: { error: { code: 'TOOL_TIMEOUT' } } });
  });

  it('Server down returns ERR_SERVER_UNAVAILABLE' + verifies('HB-12'), async () => {
    const bench = await start(hostConfig({ chaos: ', maxRetries: 0' }));
    await allow(bench);
    expect((await call(bench, 'chaos_crash')).value.error.code).toBe('TOOL_CRASHED');
    expect(await call(bench, 'chaos_echo')).toMatchObject({
      status: 503,
      value: { error: { code: 'SERVER_UNAVAILABLE' } },
    });
  });
});
