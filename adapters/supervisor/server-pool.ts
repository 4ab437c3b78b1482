/** Holds all external servers of this process, within the limits of servers and connections. */
import { isDeepStrictEqual } from 'node:util';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { SseConnection } from '../http/sse-connection.ts';
import { StreamableConnection } from '../http/streamable-connection.ts';
import type { Health, ServerAdapter, ServerProbeResult } from '../port.ts';
import type { Connection } from '../rpc/connection.ts';
import { SocketConnection } from '../stdio/socket-connection.ts';
import { StdioConnection } from '../stdio/stdio-connection.ts';
import { ConnectionSlots } from './connection-cap.ts';
import { SeparateProcesses } from './separate-processes.ts';
import { type ServerSettings, startRefusal } from './server-settings.ts';
import type { AdapterOptions } from './supervisor.ts';
import { UpstreamServer } from './upstream-server.ts';
import { UpstreamSession } from './upstream-session.ts';

/**
 * The numbers of configured servers (default 20) and of simultaneous connections (default 5) that are allowed (HA-05).
 */
export interface PoolLimits {
  readonly servers: number;
  readonly connections: number;
}

/** How long running calls of a changed or removed server may continue. */
const RETIRE_MS = 30_000;
const PROBE_LIST_MS = 30_000;

/** Creates adapters that share the connection slots. It starts no server by itself. */
export class ServerPool {
  private readonly limits: PoolLimits;
  private readonly options: AdapterOptions;
  private readonly slots: ConnectionSlots;
  private readonly servers = new Map<string, UpstreamServer>();
  /** Changed or removed servers whose running calls may still end. */
  private readonly retiring = new Map<UpstreamServer, Promise<void>>();

  constructor(limits: PoolLimits, options: AdapterOptions) {
    this.limits = limits;
    this.options = options;
    this.slots = new ConnectionSlots(limits.connections, options.shared);
  }

  /** Adds a server and does not start it. Throws CONFIG_INVALID if there are too many, or the name is taken. */
  add(settings: ServerSettings): ServerAdapter {
    const { name } = settings;
    if (this.servers.has(name)) throw nameTaken(name);
    if (this.servers.size >= this.limits.servers) throw this.tooMany(name);
    const { slots, options } = this;
    const isSeparate = settings.process === 'session' || settings.environments !== undefined;
    const server = isSeparate
      ? new SeparateProcesses({ settings, slots, options, connectTo: connectionTo })
      : new UpstreamServer({ settings, slots, options, connect: () => connectionTo(settings, options) });
    this.servers.set(name, server);
    return server;
  }

  /**
   * Makes the pool hold exactly these servers, and returns all of them by name. A server with deep-equal settings keeps
   * running. A changed or removed server refuses new starts and ends after its running calls, at most after 30 s.
   * Throws CONFIG_INVALID, and changes nothing, if there are too many servers or two with one name.
   */
  sync(list: readonly ServerSettings[]): ReadonlyMap<string, ServerAdapter> {
    this.checkList(list);
    const wanted = new Map(list.map((settings) => [settings.name, settings]));
    for (const [name, server] of this.servers) {
      if (isDeepStrictEqual(server.settings, wanted.get(name))) continue;
      this.servers.delete(name);
      this.retire(server);
    }
    for (const [name, settings] of wanted) if (!this.servers.has(name)) this.add(settings);
    return new Map([...wanted.keys()].map((name) => [name, this.servers.get(name) as ServerAdapter]));
  }

  /** Starts these servers in the background, before a call needs them. */
  warmUp(names: readonly string[]): void {
    for (const name of names) this.servers.get(name)?.warmUp();
  }

  /** Kills every server for which there is a refusal, and lets the others start again. */
  halt(refusalOf: (name: string) => TollgateError | undefined): void {
    for (const server of this.all()) {
      const refusal = refusalOf(server.name);
      if (refusal !== undefined) server.halt(refusal);
      else if (!this.retiring.has(server)) server.lift();
    }
  }

  /** Forgets all losses of these servers, because a person allowed them to be used. */
  revive(names: readonly string[]): void {
    for (const name of names) this.servers.get(name)?.revive();
  }

  /**
   * Restarts those of these servers that run, because a person asked for it, and revives the others. A failed start is
   * seen in the health of its server.
   */
  restart(names: readonly string[]): void {
    for (const name of names) {
      const server = this.servers.get(name);
      const { state } = server?.health() ?? {};
      if (state !== 'healthy' && state !== 'degraded') server?.revive();
      else void server?.renew('process').catch(() => undefined);
    }
  }

  /** Makes these servers list their tools again, because what may be shown has changed. */
  relist(names: ReadonlySet<string>): void {
    for (const server of this.all()) if (names.has(server.name)) server.forgetTools();
  }

  /** Returns the health of each server by name, with the version that it reported. */
  healths(): ReadonlyMap<string, Health & { readonly version?: string }> {
    return new Map(
      [...this.servers].map(([name, server]) => [
        name,
        { ...server.health(), ...(server.info() !== undefined && { version: server.info()?.version ?? '' }) },
      ]),
    );
  }

  /** Closes the least recently used idle connection, if there is one, because another process needs it. */
  yieldOne(): Promise<void> {
    return this.slots.yieldOne();
  }

  /** Stops all servers in an orderly way, in parallel. */
  async stopAll(): Promise<void> {
    await Promise.all([...this.all()].map((server) => server.stop()));
  }

  /** Kills every process synchronously. For the exit of this process. */
  killNow(): void {
    for (const server of this.all()) server.killNow();
  }

  private all(): readonly UpstreamServer[] {
    return [...this.servers.values(), ...this.retiring.keys()];
  }

  private retire(server: UpstreamServer): void {
    // No one waits for the end. If it fails, only folders of Tollgate stay, which must not end the facade.
    this.retiring.set(
      server,
      server
        .retire(RETIRE_MS)
        .catch(() => undefined)
        .finally(() => this.retiring.delete(server)),
    );
  }

  private checkList(list: readonly ServerSettings[]): void {
    const duplicate = list.find(({ name }, index) => list.findIndex((other) => other.name === name) !== index);
    if (duplicate !== undefined) throw nameTaken(duplicate.name);
    const extra = list[this.limits.servers];
    if (extra !== undefined) throw this.tooMany(extra.name);
  }

  private tooMany(name: string): TollgateError {
    return new TollgateError('CONFIG_INVALID', {
      detail: `Server "${name}" exceeds the limit of ${this.limits.servers} servers.`,
      next: 'Remove a server, or raise limits.servers in tollgate.yaml.',
    });
  }
}

/** Creates the connection to a server and does not open it. */
function connectionTo(settings: ServerSettings, options: AdapterOptions): Connection {
  if (settings.transport === 'unix') return new SocketConnection(settings);
  if (settings.transport === 'stdio') return new StdioConnection(settings, options);
  return settings.transport === 'sse'
    ? new SseConnection(settings, options.host)
    : new StreamableConnection(settings, options.host);
}

function nameTaken(name: string): TollgateError {
  return new TollgateError('CONFIG_INVALID', {
    detail: `Two servers are named "${name}".`,
    next: 'Rename one of them.',
  });
}

/**
 * Starts or reaches a server, lists what it defines, and ends it, for a person who decides about it. Calls no
 * tool. Throws as ServerAdapter.start and listTools. `signal` ends it early.
 */
export async function probeServer(
  settings: ServerSettings,
  options: AdapterOptions & { readonly signal: AbortSignal },
): Promise<ServerProbeResult> {
  const refusal = startRefusal(settings) ?? (await options.consent?.(settings));
  if (refusal !== undefined) throw refusal;
  const session: UpstreamSession = new UpstreamSession(settings.name, () => connectionTo(settings, options), {
    onToolsChanged: () => undefined,
    onBad: () => undefined,
    onRefused: (event) => options.onEvent?.({ ...event, server: settings.name, id: session.id }),
    onClosed: () => undefined,
  });
  const kill = (): void => session.kill();
  options.signal.addEventListener('abort', kill);
  process.once('exit', kill);
  try {
    const info = await session.open(settings.connectTimeoutMs);
    const { entries: tools, unfit } = await session.listTools(PROBE_LIST_MS);
    const prompts = await session.list('prompts', PROBE_LIST_MS);
    const templates = await session.list('resources/templates', PROBE_LIST_MS);
    const { instructions } = session;
    return {
      info,
      tools,
      prompts,
      ...(templates.length > 0 && { templates }),
      ...(unfit.length > 0 && { unfit }),
      ...(instructions !== undefined && { instructions }),
    };
  } finally {
    await session.close();
    options.signal.removeEventListener('abort', kill);
    process.off('exit', kill);
  }
}
