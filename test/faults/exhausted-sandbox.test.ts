/** Tests servers that reach a limit of their sandbox: the reason is reported, and they start again. */
import { chmodSync, chownSync, mkdirSync, rmSync } from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { ServerSettings } from '../../adapters/supervisor/server-settings.ts';
import {
  type Bench,
  callOf,
  chaos,
  FAST,
  HOST,
  refusalOf,
  serve,
  temporaryFolder,
  textOf,
} from '../stdio/misbehaving-server.ts';
import { verifies } from '../verifies.ts';

let folder: string;
const benches: Bench[] = [];
beforeEach(() => {
  folder = temporaryFolder();
  chmodSync(folder, 0o755);
  mkdirSync(path.join(folder, 'workspace'));
  if (process.getuid?.() === 0) chownSync(path.join(folder, 'workspace'), 4711, 4711);
});
afterEach(async () => {
  await Promise.all(benches.splice(0).map(({ pool }) => pool.stopAll()));
  rmSync(folder, { recursive: true, force: true, maxRetries: 3 });
});

function start(more: Partial<ServerSettings>): Bench {
  const workspace = path.join(folder, 'workspace');
  const sandbox = {
    filesystem: { allowRead: [], allowWrite: [workspace], denyRead: [] },
    network: { allowedDomains: [] },
    limits: { memoryMb: 400, processes: 32, fileMb: 16 },
  };
  const bench = serve(
    chaos('ok', {
      isolation: 'sandbox',
      sandbox,
      cwd: workspace,
      env: { CHAOS_BOMBS: 'yes' },
      connectTimeoutMs: 60_000,
      ...more,
    }),
    { host: { ...HOST, workspace }, grace: FAST },
  );
  benches.push(bench);
  return bench;
}

const exitsOf = ({ events }: Bench): readonly unknown[] =>
  events.flatMap((event) => (event.event === 'crashed' ? [event.exit] : []));

describe('a server that reaches its limit of processes', () => {
  it('is ended with the reason, and the next call starts it again' + verifies('ST-57'), async () => {
    const bench = start({});
    expect(await textOf(bench.server, callOf('processes', {}, { timeoutMs: 60_000, hardTimeoutMs: 60_000 }))).toMatch(
      /^stopped by E/,
    );
    await expect.poll(() => exitsOf(bench), { timeout: 60_000 }).toEqual(['processes']);
    expect(bench.server.health()).toMatchObject({
      state: 'unavailable',
      reason: 'Server "chaos" was stopped, because its processes used up limits.processes.',
    });
    expect(await textOf(bench.server, callOf('echo', { back: 1 }))).toBe('{"back":1}');
  });
});

describe('a server that reaches its memory limit', () => {
  it('reports memory in the error, the health and the event, even if it ended itself' + verifies('ST-58'), async () => {
    const bench = start({});
    expect(
      await refusalOf(bench.server.call(callOf('memory', {}, { timeoutMs: 60_000, hardTimeoutMs: 60_000 }))),
    ).toMatch(
      new RegExp(
        '^TOOL_CRASHED: Server "chaos" (?:ended, because it was out of memory|' +
          'was ended by the system: all its processes together needed more memory)',
      ),
    );
    expect(exitsOf(bench)).toEqual(['memory']);
    expect(bench.server.health().reason).toContain('memory');
  });

  it.each([
    [
      "process.stderr.write('terminate called after throwing an instance of std::bad_alloc\\n', () => process.abort())",
      'memory',
    ],
    ["process.stderr.write('MemoryError\\n', () => process.exit(1))", 'memory'],
    ["process.stderr.write('no MemoryError at all\\n', () => process.exit(1))", 1],
    ["process.stderr.write('std::bad_alloc\\n', () => process.exit(0))", 0],
  ])('is recognized by its last output: after %s its exit is %s' + verifies('ST-58'), async (end, exit) => {
    const program = `process.stdin.on('data', (line) => {
      const { id, method } = JSON.parse(String(line).split('\\n')[0]);
      const say = (rest) => process.stdout.write(JSON.stringify({ jsonrpc: '2.0', id, ...rest }) + '\\n');
      if (method === 'server/discover') return say({ error: { code: -32601, message: 'unknown' } });
      if (method !== 'initialize') return;
      say({ result: { protocolVersion: '2025-06-18', capabilities: {}, serverInfo: { name: 's', version: '1' } } });
      setTimeout(() => { ${end} }, 100);
    });`;
    const bench = start({ isolation: 'direct', args: ['-e', program] });
    await bench.server.start();
    await expect.poll(() => exitsOf(bench), { timeout: 20_000 }).toEqual([exit]);
  });
});
