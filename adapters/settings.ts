/** Owns what an adapter must be told of a server; refuses servers that nobody has approved as they would run. */
import { TollgateError } from '../catalogs/errors.ts';
import type { LaunchHost } from './launch.ts';

/** One external server; the loaded configuration satisfies it. Times in milliseconds. */
export interface ServerSettings {
  readonly name: string;
  readonly transport: 'stdio' | 'http' | 'sse';
  readonly command?: string;
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  readonly cwd?: string;
  readonly url?: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly isolation?: 'direct' | 'sandbox' | 'container';
  readonly sandbox?: SandboxSettings;
  readonly approved: boolean;
  readonly connectTimeoutMs: number;
  /** How often a process that ended, or did not start, is started again while this adapter lives (HA-08). */
  readonly maxRetries: number;
  /** First pause before a remote server is tried again; doubles up to 30 s. */
  readonly reconnectBackoffMs: number;
  readonly unusable?: string;
}

/** What an isolated server is given, in the words of VS Code; paths absolute. Nothing else is visible or reachable. */
export interface SandboxSettings {
  readonly filesystem: {
    /** Beside the programs of the system and the server's own folder. Default: none. */
    readonly allowRead: readonly string[];
    /** Default: none; the workspace for a server that serves primitives. */
    readonly allowWrite: readonly string[];
    /** Taken out of what the others allow. */
    readonly denyRead: readonly string[];
  };
  /** Exact hosts, `*.example.org`, each with an optional port. Default: none. */
  readonly network: { readonly allowedDomains: readonly string[] };
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
  /** Largest file; default 1024. */
  readonly fileMb: number;
  /** Processor time of one process; absent: no limit. */
  readonly cpuSeconds?: number;
}

/** How long a process may take to end by itself once its input is closed, and then after SIGTERM. */
export interface StopGrace {
  readonly closeMs: number;
  readonly termMs: number;
}

/** What every adapter shares. */
export interface AdapterOptions {
  /** What a start needs of the facade around it. */
  readonly host: LaunchHost;
  /** One line of a server's stderr, for its log only: it may hold anything. At most 8 KiB a line and 200 lines a second. */
  readonly onStderr: (name: string, line: string) => void;
  /** Default 5 s and 3 s. */
  readonly grace?: StopGrace;
}

/**
 * Why a server may not start, or undefined. A process runs with all of the user's rights until it can be isolated, so
 * both words must stand in tollgate.yaml; a remote server has no process here, so its approval is enough.
 */
export function startRefusal(settings: ServerSettings): TollgateError | undefined {
  const { name, unusable } = settings;
  if (unusable !== undefined) return new TollgateError('SERVER_UNAVAILABLE', { detail: `Server "${name}" cannot be used: ${unusable}`, next: 'Mend its entry; `tollgate check` shows it.' });
  const missing: string[] = [];
  if (settings.transport === 'stdio' && settings.isolation !== 'direct') missing.push('isolation: direct');
  if (!settings.approved) missing.push('approved: true');
  if (missing.length === 0) return undefined;
  const lines = missing.map((line) => `\`${line}\``).join(' and ');
  const warning = settings.transport === 'stdio' ? ' It then runs with all of your rights.' : '';
  return new TollgateError('SERVER_UNAVAILABLE', {
    detail: `Server "${name}" is not started, because nobody has approved it as it would run.`,
    next: `In tollgate.yaml write ${lines} under servers.${name}.${warning}`,
  });
}
