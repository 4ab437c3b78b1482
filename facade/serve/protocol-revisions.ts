/** The supported protocol revisions, and the era of each. */

/**
 * Revisions of one era share a handshake. `legacy` begins with `initialize` and has a session. The stateless era that
 * begins with 2026-07-28 will be a second member here, a row below, and its own dispatch.
 */
export type Era = 'legacy';

/** The revision that Tollgate offers if it does not know the requested one. */
const OURS = '2025-11-25';

const REVISIONS: ReadonlyMap<string, Era> = new Map([
  ['2024-11-05', 'legacy'],
  ['2025-03-26', 'legacy'],
  ['2025-06-18', 'legacy'],
  [OURS, 'legacy'],
]);

/**
 * The first message of a client of the stateless era. The client falls back to `initialize` if this method is unknown.
 */
export const MODERN_PROBE = 'server/discover';

/** Returns the era of a revision that a client names; a client that names none is legacy. Undefined: not supported. */
export function eraOf(revision: string | undefined): Era | undefined {
  return revision === undefined ? 'legacy' : REVISIONS.get(revision);
}

/**
 * Returns the revision for the answer to `initialize`: the requested one if it is supported, else Tollgate's, never an
 * error (MCP, lifecycle, version negotiation).
 */
export function negotiate(asked: unknown): string {
  return typeof asked === 'string' && REVISIONS.has(asked) ? asked : OURS;
}
