/**
 * What rules on paths and hosts mean for a program that acts without asking: data that policy makes and sandboxes
 * enforce.
 */

/** Globs of paths: `*` within a name, `**` for any number of names, including none. Nothing else is special. */
export interface PathGlobs {
  /** For paths in the workspace, relative to it. */
  readonly inside: readonly string[];
  /** For paths outside of it, absolute. */
  readonly outside: readonly string[];
}

/** Paths that are closed but for some, by a rule with exceptions. A folder hands its state down. */
export interface PathClosing {
  readonly closure: 'hidden' | 'fixed';
  readonly close: PathGlobs;
  /** Takes precedence over `close`: paths that match `paths` and not `except` of one entry are open. */
  readonly open: readonly { readonly paths: PathGlobs; readonly except: PathGlobs }[];
}

/** What a program in a sandbox loses of what its settings allow. It never gains anything. */
export interface Confinement {
  /** Files that can be neither read nor changed. */
  readonly hidden: PathGlobs;
  /** Files that cannot be changed. */
  readonly fixed: PathGlobs;
  /** Paths that are closed with exceptions. Absent: none. What another rule closes stays closed. */
  readonly excepting?: readonly PathClosing[];
  /** Never reached, even if allowed: a host, `*.host` for all below it, or `*`, each for all ports or with `:port`. */
  readonly closedHosts: readonly string[];
}

const NOWHERE: PathGlobs = { inside: [], outside: [] };
/** Closes nothing. */
export const NO_CONFINEMENT: Confinement = { hidden: NOWHERE, fixed: NOWHERE, closedHosts: [] };
