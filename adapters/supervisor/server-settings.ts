/** Owns what an adapter must be told of a server; refuses settings that cannot start whatever anybody says. */

import { TollgateError } from '../../catalogs/errors/error-table.ts';
import type { Confinement } from '../../catalogs/readers/confinement.ts';
import type { RawTool } from '../../catalogs/tools/tool-definition.ts';
import type { LaunchHost } from '../stdio/launch.ts';
import type { OnEvent } from './server-events.ts';

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

/** What an isolated server is given, in the words of VS Code; paths absolute. Nothing else is visible or reachable. */
export interface SandboxSettings {
  readonly filesystem: {
    /** Beside the programs of the system and the server's own folder. Default: none. */
    readonly allowRead: readonly string[];
    /** Default: none; the workspace for a server that serves primitives. */
    readonly allowWrite: readonly string[];
    /** Taken out of what the others allow. */
    readonly denyRead: readonly string[];
    /** Read-only, whatever allows to write there. */
    readonly denyWrite?: readonly string[];
  };
  readonly network: {
    /** Exact hosts, `*.example.org`, each with an optional port. Default: none. */
    readonly allowedDomains: readonly string[];
    /** Never reached, whatever allows it; without a port, on every port. */
    readonly deniedDomains?: readonly string[];
  };
  readonly limits: SandboxLimits;
  /** Image of a container. */
  readonly image?: string;
}

/** Limits of an isolated server. */
export interface SandboxLimits {
  /** Data of one process (sandbox), or of all together (container); default 256 (HE-07). */
  readonly memoryMb: number;
  /** Processes and threads together; default 64. */
  readonly processes: number;
  /** Largest file, and all that /tmp may hold; default 256. */
  readonly fileMb: number;
  /** Processor time of one process; absent: no limit. */
  readonly cpuSeconds?: number;
}

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

/** What every adapter shares. */
export interface AdapterOptions {
  /** What a start needs of the facade around it. */
  readonly host: LaunchHost;
  /** One line of a server's stderr, for its log only: it may hold anything. At most 8 KiB a line and 200 lines a second. */
  readonly onStderr: (name: string, line: string) => void;
  readonly onEvent?: OnEvent;
  /** A server that was to start with the facade did not, and why: for the person who started it. */
  readonly onUnstarted?: (name: string, why: TollgateError) => void;
  /** Why this server may not run now (kill switch, consent that was taken back), asked before each start and each call. */
  readonly halted?: (name: string) => TollgateError | undefined;
  /** Why exactly these settings may not start: asked before anything is done for a start, directly before its program runs, and once more when it does, with the very object that is started. */
  readonly consent?: (settings: ServerSettings) => Promise<TollgateError | undefined>;
  /** Why a tool may not be called as the server defines it now, asked before each call; `list` is what it lists now. */
  readonly admits?: (
    name: string,
    tool: string,
    list: () => readonly RawTool[] | Promise<readonly RawTool[]>,
  ) => Promise<TollgateError | undefined>;
  /** Absent: the cap holds for this process alone. */
  readonly shared?: SharedConnectionSlots;
  /** Names the facade's process in the environment of direct servers, so that a later one finds what it left behind. No `/`. */
  readonly owner?: string;
  /** Default 5 s and 3 s. */
  readonly grace?: StopGrace;
  /** How long an ephemeral server may be idle; default a minute. */
  readonly idleMs?: number;
  /** Within this time after a time-out a server must show life; default 5 s. */
  readonly livenessMs?: number;
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
