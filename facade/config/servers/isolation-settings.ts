/** Owns the shape of what isolated programs are given, every default filled in. */

/** What an isolated program is given, in the words of VS Code; paths absolute and real. */
export interface SandboxConfig {
  readonly filesystem: {
    /** Beside the programs of the system and its own. */
    readonly allowRead: readonly string[];
    readonly allowWrite: readonly string[];
    /** Taken out of both. */
    readonly denyRead: readonly string[];
    /** Read-only, whatever allows to write there; absent: none. */
    readonly denyWrite?: readonly string[];
  };
  readonly network: {
    readonly allowedDomains: readonly string[];
    /** Never reached, whatever is allowed; absent: none. */
    readonly deniedDomains?: readonly string[];
  };
  readonly limits: {
    /** All memory of a sandbox or container; data of each process where a machine has no control groups for it. */
    readonly memoryMb: number;
    /** Processes and threads together. */
    readonly processes: number;
    /** Largest file, and all that /tmp may hold. */
    readonly fileMb: number;
    /** Processor time of one process, seconds; absent: no limit. */
    readonly cpuSeconds?: number;
  };
  /** Of a container. */
  readonly image?: string;
}

/** How commands of the internal workspace run. */
export interface BashConfig {
  readonly isolation: 'direct' | 'sandbox';
  /** The owner accepts, on a platform without descriptors for paths, that a command can swap a link between judging and opening. */
  readonly acceptPathRaces: boolean;
  readonly sandbox: SandboxConfig;
}
