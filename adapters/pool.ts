/** Owns all external servers of one process and their caps; refuses more servers than are allowed. */
import { asTollgateError, TollgateError } from '../catalogs/errors.ts';
import type { ServerAdapter } from './port.ts';
import { RemoteConnection } from './remote.ts';
import { UpstreamServer } from './server.ts';
import type { AdapterOptions, ServerSettings } from './settings.ts';
import { ConnectionSlots } from './slots.ts';
import { StdioConnection } from './stdio.ts';

/** HA-05: how many servers may be configured (default 20), and how many connected at once (default 5). */
export interface PoolLimits {
  readonly servers: number;
  readonly connections: number;
}

/** Makes adapters that share the slots; starts nothing by itself. */
export class ServerPool {
  private readonly limits: PoolLimits;
  private readonly options: AdapterOptions;
  private readonly slots: ConnectionSlots;
  private readonly servers = new Map<string, UpstreamServer>();

  constructor(limits: PoolLimits, options: AdapterOptions) {
    this.limits = limits;
    this.options = options;
    this.slots = new ConnectionSlots(limits.connections);
  }

  /** Adds a server, not yet started. Throws CONFIG_INVALID over the cap, or when the name is taken. */
  add(settings: ServerSettings): ServerAdapter {
    const { name } = settings;
    if (this.servers.has(name)) throw new TollgateError('CONFIG_INVALID', { detail: `Two servers are named "${name}".`, next: 'Rename one of them.' });
    if (this.servers.size >= this.limits.servers) {
      const detail = `Server "${name}" is one more than the ${this.limits.servers} that are allowed.`;
      throw new TollgateError('CONFIG_INVALID', { detail, next: 'Remove a server, or raise limits.servers in tollgate.yaml.' });
    }
    const server = new UpstreamServer({ settings, slots: this.slots, connect: () => this.connect(settings) });
    this.servers.set(name, server);
    return server;
  }

  /** Starts all in parallel and lists their tools; a server that fails is named with its error and holds up no other. */
  async startAll(signal?: AbortSignal): Promise<ReadonlyMap<string, TollgateError | undefined>> {
    const outcomes = await Promise.all([...this.servers.values()].map(async (server) => [server.name, await failureOf(server.listTools(signal))] as const));
    return new Map(outcomes);
  }

  /** Ends every server in order, in parallel. */
  async stopAll(): Promise<void> {
    await Promise.all([...this.servers.values()].map((server) => server.stop()));
  }

  /** Ends every process at once, synchronously: the last resort at the exit of our own process. */
  killNow(): void {
    for (const server of this.servers.values()) server.killNow();
  }

  private connect(settings: ServerSettings): StdioConnection | RemoteConnection {
    return settings.transport === 'stdio' ? new StdioConnection(settings, this.options) : new RemoteConnection(settings);
  }
}

async function failureOf(work: Promise<unknown>): Promise<TollgateError | undefined> {
  try {
    await work;
    return undefined;
  } catch (thrown) {
    return asTollgateError(thrown);
  }
}
