/** Compares the log with its signed tree: what is proven until when and by which key, and what is missing. */
import { createPublicKey, type KeyObject } from 'node:crypto';
import { asTollgateError } from '../../../catalogs/errors/error-table.ts';
import type { AuditRecord } from '../audit-chain.ts';
import { AuditTree, checkTiles, type Span, type StoredCheckpoint, TREE_FILE } from './audit-tree.ts';
import { leafHash, rootOf } from './merkle-tree.ts';
import {
  type Checkpoint,
  findCosignature,
  isSignedBy,
  parseNote,
  type VerifierKey,
  verifierKey,
} from './signed-note.ts';

/** What the tree is verified against. */
export interface ProofEvidence {
  /** The key of the log, as its owner configured it. */
  readonly key?: KeyObject;
  /** A verifier key that the caller kept elsewhere. It names the tree too, and is used instead of `key`. */
  readonly publicKey?: VerifierKey;
  readonly witness?: VerifierKey;
  /** Notes of checkpoints that were kept elsewhere, by the names of their files. */
  readonly kept?: ReadonlyMap<string, string>;
}

/** What the tree proves. */
export interface AuditProof {
  /** Every record is signed, and the signature was verified. */
  readonly complete: boolean;
  /** Records up to the last checkpoint, and records in the log that no checkpoint covers. */
  readonly signed: number;
  readonly unsigned: number;
  /** Signed records that were read, and are what was signed. */
  readonly read: number;
  /** Signed records whose files were archived and not read. */
  readonly notRead: number;
  /** Time of the newest signed record, ISO. */
  readonly until?: string;
  readonly origin?: string;
  /** The replica that wrote the log, by its last checkpoint, or by its last record. */
  readonly replica?: string;
  /** The note of the last checkpoint. */
  readonly checkpoint?: string;
  /** Whether the signature of the checkpoint was verified. */
  readonly verified: boolean;
  /** The newest checkpoint that the witness cosigned: its number of records, and the time of the witness, ISO. */
  readonly witnessed?: { readonly size: number; readonly at: string };
  /** Checkpoints kept elsewhere that agree with the tree. */
  readonly kept: number;
  /** Trees that this one replaced: what they signed is not proven by this one. */
  readonly replaced: readonly string[];
}

/** A fault of the tree, or of a record in it. */
export interface ProofFault {
  readonly file: string;
  readonly seq?: number;
  readonly unproven?: number;
  readonly what: string;
}

/** What is known of the files when every record was read. */
export interface FilesRead {
  /** Names of the files that were read, and of those that were moved to an archive. */
  readonly present: ReadonlySet<string>;
  readonly moved: ReadonlySet<string>;
  /** Files of chains with a fault: they were not read to their end. */
  readonly broken: ReadonlySet<string>;
  /** The folder is an archive: its tree is with the log. */
  readonly isArchive: boolean;
}

/** The signed part of one file. */
interface Covered {
  readonly spans: readonly Span[];
  at: number;
  within: number;
}

/** Follows the reading of a log, record by record. */
export class ProofCheck {
  readonly #faults: ProofFault[] = [];
  readonly #files = new Map<string, Covered>();
  readonly #evidence: ProofEvidence;
  readonly #claims: { readonly file: string; readonly tree: Checkpoint }[] = [];
  /** Trees that were begun, and the files that say so. */
  readonly #begun = new Map<string, string>();
  readonly #replaced = new Set<string>();
  readonly #failedClaims = new Set<string>();
  #tree: AuditTree | undefined;
  #last: StoredCheckpoint | undefined;
  #origin: string | undefined;
  #size = 0;
  #verified = false;
  #kept = 0;
  #read = 0;
  #unsigned = 0;
  #until: string | undefined;
  #replica: string | undefined;

  /** Opens the tree of a folder, and verifies its last checkpoint. */
  constructor(folder: string, evidence: ProofEvidence) {
    this.#evidence = evidence;
    this.#guard(() => {
      this.#tree = AuditTree.open(folder);
      this.#origin = this.#tree?.origin;
      this.#last = this.#tree?.last;
      if (this.#tree !== undefined && this.#last !== undefined) this.#open(this.#tree, this.#last);
    });
    for (const [name, note] of evidence.kept ?? []) this.#guard(() => this.#compareKept(name, note));
  }

  /** Takes a record that follows its chain, and its line. Returns its fault. */
  take(file: string, line: Buffer, record: AuditRecord): string | undefined {
    this.#noteClaims(file, record);
    if (typeof record.replica === 'string') this.#replica = record.replica;
    const covered = this.#files.get(file);
    const span = covered?.spans[covered.at];
    if (covered === undefined || span === undefined) {
      this.#unsigned += 1;
      return undefined;
    }
    const leaf = span.leaf + covered.within;
    if (covered.within === 0 && record.seq !== span.seq) return 'the record is not in the place where it was signed';
    if (this.#tree?.node(0, leaf).equals(leafHash(line)) !== true)
      return 'the record is not the one that was signed: it was written again';
    covered.within += 1;
    if (covered.within === span.count) {
      covered.at += 1;
      covered.within = 0;
    }
    this.#read += 1;
    if (this.#until === undefined || record.ts > this.#until) this.#until = record.ts;
    return undefined;
  }

  close(): void {
    this.#tree?.close();
  }

  /** Returns what is proven, and every fault that no record has. */
  finish(files: FilesRead): { readonly proof: AuditProof; readonly faults: readonly ProofFault[] } {
    const notRead = this.#checkEnds(files);
    // The record of the present tree may be in an archive.
    const isAnnounced = this.#origin !== undefined && (this.#begun.has(this.#origin) || files.moved.size > 0);
    if (!files.isArchive) {
      for (const [origin, file] of this.#begun) this.#checkOrigin(file, origin, isAnnounced);
      for (const { file, tree } of this.#claims) this.#guard(() => this.#checkClaim(file, tree, isAnnounced));
    }
    const witnessed = this.#guard(() => this.#findWitnessed());
    const replica = parseNote(this.#last?.note ?? '')?.checkpoint.replica ?? this.#replica;
    const complete = this.#verified && this.#unsigned === 0 && notRead === 0 && this.#faults.length === 0;
    return {
      faults: this.#faults,
      proof: {
        complete,
        signed: this.#size,
        unsigned: this.#unsigned,
        read: this.#read,
        notRead,
        ...(this.#until !== undefined && { until: this.#until }),
        ...(this.#origin !== undefined && { origin: this.#origin }),
        ...(replica !== undefined && { replica }),
        ...(this.#last !== undefined && { checkpoint: this.#last.note }),
        verified: this.#verified,
        ...(witnessed !== undefined && { witnessed }),
        kept: this.#kept,
        replaced: [...this.#replaced],
      },
    };
  }

  #open(tree: AuditTree, last: StoredCheckpoint): void {
    const note = parseNote(last.note);
    if (note === undefined || note.checkpoint.size !== last.size || note.checkpoint.origin !== this.#origin)
      return this.#fail('the last checkpoint was changed');
    const key = this.#keyOf(note.checkpoint.origin);
    if (key !== undefined && key.name !== note.checkpoint.origin)
      this.#fail(`the tree is ${note.checkpoint.origin}, and --public-key is of ${key.name}`);
    else if (key !== undefined && !isSignedBy(note, key))
      this.#fail('the last checkpoint is not signed with the key of this log');
    else this.#verified = key !== undefined;
    this.#size = last.size;
    checkTiles(tree, last.size);
    for (const one of tree.checkpoints) this.#checkRoot(tree, one);
    this.#cover(tree.spans);
  }

  #checkRoot(tree: AuditTree, { size, note }: StoredCheckpoint): void {
    const checkpoint = parseNote(note)?.checkpoint;
    const isSame =
      checkpoint?.size === size &&
      checkpoint.origin === this.#origin &&
      checkpoint.root === rootOf(size, tree.node).toString('base64');
    if (!isSame) this.#fail(`the tree is not the one of its checkpoint of ${size} records`);
  }

  /** The spans must name each leaf once. */
  #cover(spans: readonly Span[]): void {
    const files = new Map<string, Span[]>();
    let next = 0;
    for (const span of spans) {
      if (next >= this.#size) break;
      if (span.leaf !== next || span.count < 1) return this.#fail('the files of its leaves are not known any more');
      next += span.count;
      const known = files.get(span.file);
      if (known === undefined) files.set(span.file, [span]);
      else known.push(span);
    }
    if (next !== this.#size) this.#fail('the files of its leaves are not known any more');
    for (const [file, covered] of files) this.#files.set(file, { spans: covered, at: 0, within: 0 });
  }

  #keyOf(origin: string): VerifierKey | undefined {
    const { key, publicKey } = this.#evidence;
    return publicKey ?? (key === undefined ? undefined : verifierKey(origin, createPublicKey(key)));
  }

  /** A checkpoint that was kept elsewhere shows a rollback and a fork. */
  #compareKept(name: string, text: string): void {
    const note = parseNote(text);
    if (note === undefined) return this.#fail('it is no checkpoint', name);
    const { origin, size, root } = note.checkpoint;
    const key = this.#keyOf(origin);
    if (key !== undefined && !isSignedBy(note, key))
      return this.#fail('it is not signed with the key of this log', name);
    if (this.#tree === undefined) return this.#fail(`it is of a tree of ${size} records, which is missing`, name);
    if (origin !== this.#origin) return this.#fail(`it is of the tree ${origin}, and this is another one`, name);
    if (size > this.#size)
      return this.#fail(`rolled back: ${size} records were signed then, and ${this.#size} are signed here`, name);
    if (rootOf(size, this.#tree.node).toString('base64') !== root)
      return this.#fail(`forked: the first ${size} records were others when it was signed`, name);
    this.#kept += 1;
  }

  #noteClaims(file: string, record: AuditRecord): void {
    if (record.type === 'proof' && record.event === 'begun' && typeof record.origin === 'string')
      this.#begun.set(record.origin, file);
    if (record.type !== 'opened' || record.tree === undefined) return;
    const { origin, size, root } = record.tree;
    if (typeof origin === 'string' && Number.isSafeInteger(size) && size >= 0 && typeof root === 'string')
      this.#claims.push({ file, tree: { origin, size, root } });
  }

  /** A record names a tree. Another one than the present tree must have been replaced, with a record that says so. */
  #checkOrigin(file: string, origin: string, isAnnounced: boolean): void {
    if (origin === this.#origin) return;
    if (isAnnounced) this.#replaced.add(origin);
    else this.#failClaim(origin, `${file} names the tree ${origin}, which is missing`);
  }

  #checkClaim(file: string, { origin, size, root }: Checkpoint, isAnnounced: boolean): void {
    if (origin !== this.#origin) return this.#checkOrigin(file, origin, isAnnounced);
    const known = `when ${file} began, ${size} records were signed`;
    if (size > this.#size) this.#failClaim('rolled back', `rolled back: ${known}, and ${this.#size} are signed here`);
    else if (this.#tree !== undefined && rootOf(size, this.#tree.node).toString('base64') !== root)
      this.#failClaim('forked', `forked: ${known}, and they were others`);
  }

  /** Finds signed records that were not read. Returns the number of those that are in archives. */
  #checkEnds({ present, moved, broken }: FilesRead): number {
    let elsewhere = 0;
    for (const [file, { spans, at, within }] of this.#files) {
      const [span] = spans.slice(at);
      if (span === undefined || broken.has(file)) continue;
      const unproven = spans.slice(at).reduce((sum, { count }) => sum + count, -within);
      if (present.has(file))
        this.#faults.push({ file, seq: span.seq + within, unproven, what: 'signed records are missing from here on' });
      else if (moved.has(file)) elsewhere += unproven;
      else this.#faults.push({ file, seq: span.seq, unproven, what: 'the file with these signed records is missing' });
    }
    return elsewhere;
  }

  #findWitnessed(): AuditProof['witnessed'] {
    const found = this.#tree?.lastCosigned;
    const { witness } = this.#evidence;
    const cosignature =
      found === undefined || witness === undefined
        ? undefined
        : findCosignature(found.note, found.cosignature, witness);
    return found === undefined || cosignature === undefined || found.size > this.#size
      ? undefined
      : { size: found.size, at: new Date(cosignature.at).toISOString() };
  }

  #fail(what: string, file = TREE_FILE): void {
    this.#faults.push({ file, what });
  }

  /** Ten thousand chains may say the same of one tree: the first is enough. */
  #failClaim(kind: string, what: string): void {
    if (this.#failedClaims.has(kind)) return;
    this.#failedClaims.add(kind);
    this.#fail(what);
  }

  /** A tree that cannot be read is a fault, and the chains are verified all the same. */
  #guard<T>(work: () => T): T | undefined {
    try {
      return work();
    } catch (thrown) {
      const { code, message } = asTollgateError(thrown);
      if (code === 'INTERNAL') throw thrown;
      if (!this.#faults.some(({ what }) => what === message)) this.#fail(message);
      return undefined;
    }
  }
}
