/**
 * Moves old files of the log to an archive while a facade runs: in a thread, so that no call waits, and one process at
 * a time. Nothing is deleted.
 */
import { statSync } from 'node:fs';
import { Worker } from 'node:worker_threads';
import { asTollgateError } from '../../catalogs/errors/error-table.ts';
import { threadFile } from '../../catalogs/programs/own-code.ts';
import type { AuditConfig, Config } from '../config/config.ts';
import { parseRecord } from './audit-chain.ts';
import type { ArchiveResult } from './chain-archive.ts';
import { type ChainPart, listParts, readLastLine } from './chain-lines.ts';

/** A facade that starts has other work first. */
const FIRST_MS = 60_000;
const EVERY_MS = 3_600_000;

/** What the retention is started with. */
export interface RetentionOptions {
  /** The configuration in force. */
  readonly config: () => Pick<Config, 'state' | 'audit'>;
  readonly now: () => number;
  /** Gets what became of each move. Never throws. */
  readonly tell: (answer: ArchiveAnswer) => void;
  readonly firstMs?: number;
  readonly everyMs?: number;
}

/** Ends the checks. A move that runs is completed by the next one. */
export interface Retention {
  close(): Promise<void>;
}

/** What the thread is started with. `before`: files whose records are all older are moved. */
export interface ArchiveTask extends Pick<AuditConfig, 'folder' | 'rotateBytes' | 'replica'> {
  readonly state: string;
  readonly to: string;
  readonly before: string;
}

/** What the thread answers. `busy`: another process moves files now. */
export type ArchiveAnswer = ArchiveResult | { readonly busy: true } | { readonly fault: string };

/** Starts to look for files to move: soon, then each hour. */
export function startRetention(options: RetentionOptions): Retention {
  const { firstMs = FIRST_MS, everyMs = EVERY_MS } = options;
  let thread: Worker | undefined;
  const check = (): void => {
    timer = setTimeout(check, everyMs).unref();
    try {
      const task = thread === undefined ? dueTask(options) : undefined;
      if (task !== undefined) thread = runTask(task, options, () => (thread = undefined));
    } catch (cause) {
      options.tell(archiveFault(cause));
    }
  };
  let timer = setTimeout(check, firstMs).unref();
  return {
    close: async () => {
      clearTimeout(timer);
      await thread?.terminate();
    },
  };
}

function runTask(task: ArchiveTask, { tell }: RetentionOptions, onEnd: () => void): Worker {
  // The thread may not print to stdout, because MCP uses it.
  const thread = new Worker(threadFile('archive-thread'), {
    workerData: task,
    env: {},
    execArgv: [],
    stdout: true,
    stderr: true,
  });
  thread.once('message', tell);
  thread.once('error', (cause) => tell(archiveFault(cause)));
  thread.once('exit', onEnd);
  thread.unref();
  return thread;
}

/** Returns the answer for a move that failed. Its message is public. */
export function archiveFault(cause: unknown): ArchiveAnswer {
  const { code } = cause as NodeJS.ErrnoException;
  return { fault: code === undefined ? asTollgateError(cause).message : `The log could not be archived (${code}).` };
}

/** Returns what to move now; undefined if nothing is due. */
function dueTask({ config, now }: Pick<RetentionOptions, 'config' | 'now'>): ArchiveTask | undefined {
  const { state, audit } = config();
  const { folder, rotateBytes, replica, keep } = audit;
  if (keep === undefined) return undefined;
  const files = listParts(folder).map(sizeAndEnd);
  const byAge = keep.ageMs === undefined ? '' : new Date(now() - keep.ageMs).toISOString();
  const bySize = keep.bytes === undefined ? '' : timeOfSize(files, keep.bytes);
  const before = byAge > bySize ? byAge : bySize;
  return files.some(({ end }) => end !== '' && end < before)
    ? { folder, rotateBytes, state, to: keep.archive, before, ...(replica !== undefined && { replica }) }
    : undefined;
}

interface SizedFile {
  readonly bytes: number;
  /** The time of the last record; '' if there is none. */
  readonly end: string;
}

function sizeAndEnd({ path }: ChainPart): SizedFile {
  const bytes = statSync(path, { throwIfNoEntry: false })?.size ?? 0;
  const line = bytes === 0 ? undefined : readLastLine(path, bytes);
  return { bytes, end: String((line === undefined ? undefined : parseRecord(line))?.ts ?? '') };
}

/** Returns the time before which files must go, so that the others have at most these bytes. */
function timeOfSize(files: readonly SizedFile[], most: number): string {
  let [bytes, before] = [files.reduce((sum, file) => sum + file.bytes, 0), ''];
  for (const file of files.filter(({ end }) => end !== '').sort((a, b) => (a.end < b.end ? -1 : 1))) {
    if (bytes <= most) break;
    bytes -= file.bytes;
    before = new Date(Date.parse(file.end) + 1).toISOString();
  }
  return before;
}
