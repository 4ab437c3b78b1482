/** The types of what isolated programs get, with every default filled in. */

/** What an isolated program gets. The names are those of VS Code; paths are absolute and real. */
export interface SandboxConfig {
  readonly filesystem: {
    /** In addition to the programs of the system and its own. */
    readonly allowRead: readonly string[];
    readonly allowWrite: readonly string[];
    /** Removed from both. */
    readonly denyRead: readonly string[];
    /** Read-only, whatever allows writing there; absent: none. */
    readonly denyWrite?: readonly string[];
  };
  readonly network: {
    readonly allowedDomains: readonly string[];
    /** Never reached, whatever is allowed; absent: none. */
    readonly deniedDomains?: readonly string[];
  };
  readonly limits: {
    /** All memory of a sandbox or container; the data of each process if the machine has no control groups for it. */
    readonly memoryMb: number;
    /** Processes and threads together. */
    readonly processes: number;
    /** Largest file, and everything in /tmp together. */
    readonly fileMb: number;
    /** CPU time of one process, seconds; absent: no limit. */
    readonly cpuSeconds?: number;
  };
  /** The image of a container. */
  readonly image?: string;
}

/** How commands of the internal workspace run. */
export interface BashConfig {
  readonly isolation: 'direct' | 'sandbox';
  /**
   * The owner accepts, on a platform without descriptors for paths, that a command can swap a link between the decision
   * and the opening.
   */
  readonly acceptPathRaces: boolean;
  readonly sandbox: SandboxConfig;
}
