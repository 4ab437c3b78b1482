/** Owns the walk through folders of the workspace, each held open, symlinks never followed; refuses to go on without end. */
import type { Dirent } from 'node:fs';
import { TimeSlices } from '../../../catalogs/text/time-slices.ts';
import { withFileSnapshot } from '../workspace/file-snapshot.ts';
import type { OpenFolder } from '../workspace/open-folder.ts';
import { compileGlob, type Glob } from './glob-matcher.ts';

/** One entry, with the open folder that holds it (only until the next entry is asked for). */
export interface WalkedEntry {
  /** Relative to the workspace. */
  readonly path: string;
  readonly name: string;
  readonly kind: 'folder' | 'file' | 'link' | 'other';
  readonly folder: OpenFolder;
}

/** How a walk goes. `hidden` takes dot files and ignored files in. `ignored` are the rules of the folders above. */
export interface WalkOptions {
  readonly depth: number;
  readonly hidden: boolean;
  readonly signal: AbortSignal;
  readonly ignored?: readonly IgnoreRule[];
  /** That of the walk around it. */
  readonly pace?: TimeSlices;
}

/** One line of a .gitignore; `base` is its folder, relative to the workspace, '' for the root. */
export interface IgnoreRule {
  readonly base: string;
  readonly glob: Glob;
  readonly foldersOnly: boolean;
  readonly negated: boolean;
}

const MAX_DEPTH = 64;
/** No call can name a longer path. */
const MAX_PATH = 4096;
/** Bytes of a .gitignore; what is more is not read. */
const MAX_IGNORE_BYTES = 64 * 1024;
/** Rules of all .gitignore files together; what is more is not read. Each entry is compared with each rule. */
export const MAX_IGNORE_RULES = 2000;

/** Entries in order of their names, a folder before what is in it. `prefix` is the folder's path. What cannot be opened is passed over. */
export async function* walkFolder(folder: OpenFolder, how: WalkOptions, prefix: string): AsyncGenerator<WalkedEntry> {
  const pace = how.pace ?? new TimeSlices(how.signal);
  const rules = how.hidden
    ? []
    : [...(how.ignored ?? []), ...(await readIgnoreRules(folder, prefix))].slice(0, MAX_IGNORE_RULES);
  for (const entry of await folder.entries(pace)) {
    how.signal.throwIfAborted();
    const path = prefix === '' ? entry.name : `${prefix}/${entry.name}`;
    const kind = kindOf(entry);
    if (pace.isDue) await pace.rest();
    if (path.length > MAX_PATH) continue;
    if (
      !how.hidden &&
      (entry.name.startsWith('.') || (await isIgnored(rules, { path, isFolder: kind === 'folder' }, pace)))
    )
      continue;
    yield { path, name: entry.name, kind, folder };
    if (kind !== 'folder' || how.depth <= 1 || path.split('/').length > MAX_DEPTH) continue;
    const inner = await folder.enter(entry.name).catch(() => undefined);
    if (inner === undefined) continue;
    try {
      yield* walkFolder(inner, { ...how, depth: how.depth - 1, ignored: rules, pace }, path);
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

/** The rules in this folder's .gitignore; a file that cannot be read has none. */
export async function readIgnoreRules(folder: OpenFolder, base: string): Promise<readonly IgnoreRule[]> {
  const text = await withFileSnapshot({ folder, name: '.gitignore', most: MAX_IGNORE_BYTES }, ({ bytes }) =>
    bytes.toString('utf8'),
  ).catch(() => undefined);
  return text === undefined ? [] : parseIgnore(text, base);
}

/** Parses a .gitignore (gitignore(5)), its first 2,000 rules. Pure. */
export function parseIgnore(text: string, base: string): readonly IgnoreRule[] {
  return text
    .slice(0, MAX_IGNORE_BYTES)
    .split(/\r?\n/)
    .slice(0, MAX_IGNORE_RULES)
    .flatMap((raw) => {
      const line = withoutBlanks(raw);
      if (line === '' || line.startsWith('#')) return [];
      const negated = line.startsWith('!');
      const pattern = line.slice(negated ? 1 : 0);
      const body = pattern.replace(/\/$/, '');
      const glob = safeGlob(body);
      return glob === undefined ? [] : [{ base, glob, foldersOnly: pattern.endsWith('/'), negated }];
    });
}

/** The line without blanks at its end; an escaped one stays. A loop, because an expression is quadratic over long runs of blanks. */
function withoutBlanks(line: string): string {
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

/** True when the last rule that matches ignores. A path that a rule's folder does not hold is not its business. Two thousand long rules take seconds. */
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
