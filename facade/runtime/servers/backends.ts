/** Owns the servers of one process over its configurations: what is set as before keeps running, the rest is made anew; starts nothing itself. */
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
 * What the facade alone reads of a server's entry: a change of it is none of its process. `semantics` and `mapping` are not among
 * them: consent binds them, and is compared when the server starts, so a change of them must start it again.
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

/** What an adapter is told of a server. */
export type AdapterSettings = Omit<ServerConfig, (typeof FACADE_ONLY)[number]> & { readonly confinement?: Confinement };

/** The implementations, which facade/main.ts knows. */
export interface BackendMakers {
  /** Adapters of exactly these servers; those whose settings are the same keep running. Throws CONFIG_INVALID. */
  readonly sync: (settings: readonly AdapterSettings[]) => ReadonlyMap<string, ServerAdapter>;
  readonly workspace: (root: string) => PrimitiveBackend;
  /** A server of catalogs/servers/shipped-servers.ts. */
  readonly shipped: (name: string) => ServerAdapter;
  readonly mapped: (parts: { inner: ServerAdapter; mapping: Mapping; root: string }) => PrimitiveBackend;
  /** It serves somebody from now on. */
  readonly warmUp: () => void;
  /** Starts these, and waits for none. */
  readonly startAhead: (servers: readonly string[]) => void;
  /** Ends all servers, those included that no configuration has any more. */
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
  /** Workspaces of configurations that are gone. */
  readonly #left = new Set<ServedServer>();
  #isWarm = false;
  /** Those that start with the facade. */
  #eager: readonly string[] = [];

  constructor(make: BackendMakers) {
    this.#make = make;
  }

  /** `confine`: what rules close to the program of a server. The servers of a configuration by name: the very objects of before where nothing was changed. Throws CONFIG_INVALID, and has changed nothing then. */
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

  /** Ends the workspaces that the configuration of now does not have; for the time when their last call has ended. */
  async dropLeft(): Promise<void> {
    const left = [...this.#left];
    this.#left.clear();
    await Promise.all(left.map(({ adapter }) => adapter.stop()));
  }

  /** From now on eager servers run: a facade that serves somebody calls it once. */
  warmUp(): void {
    this.#isWarm = true;
    this.#make.warmUp();
    this.startAhead(this.#eager);
  }

  /** Starts these before anybody calls them, where this facade serves somebody; waits for none. */
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
    // Its sessions and read marks are those of the process behind it.
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

  /** Those that a profile lists, and no other: whoever asks for none has none. */
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

/** A program that runs without isolation is bound by nothing, so nothing needs to start it anew. */
function adapterSettings(server: ServerConfig, confine: (server: string) => Confinement): AdapterSettings {
  const own = Object.entries(server).filter(([key]) => !(FACADE_ONLY as readonly string[]).includes(key));
  // An internal server is held to its list of tools where it is reached, whatever a policy says.
  return {
    ...Object.fromEntries(own),
    ...(server.trust === 'internal' && { tools: server.tools }),
    ...(isIsolated(server) && { confinement: confine(server.name) }),
  } as unknown as AdapterSettings;
}

/** Whether it is a program that runs in a sandbox or container. */
export function isIsolated({ transport, isolation }: Pick<ServerConfig, 'transport' | 'isolation'>): boolean {
  return transport === 'stdio' && isolation !== 'direct';
}
