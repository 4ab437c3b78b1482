/** Owns the words for how much one approval may cover (CY-26); refuses to order them other than from narrow to wide. */

/**
 * `call`: this very call, once. For a principal and run, until it expires, `group`: every tool of the server that the same rules ask
 * about, and `server`: all of its tools that rules with this word ask about.
 */
export const APPROVAL_SCOPES = ['call', 'group', 'server'] as const;

/** One of them. */
export type ApprovalScope = (typeof APPROVAL_SCOPES)[number];
