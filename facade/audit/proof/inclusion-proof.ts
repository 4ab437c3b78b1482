/** Proofs that records are in the signed tree, for someone who has neither the log nor Tollgate. */
import { createPublicKey, type KeyObject } from 'node:crypto';
import { join } from 'node:path';
import { readLines } from '../chain-lines.ts';
import { AuditTree, type Span } from './audit-tree.ts';
import { inclusionPath, leafHash, rootOfPath } from './merkle-tree.ts';
import { parseNote, verifierKey } from './signed-note.ts';

/** A record, and where it is in its log. */
export interface PlacedRecord {
  readonly file: string;
  readonly offset: number;
  /** Without its newline. */
  readonly line: string;
}

/** The proof of one record: its number in the tree, and the hashes that lead to the root (base64), the lowest first. */
export interface RecordProof {
  readonly line?: string;
  readonly leaf: number;
  readonly path: readonly string[];
}

/**
 * The form of a proof, `proofs.json`. Where the records are in `records.jsonl` next to it, `records` has one entry for
 * each line of that file, null for one that is not signed, and no `line`.
 */
export interface ProofDocument {
  readonly v: 1;
  /** The note that all records lead to, the cosignature of a witness, and the verifier key of the log. */
  readonly checkpoint?: string;
  readonly cosignature?: string;
  readonly key?: string;
  readonly records: readonly (RecordProof | null)[];
}

/**
 * Proves records against the last checkpoint. A record after it, or one that is not what was signed, gets null. `key`:
 * of the log, if it is known. Throws STATE_FAILED.
 */
export function proveRecords(
  folder: string,
  records: readonly PlacedRecord[],
  { key, withLines }: { readonly key?: KeyObject; readonly withLines: boolean },
): ProofDocument {
  const tree = AuditTree.open(folder);
  const last = tree?.last;
  const note = parseNote(last?.note ?? '');
  try {
    if (tree === undefined || last === undefined || note === undefined)
      return { v: 1, records: records.map(() => null) };
    const { origin, root } = note.checkpoint;
    const prove = (record: PlacedRecord): RecordProof | null => {
      const span = tree.spanAt(record.file, record.offset);
      const leaf = span === undefined ? undefined : leafOf(folder, span, record.offset);
      if (leaf === undefined || leaf >= last.size) return null;
      const path = inclusionPath(leaf, last.size, tree.node);
      const found = rootOfPath(leafHash(Buffer.from(record.line)), { index: leaf, size: last.size }, path);
      if (found?.toString('base64') !== root) return null;
      return { ...(withLines && { line: record.line }), leaf, path: path.map((one) => one.toString('base64')) };
    };
    return {
      v: 1,
      checkpoint: last.note,
      ...(last.cosignature !== '' && { cosignature: last.cosignature }),
      ...(key !== undefined && { key: verifierKey(origin, createPublicKey(key)).text }),
      records: records.map(prove),
    };
  } finally {
    tree?.close();
  }
}

/** Returns the number of the leaf of the line at a byte of a file; undefined if no line begins there. */
function leafOf(folder: string, { file, leaf, offset: from }: Span, offset: number): number | undefined {
  let at = leaf;
  for (const line of readLines(join(folder, file), from)) {
    if (line.offset >= offset) return line.offset === offset ? at : undefined;
    at += 1;
  }
  return undefined;
}
