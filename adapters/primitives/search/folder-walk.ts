/** Walks through folders of the workspace. Each folder is held open, and symlinks are never followed. */
import type { Dirent } from 'node:fs';
import { TimeSlices } from '../../../catalogs/text/time-slices.ts';
import { withFileSnapshot } from '../workspace/file-snapshot.ts';
import type { OpenFolder } from '../workspace/open-folder.ts';
import { compileGlob, type Glob } from './glob-matcher.ts';

/** One entry, with the open folder that contains it. The folder is open until the next entry is requested. */
export interface WalkedEntry {
  /** Relative to the workspace. */
  readonly path: string;
  readonly name: string;
  readonly kind: 'folder' | 'file' | 'link' | 'other';
  readonly folder: OpenFolder;
}

/** Options of a walk. `hidden` includes dot files and ignored files. `ignored` are the rules of the folders above. */
export interface WalkOptions {
  readonly depth: number;
  readonly hidden: boolean;
  readonly signal: AbortSignal;
  readonly ignored?: readonly IgnoreRule[];
  /** The time slices of the enclosing walk. */
  readonly pace?: TimeSlices;
}

/** One line of a .gitignore file. `base` is the folder of the file relative to the workspace, '' for the root. */
export interface IgnoreRule {
  readonly base: string;
  readonly glob: Glob;
  readonly foldersOnly: boolean;
  readonly negated: boolean;
}

const MAX_DEPTH = 64;
/** No call can name a longer path. */
const MAX_PATH = 4096;
/** Most bytes of one .gitignore file that are read. */
const MAX_IGNORE_BYTES = 64 * 1024;
/**
 * Most rules of all .gitignore files together, because each entry is compared with each rule. Further rules are
 * ignored.
 */
export const MAX_IGNORE_RULES = 2000;

/**
 * Yields entries in order of their names, a folder before its content. `prefix` is the path of the folder. Skips
 * folders that cannot be opened.
 */
export async function* walkFolder(
  folder: OpenFolder,
  options: WalkOptions,
  prefix: string,
): AsyncGenerator<WalkedEntry> {
  const pace = options.pace ?? new TimeSlices(options.signal);
  const rules = options.hidden
    ? []
    : [...(options.ignored ?? []), ...(await readIgnoreRules(folder, prefix))].slice(0, MAX_IGNORE_RULES);
  for (const entry of await folder.entries(pace)) {
    options.signal.throwIfAborted();
    const path = prefix === '' ? entry.name : `${prefix}/${entry.name}`;
    const kind = kindOf(entry);
    if (pace.isDue) await pace.rest();
    if (path.length > MAX_PATH) continue;
    if (
      !options.hidden &&
      (entry.name.startsWith('.') || (await isIgnored(rules, { path, isFolder: kind === 'folder' }, pace)))
    )
      continue;
    yield { path, name: entry.name, kind, folder };
    if (kind !== 'folder' || options.depth <= 1 || path.split('/').length > MAX_DEPTH) continue;
    const inner = await folder.enter(entry.name).catch(() => undefined);
    if (inner === undefined) continue;
    try {
      yield* walkFolder(inner, { ...options, depth: options.depth - 1, ignored: rules, pace }, path);
    } finally {
      await inner.close();
    }
  }
}

function kindOf(entry: Dirent): WalkedEntry['kind'] {
  if (entry.isDirectory()) return 'folder';
  if (entry.isFile()) return 'file';
  return entry.isSymbolicLink() ? 'link' : 'other';
}

/** Returns the rules of the .gitignore file in a folder, or none if it cannot be read. */
export async function readIgnoreRules(folder: OpenFolder, base: string): Promise<readonly IgnoreRule[]> {
  const text = await withFileSnapshot({ folder, name: '.gitignore', maxBytes: MAX_IGNORE_BYTES }, ({ bytes }) =>
    bytes.toString('utf8'),
  ).catch(() => undefined);
  return text === undefined ? [] : parseIgnore(text, base);
}

/** Parses the first 2,000 rules of a .gitignore file, see gitignore(5). */
export function parseIgnore(text: string, base: string): readonly IgnoreRule[] {
  return text
    .slice(0, MAX_IGNORE_BYTES)
    .split(/\r?\n/)
    .slice(0, MAX_IGNORE_RULES)
    .flatMap((raw) => {
      const line = withoutTrailingBlanks(raw);
      if (line === '' || line.startsWith('#')) return [];
      const negated = line.startsWith('!');
      const pattern = line.slice(negated ? 1 : 0);
      const body = pattern.replace(/\/$/, '');
      const glob = safeGlob(body);
      return glob === undefined ? [] : [{ base, glob, foldersOnly: pattern.endsWith('/'), negated }];
    });
}

/**
 * Removes blanks at the end of a line, except an escaped one. A regular expression would be quadratic for many blanks.
 */
function withoutTrailingBlanks(line: string): string {
  let end = line.length;
  while (end > 0 && (line[end - 1] === ' ' || line[end - 1] === '\t')) end -= 1;
  return line.slice(0, end > 0 && end < line.length && line[end - 1] === '\\' ? end + 1 : end);
}

function safeGlob(pattern: string): Glob | undefined {
  try {
    return compileGlob(pattern);
  } catch {
    return undefined;
  }
}

/**
 * Returns true if the last rule that matches a path ignores it. A rule applies only below its folder. Runs in time
 * slices: 2,000 long rules take seconds.
 */
export async function isIgnored(
  rules: readonly IgnoreRule[],
  { path, isFolder }: { readonly path: string; readonly isFolder: boolean },
  pace: TimeSlices,
): Promise<boolean> {
  for (let at = rules.length - 1; at >= 0; at -= 1) {
    if (pace.isDue) await pace.rest();
    const rule = rules[at];
    if (rule === undefined || (rule.foldersOnly && !isFolder)) continue;
    const inner =
      rule.base === '' ? path : path.startsWith(`${rule.base}/`) ? path.slice(rule.base.length + 1) : undefined;
    if (inner !== undefined && rule.glob(inner)) return !rule.negated;
  }
  return false;
}
