/**
 * Copies each record of the log to a target, once the target is there and in the order of each chain. One process of a
 * state folder does this for all. No call waits for it.
 */
import { mkdirSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { tryLock } from '../../state/process-mark.ts';
import { withTree } from '../proof/audit-tree.ts';
import { readExportBatch } from './export-batch.ts';
import { cursorFile, type ExportCursor, readCursor, writeCursor } from './export-cursor.ts';
import type { ExportTarget } from './export-target.ts';

/** What an export needs. */
export interface AuditExportParts {
  /** The state folder, for the cursor. */
  readonly state: string;
  /** The folder of the log. */
  readonly folder: string;
  readonly target: ExportTarget;
  /** The most records of one batch. */
  readonly batch: number;
  /** Called once with the reason when delivery begins to fail, and once without when it works again. Must not throw. */
  readonly onState: (failure?: string) => void;
}

/** How an export in this process goes. */
export interface AuditExportState {
  /** The number of records that the target has acknowledged; undefined while another process exports. */
  readonly records: number | undefined;
  /** Why the last try failed. */
  readonly failure: string | undefined;
}

/** How often new records, and the lock of another process, are looked for, ms. */
const LOOK_MS = 500;
const LOCK_MS = 5000;
/** Pauses after failures. */
const [FIRST_PAUSE_MS, LAST_PAUSE_MS] = [250, 60_000];
/** How long the end of the process may wait for the target, ms. */
const CLOSE_MS = 2000;

/** The export of one process. */
export class AuditExport {
  readonly #parts: AuditExportParts;
  readonly #file: string;
  readonly #closing = new AbortController();
  /** Ends what is being delivered. */
  readonly #giveUp = new AbortController();
  readonly #ended: Promise<void>;
  #lock: { close(): void } | undefined;
  #cursor: ExportCursor | undefined;
  #failure: string | undefined;

  /** Begins to export. */
  constructor(parts: AuditExportParts) {
    this.#parts = parts;
    this.#file = cursorFile(parts.state, parts.target.name);
    this.#ended = this.#run();
  }

  get state(): AuditExportState {
    return { records: this.#cursor?.records, failure: this.#failure };
  }

  /** Delivers the last records, for at most two seconds, and ends. Call it when the log is closed. Never rejects. */
  async close(): Promise<void> {
    this.#closing.abort();
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<void>((resolve) => {
      timer = setTimeout(() => {
        this.#giveUp.abort();
        resolve();
      }, CLOSE_MS);
    });
    await Promise.race([this.#deliverRest(), late]);
    clearTimeout(timer);
    this.#lock?.close();
  }

  async #deliverRest(): Promise<void> {
    await this.#ended;
    try {
      if (this.#lock !== undefined && this.#failure === undefined) while (await this.#deliverNext());
    } catch {
      // The next process delivers it.
    }
  }

  async #run(): Promise<void> {
    const { signal } = this.#closing;
    let pause = FIRST_PAUSE_MS;
    while (!signal.aborted) {
      try {
        if (!this.#hasLock()) await rest(LOCK_MS, signal);
        else if (!(await this.#deliverNext())) await rest(LOOK_MS, signal);
        pause = FIRST_PAUSE_MS;
      } catch (thrown) {
        if (signal.aborted) return;
        this.#report(reasonOf(thrown));
        await rest(pause, signal);
        pause = Math.min(2 * pause, LAST_PAUSE_MS);
      }
    }
  }

  /** The kernel releases the lock of a process that dies. */
  #hasLock(): boolean {
    if (this.#lock !== undefined) return true;
    mkdirSync(path.dirname(this.#file), { recursive: true, mode: 0o700 });
    const lock = tryLock(`${this.#file}.lock`);
    if (lock === 'none') throw new Error('its lock cannot be taken');
    if (lock === 'busy') return false;
    this.#lock = lock;
    return true;
  }

  /** Delivers one batch. Returns false if there is none. */
  async #deliverNext(): Promise<boolean> {
    const { signal } = this.#giveUp;
    const { folder, target, batch: records } = this.#parts;
    let cursor = (this.#cursor ??= await readCursor(this.#file));
    const again = cursor.pending;
    const limits = { records, until: again?.places, signal, onChanged: (name: string) => this.#noteChanged(name) };
    const batch = await readExportBatch(folder, cursor.places, limits);
    if (batch === undefined) {
      // The files of a batch that was not acknowledged are gone: no one can deliver it any more.
      if (again !== undefined) this.#cursor = await this.#keep({ ...cursor, pending: undefined });
      return again !== undefined;
    }
    if (again === undefined) {
      const pending = { places: batch.places, records: batch.records, before: await target.before() };
      cursor = await this.#keep({ ...cursor, pending });
    }
    const at = { before: cursor.pending?.before, first: cursor.records, checkpoint: lastCheckpoint(folder) };
    await target.deliver(batch, at, signal);
    const { places } = batch;
    await this.#keep({ places, records: cursor.records + batch.records, at: new Date().toISOString() });
    this.#report(undefined);
    return true;
  }

  async #keep({
    pending,
    ...cursor
  }: Omit<ExportCursor, 'pending'> &
    Partial<Record<'pending', ExportCursor['pending'] | undefined>>): Promise<ExportCursor> {
    const kept = { ...cursor, ...(pending !== undefined && { pending }) };
    await writeCursor(this.#file, kept);
    return (this.#cursor = kept);
  }

  #noteChanged(name: string): void {
    this.#parts.onState(`${name} is not as it was; it is exported again from its start`);
  }

  #report(failure: string | undefined): void {
    const before = this.#failure;
    this.#failure = failure;
    if ((before === undefined) !== (failure === undefined)) this.#parts.onState(failure);
  }
}

/** Returns a short reason without addresses: they may hold a token. */
function reasonOf(thrown: unknown): string {
  const { code, cause, message } = thrown as { code?: unknown; cause?: { code?: unknown }; message?: unknown };
  return String(cause?.code ?? (typeof code === 'string' ? code : message));
}

/** Returns the last signed checkpoint of the log. A tree that cannot be read stops no export. */
function lastCheckpoint(folder: string): string | undefined {
  try {
    return withTree(folder, (tree) => tree.last?.note);
  } catch {
    return undefined;
  }
}

/** Pauses, without keeping the process alive. */
async function rest(ms: number, signal: AbortSignal): Promise<void> {
  await sleep(ms, undefined, { signal, ref: false }).catch(() => undefined);
}

/** Returns whether every record of a chain file was exported, so that it may leave. `state`: the state folder. */
export async function readExported(state: string, target: string): Promise<(name: string, bytes: number) => boolean> {
  const { places } = await readCursor(cursorFile(state, target));
  return (name, bytes) => Object.hasOwn(places, name) && (places[name]?.offset ?? 0) >= bytes;
}
