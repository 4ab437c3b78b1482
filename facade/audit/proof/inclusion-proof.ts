/** Proofs that records are in the signed tree, for someone who has neither the log nor Tollgate. */
import { createPublicKey, type KeyObject } from 'node:crypto';
import { join } from 'node:path';
import { readLines } from '../chain-lines.ts';
import { AuditTree, isStored, type Span } from './audit-tree.ts';
import { inclusionPath, leafHash, nodeHash, rootOfPath } from './merkle-tree.ts';
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
  const prover = new RecordProver(folder, key);
  try {
    return {
      ...prover.head,
      records: records.map((record) => {
        const proof = prover.prove(record);
        return proof === null || !withLines ? proof : { line: record.line, ...proof };
      }),
    };
  } finally {
    prover.close();
  }
}

/** Lines whose places are kept in memory, 8 bytes each, and nodes of the tree, about 200 bytes each. */
const MAX_LINES = 2_000_000;
const MAX_NODES = 20_000;

/**
 * Proves one record after another against the checkpoint that was the last one at the beginning. It is fast for records
 * that are near each other in the log.
 */
export class RecordProver {
  /** The proof document without its records. */
  readonly head: Omit<ProofDocument, 'records'>;
  readonly #folder: string;
  readonly #tree: AuditTree | undefined;
  readonly #size: number;
  readonly #root: string;
  /** The last span of each file, and the bytes at which the lines of spans begin, by the first leaf. */
  readonly #spans = new Map<string, Span>();
  readonly #starts = new Map<number, Float64Array>();
  #lines = 0;
  readonly #nodes = new Map<string, Buffer>();

  /** Throws STATE_FAILED. */
  constructor(folder: string, key?: KeyObject) {
    this.#folder = folder;
    this.#tree = AuditTree.open(folder);
    const last = this.#tree?.last;
    const note = parseNote(last?.note ?? '');
    this.#size = note === undefined ? 0 : (last?.size ?? 0);
    this.#root = note?.checkpoint.root ?? '';
    const cosignature = last?.cosignature ?? '';
    this.head =
      last === undefined || note === undefined
        ? { v: 1 }
        : {
            v: 1,
            checkpoint: last.note,
            ...(cosignature !== '' && { cosignature }),
            ...(key !== undefined && { key: verifierKey(note.checkpoint.origin, createPublicKey(key)).text }),
          };
  }

  /** Returns null for a record that is not signed, or that is not what was signed. Throws STATE_FAILED. */
  prove({ file, offset, line }: PlacedRecord): RecordProof | null {
    const tree = this.#tree;
    const leaf = tree === undefined || this.#size === 0 ? undefined : this.#leafAt(tree, file, offset);
    if (tree === undefined || leaf === undefined || leaf >= this.#size) return null;
    const path = inclusionPath(leaf, this.#size, (level, index) => this.#node(tree, level, index));
    const found = rootOfPath(leafHash(Buffer.from(line)), { index: leaf, size: this.#size }, path);
    if (found?.toString('base64') !== this.#root) return null;
    return { leaf, path: path.map((one) => one.toString('base64')) };
  }

  close(): void {
    this.#tree?.close();
  }

  /** Returns the number of the leaf of the line at a byte of a file; undefined if no line of the tree begins there. */
  #leafAt(tree: AuditTree, file: string, offset: number): number | undefined {
    const known = this.#spans.get(file);
    const isIn = known !== undefined && offset >= known.offset && offset < known.end;
    const span = isIn ? known : tree.spanAt(file, offset);
    if (span === undefined) return undefined;
    this.#spans.set(file, span);
    const at = indexOf(this.#startsOf(span), offset);
    return at < 0 ? undefined : span.leaf + at;
  }

  #startsOf({ file, leaf, offset, count }: Span): Float64Array {
    const known = this.#starts.get(leaf);
    if (known !== undefined) return known;
    if (this.#lines + count > MAX_LINES) {
      this.#starts.clear();
      this.#lines = 0;
    }
    const starts = new Float64Array(count).fill(Number.POSITIVE_INFINITY);
    let at = 0;
    for (const line of readLines(join(this.#folder, file), offset)) {
      if (at === count) break;
      starts[at] = line.offset;
      at += 1;
    }
    this.#starts.set(leaf, starts);
    this.#lines += count;
    return starts;
  }

  /** Nodes between the stored levels are computed from those below, so each is kept for the next records. */
  #node(tree: AuditTree, level: number, index: number): Buffer {
    if (level === 0) return tree.node(0, index);
    const name = `${level} ${index}`;
    const known = this.#nodes.get(name);
    if (known !== undefined) return known;
    const found = isStored(level)
      ? tree.node(level, index)
      : nodeHash(this.#node(tree, level - 1, 2 * index), this.#node(tree, level - 1, 2 * index + 1));
    if (this.#nodes.size >= MAX_NODES) this.#nodes.clear();
    this.#nodes.set(name, found);
    return found;
  }
}

/** Returns the index of a number in a sorted array, or -1. */
function indexOf(sorted: Float64Array, wanted: number): number {
  let [low, high] = [0, sorted.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((sorted[middle] ?? 0) < wanted) low = middle + 1;
    else high = middle;
  }
  return sorted[low] === wanted ? low : -1;
}
