/** Owns what the four tools share for one call: root, caller, locks, versions seen, and the words for failures of the system. */
import type { BigIntStats } from 'node:fs';
import type { TollgateError } from '../../../catalogs/errors/error-table.ts';
import type { CallPathHandles } from '../../../catalogs/readers/path-handles.ts';
import type { UpstreamCall } from '../../port.ts';
import { toolFailure } from './file-text.ts';

/** What an action works with. `root` is real. */
export interface ActionContext {
  readonly root: string;
  /** The paths of the call's arguments, as they were judged. */
  readonly pathHandles: CallPathHandles;
  readonly scope: string;
  readonly signal: AbortSignal;
  readonly cap?: UpstreamCall['cap'];
  readonly mayRead?: UpstreamCall['mayRead'];
  readonly confinement?: UpstreamCall['confinement'];
  readonly outsideFolders?: UpstreamCall['outsideFolders'];
  readonly versions: SeenVersions;
  readonly locks: KeyedLocks;
  readonly stored: StoredObjects;
}

const FILES_PER_SCOPE = 4096;

/** Which version of which file each scope has seen last. Forgets the oldest beyond 4096 files a scope. */
export class SeenVersions {
  readonly #scopes = new Map<string, Map<string, string>>();

  seen(scope: string, file: string): string | undefined {
    return this.#scopes.get(scope)?.get(file);
  }

  note(scope: string, file: string, version: string): void {
    const files = this.#scopes.get(scope) ?? new Map<string, string>();
    this.#scopes.set(scope, files);
    files.delete(file);
    files.set(file, version);
    const oldest = files.keys().next().value;
    if (files.size > FILES_PER_SCOPE && oldest !== undefined) files.delete(oldest);
  }

  drop(scope: string): void {
    this.#scopes.delete(scope);
  }
}

const STORED_FILES = 4096;

/**
 * Which object was stored last under each path. Of two calls that were judged together, the second finds the object of the first
 * under its name; that one is known, any other is a change by somebody else.
 */
export class StoredObjects {
  readonly #objects = new Map<string, string>();

  note(file: string, { dev, ino }: BigIntStats): void {
    this.#objects.delete(file);
    this.#objects.set(file, `${dev}:${ino}`);
    const oldest = this.#objects.keys().next().value;
    if (this.#objects.size > STORED_FILES && oldest !== undefined) this.#objects.delete(oldest);
  }

  /** True for the object itself, as long as it has no other name. */
  is(file: string, { dev, ino, nlink }: BigIntStats): boolean {
    return nlink === 1n && this.#objects.get(file) === `${dev}:${ino}`;
  }
}

/** One worker at a time for each key, in order of arrival. */
export class KeyedLocks {
  readonly #tails = new Map<string, Promise<unknown>>();

  async hold<T>(key: string, work: () => Promise<T>): Promise<T> {
    const before = this.#tails.get(key) ?? Promise.resolve();
    const mine = before.then(work, work);
    const tail = mine.catch(() => undefined);
    this.#tails.set(key, tail);
    try {
      return await mine;
    } finally {
      if (this.#tails.get(key) === tail) this.#tails.delete(key);
    }
  }
}

/** Turns an error of the system into a failure in public words; anything else is thrown as it came. */
export function fileSystemError(error: unknown, relative: string): TollgateError {
  const code = (error as NodeJS.ErrnoException | undefined)?.code;
  const shown = JSON.stringify(relative);
  const parent = JSON.stringify(relative.includes('/') ? relative.slice(0, relative.lastIndexOf('/')) : '.');
  switch (code) {
    case 'ENOENT':
      return toolFailure(`${shown} does not exist.`, `Look for it: read action="list" path=${parent}`);
    case 'ENOTDIR':
      return toolFailure(
        `${shown} is not, or lies beneath, something that is no directory.`,
        `Look: read action="list" path=${parent}`,
      );
    case 'EISDIR':
      return toolFailure(`${shown} is a directory.`, `List it: read action="list" path=${shown}`);
    case 'EACCES':
    case 'EPERM':
    case 'EROFS':
      return toolFailure(
        `${shown}: the system does not permit this.`,
        'Choose another file, or ask the user for the permission.',
      );
    case 'ENOSPC':
    case 'EDQUOT':
    case 'EFBIG':
      return toolFailure(`${shown}: no space is left; the file is as it was.`, 'Free space, then call again.');
    case 'EEXIST':
      return toolFailure(`${shown} exists.`, 'Read it, then write with mode="auto"; or use mode="overwrite".');
    case 'ENXIO':
      return toolFailure(`${shown} is no regular file.`, 'Only regular files are read and written.');
    default:
      throw error;
  }
}
