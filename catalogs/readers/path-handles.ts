/**
 * Resolves path arguments to open descriptors, so that the object that the policy judges is the object that is opened.
 */

import {
  type BigIntStats,
  closeSync,
  constants,
  existsSync,
  fstatSync,
  lstatSync,
  openSync,
  readlinkSync,
} from 'node:fs';
import path from 'node:path';
import { TollgateError } from '../errors/error-table.ts';
import type { Verb } from '../tools/tool-definition.ts';
import { existingOf, locate, type PathLocation, realPathOf } from './path-location.ts';

/** Linux: names an object without opening it for reading or writing (open(2)). Node has no constant for it. */
const O_PATH = 0o10000000;
const { O_DIRECTORY, O_NOFOLLOW } = constants;
/** How often a path that changes while it is resolved is resolved again. */
const ATTEMPTS = 8;

/**
 * Returns true if a path can be resolved to a descriptor of the object: Linux with /proc. Elsewhere names are compared
 * instead.
 */
export function supportsPathHandles(
  platform: string = process.platform,
  hasProc: () => boolean = () => existsSync('/proc/self/fd'),
): boolean {
  return platform === 'linux' && hasProc();
}

const CAN_HOLD = supportsPathHandles();

/** Returns the path under which this process reaches an open descriptor. The kernel resolves no name in it. */
export function pathOfDescriptor(descriptor: number): string {
  return `/proc/self/fd/${descriptor}`;
}

/** Descriptors of one path. `missing` are the names below `parent` that do not exist, including the last one. */
interface Descriptors {
  readonly parent: number;
  readonly object?: number;
  readonly missing: readonly string[];
  readonly stat?: BigIntStats;
}

/**
 * One resolved path. While it is open its descriptors refer to the object that was judged, whatever happens to the
 * names.
 */
export class PathHandle {
  readonly location: PathLocation;
  /** The object when it was resolved; undefined if there is none, or if the path has a problem. */
  readonly stat: BigIntStats | undefined;
  /** Names below `parent` that did not exist. */
  readonly missing: readonly string[];
  #parent: number | undefined;
  #object: number | undefined;

  constructor(location: PathLocation, found: Partial<Descriptors> = {}) {
    this.location = location;
    this.stat = found.stat;
    this.missing = found.missing ?? [];
    this.#parent = found.parent;
    this.#object = found.object;
  }

  /** The object, as a path that follows no name; undefined if there is none or the platform has no such paths. */
  get object(): string | undefined {
    return this.#object === undefined ? undefined : pathOfDescriptor(this.#object);
  }

  /** The nearest existing folder above the object, in the same form. */
  get parent(): string | undefined {
    return this.#parent === undefined ? undefined : pathOfDescriptor(this.#parent);
  }

  /** The object as it is now. */
  statNow(): BigIntStats | undefined {
    return this.#object === undefined ? statOf(this.location.absolute) : fstatSync(this.#object, { bigint: true });
  }

  /** Returns true for a stat of the object that was resolved. */
  isObject(stat: Pick<BigIntStats, 'dev' | 'ino'>): boolean {
    return this.stat !== undefined && this.stat.dev === stat.dev && this.stat.ino === stat.ino;
  }

  /**
   * Returns true while there is no link on the way of the resolved name. A path with a problem leads nowhere, so
   * nothing is compared.
   */
  isPlain(): boolean {
    if (this.location.problem !== undefined) return true;
    try {
      return realPathOf(this.location.absolute) === this.location.absolute;
    } catch {
      return false;
    }
  }

  /** Returns true while the resolved name leads, without any link, to what was resolved. */
  isInPlace(): boolean {
    if (this.location.problem !== undefined) return true;
    const now = statOf(this.location.absolute);
    return this.isPlain() && (now === undefined ? this.stat === undefined : this.isObject(now));
  }

  /** Closes the descriptors. Can be called again. */
  close(): void {
    closeAll(this.#object, this.#parent);
    this.#object = undefined;
    this.#parent = undefined;
  }
}

/** The paths that one call names, by the text of the argument. Close them when the call has ended. */
export class CallPathHandles {
  readonly #roots: readonly string[];
  readonly #byText = new Map<string, PathHandle>();

  constructor(roots: readonly string[]) {
    this.#roots = roots;
  }

  /**
   * Returns the path of an argument, resolved when it is first asked for. Throws DENIED for one that keeps changing.
   */
  of(text: string): PathHandle {
    const held = this.#byText.get(text) ?? openPathHandle(this.#roots, text);
    this.#byText.set(text, held);
    return held;
  }

  /** True for a call that names no path. */
  get isEmpty(): boolean {
    return this.#byText.size === 0;
  }

  /** All that were resolved, in that order. */
  all(): readonly PathHandle[] {
    return [...this.#byText.values()];
  }

  close(): void {
    for (const held of this.#byText.values()) held.close();
  }
}

/**
 * Resolves `raw` among `roots` as `locate` does, and opens its target without following a link. The location is the
 * real path of these descriptors. Throws DENIED for a path that changes each time it is resolved, RATE_LIMITED if no
 * descriptor is free.
 */
export function openPathHandle(roots: readonly string[], raw: string): PathHandle {
  for (let attempt = 0; attempt < ATTEMPTS; attempt += 1) {
    let found: Partial<Descriptors> | undefined;
    const location = locate(roots, raw, (absolute) => {
      found = openReal(absolute);
      return found === undefined ? realPathOf(absolute) : absolute;
    });
    if (location.problem !== undefined) {
      closeAll(found?.object, found?.parent);
      return new PathHandle(location);
    }
    found ??= CAN_HOLD ? openAll(location.absolute) : statOnly(location.absolute);
    if (found !== undefined) return new PathHandle(location, found);
  }
  throw pathChanged();
}

/**
 * Opens an absolute path as it is written. Undefined if a link is on the way, or if the platform has no descriptors of
 * paths.
 */
export function openPlainHandle(absolute: string): PathHandle | undefined {
  const found = CAN_HOLD ? openAll(absolute) : undefined;
  return found === undefined ? undefined : new PathHandle({ absolute, relative: absolute, inside: false }, found);
}

/**
 * For a program that opens the judged paths by name: checks before and after `work` that the names lead to what was
 * judged. The program's sandbox limits what a change in between can reach. After a change the object may be another
 * one, and after a command the folder in which it ran. Throws DENIED.
 */
export function whileInPlace<T>(held: CallPathHandles, verb: Verb, work: () => Promise<T>): Promise<T> {
  return held.isEmpty ? work() : compareAround(held, verb, work);
}

async function compareAround<T>(held: CallPathHandles, verb: Verb, work: () => Promise<T>): Promise<T> {
  if (!held.all().every((one) => one.isInPlace())) throw pathChanged();
  const done = await work();
  if (verb === 'execute') return done;
  if (!held.all().every((one) => (verb === 'read' ? one.isInPlace() : one.isPlain())))
    throw pathChanged(verb === 'read' ? undefined : 'It may have been done elsewhere.');
  return done;
}

/** Returns the error for a path that is no longer what was judged. */
export function pathChanged(consequence = 'Nothing was done.'): TollgateError {
  return new TollgateError('DENIED', {
    detail: `The path changed while it was opened. ${consequence}`,
    next: 'Call again. If this continues, another process keeps changing this folder.',
  });
}

/** Returns the state of a path on a platform without descriptors of paths. */
function statOnly(absolute: string): Partial<Descriptors> {
  const stat = statOf(absolute);
  return stat === undefined ? { missing: [path.basename(absolute)] } : { stat };
}

/**
 * Opens an object that exists under its real path, and its folder. The descriptors prove that there is no link on the
 * way, which costs less than to resolve the path first. Undefined for any other path, or if no descriptor is free.
 */
function openReal(absolute: string): Descriptors | undefined {
  if (!CAN_HOLD) return undefined;
  const folder = path.dirname(absolute);
  try {
    const parent = openPath(folder, O_DIRECTORY);
    const found = parent === undefined ? undefined : openBelow(parent, folder, [path.basename(absolute)]);
    if (found?.object !== undefined) return found;
    closeAll(found?.parent);
  } catch {}
  return undefined;
}

/** Opens the object and its parent folder. Undefined if a name on the way changed since it was located. */
function openAll(absolute: string): Descriptors | undefined {
  const there = existingOf(path.dirname(absolute));
  const names = path.relative(there, absolute).split('/').slice(1);
  for (
    let folder = there, name = path.relative(there, absolute).split('/')[0] ?? '';
    ;
    name = path.basename(folder), folder = path.dirname(folder)
  ) {
    names.unshift(name);
    const parent = openPath(folder, O_DIRECTORY);
    if (parent !== undefined) return openBelow(parent, folder, names);
    if (folder === '/') return undefined;
  }
}

/**
 * Opens the object of this name in its open folder; several names do not exist. Closes the folder and returns undefined
 * if a name on the way changed.
 */
function openBelow(parent: number, folder: string, names: readonly string[]): Descriptors | undefined {
  const [name = '', ...others] = names;
  let found: Partial<Descriptors> | undefined;
  let isInPlace = false;
  try {
    found = others.length > 0 ? { missing: names } : openObject(parent, path.join(folder, name), name);
    isInPlace = found !== undefined && readlinkSync(pathOfDescriptor(parent)) === folder;
    return isInPlace ? { missing: [], ...found, parent } : undefined;
  } finally {
    if (!isInPlace) closeAll(found?.object, parent);
  }
}

function openObject(parent: number, absolute: string, name: string): Omit<Descriptors, 'parent'> | undefined {
  // The root of the file system has no name.
  const object = openPath(name === '' ? '/' : `${pathOfDescriptor(parent)}/${name}`, 0);
  if (object === undefined) return { missing: [name] };
  const stat = fstatSync(object, { bigint: true });
  if (!stat.isSymbolicLink() && readlinkSync(pathOfDescriptor(object)) === absolute)
    return { object, missing: [], stat };
  closeSync(object);
  return undefined;
}

function closeAll(...descriptors: readonly (number | undefined)[]): void {
  for (const descriptor of descriptors) if (descriptor !== undefined) closeSync(descriptor);
}

/** Returns a descriptor of an object, without following a link at its end; undefined if there is none. */
function openPath(file: string, flags: number): number | undefined {
  try {
    return openSync(file, O_PATH | O_NOFOLLOW | flags);
  } catch (error) {
    const { code = '' } = error as NodeJS.ErrnoException;
    if (code === 'EMFILE' || code === 'ENFILE')
      throw new TollgateError('RATE_LIMITED', { detail: 'Too many files are open at once.', cause: error });
    return undefined;
  }
}

function statOf(file: string): BigIntStats | undefined {
  try {
    return lstatSync(file, { bigint: true });
  } catch {
    return undefined;
  }
}
