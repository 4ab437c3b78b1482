/** The shape of a wired facade, so that commands can use one without knowing its parts. */
import type { Principal } from '../../policies/port.ts';
import type { AttentionItem } from '../attention/attention-list.ts';
import type { Config } from '../config/config.ts';
import type { Consents } from '../consent/servers/server-consents.ts';
import type { Suspensions } from '../consent/switch/suspensions.ts';
import type { Catalog } from '../exposure/catalog.ts';
import type { ServedServer } from '../exposure/served-server.ts';
import type { EventFeed } from '../serve/host/event-feed.ts';
import type { State } from '../state/state-port.ts';
import type { SnapshotServices } from './config-snapshot.ts';
import type { Gateway } from './gateway.ts';

/** A running facade. `config`, `catalog`, `deps` and `serversOf` belong to the configuration that is in force now. */
export interface AssembledFacade {
  readonly config: Config;
  readonly gateway: Gateway;
  readonly catalog: Catalog;
  readonly deps: SnapshotServices;
  /** The latest events of servers. */
  readonly suspensions: Suspensions;
  readonly feed: EventFeed;
  readonly state: State;
  /** The consents to servers. */
  readonly consents: Consents;
  /** Returns what needs attention, the most serious first. Never rejects. */
  readonly attention: () => Promise<readonly AttentionItem[]>;
  /** Starts the eager servers without waiting, for a facade that will serve agents. */
  readonly warmUp: () => void;
  /** Names of the servers in a principal's profiles. */
  readonly serversOf: (principal: Principal) => readonly string[];
  /** Lines for a person at the start: warnings, and which servers run with all of the user's rights. */
  readonly notices: readonly string[];
  /** Logs an unexpected error completely, with secrets redacted. The caller gets only INTERNAL. */
  readonly onFault: (thrown: unknown) => void;
  /**
   * Reads and compiles a configuration, puts it in force at once, and returns new notices for a person. If it throws,
   * nothing has changed, and the audit records it. Throws the errors of `AssembleFacade`, and CONFIG_INVALID if the
   * file changes what a running process cannot change: state, audit, limits, programs, and the address while it is
   * `listening`. Reloads run one after the other.
   */
  readonly reload: (read: () => Config, listening: boolean) => Promise<readonly string[]>;
}

/**
 * Wires a configuration. Throws CONFIG_INVALID, POLICY_INVALID, OPA_MISSING, STATE_TOO_NEW, STATE_FAILED, AUDIT_FAILED.
 */
export type AssembleFacade = (
  config: Config,
  options: {
    readonly opa?: string;
    readonly onLog?: (line: string) => void;
    /** Other processes of this machine serve the same sessions. */
    readonly isWorker?: boolean;
  },
) => Promise<AssembledFacade>;

/**
 * The result of checking a policy. `rules`: the YAML rules that the user wrote, in all files, without those that are
 * off.
 */
export interface CheckedPolicy {
  readonly revision: string;
  readonly rules: number;
  /** Rules on paths or hosts that do not bind commands and servers, in one or several lines. */
  readonly unbound: readonly string[];
  /** Servers whose tools cannot be compared with the rules, because they are not approved: one line each. */
  readonly unjudged: readonly string[];
  /** Members of `expose` in Rego that show nothing, by the approved definitions: one line each. */
  readonly unshown: readonly string[];
}

/** Returns the servers of a configuration by name without starting any, to judge calls that are not made. */
export type ServeOffline = (config: Config) => Promise<ReadonlyMap<string, ServedServer>>;

/** Compiles the policy of a configuration without starting or writing anything. Throws as `AssembleFacade`. */
export type CheckPolicy = (config: Config, options: { readonly opa?: string }) => Promise<CheckedPolicy>;
