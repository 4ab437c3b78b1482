/**
 * The heads of other chains, which the first record of a chain names: records that no checkpoint covers yet. A chain
 * that is removed is then missed by those that began after it.
 */
import { closeSync, fstatSync, openSync, readSync } from 'node:fs';
import { unlessUnreadable } from '../../../catalogs/readers/missing-files.ts';
import {
  type ChainHead,
  chainFileName,
  checkSeal,
  parseChainFileName,
  parseRecord,
  type SeenBefore,
} from '../audit-chain.ts';
import { type ChainPart, listParts, readLines } from '../chain-lines.ts';
import { AuditTree } from './audit-tree.ts';
import type { FilesRead, ProofFault } from './proof-verification.ts';
import { parseNote } from './signed-note.ts';

/** A longer list would be cut in the record. */
const MAX_HEADS = 32;
/** The last record of a file is here. */
const TAIL_BYTES = 16 * 1024;
/** A start does not wait for another process. */
const BUSY_MS = 50;

/** Returns what is in a folder now. What cannot be read is left out, because a start must not fail for it. */
export function seenBefore(folder: string): SeenBefore {
  const { tree, sealed }: ReturnType<typeof readTree> = unlessUnreadable(() => readTree(folder)) ?? {};
  const lastParts = new Map(listParts(folder).map((part) => [part.chain, part] as const));
  const heads: ChainHead[] = [];
  let unnamed = 0;
  for (const part of [...lastParts.values()].reverse()) {
    if (heads.length === MAX_HEADS && sealed === undefined) break;
    const head = unlessUnreadable(() => headOf(part, sealed?.get(part.name) ?? 0));
    if (head === undefined) continue;
    if (heads.length < MAX_HEADS) heads.push(head);
    else unnamed += 1;
  }
  return {
    ...(tree !== undefined && { tree }),
    ...(heads.length > 0 && { heads }),
    ...(unnamed > 0 && { unnamed }),
  };
}

function readTree(folder: string): Pick<SeenBefore, 'tree'> & { readonly sealed?: ReadonlyMap<string, number> } {
  const tree = AuditTree.open(folder, BUSY_MS);
  if (tree === undefined) return {};
  try {
    const sealed = new Map([...tree.ends].map(([file, { end }]) => [file, end]));
    const { origin, size, root } = parseNote(tree.last?.note ?? '')?.checkpoint ?? {};
    const isKnown = origin !== undefined && size !== undefined && root !== undefined;
    return { sealed, ...(isKnown && { tree: { origin, size, root } }) };
  } finally {
    tree.close();
  }
}

/** Returns the last whole record of a file; undefined if it is in the tree. */
function headOf({ path, chain }: ChainPart, sealed: number): ChainHead | undefined {
  const fd = openSync(path, 'r');
  try {
    const { size } = fstatSync(fd);
    if (size <= sealed) return undefined;
    const from = Math.max(0, size - TAIL_BYTES);
    const bytes = Buffer.allocUnsafe(size - from);
    const tail = bytes.subarray(0, readSync(fd, bytes, 0, bytes.length, from));
    const end = tail.lastIndexOf(10);
    if (from + end + 1 <= sealed) return undefined;
    const line = tail.subarray(end > 0 ? tail.lastIndexOf(10, end - 1) + 1 : 0, Math.max(0, end));
    const hash = checkSeal(line);
    const [, seq] = /^\{"v":\d+,"seq":(\d{1,15}),/.exec(line.toString('latin1', 0, 32)) ?? [];
    return hash === undefined || seq === undefined ? undefined : { chain, seq: Number(seq), hash };
  } finally {
    closeSync(fd);
  }
}

/** The records that chains saw in others when they began, and that no checkpoint covered then. */
export class SeenHeads {
  /** By chain and number. `by`: the file that saw it. */
  readonly #heads = new Map<string, Map<number, { readonly hash: string; readonly by: string }>>();

  /** Reads the first record of each chain. It is verified later; a changed one is a fault of its chain. */
  constructor(parts: readonly ChainPart[]) {
    for (const { name, path, part } of parts) {
      const [first] = part > 0 ? [] : readLines(path);
      const record = first === undefined ? undefined : parseRecord(first.bytes);
      const heads: unknown = record?.type === 'opened' ? record.heads : undefined;
      for (const head of Array.isArray(heads) ? (heads as readonly unknown[]) : []) this.#add(head, name);
    }
  }

  /** Returns the fault of a record that is another one than a later chain saw. */
  check(chain: string, seq: number, hash: string): string | undefined {
    const claims = this.#heads.get(chain);
    const claim = claims?.get(seq);
    if (claim === undefined) return undefined;
    claims?.delete(seq);
    return claim.hash === hash ? undefined : `the record is another one than ${claim.by} saw when it began`;
  }

  /** Returns the faults of records that are missing, without those that are archived. */
  missing(
    chains: readonly { readonly chain: string; readonly from?: number }[],
    { moved, broken }: Pick<FilesRead, 'moved' | 'broken'>,
  ): readonly ProofFault[] {
    const from = new Map(chains.map((chain) => [chain.chain, chain.from ?? 1]));
    const known = new Set([...moved, ...broken].map((file) => parseChainFileName(file)?.chain));
    return [...this.#heads].flatMap(([chain, claims]) =>
      known.has(chain)
        ? []
        : [...claims]
            .filter(([seq]) => seq >= (from.get(chain) ?? 1))
            .slice(0, 1)
            .map(([seq, { by }]) => ({
              file: chainFileName(chain, 0),
              seq,
              what: `${from.has(chain) ? 'the record' : 'the chain'} is missing: ${by} saw it when it began`,
            })),
    );
  }

  #add(head: unknown, by: string): void {
    const { chain, seq, hash } = (head ?? {}) as { chain?: unknown; seq?: unknown; hash?: unknown };
    if (typeof chain !== 'string' || typeof seq !== 'number' || typeof hash !== 'string') return;
    const claims = this.#heads.get(chain) ?? new Map<number, { readonly hash: string; readonly by: string }>();
    this.#heads.set(chain, claims);
    claims.set(seq, { hash, by });
  }
}
