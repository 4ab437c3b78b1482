/** Owns how faults of a configuration are collected and shown; refuses to keep more than one fault a place. */
/** Where a value stands: keys and indices from the root of a file. */
export type Path = readonly (string | number)[];

/** A path as one text, for maps: an index and the same number as key are one. */
export function pathId(path: Path): string {
  return JSON.stringify(path.map(String));
}

/** A place in a file, both 1-based. */
export interface ConfigPath {
  readonly line: number;
  readonly column: number;
}

/** A file whose values know where they stand. */
export interface Located {
  readonly file: string;
  /** The place of a value, or of its key; of the nearest parent when it stands nowhere itself. */
  readonly placeOf: (path: Path, part: 'key' | 'value') => ConfigPath;
  /** The file of a value, where several were joined into one; absent: `file`. */
  readonly fileOf?: (path: Path) => string;
}

/** Faults and remarks of one load. The first fault of a place stands: later ones mostly follow from it. */
export class ProblemReport {
  readonly problems: Problem[] = [];
  readonly warnings: Problem[] = [];
  readonly #located: Located;
  readonly #taken = new Set<string>();

  constructor(located: Located) {
    this.#located = located;
  }

  /** A fault of the value at `path`. Messages are public: they never hold a substituted value. */
  refuse(path: Path, message: string): void {
    this.#add(path, 'value', message);
  }

  /** A fault of the key at `path`. */
  refuseKey(path: Path, message: string): void {
    this.#add(path, 'key', message);
  }

  /** The file in which the value at `path` stands. */
  fileOf(path: Path): string {
    return this.#located.fileOf?.(path) ?? this.#located.file;
  }

  /** A remark on the value at `path`. */
  warn(path: Path, message: string): void {
    this.warnings.push({ file: this.fileOf(path), ...this.#located.placeOf(path, 'value'), message });
  }

  #add(path: Path, part: 'key' | 'value', message: string): void {
    const id = pathId(path);
    if (this.#taken.has(id)) return;
    this.#taken.add(id);
    this.problems.push({ file: this.fileOf(path), ...this.#located.placeOf(path, part), message });
  }
}

/** One `file:line:col: message` a line, in the order of the files' lines. */
export function formatProblems(problems: readonly Problem[]): string {
  const sorted = [...problems].sort((a, b) => compare(a.file, b.file) || a.line - b.line || a.column - b.column);
  return sorted.map(({ file, line, column, message }) => `${file}:${line}:${column}: ${message}`).join('\n');
}

/** `servers.files.args[0]`, for messages; the root is `the file`. */
export function showPath(path: Path): string {
  if (path.length === 0) return 'the file';
  return path.reduce<string>((shown, part) => {
    if (typeof part === 'number') return `${shown}[${part}]`;
    const key = /^[\w-]+$/.test(part) ? part : quote(part);
    return shown === '' ? key : `${shown}.${key}`;
  }, '');
}

/** A name from outside, quoted, short and free of control characters. */
export function quote(name: string): string {
  return JSON.stringify(name.length > 40 ? `${name.slice(0, 40)}…` : name).replace(
    /[\u007f-\u009f\u2028-\u202e\u2066-\u2069]/g,
    '?',
  );
}

/** The word of `known` that was probably meant: at most two edits away, and closer than a third of its length plus one. */
export function nearest(word: string, known: Iterable<string>): string | undefined {
  let best: string | undefined;
  let least = Math.min(2, Math.floor(word.length / 3) + 1) + 1;
  for (const candidate of known) {
    const distance = editDistance(word.toLowerCase(), candidate.toLowerCase());
    if (distance < least) [best, least] = [candidate, distance];
  }
  return best;
}

/** A list for messages: `a, b, c`. */
export function listNames(names: Iterable<string>): string {
  const all = [...names];
  return all.length === 0 ? 'none' : all.slice(0, 20).join(', ') + (all.length > 20 ? `, … (${all.length})` : '');
}

/** `did you mean "x"?`, or the list of what there is. */
export function didYouMean(name: string, known: Iterable<string>): string {
  const all = [...known];
  const meant = nearest(name, all);
  return meant === undefined ? `known are ${listNames(all)}` : `did you mean ${quote(meant)}?`;
}

/** Levenshtein distance; words over 64 characters count as far apart, so that hostile keys cost nothing. */
function editDistance(a: string, b: string): number {
  if (a.length > 64 || b.length > 64) return 64;
  let row = Array.from({ length: b.length + 1 }, (_, index) => index);
  for (let i = 1; i <= a.length; i += 1) {
    const next = [i];
    for (let j = 1; j <= b.length; j += 1) {
      const swap = (row[j - 1] ?? 0) + (a[i - 1] === b[j - 1] ? 0 : 1);
      next.push(Math.min(swap, (row[j] ?? 0) + 1, (next[j - 1] ?? 0) + 1));
    }
    row = next;
  }
  return row[b.length] ?? 64;
}

function compare(a: string, b: string): number {
  return a < b ? -1 : Number(a > b);
}
/** One fault of a configuration, as `file:line:col: seen, why, do`. */
export interface Problem {
  readonly file: string;
  readonly line: number;
  readonly column: number;
  readonly message: string;
  /** What is not taken from a client's file: for whoever checks it, not for each start. */
  readonly minor?: true;
}
