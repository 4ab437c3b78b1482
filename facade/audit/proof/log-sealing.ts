/**
 * Takes new records of all chains into the tree, and signs a checkpoint. Only whole lines that follow their chain are
 * taken in. Nothing is signed on top of a tree that differs from its last checkpoint.
 */
import type { KeyObject } from 'node:crypto';
import { statSync } from 'node:fs';
import { join } from 'node:path';
import { unlessMissing } from '../../../catalogs/readers/missing-files.ts';
import { isBusy } from '../../state/database.ts';
import { checkSeal, NO_HASH, parseChainFileName } from '../audit-chain.ts';
import { type ChainPart, groupByChain, listParts, readLineAt, readLines } from '../chain-lines.ts';
import { AuditTree, damaged, type Span } from './audit-tree.ts';
import { leafHash, rootOf } from './merkle-tree.ts';
import { isSignedBy, parseNote, signCheckpoint, verifierKey } from './signed-note.ts';

/** What to seal, and with which key. */
export interface SealRequest {
  readonly folder: string;
  readonly key: KeyObject;
  /** How long new records may be taken in, ms. */
  readonly budgetMs: number;
  readonly now: number;
  /** Of a fleet: the checkpoint names it. */
  readonly replica?: string | undefined;
}

/** A chain that is not taken in any further, because its records do not follow each other. */
export interface Withheld {
  readonly file: string;
  readonly what: string;
}

/**
 * What was done. `busy`: another process seals. `note`: the new checkpoint, if there was a record. `more`: the time was
 * over before all records were taken in.
 */
export interface SealResult {
  readonly busy?: true;
  readonly size: number;
  readonly note?: string;
  readonly withheld: readonly Withheld[];
  readonly more?: true;
}

/** Records of one round: what a killed process repeats. */
const ROUND_RECORDS = 100_000;
/**
 * A process whose write failed in the middle removes whole lines again, at once. So a line counts only if it is still
 * there after this time, ms.
 */
const SETTLE_MS = 20;
/** How long to wait for another process that seals, ms. It takes in the records of this one too. */
const BUSY_MS = 100;
/** A line that was removed again: the round is repeated later. */
const UNSETTLED = Symbol('unsettled');

/**
 * Seals until every record is signed or the time is over. Throws STATE_FAILED if the tree is missing, or is not what
 * was signed.
 */
export function sealLog(request: SealRequest): SealResult {
  const ends = performance.now() + request.budgetMs;
  const tree = AuditTree.open(request.folder, BUSY_MS);
  if (tree === undefined) throw damaged('it was removed');
  try {
    for (;;) {
      const round = new SealRound(tree, request, ends).run();
      if (round.more === true && performance.now() < ends) continue;
      if (round.note !== undefined) tree.settle();
      return round;
    }
  } catch (thrown) {
    if (isBusy(thrown) || thrown === UNSETTLED) return { busy: true, size: tree.last?.size ?? 0, withheld: [] };
    throw thrown;
  } finally {
    tree.close();
  }
}

/** The last record of a chain that is in the tree, and its file. */
interface ChainEnd {
  readonly seq: number;
  readonly head: string;
}

class SealRound {
  readonly #tree: AuditTree;
  readonly #request: SealRequest;
  readonly #ends: number;
  readonly #spans: Span[] = [];
  readonly #withheld: Withheld[] = [];
  #size = 0;
  #taken = 0;
  #more = false;

  constructor(tree: AuditTree, request: SealRequest, ends: number) {
    this.#tree = tree;
    this.#request = request;
    this.#ends = ends;
  }

  run(): SealResult {
    return this.#tree.transact(() => {
      this.#size = this.#checkedSize();
      const began = performance.now();
      this.#takeIn();
      const result = { size: this.#size, withheld: this.#withheld, ...(this.#more && { more: true as const }) };
      if (this.#taken === 0) return result;
      this.#settle(began);
      const { origin } = this.#tree;
      const { key, now, replica } = this.#request;
      const at = new Date(now).toISOString();
      const note = this.#tree.add(this.#spans, { size: this.#size, at }, (root) =>
        signCheckpoint({ origin, size: this.#size, root: root.toString('base64'), replica }, key),
      );
      return { ...result, note };
    });
  }

  /** Returns the size that was signed last. A tree that was changed by someone without the key is not signed again. */
  #checkedSize(): number {
    const { last, origin } = this.#tree;
    if (last === undefined) return 0;
    const note = parseNote(last.note);
    if (note === undefined || note.checkpoint.size !== last.size || note.checkpoint.origin !== origin)
      throw damaged('its last checkpoint was changed');
    if (!isSignedBy(note, verifierKey(origin, this.#request.key)))
      throw damaged('its last checkpoint is not signed with the key of this log');
    if (rootOf(last.size, this.#tree.node).toString('base64') !== note.checkpoint.root)
      throw damaged('it is not the tree that was signed last');
    return last.size;
  }

  #takeIn(): void {
    const { ends } = this.#tree;
    const chains = chainEnds(ends);
    for (const parts of groupByChain(listParts(this.#request.folder))) {
      let end = chains.get(parts[0]?.chain ?? '');
      let previous: ChainPart | undefined;
      for (const part of parts) {
        if (this.#isOver()) return;
        // After a file that was archived, the chain continues with a number that the tree cannot know.
        const isAfterGap = part.part > 0 && previous?.part !== part.part - 1 && !ends.has(part.name);
        const from = ends.get(part.name)?.end ?? 0;
        const taken = unlessUnread(() => this.#takeFile(part, from, isAfterGap ? undefined : (end ?? START)));
        if (typeof taken === 'string') {
          this.#withheld.push({ file: part.name, what: taken });
          break;
        }
        end = taken ?? end;
        previous = part;
      }
    }
  }

  #isOver(): boolean {
    this.#more ||= this.#taken >= ROUND_RECORDS || (this.#taken > 0 && performance.now() >= this.#ends);
    return this.#more;
  }

  /**
   * Takes in the new lines of a file. Returns the end of the chain, undefined if nothing is new, or why the file cannot
   * be taken in.
   */
  #takeFile(part: ChainPart, from: number, before: ChainEnd | undefined): ChainEnd | string | undefined {
    const { size } = statSync(part.path);
    if (size < from) return 'records that were signed are missing at its end';
    if (size === from) return undefined;
    let end = before;
    const span = { leaf: this.#size, file: part.name, offset: from, seq: 0, count: 0, end: from };
    let fault: string | undefined;
    for (const { bytes, offset, whole } of readLines(part.path, from)) {
      if (!whole || this.#isOver()) break;
      const next = linkOf(bytes);
      fault = faultOf(next, end);
      if (fault !== undefined || next === undefined) break;
      this.#tree.append(leafHash(bytes), this.#size);
      if (span.count === 0) span.seq = next.seq;
      span.count += 1;
      span.end = offset + bytes.length + 1;
      this.#size += 1;
      this.#taken += 1;
      end = next;
    }
    if (span.count > 0) this.#spans.push({ ...span, head: end?.head ?? '' });
    return fault ?? (span.count > 0 ? end : undefined);
  }

  /** Makes sure that what was taken in is still there. Throws UNSETTLED. */
  #settle(began: number): void {
    const left = SETTLE_MS - (performance.now() - began);
    if (left > 0) Atomics.wait(SLEEPER, 0, 0, left);
    for (const { file, end, head } of this.#spans) {
      const tail = `,"hash":"${head}"}\n`;
      const found = readLineAt(join(this.#request.folder, file), end - tail.length, tail.length);
      if (found?.toString('latin1') !== tail) throw UNSETTLED;
    }
  }
}

const SLEEPER = new Int32Array(new SharedArrayBuffer(4));
const START: ChainEnd = { seq: 0, head: NO_HASH };

/** Returns the last record of each chain that is in the tree. */
function chainEnds(ends: ReadonlyMap<string, Span>): Map<string, ChainEnd> {
  const chains = new Map<string, ChainEnd & { readonly part: number }>();
  for (const { file, seq, count, head } of ends.values()) {
    const { chain, part } = parseChainFileName(file) ?? { chain: '', part: 0 };
    if ((chains.get(chain)?.part ?? -1) < part) chains.set(chain, { part, seq: seq + count - 1, head });
  }
  return chains;
}

const BEGIN = /^\{"v":\d+,"seq":(\d{1,15}),/;
const PREV_FROM_END = `${NO_HASH}","hash":"${NO_HASH}"}`.length;

/** Returns the number of a record, the hash before it and its own; undefined for a line that is no sealed record. */
function linkOf(line: Buffer): (ChainEnd & { readonly prev: string }) | undefined {
  const head = checkSeal(line);
  const [, seq] = BEGIN.exec(line.toString('latin1', 0, 32)) ?? [];
  if (head === undefined || seq === undefined) return undefined;
  const from = line.length - PREV_FROM_END;
  return { seq: Number(seq), head, prev: line.toString('latin1', from, from + NO_HASH.length) };
}

function faultOf(next: ReturnType<typeof linkOf>, end: ChainEnd | undefined): string | undefined {
  if (next === undefined) return 'a record was changed';
  if (end === undefined) return undefined;
  return next.seq === end.seq + 1 && next.prev === end.head ? undefined : 'a record does not follow the one before it';
}

/** Returns why a file cannot be read, as a fault of it. A file that was archived meanwhile has none. */
function unlessUnread<T>(read: () => T): T | string | undefined {
  try {
    return unlessMissing(read);
  } catch (thrown) {
    const { code } = thrown as NodeJS.ErrnoException;
    if (typeof code !== 'string') throw thrown;
    return `it cannot be read (${code})`;
  }
}
