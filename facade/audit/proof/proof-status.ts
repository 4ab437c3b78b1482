/** How far the log is signed, cheap enough to ask every few seconds: only what was appended since is looked at. */
import { closeSync, openSync, readSync, statSync } from 'node:fs';
import { asTollgateError } from '../../../catalogs/errors/error-table.ts';
import { unlessUnreadable } from '../../../catalogs/readers/missing-files.ts';
import { listParts } from '../chain-lines.ts';
import { AuditTree } from './audit-tree.ts';
import { isKeyInState, type SigningConfig } from './signing-key.ts';

/** How far the log is signed. Nothing is verified for it. */
export interface ProofStatus {
  readonly origin?: string;
  /** The replica of a fleet that wrote the log. */
  readonly replica?: string;
  /** The last checkpoint: when it was signed (ISO, by the clock of this machine), and its number of records. */
  readonly last?: { readonly at: string; readonly size: number };
  /** Records after it. `atLeast`: there are more, which were not counted. */
  readonly unsigned: number;
  readonly atLeast?: true;
  /** The key is in the state folder, or next to the log. */
  readonly keyInState: boolean;
  /** `confirmed`: the records that the witness has cosigned; absent for a witness without a key. */
  readonly witness?: { readonly confirmed?: number };
  /** Why the tree cannot be read. */
  readonly fault?: string;
}

/** More bytes are not read to count records. */
const MAX_BYTES = 16 * 1024 * 1024;
const CHUNK_BYTES = 256 * 1024;
const BUSY_MS = 50;

/** Returns the status of a log. `state`: the state folder. Never throws for a tree that is missing or damaged. */
export function proofStatus({
  state,
  audit: { folder, signing, replica },
}: {
  readonly state: string;
  readonly audit: { readonly folder: string; readonly signing: SigningConfig; readonly replica?: string };
}): ProofStatus {
  const keyInState = isKeyInState({ state, signing }, folder);
  try {
    const tree = AuditTree.open(folder, BUSY_MS);
    try {
      const ends = new Map([...(tree?.ends ?? [])].map(([file, { end }]) => [file, end]));
      const last = tree?.last;
      const confirmed = signing.witness?.key === undefined ? undefined : (tree?.lastCosigned?.size ?? 0);
      return {
        ...(tree !== undefined && { origin: tree.origin }),
        ...(replica !== undefined && { replica }),
        ...(last !== undefined && { last: { at: last.at, size: last.size } }),
        ...countUnsigned(folder, ends),
        keyInState,
        ...(signing.witness !== undefined && { witness: confirmed === undefined ? {} : { confirmed } }),
      };
    } finally {
      tree?.close();
    }
  } catch (thrown) {
    return { ...countUnsigned(folder, new Map()), keyInState, fault: asTollgateError(thrown).message };
  }
}

function countUnsigned(folder: string, ends: ReadonlyMap<string, number>): Pick<ProofStatus, 'unsigned' | 'atLeast'> {
  let [unsigned, bytes] = [0, 0];
  for (const { name, path } of listParts(folder)) {
    const from = ends.get(name) ?? 0;
    const size = unlessUnreadable(() => statSync(path).size) ?? 0;
    if (size <= from) continue;
    if (bytes > MAX_BYTES) return { unsigned, atLeast: true };
    const to = Math.min(size, from + MAX_BYTES - bytes + 1);
    unsigned += unlessUnreadable(() => countLines(path, from, to)) ?? 0;
    bytes += to - from;
  }
  return { unsigned, ...(bytes > MAX_BYTES && { atLeast: true }) };
}

function countLines(path: string, from: number, to: number): number {
  const fd = openSync(path, 'r');
  const chunk = Buffer.allocUnsafe(CHUNK_BYTES);
  let count = 0;
  try {
    for (let at = from; at < to; ) {
      const read = readSync(fd, chunk, 0, Math.min(chunk.length, to - at), at);
      if (read === 0) break;
      for (let end = chunk.indexOf(10); end >= 0 && end < read; end = chunk.indexOf(10, end + 1)) count += 1;
      at += read;
    }
    return count;
  } finally {
    closeSync(fd);
  }
}
