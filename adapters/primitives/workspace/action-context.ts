/** What the actions of the four tools share: the call, file versions, locks, and messages for system errors. */
import type { BigIntStats } from 'node:fs';
import type { TollgateError } from '../../../catalogs/errors/error-table.ts';
import type { CallPathHandles } from '../../../catalogs/readers/path-handles.ts';
import type { UpstreamCall } from '../../port.ts';
import { toolFailure } from './file-text.ts';

/** The context of one action. `root` is the real path of the workspace. */
export interface ActionContext {
  readonly root: string;
  /** The device of the workspace if it is local: see `localDeviceOf`. */
  readonly localDevice: bigint | undefined;
  /** The paths of the arguments, as the policy judged them. */
  readonly pathHandles: CallPathHandles;
  readonly call: UpstreamCall;
  /** Aborted when the call is cancelled or its timeout is over. */
  readonly signal: AbortSignal;
  readonly versions: SeenVersions;
  readonly locks: KeyedLocks;
  readonly stored: StoredObjects;
}

const MAX_FILES = 4096;

/** Facts of the files that were recorded last, at most 4,096. */
class RecentFiles {
  readonly #facts = new Map<string, string>();

  get(file: string): string | undefined {
    return this.#facts.get(file);
  }

  record(file: string, fact: string): void {
    this.#facts.delete(file);
    this.#facts.set(file, fact);
    const oldest = this.#facts.keys().next().value;
    if (this.#facts.size > MAX_FILES && oldest !== undefined) this.#facts.delete(oldest);
  }
}

/** The version of each file that a scope has seen last. Keeps the last 4,096 files of each scope. */
export class SeenVersions {
  readonly #scopes = new Map<string, RecentFiles>();

  /** Returns the version that the scope saw last. */
  lastSeen(scope: string, file: string): string | undefined {
    return this.#scopes.get(scope)?.get(file);
  }

  /** Records that the scope has seen this version. */
  record(scope: string, file: string, version: string): void {
    const files = this.#scopes.get(scope) ?? new RecentFiles();
    this.#scopes.set(scope, files);
    files.record(file, version);
  }

  /** Forgets all files of a scope. */
  drop(scope: string): void {
    this.#scopes.delete(scope);
  }
}

/**
 * The object that Tollgate stored last under each path. If two calls were judged before either ran, the second one
 * finds the object that the first one stored. This object is accepted; any other object is a change by another program.
 */
export class StoredObjects {
  readonly #objects = new RecentFiles();

  /** Records the object that was stored under a path. */
  record(file: string, { dev, ino }: BigIntStats): void {
    this.#objects.record(file, `${dev}:${ino}`);
  }

  /** Returns true for the object that was stored last, if it has no other hard link. */
  isLastStored(file: string, { dev, ino, nlink }: BigIntStats): boolean {
    return nlink === 1n && this.#objects.get(file) === `${dev}:${ino}`;
  }
}

/** Locks by key. Waiting tasks run in order of arrival. */
export class KeyedLocks {
  readonly #tails = new Map<string, Promise<unknown>>();

  /** Runs a task when all earlier tasks with this key have ended. */
  async hold<T>(key: string, task: () => Promise<T>): Promise<T> {
    const previous = this.#tails.get(key) ?? Promise.resolve();
    const result = previous.then(task, task);
    const tail = result.catch(() => undefined);
    this.#tails.set(key, tail);
    try {
      return await result;
    } finally {
      if (this.#tails.get(key) === tail) this.#tails.delete(key);
    }
  }
}

/** Converts a system error to a TOOL_FAILED error with a public message. Rethrows any other error. */
export function fileSystemError(error: unknown, relative: string): TollgateError {
  const code = (error as NodeJS.ErrnoException | undefined)?.code;
  const shown = JSON.stringify(relative);
  const parent = JSON.stringify(relative.includes('/') ? relative.slice(0, relative.lastIndexOf('/')) : '.');
  switch (code) {
    case 'ENOENT':
      return toolFailure(`${shown} does not exist.`, `Look for it: read action="list" path=${parent}`);
    case 'ENOTDIR':
      return toolFailure(
        `${shown} or a folder above it is not a directory.`,
        `Look for it: read action="list" path=${parent}`,
      );
    case 'EISDIR':
      return toolFailure(`${shown} is a directory.`, `List it: read action="list" path=${shown}`);
    case 'EACCES':
    case 'EPERM':
    case 'EROFS':
      return toolFailure(
        `${shown}: the system does not permit this.`,
        'Use another file, or ask the user for permission.',
      );
    case 'ENOSPC':
    case 'EDQUOT':
    case 'EFBIG':
      return toolFailure(`${shown}: no space is left. The file was not changed.`, 'Free space, then call again.');
    case 'EEXIST':
      return toolFailure(`${shown} already exists.`, 'Read it, then write with mode="auto", or use mode="overwrite".');
    case 'ENXIO':
      return toolFailure(`${shown} is not a regular file.`, 'Use a regular file.');
    default:
      throw error;
  }
}
