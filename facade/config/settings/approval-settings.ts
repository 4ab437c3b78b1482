/** Owns the settings of call approvals: how long a call waits for a person, and how long a request or a consent stands; the schema has refused other forms already. */

import type { ApprovalsConfig } from '../config.ts';
import type { WrittenConfig } from '../written-config.ts';

const DEFAULTS: ApprovalsConfig = { waitMs: 45_000, expireMs: 600_000 };

/** The settings with their defaults; the schema names the same ones. */
export function buildApprovals(written: WrittenConfig['approvals'] = {}): ApprovalsConfig {
  return { ...DEFAULTS, ...written };
}
