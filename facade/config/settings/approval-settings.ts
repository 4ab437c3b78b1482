/** Reads the settings of call approvals. The schema has validated them. */
import type { ApprovalsConfig } from '../config.ts';
import type { WrittenConfig } from '../written-config.ts';

const DEFAULTS: ApprovalsConfig = { waitMs: 45_000, expireMs: 600_000 };

/** Returns the settings with their defaults; the schema has the same ones. */
export function buildApprovals(written: WrittenConfig['approvals'] = {}): ApprovalsConfig {
  return { ...DEFAULTS, ...written };
}
