/** The servers of one process. After a reload, unchanged servers keep running, and the others are made again. */
import { isDeepStrictEqual } from 'node:util';
import type { PrimitiveBackend, ServerAdapter } from '../../../adapters/port.ts';
import { loadMapping, type Mapping } from '../../../catalogs/primitives/primitive-mapping.ts';
import type { Confinement } from '../../../catalogs/readers/confinement.ts';
import { CODE, NO_ARGUMENTS, SHIPPED } from '../../../catalogs/servers/shipped-servers.ts';
import type { RawTool } from '../../../catalogs/tools/tool-definition.ts';
import type { Config, ServerConfig, SnippetConfig } from '../../config/config.ts';
import { eagerServers } from '../../config/profiles.ts';
import type { ServedServer } from '../../exposure/served-server.ts';
import { serveExternal, serveInternal, serveShipped } from '../../exposure/served-server.ts';

/**
 * The settings of a server that only the facade uses. A change of these does not restart the server. `semantics` and
 * `mapping` are not among them, because consent is bound to them and is checked at the start.
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
  'uri',
  'trace',
] as const;

/** The settings that an adapter gets. */
export type AdapterSettings = Omit<ServerConfig, (typeof FACADE_ONLY)[number]> & { readonly confinement?: Confinement };

/** The implementations that facade/main.ts passes in. */
export interface BackendMakers {
  /** Returns adapters of exactly these servers; those with unchanged settings keep running. Throws CONFIG_INVALID. */
  readonly sync: (settings: readonly AdapterSettings[]) => ReadonlyMap<string, ServerAdapter>;
  readonly workspace: (root: string) => PrimitiveBackend;
  /** A server of catalogs/servers/shipped-servers.ts. */
  readonly shipped: (name: string, tools: readonly RawTool[]) => ServerAdapter;
  readonly mapped: (parts: { inner: ServerAdapter; mapping: Mapping; root: string }) => PrimitiveBackend;
  /** Says that this process serves agents from now on. */
  readonly warmUp: () => void;
  /** Starts these without waiting. */
  readonly startAhead: (servers: readonly string[]) => void;
  /** Ends all servers, including those that no configuration has any more. */
  readonly stop: () => Promise<void>;
}

interface KeptServer {
  readonly config: ServerConfig;
  readonly root: string;
  readonly served: ServedServer;
}

type KeptWorkspace = Pick<KeptServer, 'root' | 'served'>;

/** All servers of a process. */
export class Backends {
  readonly #make: BackendMakers;
  #kept: ReadonlyMap<string, KeptServer> = new Map();
  #workspace: KeptWorkspace | undefined;
  /** Made for a configuration that is not in force yet. */
  #nextWorkspace: KeptWorkspace | undefined;
  readonly #shipped = new Map<string, { readonly served: ServedServer; readonly tools: readonly RawTool[] }>();
  /** Workspaces of earlier configurations. */
  readonly #replaced = new Set<ServedServer>();
  #isWarm = false;
  /** Those that start with the facade. */
  #eager: readonly string[] = [];

  constructor(make: BackendMakers) {
    this.#make = make;
  }

  /**
   * Returns the servers of a configuration by name: the same objects as before if nothing changed. `confine` returns
   * what rules forbid to the program of a server. Throws CONFIG_INVALID; then nothing has changed.
   */
  serve(config: Config, confine: (server: string) => Confinement): ReadonlyMap<string, ServedServer> {
    const adapters = this.#make.sync([...config.servers.values()].map((server) => adapterSettings(server, confine)));
    const kept = new Map<string, KeptServer>();
    for (const server of config.servers.values())
      kept.set(server.name, this.#reuseOrMake(server, adapters.get(server.name) as ServerAdapter, config.workspace));
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

  /** Returns the definitions of the primitives. */
  primitives(config: Config): Promise<readonly RawTool[]> {
    if (this.#workspace?.root === config.workspace) return this.#workspace.served.adapter.listTools();
    this.#nextWorkspace =
      this.#nextWorkspace?.root === config.workspace ? this.#nextWorkspace : this.#makeWorkspace(config.workspace);
    return this.#nextWorkspace.served.adapter.listTools();
  }

  /** Stops the workspaces of replaced configurations. Call it when their last call has ended. */
  async stopReplaced(): Promise<void> {
    const replaced = [...this.#replaced];
    this.#replaced.clear();
    await Promise.all(replaced.map(({ adapter }) => adapter.stop()));
  }

  /** Starts the eager servers, now and after each reload. A facade that serves agents calls it once. */
  warmUp(): void {
    this.#isWarm = true;
    this.#make.warmUp();
    this.startAhead(this.#eager);
  }

  /** Starts servers without waiting, if this facade serves agents. */
  startAhead(servers: readonly string[]): void {
    if (this.#isWarm && servers.length > 0) this.#make.startAhead(servers);
  }

  /** Stops all servers. */
  async stop(): Promise<void> {
    await Promise.all([
      this.#workspace?.served.adapter.stop(),
      ...[...this.#shipped.values()].map(({ served: { adapter } }) => adapter.stop()),
      this.stopReplaced(),
      this.#make.stop(),
    ]);
  }

  #reuseOrMake(config: ServerConfig, adapter: ServerAdapter, root: string): KeptServer {
    const before = this.#kept.get(config.name);
    if (
      before !== undefined &&
      before.served.adapter === adapter &&
      before.root === root &&
      isDeepStrictEqual(before.config, config)
    )
      return before;
    const mapping = config.mapping === undefined ? undefined : loadMapping(config.mapping);
    // The sessions and read marks of a backend belong to its process, so an unchanged backend is reused.
    const canReuse =
      before?.served.backend !== undefined &&
      before.served.adapter === adapter &&
      before.root === root &&
      before.config.mapping === config.mapping;
    const backend =
      mapping === undefined
        ? undefined
        : canReuse
          ? before.served.backend
          : this.#make.mapped({ inner: adapter, mapping, root });
    const served = serveExternal(config, {
      adapter,
      ...(backend === undefined ? {} : { backend }),
      known: mapping?.tools ?? new Map(),
    });
    return { config, root, served };
  }

  /** Returns the internal servers that a profile lists. */
  #serveShipped({ profiles, code }: Config): readonly ServedServer[] {
    const listed = [...SHIPPED.keys()].filter((name) =>
      [...profiles.values()].some(({ servers }) => servers.includes(name)),
    );
    return listed.map((name) => {
      const tools = [...(SHIPPED.get(name)?.tools ?? []), ...(name === CODE ? snippetTools(code.snippets) : [])];
      const known = this.#shipped.get(name);
      if (known !== undefined && isDeepStrictEqual(known.tools, tools)) return known.served;
      const served = serveShipped(this.#make.shipped(name, tools));
      this.#shipped.set(name, { served, tools });
      return served;
    });
  }

  #makeWorkspace(root: string): KeptWorkspace {
    return { root, served: serveInternal(this.#make.workspace(root)) };
  }

  #serveWorkspace(root: string): ServedServer {
    if (this.#workspace?.root === root) return this.#workspace.served;
    if (this.#workspace !== undefined) this.#replaced.add(this.#workspace.served);
    this.#workspace = this.#nextWorkspace?.root === root ? this.#nextWorkspace : this.#makeWorkspace(root);
    this.#nextWorkspace = undefined;
    return this.#workspace.served;
  }
}

/** Adds the confinement of isolated programs only, so that a changed rule restarts no other program. */
function adapterSettings(server: ServerConfig, confine: (server: string) => Confinement): AdapterSettings {
  const settings = Object.entries(server).filter(([key]) => !(FACADE_ONLY as readonly string[]).includes(key));
  // An internal server is always limited to its list of tools, whatever a policy says.
  return {
    ...Object.fromEntries(settings),
    ...(server.trust === 'internal' && { tools: server.tools }),
    ...(isIsolated(server) && { confinement: confine(server.name) }),
  } as unknown as AdapterSettings;
}

/** Returns whether a server is a program in a sandbox or container. */
export function isIsolated({ transport, isolation }: Pick<ServerConfig, 'transport' | 'isolation'>): boolean {
  return transport === 'stdio' && isolation !== 'direct';
}

/** Returns the owner's own code as tools. */
function snippetTools(snippets: ReadonlyMap<string, SnippetConfig>): readonly RawTool[] {
  return [...snippets].map(([name, { description, input }]) => ({
    name,
    description,
    inputSchema: input ?? NO_ARGUMENTS,
    annotations: { readOnlyHint: false, destructiveHint: true, openWorldHint: true },
  }));
}
