/** The settings of a server that adapters need, and the check whether a server can start with them. */

import { type Refusal, TollgateError } from '../../catalogs/errors/error-table.ts';
import type { Confinement } from '../../catalogs/readers/confinement.ts';
import type { SandboxSettings } from '../sandbox/sandbox-spec.ts';

/** The settings of a server outside of this process, as the configuration gives them. Times are in milliseconds. */
export interface ServerSettings {
  readonly name: string;
  readonly transport: 'stdio' | 'http' | 'sse' | 'unix';
  readonly command?: string;
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  /** Profile → variables that differ for its sessions. Sessions with other variables use another process. */
  readonly environments?: Readonly<Record<string, Readonly<Record<string, string>>>>;
  readonly cwd?: string;
  readonly url?: string;
  /** For `unix`: an absolute path. */
  readonly socket?: string;
  /** Default: external. An internal server offers only its allowed tools, and only as they were pinned (CY-02). */
  readonly trust?: 'internal' | 'external';
  /** Used for internal servers. For external servers, the policy uses them. */
  readonly tools?: { readonly allow?: readonly string[] };
  readonly pin?: string;
  readonly headers: Readonly<Record<string, string>>;
  /** How to sign in to a remote server. Absent: as its metadata says, with a client that registers itself. */
  readonly oauth?: OAuthSettings;
  /** Sources of its secrets other than the vault. They can run programs, so they belong to what is approved. */
  readonly secretSources?: Readonly<Record<string, unknown>>;
  readonly isolation?: 'direct' | 'sandbox' | 'container';
  readonly sandbox?: SandboxSettings;
  /** Paths and hosts that rules close, although the isolation of the server would allow them. Absent: none. */
  readonly confinement?: Confinement;
  /** What the server may ask of clients during a call, if the policy allows it. Absent: nothing. */
  readonly asks?: readonly ('sampling' | 'elicitation' | 'roots')[];
  /** Whether each session has its own process or connection. Default: `shared`. */
  readonly process?: 'shared' | 'session';
  /** Default `on-demand`. */
  readonly lifetime?: ServerLifetime;
  readonly connectTimeoutMs: number;
  /**
   * For a process: the number of restarts that calls of one session may cause within ten minutes (HA-08). For other
   * servers: the number of attempts to reconnect in the background.
   */
  readonly maxRetries: number;
  /** The first pause before reconnecting to a remote server. It doubles up to 30 s. */
  readonly reconnectBackoffMs: number;
  /**
   * Time between two pings of an idle connection, for servers that are not processes of Tollgate. 0 or absent: none.
   */
  readonly healthCheckMs?: number;
  /** Why the settings cannot be used, for example an invalid entry of a client file. Absent: they can be used. */
  readonly unusable?: string;
}

/** An OAuth client that was registered by hand, and limits of the sign-in. */
export interface OAuthSettings {
  /** Default: `authorization_code`, where a person consents in a browser. The others need no person. */
  readonly grant: 'authorization_code' | 'client_credentials' | 'enterprise';
  /** The issuer where the client is registered. No other issuer is used, so that no other gets the secret. */
  readonly issuer?: string;
  readonly clientId?: string;
  /** May hold `${secret:NAME}`. */
  readonly clientSecret?: string;
  /** Proves the client instead of a secret (RFC 7523 §2.2): PKCS #8 as PEM, or a JWK. May hold `${secret:NAME}`. */
  readonly privateKey?: string;
  /** The only scopes that are requested. Absent: the scopes that the server names. */
  readonly scopes?: readonly string[];
  /** The port of 127.0.0.1 to which the browser returns. Default: any free port. */
  readonly callbackPort?: number;
  /** For the grant `enterprise`. */
  readonly enterprise?: EnterpriseSettings;
}

/** The identity provider of an enterprise, which vouches for the user at the issuer of a server. */
export interface EnterpriseSettings {
  /** No one else gets the client, its secret and the ID token. */
  readonly issuer: string;
  readonly clientId: string;
  readonly clientSecret?: string;
  readonly privateKey?: string;
  /** The ID token of the user. May hold `${secret:NAME}`. */
  readonly idToken: string;
}

/** Returns the texts of a sign-in that may be secret or refer to a secret, by their place in the settings. */
export function signInSecrets(oauth: OAuthSettings | undefined): Readonly<Record<string, string>> {
  const { clientSecret, privateKey, enterprise } = oauth ?? {};
  const texts = {
    clientSecret,
    privateKey,
    'enterprise.clientSecret': enterprise?.clientSecret,
    'enterprise.privateKey': enterprise?.privateKey,
    'enterprise.idToken': enterprise?.idToken,
  };
  return Object.fromEntries(Object.entries(texts).filter((entry): entry is [string, string] => entry[1] !== undefined));
}

/**
 * How long a server runs, from short to long. `ephemeral`: until it was idle for a minute, or all sessions that used it
 * have ended. `on-demand`: until the facade exits, or another server needs its connection. `keep-alive`: always;
 * Tollgate restarts it.
 */
export const SERVER_LIFETIMES = ['ephemeral', 'on-demand', 'keep-alive'] as const;
export type ServerLifetime = (typeof SERVER_LIFETIMES)[number];

/** Milliseconds that a process may take to end after its input is closed, and then after SIGTERM. */
export interface StopGrace {
  readonly closeMs: number;
  readonly termMs: number;
}

/** The connections that all processes of one state folder share. Its errors make a start fail. */
export interface SharedConnectionSlots {
  /**
   * Takes a connection. Returns the function that returns it, or undefined if all are taken. Connections of processes
   * that died are free again.
   */
  take(): Promise<(() => void) | undefined>;
  /** Asks the other processes to close an idle connection. */
  ask(): Promise<void>;
}

/** Creates a SERVER_UNAVAILABLE. `fault` completes "Server x …". */
export function serverUnavailable(name: string, fault: string, more: Omit<Refusal, 'detail'> = {}): TollgateError {
  return new TollgateError('SERVER_UNAVAILABLE', { detail: `Server "${name}" ${fault}.`, ...more });
}

/** Returns why a server cannot start with these settings, or undefined. */
export function startRefusal(settings: ServerSettings): TollgateError | undefined {
  const { name, unusable } = settings;
  if (unusable !== undefined)
    return new TollgateError('SERVER_UNAVAILABLE', {
      detail: `Server "${name}" cannot be used: ${unusable}`,
      next: 'Correct its entry. `tollgate check` shows where it is.',
      retryable: false,
    });
  return fetchRefusal(settings);
}

/** Programs that fetch their package at every start. In a sandbox without network they would hang until the timeout. */
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
  const fault = `is not started: ${program} fetches its package when it starts, and its sandbox has no network`;
  return serverUnavailable(name, fault, {
    next:
      `Install the package, and write its own program under servers.${name} (command: node, args: [path of its ` +
      'file]); or name the domains that it needs under sandbox.network.',
    retryable: false,
  });
}
