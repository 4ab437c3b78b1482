/** Owns what an adapter must be told of a server; refuses settings that cannot start whatever anybody says. */

import { TollgateError } from '../../catalogs/errors/error-table.ts';
import type { Confinement } from '../../catalogs/readers/confinement.ts';
import type { SandboxSettings } from '../sandbox/sandbox-spec.ts';

/** One server that is no part of this process; the loaded configuration satisfies it. Times in milliseconds. */
export interface ServerSettings {
  readonly name: string;
  readonly transport: 'stdio' | 'http' | 'sse' | 'unix';
  readonly command?: string;
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  readonly cwd?: string;
  readonly url?: string;
  /** Of `unix`: absolute. */
  readonly socket?: string;
  /** Absent: external. An internal one offers its allowed tools only, and only as they were pinned (CY-02). */
  readonly trust?: 'internal' | 'external';
  /** Looked at for internal servers; those of others are the policy's. */
  readonly tools?: { readonly allow?: readonly string[] };
  readonly pin?: string;
  readonly headers: Readonly<Record<string, string>>;
  /** How a sign-in to a remote server is made. Absent: as its metadata says, with a client that registers itself. */
  readonly oauth?: OAuthSettings;
  /** Places of its secrets, where one is not the vault: they decide what runs too. */
  readonly secretSources?: Readonly<Record<string, unknown>>;
  readonly isolation?: 'direct' | 'sandbox' | 'container';
  readonly sandbox?: SandboxSettings;
  /** What rules close to its program, of all that its isolation gives it. Absent: nothing. */
  readonly confinement?: Confinement;
  /** Default `on-demand`. */
  readonly lifetime?: ServerLifetime;
  readonly connectTimeoutMs: number;
  /** How often a process that ended, or did not start, is started again by calls of one session within ten minutes (HA-08); of a server that is not a process of ours, how often it is connected to again in the background. */
  readonly maxRetries: number;
  /** First pause before a remote server is tried again; doubles up to 30 s. */
  readonly reconnectBackoffMs: number;
  /** Between two pings of a connection on which nothing happens, for servers that are no process of ours; 0 or absent: none. */
  readonly healthCheckMs?: number;
  readonly unusable?: string;
}

/** A client that was registered by hand, and its limits. */
export interface OAuthSettings {
  /** Default: a person consents in a browser. */
  readonly grant: 'authorization_code' | 'client_credentials';
  /** Whom the client is registered with. Nobody else is asked, so that its secret goes to nobody else. */
  readonly issuer?: string;
  readonly clientId?: string;
  /** May hold `${secret:NAME}`. */
  readonly clientSecret?: string;
  /** All that is ever asked for; absent: what the server names. */
  readonly scopes?: readonly string[];
  /** Port of 127.0.0.1 to which the browser comes back; default: any. */
  readonly callbackPort?: number;
}

/**
 * How long a server stays, from short to long. `ephemeral`: until it was idle for a minute, or the sessions that used it have ended;
 * `on-demand`: until the facade ends or another server needs its connection; `keep-alive`: always, and it comes back by itself.
 */
export const SERVER_LIFETIMES = ['ephemeral', 'on-demand', 'keep-alive'] as const;
export type ServerLifetime = (typeof SERVER_LIFETIMES)[number];

/** How long a process may take to end by itself once its input is closed, and then after SIGTERM. */
export interface StopGrace {
  readonly closeMs: number;
  readonly termMs: number;
}

/** The connections of all processes of one state folder. Its errors stop a start. */
export interface SharedConnectionSlots {
  /** One of them, or undefined when all are taken; the function gives it back. One of a process that died is free again. */
  take(): Promise<(() => void) | undefined>;
  /** Asks the other processes to give up an idle one. */
  ask(): Promise<void>;
}

/** Why a server cannot start as it is set, or undefined. */
export function startRefusal(settings: ServerSettings): TollgateError | undefined {
  const { name, unusable } = settings;
  if (unusable !== undefined)
    return new TollgateError('SERVER_UNAVAILABLE', {
      detail: `Server "${name}" cannot be used: ${unusable}`,
      next: 'Mend its entry; `tollgate check` shows it.',
      retryable: false,
    });
  return fetchRefusal(settings);
}

/** Programs that fetch their package at every start; in a sandbox without a way out they would be waited for in vain. */
const FETCHERS = /^(npx|bunx|pnpx|uvx|pipx)$/;

function fetchRefusal({
  name,
  transport,
  isolation,
  command = '',
  sandbox,
}: ServerSettings): TollgateError | undefined {
  const program = command.slice(command.lastIndexOf('/') + 1);
  if (
    transport !== 'stdio' ||
    (isolation ?? 'sandbox') !== 'sandbox' ||
    !FETCHERS.test(program) ||
    (sandbox?.network.allowedDomains.length ?? 0) > 0
  )
    return undefined;
  return new TollgateError('SERVER_UNAVAILABLE', {
    detail: `Server "${name}" is not started: ${program} fetches its package when it starts, and its sandbox has no network.`,
    next: `Install the package, and write its own program under servers.${name} (command: node, args: [path of its file]); or name the domains that it needs under sandbox.network.`,
    retryable: false,
  });
}
