/**
 * The Merkle tree of RFC 6962, section 2.1: hashes of leaves and nodes, the root of a tree of any size, and the path
 * that proves that a leaf is in it.
 */
import { hash } from 'node:crypto';

/** Bytes of a SHA-256 hash. */
export const HASH_BYTES = 32;
const LEAF_PREFIX = Buffer.from([0]);
const NODE_PREFIX = Buffer.from([1]);

/** Returns the root of the complete subtree of 2^level leaves that begins at leaf `index` * 2^level. */
export type ReadNode = (level: number, index: number) => Buffer;

/** Returns the hash of a leaf: the exact bytes of a record's line, without its newline. */
export function leafHash(line: Buffer): Buffer {
  return sha256([LEAF_PREFIX, line]);
}

/** Returns the hash of a node. */
export function nodeHash(left: Buffer, right: Buffer): Buffer {
  return sha256([NODE_PREFIX, left, right]);
}

function sha256(parts: readonly Buffer[]): Buffer {
  return hash('sha256', Buffer.concat(parts), 'buffer');
}

/** Returns the root of the tree of the first `size` leaves. */
export function rootOf(size: number, read: ReadNode): Buffer {
  return size === 0 ? sha256([]) : subtreeRoot(0, size, read);
}

/** Returns the hashes that lead from a leaf to the root of the tree of the first `size` leaves, the leaf's first. */
export function inclusionPath(leaf: number, size: number, read: ReadNode): readonly Buffer[] {
  const path: Buffer[] = [];
  let [start, count] = [0, size];
  while (count > 1) {
    const left = leftSize(count);
    const isLeft = leaf - start < left;
    path.push(isLeft ? subtreeRoot(start + left, count - left, read) : subtreeRoot(start, left, read));
    [start, count] = isLeft ? [start, left] : [start + left, count - left];
  }
  return path.reverse();
}

/** Returns the root that a path leads to; undefined if the path has another length than such a tree has. */
export function rootOfPath(
  leaf: Buffer,
  { index, size }: { readonly index: number; readonly size: number },
  path: readonly Buffer[],
): Buffer | undefined {
  if (!(index >= 0 && index < size)) return undefined;
  const rest = [...path];
  const climb = (at: number, count: number): Buffer | undefined => {
    if (count === 1) return leaf;
    const left = leftSize(count);
    const sibling = rest.pop();
    const below = at < left ? climb(at, left) : climb(at - left, count - left);
    if (sibling === undefined || below === undefined) return undefined;
    return at < left ? nodeHash(below, sibling) : nodeHash(sibling, below);
  };
  const root = climb(index, size);
  return rest.length === 0 ? root : undefined;
}

/** `start` is a multiple of the greatest power of two up to `count`, so complete subtrees are aligned. */
function subtreeRoot(start: number, count: number, read: ReadNode): Buffer {
  const level = Math.log2(count);
  if (Number.isInteger(level)) return read(level, start / count);
  const left = leftSize(count);
  return nodeHash(subtreeRoot(start, left, read), subtreeRoot(start + left, count - left, read));
}

/** The greatest power of two below `count`, which is 2 or more. */
function leftSize(count: number): number {
  return 2 ** Math.floor(Math.log2(count - 1));
}
