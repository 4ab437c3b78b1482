/** Owns the settings of call approvals: how long a call waits for a person, and how long a request or a consent stands; the schema has refused other forms already. */
import type { WrittenConfig } from '../written-config.ts';

/** How people are asked about calls (docs/approvals.md). */
export interface ApprovalsConfig {
  /** Milliseconds that a call waits for its approval before it is refused; default 45 s, below what most clients allow a call. 0: not at all. */
  readonly waitMs: number;
  /** Milliseconds after which what was asked, approved or denied is forgotten; default ten minutes. */
  readonly expireMs: number;
}

const DEFAULTS: ApprovalsConfig = { waitMs: 45_000, expireMs: 600_000 };

/** The settings with their defaults; the schema names the same ones. */
export function buildApprovals(written: WrittenConfig['approvals'] = {}): ApprovalsConfig {
  return { ...DEFAULTS, ...written };
}
