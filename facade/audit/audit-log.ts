/**
 * Writes the chain of this process, with a new file by size and by day. The records of calls of one turn of the event
 * loop are written together. What cannot be written throws AUDIT_FAILED.
 */
import { randomBytes } from 'node:crypto';
import fs from 'node:fs';
import { basename, join } from 'node:path';
import { asTollgateError, TollgateError } from '../../catalogs/errors/error-table.ts';
import { type LocalProcess, OWN_PROCESS, ownMark } from '../state/process-mark.ts';
import {
  type CallEntryText,
  type ChainEntry,
  chainFileName,
  chainName,
  isoTime,
  NO_HASH,
  type Sealable,
  type SealedRecord,
  sealRecord,
} from './audit-chain.ts';
import type { AuditEntry } from './audit-entry.ts';
import { type AuditFs, type ChainFile, createChainFile } from './chain-file.ts';
import { recoverTorn } from './chain-recovery.ts';
import { seenBefore } from './proof/chain-heads.ts';

/** The audit log of this process. */
export interface AuditLog {
  /**
   * Appends a record. Returns when write(2) has taken every byte. Throws AUDIT_FAILED; then nothing is in the log, and
   * the next append tries again.
   */
  append(entry: AuditEntry): void;
  /**
   * Seals a record of a call, with the text of its facts (JSON without braces), at once. Resolves when write(2) has
   * taken it and the other records of this turn of the event loop. Throws or rejects with AUDIT_FAILED; then none of
   * these records is in the log.
   */
  appendCall(entry: CallEntryText, facts: string): Promise<void>;
  /**
   * Hash of the last record. If it is stored elsewhere, it proves later that nothing was cut off (`verify
   * --expect-head`).
   */
  readonly head: string;
  /** The number of records of this chain. */
  readonly records: number;
  /** The current file. */
  readonly file: string;
  /** Resolves when the disk has everything. */
  flush(): Promise<void>;
  /** Ends the chain with a record that says so. Can be called again. */
  close(): Promise<void>;
}

/** Where and how to log. */
export interface AuditOptions {
  /** Made with mode 0700 if it is missing at the start. A folder that vanishes later is not made again. */
  readonly folder: string;
  /** A file that would exceed this is followed by the next. */
  readonly rotateBytes: number;
  /** Of a fleet, see docs/audit-fleet.md. Each record has it. */
  readonly replica?: string | undefined;
  /** ms since 1970. */
  readonly now?: () => number;
  readonly files?: AuditFs;
  /** Called for each write that failed. Must not throw. */
  readonly onFault?: () => void;
}

/**
 * fdatasync is called once for all records of this many ms: what a power failure may cost. A killed process loses
 * nothing.
 */
const SYNC_MS = 50;
const DAY_MS = 86_400_000;
/** Bytes of one UTF-16 unit in UTF-8. */
const MOST_BYTES = 3;
/** A batch of this size is written before the next record is sealed. */
const BATCH_CHARACTERS = 256 * 1024;

/** Sealed records that wait for their write, and the place in the chain before them. */
interface Batch {
  readonly seq: number;
  readonly head: string;
  readonly lines: string[];
  /** Of all lines, which are nearly always ASCII. */
  characters: number;
  readonly written: Promise<void>;
  readonly settle: (failure?: unknown) => void;
}

/** Opens a chain for this process, and cuts the torn ends of dead ones. Throws AUDIT_FAILED. */
export function openAudit(options: AuditOptions): AuditLog {
  try {
    fs.mkdirSync(options.folder, { recursive: true, mode: 0o700 });
    const chain = new Chain(options);
    recoverTorn(options.folder, (entry) => chain.append(entry));
    return chain;
  } catch (thrown) {
    throw auditFailure(thrown);
  }
}

class Chain implements AuditLog {
  readonly #options: AuditOptions;
  readonly #now: () => number;
  readonly #name: string;
  /** Files of this chain that are being closed. */
  readonly #closing = new Set<Promise<void>>();
  #file: ChainFile | undefined;
  #part = 0;
  /** When the next day (UTC) begins, ms since 1970. */
  #dayEnd = 0;
  #seq = 0;
  #head = NO_HASH;
  #timer: NodeJS.Timeout | undefined;
  #syncFault: unknown;
  readonly #writer: LocalProcess & { readonly process?: string };
  #closed = false;
  #batch: Batch | undefined;
  /** A usual batch fits. */
  readonly #room = Buffer.allocUnsafeSlow(64 * 1024);

  /**
   * Begins the first file. If another log of this process was opened in the same millisecond, its name is taken, so the
   * next is used.
   */
  constructor(options: AuditOptions) {
    this.#options = options;
    this.#now = options.now ?? Date.now;
    this.#writer = writerIn(options.folder);
    const before = seenBefore(options.folder);
    for (let start = this.#now(); ; start += 1) {
      this.#name = chainName(new Date(start), OWN_PROCESS.pid);
      const nonce = randomBytes(16).toString('hex');
      const first: ChainEntry = { type: 'opened', chain: this.#name, ...this.#writer, nonce, ...before };
      if (this.#begin(0, first) !== undefined) return;
    }
  }

  get head(): string {
    return this.#batch?.head ?? this.#head;
  }

  get records(): number {
    return this.#seq;
  }

  get file(): string {
    return this.#file?.path ?? '';
  }

  append(entry: AuditEntry): void {
    this.#guard(() => {
      this.#requireUsable();
      this.#write({ entry });
    });
  }

  appendCall(entry: CallEntryText, facts: string): Promise<void> {
    return this.#guard(() => {
      this.#requireUsable();
      const now = this.#now();
      this.#fileForNext(now);
      const sealed = this.#seal({ entry, facts }, now);
      const batch = (this.#batch ??= this.#beginBatch());
      batch.lines.push(sealed.line);
      batch.characters += sealed.line.length;
      this.#advance(sealed);
      return batch.written;
    });
  }

  async flush(): Promise<void> {
    this.#writeBatch();
    clearTimeout(this.#timer);
    this.#timer = undefined;
    await this.#sync();
    await Promise.all(this.#closing);
    this.#guard(() => this.#throwSyncFault());
  }

  async close(): Promise<void> {
    if (this.#closed) return;
    try {
      this.#writeBatch();
      this.#guard(() => this.#write({ entry: { type: 'closed' } }));
    } finally {
      this.#closed = true;
      if (this.#file !== undefined) this.#retire(this.#file);
      this.#file = undefined;
      await this.flush();
    }
  }

  /** Runs work. Throws AUDIT_FAILED for whatever it throws. */
  #guard<T>(work: () => T): T {
    try {
      return work();
    } catch (thrown) {
      this.#options.onFault?.();
      throw auditFailure(thrown);
    }
  }

  #requireUsable(): void {
    if (this.#closed) throw new Error('the audit log is closed');
    this.#throwSyncFault();
  }

  #write(record: Sealable): void {
    this.#writeBatch();
    this.#put(this.#fileForNext(this.#now()), record);
    this.#syncSoon();
  }

  #beginBatch(): Batch {
    let settle!: Batch['settle'];
    const written = new Promise<void>((resolve, reject) => {
      settle = (failure) => (failure === undefined ? resolve() : reject(failure));
    });
    // The caller of appendCall sees the failure. Without a handler here, a call that has ended would end the process.
    written.catch(() => undefined);
    setImmediate(() => this.#writeBatch());
    return { seq: this.#seq, head: this.#head, lines: [], characters: 0, written, settle };
  }

  /** Writes the batch, if there is one. After a failure the chain is as it was before the batch. Never throws. */
  #writeBatch(): void {
    const batch = this.#batch;
    if (batch === undefined) return;
    this.#batch = undefined;
    const { lines, settle } = batch;
    try {
      this.#guard(() => this.#file?.write(this.#bytesOf(lines)));
      this.#syncSoon();
      settle();
    } catch (failure) {
      this.#seq = batch.seq;
      this.#head = batch.head;
      settle(failure);
    }
  }

  /** Returns the bytes of lines. They are valid until the next call. */
  #bytesOf(lines: readonly string[]): Buffer {
    let end = 0;
    for (const line of lines) {
      if (line.length * MOST_BYTES > this.#room.length - end) return Buffer.from(lines.join(''));
      end += this.#room.write(line, end);
    }
    return this.#room.subarray(0, end);
  }

  /** Returns the file for the next record. After a full or removed file, the chain goes on in the next one. */
  #fileForNext(now: number): ChainFile {
    const waiting = this.#batch?.characters ?? 0;
    if (waiting >= BATCH_CHARACTERS) this.#writeBatch();
    const file = this.#file;
    const isFull = file === undefined || file.size + waiting >= this.#options.rotateBytes || now >= this.#dayEnd;
    if (!isFull && file.isInPlace(now)) return file;
    this.#writeBatch();
    return this.#rotate();
  }

  #syncSoon(): void {
    this.#timer ??= setTimeout(() => void this.#sync(), SYNC_MS).unref();
  }

  /** Continues the chain in the next file. The old file stays in use until the new one exists. */
  #rotate(): ChainFile {
    const old = this.#file;
    const first: ChainEntry = { type: 'continued', chain: this.#name, before: basename(this.file), ...this.#writer };
    let next: ChainFile | undefined;
    for (let part = this.#part + 1; next === undefined; part += 1) next = this.#begin(part, first);
    if (old !== undefined) this.#retire(old);
    return next;
  }

  /** Begins a file; undefined if one with this name exists. */
  #begin(part: number, first: ChainEntry): ChainFile | undefined {
    const file = createChainFile(join(this.#options.folder, chainFileName(this.#name, part)), this.#options.files);
    if (file === undefined) return undefined;
    try {
      this.#put(file, { entry: first });
    } catch (error) {
      file.discard();
      throw error;
    }
    this.#file = file;
    this.#part = part;
    this.#dayEnd = (Math.floor(this.#now() / DAY_MS) + 1) * DAY_MS;
    return file;
  }

  #put(file: ChainFile, record: Sealable): void {
    const sealed = this.#seal(record, this.#now());
    file.write(Buffer.from(sealed.line));
    this.#advance(sealed);
  }

  #seal(record: Sealable, now: number): SealedRecord {
    const { replica } = this.#options;
    return sealRecord(record, { seq: this.#seq + 1, ts: isoTime(now), replica, prev: this.#head });
  }

  #advance({ hash }: SealedRecord): void {
    this.#seq += 1;
    this.#head = hash;
  }

  async #sync(): Promise<void> {
    this.#timer = undefined;
    try {
      await this.#file?.sync();
    } catch (error) {
      // Reported by the next append: the records were written, but the disk may not keep them.
      this.#syncFault = error;
    }
  }

  #retire(file: ChainFile): void {
    const closing = file
      .sync()
      .finally(() => file.close())
      .catch((error: unknown) => void (this.#syncFault = error))
      .finally(() => this.#closing.delete(closing));
    this.#closing.add(closing);
  }

  #throwSyncFault(): void {
    const fault = this.#syncFault;
    this.#syncFault = undefined;
    if (fault !== undefined) throw fault;
  }
}

/** Returns AUDIT_FAILED for what went wrong. */
function auditFailure(cause: unknown): TollgateError {
  if (cause instanceof TollgateError) return cause;
  const code = (cause as NodeJS.ErrnoException).code;
  return new TollgateError(
    'AUDIT_FAILED',
    code === undefined ? { cause } : { detail: `The audit log cannot be written (${code}), so nothing runs.`, cause },
  );
}

/** If no lock can be taken, the process id is used instead. */
function writerIn(folder: string): LocalProcess & { readonly process?: string } {
  try {
    return { ...OWN_PROCESS, process: ownMark(folder) };
  } catch {
    return OWN_PROCESS;
  }
}

/** A log that makes no file until something is appended. */
export interface AuditOnDemand extends AuditLog {
  /**
   * Begins the chain now, for a command that acts first and records later: what could not be recorded is not begun.
   * Throws AUDIT_FAILED.
   */
  begin(): void;
}

/** Opens nothing yet. When the chain begins, torn ends of dead processes are cut, as `openAudit` does. */
export function openAuditOnDemand(options: AuditOptions): AuditOnDemand {
  let log: AuditLog | undefined;
  let isClosed = false;
  const opened = (): AuditLog => {
    if (isClosed && log === undefined)
      throw new TollgateError('AUDIT_FAILED', { cause: new Error('the audit log is closed') });
    return (log ??= openAudit(options));
  };
  return {
    append: (entry) => opened().append(entry),
    appendCall: (entry, facts) => opened().appendCall(entry, facts),
    begin: () => void opened(),
    get head() {
      return log?.head ?? NO_HASH;
    },
    get records() {
      return log?.records ?? 0;
    },
    get file() {
      return log?.file ?? '';
    },
    flush: async () => log?.flush(),
    close: async () => {
      isClosed = true;
      await log?.close();
    },
  };
}
/**
 * Appends a record that belongs to no call. A failure stops nothing here; the next call is refused for the same reason.
 */
export function appendQuietly(audit: AuditLog, entry: AuditEntry): void {
  try {
    audit.append(entry);
  } catch (thrown) {
    if (asTollgateError(thrown).code !== 'AUDIT_FAILED') throw thrown;
  }
}
