/** Begins the tree of a log, with a record that says so. */

import { parseRecord } from '../audit-chain.ts';
import type { AuditEntry } from '../audit-entry.ts';
import { listParts, readLines } from '../chain-lines.ts';
import { AuditTree } from './audit-tree.ts';

/**
 * Makes sure that the log has a tree. A new one is recorded, with the name of the tree that earlier records know, so
 * that a tree that was lost or removed cannot be replaced silently. Throws STATE_FAILED, AUDIT_FAILED.
 */
export function beginTree(folder: string, record: (entry: AuditEntry) => void): void {
  const { tree, isNew } = AuditTree.begin(folder);
  try {
    if (!isNew) return;
    const replaces = lastKnownTree(folder);
    record({
      type: 'proof',
      event: 'begun',
      outcome: 'allow',
      origin: tree.origin,
      ...(replaces !== undefined && { replaces }),
    });
  } finally {
    tree.close();
  }
}

/** Returns the newest tree that the first record of a chain names. */
function lastKnownTree(folder: string): string | undefined {
  for (const { path, part } of listParts(folder).reverse()) {
    if (part > 0) continue;
    for (const { bytes } of readLines(path)) {
      const record = parseRecord(bytes);
      if (record?.type === 'opened' && typeof record.tree?.origin === 'string') return record.tree.origin;
      break;
    }
  }
  return undefined;
}
