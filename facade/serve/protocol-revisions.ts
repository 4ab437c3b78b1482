/** Owns which protocol revisions are spoken and to which era each belongs; refuses to know what a message means. */

/**
 * Revisions of one era share a handshake. `legacy` opens with `initialize` and keeps a session. The stateless era
 * that begins with 2026-07-28 becomes a second member here, a row below and a dispatch of its own.
 */
export type Era = 'legacy';

/** The revision that Tollgate offers when it is asked for one it does not know. */
const OURS = '2025-11-25';

const REVISIONS: ReadonlyMap<string, Era> = new Map([
  ['2024-11-05', 'legacy'],
  ['2025-03-26', 'legacy'],
  ['2025-06-18', 'legacy'],
  [OURS, 'legacy'],
]);

/** The first message of a client of the stateless era. It falls back to `initialize` when this is an unknown method. */
export const MODERN_PROBE = 'server/discover';

/** The era of a revision as a client names it; a client that names none is legacy. `undefined`: not spoken here. */
export function eraOf(revision: string | undefined): Era | undefined {
  return revision === undefined ? 'legacy' : REVISIONS.get(revision);
}

/** The revision to answer to `initialize`: the asked one when spoken here, else ours, never an error (MCP, lifecycle, version negotiation). */
export function negotiate(asked: unknown): string {
  return typeof asked === 'string' && REVISIONS.has(asked) ? asked : OURS;
}
