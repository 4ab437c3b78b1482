/** The targets of the export: a file, or a receiver by HTTP. */
import { createHash } from 'node:crypto';
import { constants } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import type { ExportConfig } from '../../config/config.ts';
import type { ExportBatch } from './export-batch.ts';
import type { PendingBatch, TargetFile } from './export-cursor.ts';

/** Where records are copied to. */
export interface ExportTarget {
  /** Names the target for its cursor. */
  readonly name: string;
  /** Returns the state of the target before a batch, which tells after a crash how much of the batch it got. */
  before(): Promise<TargetFile | undefined>;
  /**
   * Resolves when the target has the whole batch. `first`: the number of records before it. `checkpoint`: the last note
   * of the log then.
   */
  deliver(
    batch: ExportBatch,
    at: Pick<PendingBatch, 'before'> & { readonly first: number; readonly checkpoint?: string | undefined },
    signal: AbortSignal,
  ): Promise<void>;
}

type Delivery = Omit<ExportTarget, 'name'>;

/** Milliseconds that a receiver may take to answer. */
const ANSWER_MS = 30_000;

/** Returns the name of a target. */
export function targetName({ file, url }: ExportConfig): string {
  return file === undefined ? `url ${url}` : `file ${file}`;
}

/** Returns the target of a configuration. `headers` fills in secrets. */
export function exportTarget(
  settings: ExportConfig,
  headers: () => Promise<Readonly<Record<string, string>>>,
): ExportTarget {
  const { file, url = '' } = settings;
  return { name: targetName(settings), ...(file === undefined ? httpTarget(url, headers) : fileTarget(file)) };
}

/**
 * Appends to a file. If an earlier try ended in the middle of a batch, only the rest of the batch is written. A file
 * that was replaced meanwhile, as log rotation does, gets the whole batch.
 */
function fileTarget(file: string): Delivery {
  return {
    before: async () => {
      const handle = await openFile(file);
      try {
        const { ino, size } = await handle.stat();
        return { ino, size };
      } finally {
        await handle.close();
      }
    },
    deliver: async ({ bytes }, { before }) => {
      const handle = await openFile(file);
      try {
        const { ino, size } = await handle.stat();
        const written = before !== undefined && before.ino === ino ? size - before.size : 0;
        let done = 0;
        if (written > 0 && written <= bytes.length) {
          const tail = Buffer.alloc(written);
          await handle.read(tail, 0, written, before?.size ?? 0);
          if (tail.equals(bytes.subarray(0, written))) done = written;
        }
        await handle.appendFile(bytes.subarray(done));
        await handle.datasync();
      } finally {
        await handle.close();
      }
    },
  };
}

/** Opens a regular file. A pipe without a reader would hold the process up. */
async function openFile(file: string): Promise<FileHandle> {
  const { O_RDWR, O_CREAT, O_APPEND, O_NONBLOCK } = constants;
  const handle = await open(file, O_RDWR | O_CREAT | O_APPEND | O_NONBLOCK, 0o600);
  if ((await handle.stat()).isFile()) return handle;
  await handle.close();
  throw new Error('the target is no regular file');
}

/** Sends batches by POST. A batch counts as delivered after an answer of 2xx. Redirects are not followed. */
function httpTarget(url: string, headers: () => Promise<Readonly<Record<string, string>>>): Delivery {
  return {
    before: async () => undefined,
    deliver: async ({ bytes, records }, { first, checkpoint }, signal) => {
      const digest = createHash('sha256').update(bytes).digest('hex').slice(0, 32);
      const response = await fetch(url, {
        method: 'POST',
        redirect: 'manual',
        body: new Uint8Array(bytes),
        headers: {
          ...(await headers()),
          'content-type': 'application/x-ndjson',
          'idempotency-key': `${first}-${records}-${digest}`,
          ...(checkpoint !== undefined && { 'tollgate-checkpoint': Buffer.from(checkpoint).toString('base64') }),
        },
        signal: AbortSignal.any([signal, AbortSignal.timeout(ANSWER_MS)]),
      });
      // What a receiver answers besides its status is not read.
      await response.body?.cancel();
      if (!response.ok) throw new Error(`HTTP ${response.status}`);
    },
  };
}
