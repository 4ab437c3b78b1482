/** Owns lists of directory entries from backends' texts, and finding names in a tree; refuses to hide what the backend left out. */
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { firstOf, note } from '../../../catalogs/text/text-pages.ts';
import { TimeSlices } from '../../../catalogs/text/time-slices.ts';
import type { ToolResult } from '../../../catalogs/tools/tool-definition.ts';
import { isObject } from '../../rpc/message-parser.ts';
import { type IgnoreRule, isIgnored, MAX_IGNORE_RULES, parseIgnore } from '../search/folder-walk.ts';
import { compileGlob } from '../search/glob-matcher.ts';
import { fileSystemError } from '../workspace/action-context.ts';
import { invalidArguments, printableName, textResult } from '../workspace/file-text.ts';
import {
  type BackendAnswer,
  backendFailure,
  callMainTool,
  callMappingStep,
  type MappedCall,
  matchMappingText,
} from './mapped-call.ts';
import { shownPathOf } from './mapped-file-facts.ts';

const ENTRIES = 500;
const MAX_FOLDERS = 500;
/** Lines of one answer that are read, and entries of one tree. */
const MAX_ENTRIES = 100_000;
/** Levels of a tree, and of a path below the listed folder. */
const MAX_DEPTH = 64;

/** One entry; `path` is relative to the listed folder. */
export interface ListedEntry {
  readonly path: string;
  readonly folder: boolean;
}

type IsShown = (entry: ListedEntry) => Promise<boolean>;

/** Entries and what the backend says it left out. */
interface Listing {
  readonly entries: readonly ListedEntry[];
  readonly gaps: readonly string[];
}

/** Carries out `read action="list"`: one call when the backend descends by itself, else one a folder, at most 500. */
export async function listMapped(work: MappedCall): Promise<ToolResult> {
  const depth = typeof work.args.depth === 'number' ? work.args.depth : 1;
  if (depth < 1) throw invalidArguments('depth must be at least 1.', 'Leave depth out for one level.');
  const first = await callMainTool(work);
  const isShown = await shownEntryFilter(work);
  const listing = work.mapping.steps.has('folder')
    ? await descend(work, first, { depth, isShown })
    : readListing(work, first);
  const entries = await filterEntries(work, listing.entries, isShown);
  const names = entries.sort(byPath).map((entry) => printableName(entry.path) + (entry.folder ? '/' : ''));
  return namesPage(work, names, listing.gaps);
}

/** Carries out `read action="find"` on a backend that gives its whole tree as JSON: names are matched here. */
export async function findMapped(work: MappedCall): Promise<ToolResult> {
  const { pattern } = work.args;
  if (typeof pattern !== 'string' || pattern === '')
    throw invalidArguments('pattern is missing.', 'Give a glob such as src/**/*.ts.');
  const matches = compileGlob(pattern);
  const answered = await callMainTool(work);
  if (answered.failed) throw backendFailure(work, answered);
  const isShown = await shownEntryFilter(work);
  const { entries, gaps } = readTree(work, answered.text);
  const files = await filterEntries(work, entries, (entry) => !entry.folder && matches(entry.path) && isShown(entry));
  return namesPage(
    work,
    files.sort(byPath).map((entry) => printableName(mappedFolderPrefix(work) + entry.path)),
    gaps,
  );
}

/** The tree that the backend gives as JSON, as far as its limits go. Throws UPSTREAM_INVALID for what is no tree. */
function readTree(work: MappedCall, text: string): Listing {
  const entries: ListedEntry[] = [];
  let isCut = false;
  const open: { readonly nodes: unknown; readonly prefix: string; readonly depth: number }[] = [
    { nodes: treeOf(work, text), prefix: '', depth: 1 },
  ];
  for (let next = open.pop(); next !== undefined; next = open.pop()) {
    if (!Array.isArray(next.nodes)) throw noTree(work);
    for (const node of next.nodes as unknown[]) {
      if (!isObject(node) || typeof node.name !== 'string') throw noTree(work);
      if (entries.length >= MAX_ENTRIES) return { entries, gaps: [`only ${MAX_ENTRIES} entries were read`] };
      const path = next.prefix + node.name;
      entries.push({ path, folder: node.type === 'directory' });
      if (node.children === undefined) continue;
      if (next.depth < MAX_DEPTH) open.push({ nodes: node.children, prefix: `${path}/`, depth: next.depth + 1 });
      else isCut = true;
    }
  }
  return { entries, gaps: isCut ? [`only ${MAX_DEPTH} levels were read`] : [] };
}

function treeOf(work: MappedCall, text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    throw noTree(work);
  }
}

function noTree({ inner }: MappedCall): TollgateError {
  return new TollgateError('UPSTREAM_INVALID', { detail: `${inner.name} gave a tree of files that cannot be read.` });
}

/** The entries that pass, with turns for others: each is compared with up to 2,000 rules. Throws CANCELLED and TOOL_TIMEOUT. */
export async function filterEntries<T>(
  work: MappedCall,
  entries: readonly T[],
  passes: (entry: T) => boolean | Promise<boolean>,
): Promise<T[]> {
  const pace = new TimeSlices();
  const until = Date.now() + work.call.timeoutMs;
  const kept: T[] = [];
  for (const entry of entries) {
    if (await passes(entry)) kept.push(entry);
    if (!pace.isDue) continue;
    await pace.rest();
    if (work.call.signal.aborted) throw new TollgateError('CANCELLED');
    if (Date.now() > until) throw new TollgateError('TOOL_TIMEOUT');
  }
  return kept;
}

/** Breadth first, so that the folders asked for are those nearest to the start. */
async function descend(
  work: MappedCall,
  first: BackendAnswer,
  how: { readonly depth: number; readonly isShown: IsShown },
): Promise<Listing> {
  const entries = [...readListing(work, first).entries];
  const queue = (await filterEntries(work, entries, (entry) => entry.folder && how.isShown(entry))).map((entry) => ({
    path: entry.path,
    depth: 2,
  }));
  let asked = 0;
  for (
    let next = queue.shift();
    next !== undefined && next.depth <= how.depth && asked < MAX_FOLDERS;
    next = queue.shift()
  ) {
    asked += 1;
    const answered = await callMappingStep(work, 'folder', { path: `${String(work.args.path)}/${next.path}` });
    if (answered.failed) continue;
    for (const child of readListing(work, answered).entries) {
      const entry = { ...child, path: `${next.path}/${child.path}` };
      entries.push(entry);
      if (entry.folder && (await how.isShown(entry))) queue.push({ path: entry.path, depth: next.depth + 1 });
    }
  }
  return { entries, gaps: asked === MAX_FOLDERS ? [`only ${MAX_FOLDERS} folders were opened`] : [] };
}

/** Reads lines such as `[DIR] name`; a line without a kind belongs to the name before it. */
function readListing(work: MappedCall, answered: BackendAnswer): Listing {
  if (answered.failed || matchMappingText(work, 'absent', answered.text)) throw backendFailure(work, answered);
  if (matchMappingText(work, 'notFolder', answered.text.split('\n', 1)[0] ?? '') && !answered.text.includes('\n'))
    throw fileSystemError({ code: 'ENOTDIR' }, shownPathOf(work));
  const entries: ListedEntry[] = [];
  const gaps: string[] = [];
  const lines = answered.text === '' ? [] : answered.text.split('\n', MAX_ENTRIES + 1);
  if (lines.length > MAX_ENTRIES) gaps.push(`only ${MAX_ENTRIES} lines were read`);
  for (const line of lines.slice(0, MAX_ENTRIES)) {
    const entry = matchMappingText(work, 'entry', line);
    const cut = matchMappingText(work, 'entriesCut', line);
    const last = entries.at(-1);
    if (cut) gaps.push(`${cut.count} more in ${printableName(cut.name ?? '')}`);
    else if (entry) entries.push({ path: entry.name ?? '', folder: entry.kind === 'DIR' });
    else if (last) entries[entries.length - 1] = { ...last, path: `${last.path}\n${line}` };
  }
  return { entries, gaps };
}

function byPath(a: ListedEntry, b: ListedEntry): number {
  return a.path < b.path ? -1 : 1;
}

/** What stands before the path of everything in the folder. */
export function mappedFolderPrefix(work: MappedCall): string {
  return shownPathOf(work) === '.' ? '' : `${shownPathOf(work)}/`;
}

/** Leaves out dot files and what the .gitignore files from the root down to the folder name; those below it are not asked for. */
export async function shownEntryFilter(work: MappedCall): Promise<IsShown> {
  if (work.args.hidden === true) return () => Promise.resolve(true);
  const rules: IgnoreRule[] = [];
  const names = shownPathOf(work) === '.' ? [] : shownPathOf(work).split('/');
  for (let depth = 0; depth <= names.length; depth += 1) {
    const base = names.slice(0, depth).join('/');
    const answered = await callMappingStep(work, 'lines', {
      path: [work.root, ...names.slice(0, depth), '.gitignore'].join('/'),
    });
    if (answered.failed) continue;
    const headed = matchMappingText(work, 'header', answered.text.split('\n', 1)[0] ?? '') !== undefined;
    rules.push(...parseIgnore(headed ? answered.text.slice(answered.text.indexOf('\n') + 2) : answered.text, base));
  }
  const most = rules.slice(0, MAX_IGNORE_RULES);
  const pace = new TimeSlices();
  return async ({ path, folder }) => {
    const parts = path.split('/', MAX_DEPTH + 1);
    if (parts.length > MAX_DEPTH || parts.some((name) => name.startsWith('.'))) return false;
    let ancestor = mappedFolderPrefix(work);
    for (const [index, name] of parts.entries()) {
      ancestor += index === 0 ? name : `/${name}`;
      if (await isIgnored(most, { path: ancestor, isFolder: index < parts.length - 1 || folder }, pace)) return false;
    }
    return true;
  };
}

/** One page of names with its note: which they are, what is left out, and the next call. */
export function namesPage(work: MappedCall, all: readonly string[], gaps: readonly string[]): ToolResult {
  const { action, offset, limit, pattern } = work.args as {
    readonly action?: string;
    readonly offset?: number;
    readonly limit?: number;
    readonly pattern?: string;
  };
  const from = firstOf({ offset, limit }, all.length, 'entries');
  const lines = all.slice(from - 1, from - 1 + (limit ?? ENTRIES));
  const to = from - 1 + lines.length;
  const whole = lines.length === all.length;
  if (all.length === 0)
    return textResult(note([action === 'find' ? 'no file matches' : 'no entries', ...gaps].join('; ')));
  const named = pattern === undefined ? '' : ` pattern=${JSON.stringify(pattern)}`;
  const next =
    to < all.length
      ? ` Next: read action="${action}" path=${JSON.stringify(shownPathOf(work))}${named} offset=${to + 1}`
      : '';
  return textResult(
    lines.join('\n'),
    whole && gaps.length === 0
      ? undefined
      : note(`${[`entries ${from}-${to} of ${all.length}`, ...gaps].join('; ')}.${next}`),
  );
}
