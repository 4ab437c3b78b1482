/** Collects the problems of a configuration and formats them, at most one error for each place. */

import { editDistance } from '../../catalogs/text/edit-distance.ts';

/** The place of a value: keys and indices from the root of a file. */
export type Path = readonly (string | number)[];

/** Returns a path as a key of maps. An index and the same number as a key are equal. */
export function pathId(path: Path): string {
  return JSON.stringify(path.map(String));
}

/** A place in a file, both counted from 1. */
export interface ConfigPath {
  readonly line: number;
  readonly column: number;
}

/** A file that knows the place of each of its values. */
export interface Located {
  readonly file: string;
  /** Returns the place of a value, or of its key; that of the nearest parent if it has none itself. */
  readonly placeOf: (path: Path, part: 'key' | 'value') => ConfigPath;
  /** Returns the file of a value, if several files were joined; absent: `file`. */
  readonly fileOf?: (path: Path) => string;
}

/**
 * The errors and warnings of one load. Only the first error of a place is kept, because later ones mostly follow from
 * it.
 */
export class ProblemReport {
  readonly problems: Problem[] = [];
  readonly warnings: Problem[] = [];
  readonly #located: Located;
  readonly #reported = new Set<string>();

  constructor(located: Located) {
    this.#located = located;
  }

  /** Adds an error of the value at `path`. A message must never contain the value of a variable. */
  refuse(path: Path, message: string): void {
    this.#add(path, 'value', message);
  }

  /** Adds an error of the key at `path`. */
  refuseKey(path: Path, message: string): void {
    this.#add(path, 'key', message);
  }

  /** Returns the file of the value at `path`. */
  fileOf(path: Path): string {
    return this.#located.fileOf?.(path) ?? this.#located.file;
  }

  /** Adds a warning about the value at `path`. */
  warn(path: Path, message: string): void {
    this.warnings.push({ file: this.fileOf(path), ...this.#located.placeOf(path, 'value'), message });
  }

  #add(path: Path, part: 'key' | 'value', message: string): void {
    const id = pathId(path);
    if (this.#reported.has(id)) return;
    this.#reported.add(id);
    this.problems.push({ file: this.fileOf(path), ...this.#located.placeOf(path, part), message });
  }
}

/** Returns a problem of a whole file. */
export function fileProblem(file: string, message: string): Problem {
  return { file, line: 1, column: 1, message };
}

/** Returns one `file:line:col: message` per line, in the order of the files' lines. */
export function formatProblems(problems: readonly Problem[]): string {
  const sorted = [...problems].sort((a, b) => compare(a.file, b.file) || a.line - b.line || a.column - b.column);
  return sorted.map(({ file, line, column, message }) => `${file}:${line}:${column}: ${message}`).join('\n');
}

/** Returns `servers.files.args[0]`, for messages; the root is `the file`. */
export function showPath(path: Path): string {
  if (path.length === 0) return 'the file';
  return path.reduce<string>((shown, part) => {
    if (typeof part === 'number') return `${shown}[${part}]`;
    const key = /^[\w-]+$/.test(part) ? part : quote(part);
    return shown === '' ? key : `${shown}.${key}`;
  }, '');
}

/** Returns a name from a file or caller in quotes: at most 40 characters, without control characters. */
export function quote(name: string): string {
  return JSON.stringify(name.length > 40 ? `${name.slice(0, 40)}…` : name).replace(
    /[\u007f-\u009f\u2028-\u202e\u2066-\u2069]/g,
    '?',
  );
}

/**
 * Returns the word of `known` that was probably meant: at most two edits away, and closer than a third of its length
 * plus one.
 */
export function nearest(word: string, known: Iterable<string>): string | undefined {
  let best: string | undefined;
  let least = Math.min(2, Math.floor(word.length / 3) + 1) + 1;
  for (const candidate of known) {
    const distance = editDistance(word.toLowerCase(), candidate.toLowerCase());
    if (distance < least) [best, least] = [candidate, distance];
  }
  return best;
}

/** Returns a list for messages: `a, b, c`. */
export function listNames(names: Iterable<string>): string {
  const all = [...names];
  return all.length === 0 ? 'none' : all.slice(0, 20).join(', ') + (all.length > 20 ? `, … (${all.length})` : '');
}

/** Returns `did you mean "x"?`, or the list of known words. */
export function didYouMean(name: string, known: Iterable<string>): string {
  const all = [...known];
  const meant = nearest(name, all);
  return meant === undefined ? `known are ${listNames(all)}` : `did you mean ${quote(meant)}?`;
}

function compare(a: string, b: string): number {
  return a < b ? -1 : Number(a > b);
}
/** One problem of a configuration, as `file:line:col: what happened, why, what to do`. */
export interface Problem {
  readonly file: string;
  readonly line: number;
  readonly column: number;
  readonly message: string;
  /** A setting of a client file that has no effect. Checks report it, starts do not. */
  readonly minor?: true;
}
