/** Owns what rules on paths and hosts mean to a program that acts without asking: data, made by policy, obeyed by sandboxes; decides nothing. */

/** Globs of paths: `*` within a name, `**` for any number of names, none included. Nothing else is special. */
export interface PathGlobs {
  /** For paths in the workspace, relative to it. */
  readonly inside: readonly string[];
  /** For paths outside of it, absolute. */
  readonly outside: readonly string[];
}

/** What a program in a sandbox loses of what its settings give it. It never gains anything. */
export interface Confinement {
  /** What lies there cannot be read, nor changed. */
  readonly hidden: PathGlobs;
  /** What lies there cannot be changed. */
  readonly fixed: PathGlobs;
  /** Never reached, whatever is allowed: a host, `*.host` for all below it, or `*`, each for all ports or with `:port`. */
  readonly closedHosts: readonly string[];
}

const NOWHERE: PathGlobs = { inside: [], outside: [] };
/** Closes nothing. */
export const NO_CONFINEMENT: Confinement = { hidden: NOWHERE, fixed: NOWHERE, closedHosts: [] };
