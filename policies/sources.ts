/** Owns what is said of a source of policy beside its content: the mode in which it counts, and the server of a bundle. */

/** How much a rule counts: only `enforce` changes decisions; `warn` tells the caller too what it would have said. */
export type Mode = 'enforce' | 'warn' | 'shadow' | 'off';

/** Modes as people write them: `deny` and `dryrun` are Gatekeeper's names. */
export const MODE_NAMES = {
  enforce: 'enforce',
  warn: 'warn',
  shadow: 'shadow',
  off: 'off',
  deny: 'enforce',
  dryrun: 'shadow',
} as const satisfies Readonly<Record<string, Mode>>;

/** The mode of a source: `modes` for some callers, the first entry that fits counts; `mode` for all others. */
export interface ModeSettings {
  readonly mode: Mode;
  readonly modes?: readonly ModeFor[];
}

/** A mode for the callers of a profile, of an origin, or of both together. */
export interface ModeFor {
  readonly profile?: string;
  readonly origin?: string;
  readonly mode: Mode;
}

/** Where a bundle is fetched from, so that many machines share one policy. */
export interface BundleServer {
  /** https, or http on the loopback address; holds no user and no password. */
  readonly url: string;
  /** Milliseconds between two questions for a newer one. */
  readonly pollMs: number;
  /** Sent as bearer token; a secret. */
  readonly token?: string;
  /** Files of public keys (PEM), absolute. Given: a bundle that none of them signed is refused. */
  readonly keys?: readonly string[];
  /** The scope that the signature must name. */
  readonly scope?: string;
}
