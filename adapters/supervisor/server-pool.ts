/** Owns all external servers of one process and their caps; refuses more servers than are allowed. */
import { isDeepStrictEqual } from 'node:util';
import { asTollgateError, TollgateError } from '../../catalogs/errors/error-table.ts';
import { RemoteConnection } from '../http/remote-connection.ts';
import type { Health, ServerAdapter } from '../port.ts';
import type { Connection } from '../rpc/connection.ts';
import { SocketConnection } from '../stdio/socket-connection.ts';
import { StdioConnection } from '../stdio/stdio-connection.ts';
import { ConnectionSlots } from './connection-cap.ts';
import type { ServerSettings } from './server-settings.ts';
import type { AdapterOptions } from './supervisor.ts';
import { UpstreamServer } from './upstream-server.ts';

/** HA-05: how many servers may be configured (default 20), and how many connected at once (default 5). */
export interface PoolLimits {
  readonly servers: number;
  readonly connections: number;
}

/** How long calls of a server that was changed or removed may go on. */
const RETIRE_MS = 30_000;

/** Makes adapters that share the slots; starts nothing by itself. */
export class ServerPool {
  private readonly limits: PoolLimits;
  private readonly options: AdapterOptions;
  private readonly slots: ConnectionSlots;
  private readonly servers = new Map<string, UpstreamServer>();
  /** Replaced or removed ones whose running calls are let end. */
  private readonly retiring = new Map<UpstreamServer, Promise<void>>();

  constructor(limits: PoolLimits, options: AdapterOptions) {
    this.limits = limits;
    this.options = options;
    this.slots = new ConnectionSlots(limits.connections, options.shared);
  }

  /** Adds a server, not yet started. Throws CONFIG_INVALID over the cap, or when the name is taken. */
  add(settings: ServerSettings): ServerAdapter {
    const { name } = settings;
    if (this.servers.has(name)) throw nameTaken(name);
    if (this.servers.size >= this.limits.servers) throw this.tooMany(name);
    const server = new UpstreamServer({
      settings,
      slots: this.slots,
      options: this.options,
      connect: () => connectionTo(settings, this.options),
    });
    this.servers.set(name, server);
    return server;
  }

  /**
   * Makes the pool hold exactly these servers, and answers with all of them by name. A server whose settings are deep-equal
   * is kept as it runs; one that was changed or removed takes no new start and ends after its running calls, at most after
   * 30 s. Throws CONFIG_INVALID over the cap or for a name that stands twice, and then nothing has changed.
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

  /** Starts all in parallel and lists their tools; a server that fails is named with its error and holds up no other. */
  async startAll(signal?: AbortSignal): Promise<ReadonlyMap<string, TollgateError | undefined>> {
    const outcomes = await Promise.all(
      [...this.servers.values()].map(
        async (server) => [server.name, await failureOf(server.listTools(signal))] as const,
      ),
    );
    return new Map(outcomes);
  }

  /** Starts these before anybody calls them, and waits for none. */
  warmUp(names: readonly string[]): void {
    for (const name of names) this.servers.get(name)?.warmUp();
  }

  /** The kill switch: those with a refusal end at once and refuse starts, the others may start again. */
  halt(refusalOf: (name: string) => TollgateError | undefined): void {
    for (const server of this.all()) {
      const refusal = refusalOf(server.name);
      if (refusal !== undefined) server.halt(refusal);
      else if (!this.retiring.has(server)) server.lift();
    }
  }

  /** Losses of these before now do not count: a person lets them be used. */
  revive(names: readonly string[]): void {
    for (const name of names) this.servers.get(name)?.revive();
  }

  /** What may be shown of these is another thing now. */
  relist(names: ReadonlySet<string>): void {
    for (const server of this.all()) if (names.has(server.name)) server.forgetTools();
  }

  /** How each is now, by name, with the version that it named. */
  healths(): ReadonlyMap<string, Health & { readonly version?: string }> {
    return new Map(
      [...this.servers].map(([name, server]) => [
        name,
        { ...server.health(), ...(server.info() !== undefined && { version: server.info()?.version ?? '' }) },
      ]),
    );
  }

  /** Another process needs a connection: the idle one longest unused ends, if there is one. */
  yieldOne(): Promise<void> {
    return this.slots.yieldOne();
  }

  /** Ends every server in order, in parallel. */
  async stopAll(): Promise<void> {
    await Promise.all([...this.all()].map((server) => server.stop()));
  }

  /** Ends every process at once, synchronously: the last resort at the exit of our own process. */
  killNow(): void {
    for (const server of this.all()) server.killNow();
  }

  private all(): readonly UpstreamServer[] {
    return [...this.servers.values(), ...this.retiring.keys()];
  }

  private retire(server: UpstreamServer): void {
    // Nobody waits: what a failed end leaves are folders of our own, and must not end the facade.
    this.retiring.set(
      server,
      server
        .retire(RETIRE_MS)
        .catch(() => undefined)
        .finally(() => this.retiring.delete(server)),
    );
  }

  private checkList(list: readonly ServerSettings[]): void {
    const twice = list.find(({ name }, index) => list.findIndex((other) => other.name === name) !== index);
    if (twice !== undefined) throw nameTaken(twice.name);
    const extra = list[this.limits.servers];
    if (extra !== undefined) throw this.tooMany(extra.name);
  }

  private tooMany(name: string): TollgateError {
    const detail = `Server "${name}" is one more than the ${this.limits.servers} that are allowed.`;
    return new TollgateError('CONFIG_INVALID', {
      detail,
      next: 'Remove a server, or raise limits.servers in tollgate.yaml.',
    });
  }
}

/** The way to a server, not yet opened. */
export function connectionTo(settings: ServerSettings, options: AdapterOptions): Connection {
  if (settings.transport === 'unix') return new SocketConnection(settings);
  return settings.transport === 'stdio'
    ? new StdioConnection(settings, options)
    : new RemoteConnection(settings, options.host);
}

function nameTaken(name: string): TollgateError {
  return new TollgateError('CONFIG_INVALID', {
    detail: `Two servers are named "${name}".`,
    next: 'Rename one of them.',
  });
}

async function failureOf(work: Promise<unknown>): Promise<TollgateError | undefined> {
  try {
    await work;
    return undefined;
  } catch (thrown) {
    return asTollgateError(thrown);
  }
}
