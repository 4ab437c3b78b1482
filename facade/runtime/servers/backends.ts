/**
 * The servers of one process over its configurations: unchanged servers keep running, the rest is made again. It starts
 * no server itself.
 */
import { isDeepStrictEqual } from 'node:util';
import type { PrimitiveBackend, ServerAdapter } from '../../../adapters/port.ts';
import { loadMapping, type Mapping } from '../../../catalogs/primitives/primitive-mapping.ts';
import type { Confinement } from '../../../catalogs/readers/confinement.ts';
import { SHIPPED } from '../../../catalogs/servers/shipped-servers.ts';
import type { RawTool } from '../../../catalogs/tools/tool-definition.ts';
import type { Config, ServerConfig } from '../../config/config.ts';
import { eagerServers } from '../../config/profiles.ts';
import type { ServedServer } from '../../exposure/served-server.ts';
import { serveExternal, serveInternal, serveShipped } from '../../exposure/served-server.ts';

/**
 * The settings of a server that only the facade uses, so that a change does not restart the server. `semantics` and
 * `mapping` are not among them: consent is bound to them, and is compared at the start, so a change must restart the
 * server.
 */
const FACADE_ONLY = [
  'tools',
  'labels',
  'validateOutput',
  'timeoutMs',
  'hardTimeoutMs',
  'trustHints',
  'description',
  'source',
  'start',
] as const;

/** The settings that an adapter gets. */
export type AdapterSettings = Omit<ServerConfig, (typeof FACADE_ONLY)[number]> & { readonly confinement?: Confinement };

/** The implementations that facade/main.ts passes in. */
export interface BackendMakers {
  /** Returns adapters of exactly these servers; those with unchanged settings keep running. Throws CONFIG_INVALID. */
  readonly sync: (settings: readonly AdapterSettings[]) => ReadonlyMap<string, ServerAdapter>;
  readonly workspace: (root: string) => PrimitiveBackend;
  /** A server of catalogs/servers/shipped-servers.ts. */
  readonly shipped: (name: string) => ServerAdapter;
  readonly mapped: (parts: { inner: ServerAdapter; mapping: Mapping; root: string }) => PrimitiveBackend;
  /** It serves agents from now on. */
  readonly warmUp: () => void;
  /** Starts these without waiting. */
  readonly startAhead: (servers: readonly string[]) => void;
  /** Ends all servers, including those that no configuration has any more. */
  readonly stop: () => Promise<void>;
}

interface Kept {
  readonly config: ServerConfig;
  readonly root: string;
  readonly served: ServedServer;
}

type KeptWorkspace = Pick<Kept, 'root' | 'served'>;

/** All servers of a process. */
export class Backends {
  readonly #make: BackendMakers;
  #kept: ReadonlyMap<string, Kept> = new Map();
  #workspace: KeptWorkspace | undefined;
  /** Made for a configuration that is not in force yet. */
  #next: KeptWorkspace | undefined;
  readonly #shipped = new Map<string, ServedServer>();
  /** Workspaces of earlier configurations. */
  readonly #left = new Set<ServedServer>();
  #isWarm = false;
  /** Those that start with the facade. */
  #eager: readonly string[] = [];

  constructor(make: BackendMakers) {
    this.#make = make;
  }

  /**
   * Returns the servers of a configuration by name: the same objects as before if nothing changed. `confine`: what
   * rules close to the program of a server. Throws CONFIG_INVALID, and has changed nothing then.
   */
  serve(config: Config, confine: (server: string) => Confinement): ReadonlyMap<string, ServedServer> {
    const adapters = this.#make.sync([...config.servers.values()].map((server) => adapterSettings(server, confine)));
    const kept = new Map<string, Kept>();
    for (const server of config.servers.values())
      kept.set(server.name, this.#keepOrMake(server, adapters.get(server.name) as ServerAdapter, config.workspace));
    this.#kept = kept;
    this.#eager = eagerServers(config);
    this.startAhead(this.#eager);
    const workspace = this.#serveWorkspace(config.workspace);
    return new Map(
      [workspace, ...this.#serveShipped(config), ...[...kept.values()].map(({ served }) => served)].map((served) => [
        served.name,
        served,
      ]),
    );
  }

  /** Definitions of the primitives. */
  primitives(config: Config): Promise<readonly RawTool[]> {
    if (this.#workspace?.root === config.workspace) return this.#workspace.served.adapter.listTools();
    this.#next = this.#next?.root === config.workspace ? this.#next : this.#makeWorkspace(config.workspace);
    return this.#next.served.adapter.listTools();
  }

  /** Ends the workspaces that the present configuration does not have, after their last call has ended. */
  async dropLeft(): Promise<void> {
    const left = [...this.#left];
    this.#left.clear();
    await Promise.all(left.map(({ adapter }) => adapter.stop()));
  }

  /** From now on eager servers run. A facade that serves agents calls it once. */
  warmUp(): void {
    this.#isWarm = true;
    this.#make.warmUp();
    this.startAhead(this.#eager);
  }

  /** Starts these before anyone calls them, if this facade serves agents; does not wait. */
  startAhead(servers: readonly string[]): void {
    if (this.#isWarm && servers.length > 0) this.#make.startAhead(servers);
  }

  /** Ends everything. */
  async stop(): Promise<void> {
    await Promise.all([
      this.#workspace?.served.adapter.stop(),
      ...[...this.#shipped.values()].map(({ adapter }) => adapter.stop()),
      this.dropLeft(),
      this.#make.stop(),
    ]);
  }

  #keepOrMake(config: ServerConfig, adapter: ServerAdapter, root: string): Kept {
    const before = this.#kept.get(config.name);
    if (
      before !== undefined &&
      before.served.adapter === adapter &&
      before.root === root &&
      isDeepStrictEqual(before.config, config)
    )
      return before;
    const mapping = config.mapping === undefined ? undefined : loadMapping(config.mapping);
    // Its sessions and read marks belong to the process behind it.
    const same =
      before?.served.backend !== undefined &&
      before.served.adapter === adapter &&
      before.root === root &&
      before.config.mapping === config.mapping;
    const backend =
      mapping === undefined
        ? undefined
        : same
          ? before.served.backend
          : this.#make.mapped({ inner: adapter, mapping, root });
    const served = serveExternal(config, {
      adapter,
      ...(backend === undefined ? {} : { backend }),
      known: mapping?.tools ?? new Map(),
    });
    return { config, root, served };
  }

  /** Servers that a profile lists, and no others. */
  #serveShipped({ profiles }: Config): readonly ServedServer[] {
    const asked = [...SHIPPED.keys()].filter((name) =>
      [...profiles.values()].some(({ servers }) => servers.includes(name)),
    );
    return asked.map((name) => {
      const served = this.#shipped.get(name) ?? serveShipped(this.#make.shipped(name));
      this.#shipped.set(name, served);
      return served;
    });
  }

  #makeWorkspace(root: string): KeptWorkspace {
    return { root, served: serveInternal(this.#make.workspace(root)) };
  }

  #serveWorkspace(root: string): ServedServer {
    if (this.#workspace?.root === root) return this.#workspace.served;
    if (this.#workspace !== undefined) this.#left.add(this.#workspace.served);
    this.#workspace = this.#next?.root === root ? this.#next : this.#makeWorkspace(root);
    this.#next = undefined;
    return this.#workspace.served;
  }
}

/** Nothing binds a program without isolation, so a changed rule need not restart it. */
function adapterSettings(server: ServerConfig, confine: (server: string) => Confinement): AdapterSettings {
  const own = Object.entries(server).filter(([key]) => !(FACADE_ONLY as readonly string[]).includes(key));
  // An internal server is always limited to its list of tools, whatever a policy says.
  return {
    ...Object.fromEntries(own),
    ...(server.trust === 'internal' && { tools: server.tools }),
    ...(isIsolated(server) && { confinement: confine(server.name) }),
  } as unknown as AdapterSettings;
}

/** Returns whether it is a program in a sandbox or container. */
export function isIsolated({ transport, isolation }: Pick<ServerConfig, 'transport' | 'isolation'>): boolean {
  return transport === 'stdio' && isolation !== 'direct';
}
