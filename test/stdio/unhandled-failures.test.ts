/** Tests that no failure at the end of a server causes an unhandled rejection, which would end the facade. */
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { openEgress } from '../../adapters/egress/open-egress.ts';
import type { Connection, ConnectionEvents } from '../../adapters/rpc/connection.ts';
import { launch } from '../../adapters/stdio/launch.ts';
import { ConnectionSlots } from '../../adapters/supervisor/connection-cap.ts';
import { Connector } from '../../adapters/supervisor/connector.ts';
import { ServerPool } from '../../adapters/supervisor/server-pool.ts';
import { sandboxOf, stdioSettings } from '../sandbox/sandbox-fixture.ts';

const SETTINGS = stdioSettings(['cat'], { isolation: 'direct' });
const TMPDIR = process.env.TMPDIR;
let unhandled: unknown[];
const note = (thrown: unknown): number => unhandled.push(thrown);

beforeEach(() => {
  unhandled = [];
  process.on('unhandledRejection', note);
});

afterEach(async () => {
  await new Promise((resolve) => setImmediate(resolve));
  process.off('unhandledRejection', note);
  if (TMPDIR === undefined) delete process.env.TMPDIR;
  else process.env.TMPDIR = TMPDIR;
  expect(unhandled).toEqual([]);
});

/** A connection that answers the handshake at once, and cannot be closed. */
class Unending implements Connection {
  #events: ConnectionEvents | undefined;

  async start(events: ConnectionEvents): Promise<void> {
    this.#events = events;
  }

  send(text: string): void {
    const { id, method } = JSON.parse(text) as { readonly id?: number; readonly method: string };
    if (id === undefined) return;
    const result = { text: '', exact: true, value: { protocolVersion: '2025-11-25', capabilities: {} } };
    const error = { code: -32601, message: 'unknown method' };
    queueMicrotask(() =>
      this.#events?.onMessage(method === 'initialize' ? { kind: 'result', id, result } : { kind: 'error', id, error }),
    );
  }

  backlog(): number {
    return 0;
  }

  useProtocolVersion(): void {
    // Not needed here.
  }

  close(): Promise<void> {
    return Promise.reject(new Error('a folder stays'));
  }

  killNow(): void {
    // Not needed here.
  }
}

it('an idle server that cannot be closed reports the failure only to callers that wait for it', async () => {
  const slots = new ConnectionSlots(1);
  const connector = new Connector({
    settings: SETTINGS,
    slots,
    connect: () => new Unending(),
    isKept: () => false,
    onToolsChanged: () => undefined,
    onNotice: () => undefined,
    capabilities: () => ({}),
    prefersSession: () => false,
    onLost: () => undefined,
    onStopped: () => undefined,
    report: () => undefined,
  });
  const open = (): Promise<unknown> =>
    connector.open(
      () => undefined,
      () => Promise.resolve(undefined),
    );
  await open();
  connector.endIfIdle();
  await new Promise((resolve) => setImmediate(resolve));
  await open();
  await expect(connector.giveUp()).rejects.toThrow('a folder stays');
});

it('a proxy whose socket cannot be created says what to do, and leaves no folder', async () => {
  process.env.TMPDIR = '/proc/no-such-folder';
  await expect(
    openEgress({ server: 'one', allowedDomains: ['example.org'] }, { onBlocked: () => undefined }),
  ).rejects.toMatchObject({ code: 'SANDBOX_UNAVAILABLE', next: expect.stringContaining('Free space') as string });
  if (TMPDIR === undefined) delete process.env.TMPDIR;
  else process.env.TMPDIR = TMPDIR;
  // Its own folder, because other tests use proxies at the same time.
  process.env.TMPDIR = mkdtempSync(path.join(tmpdir(), 'tollgate-proxies-'));
  await expect(
    openEgress(
      { server: 'one', allowedDomains: ['example.org'], mark: 'x', owner: -2 },
      { onBlocked: () => undefined },
    ),
  ).rejects.toMatchObject({ code: 'SANDBOX_UNAVAILABLE' });
  expect(readdirSync(process.env.TMPDIR)).toEqual([]);
  rmSync(process.env.TMPDIR, { recursive: true });
});

it('a failed start reports its reason, even if its proxy cannot be closed', async () => {
  const egress = { socket: '/x', env: {}, mounts: [], close: () => Promise.reject(new Error('a folder stays')) };
  const sandbox = { ...sandboxOf(), network: { allowedDomains: ['example.org'] } };
  await expect(
    launch(
      { ...SETTINGS, isolation: 'container', sandbox },
      { workspace: '/', hidden: [], secrets: () => Promise.resolve(''), openEgress: () => Promise.resolve(egress) },
    ),
  ).rejects.toMatchObject({ code: 'SANDBOX_UNAVAILABLE', message: expect.stringContaining('no image') as string });
});

it('a removed server whose stop fails causes no error', async () => {
  const pool = new ServerPool(
    { servers: 1, connections: 1 },
    { host: { workspace: '/', hidden: [], secrets: () => Promise.resolve('') }, onStderr: () => undefined },
  );
  const server = pool.add(SETTINGS);
  server.stop = () => Promise.reject(new Error('a folder stays'));
  pool.sync([]);
  await new Promise((resolve) => setTimeout(resolve, 10));
});
