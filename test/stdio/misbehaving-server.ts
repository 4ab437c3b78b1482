/** Shared by the tests of adapters: settings of a misbehaving server, calls, and checks that no process is left. */
import { mkdtempSync, readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { type ServerAdapter, type ServerEvent, type UpstreamCall, UpstreamError } from '../../adapters/port.ts';
import type { LaunchHost } from '../../adapters/stdio/launch.ts';
import { ServerPool } from '../../adapters/supervisor/server-pool.ts';
import type { ServerSettings } from '../../adapters/supervisor/server-settings.ts';
import type { AdapterOptions } from '../../adapters/supervisor/supervisor.ts';
import { asTollgateError, TollgateError } from '../../catalogs/errors/error-table.ts';

const CHAOS = resolve(import.meta.dirname, '../fixtures/chaos.mjs');

export const FAST = { closeMs: 400, termMs: 300 };

/** A facade without secrets. */
export const HOST: LaunchHost = {
  workspace: tmpdir(),
  hidden: [],
  secrets: () => Promise.reject(new TollgateError('SECRET_MISSING')),
};

/** Returns settings of the misbehaving server in one of its modes. */
export function chaos(mode = 'ok', more: Partial<ServerSettings> = {}): ServerSettings {
  return {
    name: 'chaos',
    transport: 'stdio',
    command: process.execPath,
    args: [CHAOS, mode],
    env: {},
    headers: {},
    isolation: 'direct',
    connectTimeoutMs: 20_000,
    maxRetries: 3,
    reconnectBackoffMs: 1000,
    ...more,
  };
}

export interface Bench {
  readonly pool: ServerPool;
  readonly server: ServerAdapter;
  readonly stderr: string[];
  readonly events: ServerEvent[];
}

/** Creates a pool with one server. */
export function serve(settings: ServerSettings, options: Partial<AdapterOptions> = {}): Bench {
  const stderr: string[] = [];
  const events: ServerEvent[] = [];
  const pool = new ServerPool(
    { servers: 20, connections: 5 },
    {
      host: HOST,
      onStderr: (_name, line) => stderr.push(line),
      onEvent: (event) => events.push(event),
      grace: FAST,
      ...options,
    },
  );
  return { pool, server: pool.add(settings), stderr, events };
}

/** Returns a call with long timeouts. A text in `args` is sent unchanged. */
export function callOf(tool: string, args: unknown = {}, more: Partial<UpstreamCall> = {}): UpstreamCall {
  const text = typeof args === 'string' ? args : JSON.stringify(args);
  return {
    tool,
    args: { text, value: JSON.parse(text) as Record<string, unknown>, exact: true },
    scope: 's',
    signal: new AbortController().signal,
    timeoutMs: 20_000,
    hardTimeoutMs: 30_000,
    ...more,
  };
}

export async function textOf(server: ServerAdapter, call: UpstreamCall): Promise<string> {
  const { value } = await server.call(call);
  return value.content?.[0]?.text ?? '';
}

/** Returns the code of the thrown error, or 'none'. */
export async function codeOf(work: Promise<unknown>): Promise<string> {
  try {
    await work;
    return 'none';
  } catch (thrown) {
    if (thrown instanceof TollgateError) return thrown.code;
    return thrown instanceof UpstreamError ? `rpc ${thrown.rpc.code}` : `foreign ${String(thrown)}`;
  }
}

/** Returns the public text of the thrown error, or 'none'. */
export async function refusalOf(work: Promise<unknown>): Promise<string> {
  try {
    await work;
    return 'none';
  } catch (thrown) {
    return thrown instanceof TollgateError ? `${thrown.code}: ${thrown.message} ${thrown.next}` : String(thrown);
  }
}

/** Waits up to 20 s until a process is gone. A zombie counts as gone, because only its parent can reap it. */
export async function isGone(pid: number): Promise<boolean> {
  for (const end = performance.now() + 20_000; lives(pid); await sleep(20)) if (performance.now() > end) return false;
  return true;
}

function lives(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return !/^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, 'utf8'));
  } catch {
    return false;
  }
}

export function temporaryFolder(): string {
  return mkdtempSync(join(tmpdir(), 'tollgate-adapters-'));
}

/** Lists the tools of all servers in parallel. Returns the error of each server that failed. */
export async function startAll(
  servers: Iterable<ServerAdapter>,
): Promise<ReadonlyMap<string, TollgateError | undefined>> {
  const starts = [...servers].map(async (server) => {
    const failure = await server.listTools().then(() => undefined, asTollgateError);
    return [server.name, failure] as const;
  });
  return new Map(await Promise.all(starts));
}
