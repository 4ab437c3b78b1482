/** Owns the shape of a wired facade, so that commands can use one without knowing what it is made of. */
import type { Principal } from '../../policies/port.ts';
import type { Config } from '../config/config.ts';
import type { Consents } from '../consent/servers/server-consents.ts';
import type { Catalog } from '../exposure/catalog.ts';
import type { ServedServer } from '../exposure/served-server.ts';
import type { EventFeed } from '../serve/host/event-feed.ts';
import type { SnapshotServices } from './config-snapshot.ts';
import type { Gateway } from './gateway.ts';

/** A running facade. `config`, `catalog`, `deps` and `serversOf` are those of the configuration that answers now. */
export interface AssembledFacade {
  readonly config: Config;
  readonly gateway: Gateway;
  readonly catalog: Catalog;
  readonly deps: SnapshotServices;
  /** What happened to servers lately. */
  readonly feed: EventFeed;
  /** What people agreed to of servers. */
  readonly consents: Consents;
  /** Starts the eager servers, and waits for none: for a facade that will serve somebody. */
  readonly warmUp: () => void;
  /** Names of the servers in a principal's profiles. */
  readonly serversOf: (principal: Principal) => readonly string[];
  /** Lines for a person at start-up: what was reported on, and who runs with all of the user's rights. */
  readonly notices: readonly string[];
  /** Logs a throw that is not ours: whole there, secrets redacted, opaque to whoever asked. */
  readonly onFault: (thrown: unknown) => void;
  /**
   * Reads a configuration, compiles it, and swaps it in whole; answers with what there is to say about it that is new. On a
   * throw nothing has changed, and the audit says so. Throws as `Assemble`, and CONFIG_INVALID for what a running process
   * cannot change: state, audit, limits, and the address while it is `listening`. Reloads run one after the other.
   */
  readonly reload: (read: () => Config, listening: boolean) => Promise<readonly string[]>;
}

/** Wires a configuration. Throws CONFIG_INVALID, POLICY_INVALID, OPA_MISSING, STATE_TOO_NEW, STATE_FAILED, AUDIT_FAILED. */
export type AssembleFacade = (
  config: Config,
  options: { readonly opa?: string; readonly onLog?: (line: string) => void },
) => Promise<AssembledFacade>;

/** What a policy that was checked came to. `rules`: those in YAML that the user wrote, of all files, without those that are off. */
export interface CheckedPolicy {
  readonly revision: string;
  readonly rules: number;
  /** Rules on paths or hosts that do not bind commands and servers: a line each, or one for many. */
  readonly unbound: readonly string[];
  /** Servers that nobody approved yet, so that nothing is known of what rules name of them: a line each. */
  readonly unjudged: readonly string[];
  /** Members of `expose` in Rego that show nothing, by the approved definitions: a line each. */
  readonly unshown: readonly string[];
}

/** The servers of a configuration by name, none of them started: what their tools mean, for calls that are only written down. */
export type ServeOffline = (config: Config) => Promise<ReadonlyMap<string, ServedServer>>;

/** Compiles the policy of a configuration without starting or writing anything. Throws as `Assemble`. */
export type CheckPolicy = (config: Config, options: { readonly opa?: string }) => Promise<CheckedPolicy>;
