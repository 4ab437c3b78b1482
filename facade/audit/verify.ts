/** Owns the proof that the logs are as they were written; refuses to trust anything but the bytes of the chain files. */
import { createHash } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { checkSeal, NO_HASH, parseFileName, parseRecord, type AuditRecord } from './chain.ts';
import { isWriterAlive, listParts, readLines, type ChainPart, type Line } from './lines.ts';
import { TORN } from './recover.ts';

/** The first thing wrong in a chain, or with a part of the evidence. `seq`: the first record that cannot be trusted. */
export interface AuditFault {
  readonly file: string;
  readonly seq?: number;
  readonly what: string;
}

/** One process's chain. `open`: its writer lives; `closed`: it ended in order; `ended`: it was killed, or its end was cut off. */
export interface ChainReport {
  readonly chain: string;
  readonly files: number;
  readonly records: number;
  readonly head: string;
  readonly state: 'open' | 'closed' | 'ended';
}

/** What `verify` found. Chains that were broken are there as far as they hold. */
export interface AuditVerdict {
  readonly ok: boolean;
  readonly records: number;
  readonly chains: readonly ChainReport[];
  readonly faults: readonly AuditFault[];
}

/**
 * Reads every chain file and finds edits, deletions, reorders, repeats and torn ends. A chain that was cut off at the end of a
 * record, or removed as a whole, can only be missed by somebody who kept its head: `expectHeads`.
 */
export function verifyAudit(folder: string, expectHeads: readonly string[] = []): AuditVerdict {
  const missing = new Set(expectHeads);
  const chains: ChainReport[] = [];
  const faults: AuditFault[] = [];
  for (const parts of byChain(listParts(folder))) {
    const walk = new ChainWalk(folder, missing);
    const fault = walk.follow(parts);
    if (fault !== undefined) faults.push(fault);
    faults.push(...walk.lost);
    chains.push({ chain: parts[0]?.chain ?? '', files: parts.length, records: walk.seq, head: walk.head, state: stateOf(walk, parts) });
  }
  for (const head of missing) faults.push({ file: '', what: `the expected head ${head.slice(0, 200)} is in no chain: records were cut off` });
  return { ok: faults.length === 0, records: chains.reduce((sum, chain) => sum + chain.records, 0), chains, faults };
}

function stateOf(walk: ChainWalk, parts: readonly ChainPart[]): ChainReport['state'] {
  if (walk.last === 'closed') return 'closed';
  const end = parts.at(-1);
  return end !== undefined && isWriterAlive(end) ? 'open' : 'ended';
}

function byChain(parts: readonly ChainPart[]): Iterable<readonly ChainPart[]> {
  const chains = new Map<string, ChainPart[]>();
  for (const part of parts) {
    const chain = chains.get(part.chain);
    if (chain === undefined) chains.set(part.chain, [part]);
    else chain.push(part);
  }
  return chains.values();
}

/** Goes along one chain as far as it can be trusted. */
class ChainWalk {
  readonly #folder: string;
  readonly #missing: Set<string>;
  /** Parts of the evidence that this chain says were put aside, and that are not there. */
  readonly lost: AuditFault[] = [];
  seq = 0;
  head = NO_HASH;
  last = '';

  constructor(folder: string, missing: Set<string>) {
    this.#folder = folder;
    this.#missing = missing;
  }

  follow(parts: readonly ChainPart[]): AuditFault | undefined {
    let before = '';
    for (const part of parts) {
      const isLast = part === parts.at(-1);
      let isFirst = true;
      for (const line of readLines(part.path)) {
        const what = isUnfinished(line, part, isLast) ? undefined : this.#step(line, { part, before: isFirst ? before : undefined });
        if (what !== undefined) return { file: part.name, seq: this.seq + 1, what };
        isFirst = false;
      }
      if (isFirst && !isLast) return { file: part.name, seq: this.seq + 1, what: 'the file is empty, but the chain goes on after it' };
      before = part.name;
    }
    return undefined;
  }

  /** Takes one record; answers what is wrong with it. `before` is given for the first record of a file: the file before it. */
  #step(line: Line, at: { readonly part: ChainPart; readonly before: string | undefined }): string | undefined {
    if (!line.whole) return 'half a record at the end of the file: the next start puts it aside';
    const hash = checkSeal(line.bytes);
    if (hash === undefined) return 'the record was changed: its hash does not fit';
    const record = parseRecord(line.bytes);
    if (record === undefined) return 'the line is sealed, but it is no record';
    if (this.last === 'closed') return 'a record stands behind the end of the chain';
    if (record.seq !== this.seq + 1) return `record ${record.seq} stands where record ${this.seq + 1} belongs: records are missing, repeated or out of order`;
    if (record.prev !== this.head) return 'the record does not follow the one before it';
    const what = at.before === undefined ? undefined : checkFirst(record, { chain: at.part.chain, before: at.before });
    if (what !== undefined) return what;
    if (record.type === 'recovered') this.#checkTorn(record, at.part);
    this.seq = record.seq;
    this.head = hash;
    this.last = record.type;
    this.#missing.delete(hash);
    return undefined;
  }

  #checkTorn(record: { readonly file: string; readonly digest: string; readonly seq: number }, part: ChainPart): void {
    const path = join(this.#folder, `${record.file}${TORN}`);
    const isThere = parseFileName(record.file) !== undefined && existsSync(path) && createHash('sha256').update(readFileSync(path)).digest('hex') === record.digest;
    if (!isThere) this.lost.push({ file: part.name, seq: record.seq, what: `the torn end of ${record.file} is not as it was put aside` });
  }
}

/** A record that is being written right now is no fault. */
function isUnfinished(line: Line, part: ChainPart, isLast: boolean): boolean {
  return !line.whole && isLast && isWriterAlive(part);
}

/** Files belong to one chain in one order, whatever they are called. */
function checkFirst(record: AuditRecord, expected: { readonly chain: string; readonly before: string }): string | undefined {
  if (record.type !== 'opened' && record.type !== 'continued') return 'the file does not begin with the record that begins files';
  if (record.chain !== expected.chain) return `the file belongs to chain ${record.chain}`;
  const before = record.type === 'continued' ? record.before : '';
  return before === expected.before ? undefined : `the file before this one, ${before}, is missing`;
}
