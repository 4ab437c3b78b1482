/** `read action="list"` and `action="find"` through a backend: parses its listings, and reports what it left out. */
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { TimeSlices } from '../../../catalogs/text/time-slices.ts';
import type { ToolResult } from '../../../catalogs/tools/tool-definition.ts';
import { isObject } from '../../rpc/message-parser.ts';
import { type IgnoreRule, isIgnored, MAX_IGNORE_RULES, parseIgnore } from '../search/folder-walk.ts';
import { checkDepth, checkGlobPattern, folderPrefix, namesPage } from '../search/list-actions.ts';
import { fileSystemError } from '../workspace/action-context.ts';
import { printableName } from '../workspace/file-text.ts';
import {
  type BackendAnswer,
  backendFailure,
  callMainTool,
  callMappingStep,
  type MappedCall,
  matchMappingText,
  requireSuccess,
} from './mapped-call.ts';
import { shownPathOf } from './mapped-file-facts.ts';

const MAX_FOLDERS = 500;
/** Most lines of one listing, and most entries of one tree, that are read. */
const MAX_ENTRIES = 100_000;
/** Most levels of a tree, and of a path below the listed folder. */
const MAX_DEPTH = 64;

/** One entry. `path` is relative to the listed folder. */
export interface ListedEntry {
  readonly path: string;
  readonly folder: boolean;
}

type IsShown = (entry: ListedEntry) => Promise<boolean>;

/** Entries, and descriptions of what was left out. */
interface Listing {
  readonly entries: readonly ListedEntry[];
  readonly gaps: readonly string[];
}

/**
 * Runs `read action="list"`: one call if the backend lists subfolders itself, else one call per folder, at most 500.
 */
export async function listMapped(call: MappedCall): Promise<ToolResult> {
  const depth = checkDepth(call.args);
  const first = await callMainTool(call);
  const isShown = await shownEntryFilter(call);
  const listing = call.mapping.steps.has('folder')
    ? await descend(call, first, { depth, isShown })
    : readListing(call, first);
  const entries = await filterEntries(call, listing.entries, isShown);
  const names = entries.sort(byPath).map((entry) => printableName(entry.path) + (entry.folder ? '/' : ''));
  return namesPage({ lines: names, isComplete: true, gaps: listing.gaps }, call.args, shownPathOf(call));
}

/** Runs `read action="find"` with a backend that returns its whole tree as JSON. Tollgate matches the names. */
export async function findMapped(call: MappedCall): Promise<ToolResult> {
  const matches = checkGlobPattern(call.args);
  const answer = await requireSuccess(call, callMainTool(call));
  const isShown = await shownEntryFilter(call);
  const { entries, gaps } = readTree(call, answer);
  const files = await filterEntries(call, entries, (entry) => !entry.folder && matches(entry.path) && isShown(entry));
  const lines = files.sort(byPath).map((entry) => printableName(folderPrefix(shownPathOf(call)) + entry.path));
  return namesPage({ lines, isComplete: true, gaps }, call.args, shownPathOf(call));
}

/** Reads the JSON tree of the backend, up to the limits. Throws UPSTREAM_INVALID if it is not a tree. */
function readTree(call: MappedCall, text: string): Listing {
  const entries: ListedEntry[] = [];
  let isCut = false;
  const open: { readonly nodes: unknown; readonly prefix: string; readonly depth: number }[] = [
    { nodes: parseTree(call, text), prefix: '', depth: 1 },
  ];
  for (let next = open.pop(); next !== undefined; next = open.pop()) {
    if (!Array.isArray(next.nodes)) throw invalidTree(call);
    for (const node of next.nodes as unknown[]) {
      if (!isObject(node) || typeof node.name !== 'string') throw invalidTree(call);
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

function parseTree(call: MappedCall, text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    throw invalidTree(call);
  }
}

function invalidTree({ inner }: MappedCall): TollgateError {
  return new TollgateError('UPSTREAM_INVALID', {
    detail: `${inner.name} returned a tree of files that cannot be parsed.`,
  });
}

/**
 * Returns the entries that pass, in time slices, because each is compared with up to 2,000 rules. Throws CANCELLED and
 * TOOL_TIMEOUT.
 */
export async function filterEntries<T>(
  call: MappedCall,
  entries: readonly T[],
  passes: (entry: T) => boolean | Promise<boolean>,
): Promise<T[]> {
  const pace = new TimeSlices();
  const deadline = Date.now() + call.request.timeoutMs;
  const kept: T[] = [];
  for (const entry of entries) {
    if (await passes(entry)) kept.push(entry);
    if (!pace.isDue) continue;
    await pace.rest();
    if (call.request.signal.aborted) throw new TollgateError('CANCELLED');
    if (Date.now() > deadline) throw new TollgateError('TOOL_TIMEOUT');
  }
  return kept;
}

/** Lists subfolders, breadth first: if the limit is reached, the folders nearest to the start are listed. */
async function descend(
  call: MappedCall,
  first: BackendAnswer,
  options: { readonly depth: number; readonly isShown: IsShown },
): Promise<Listing> {
  const entries = [...readListing(call, first).entries];
  const queue = (await filterEntries(call, entries, (entry) => entry.folder && options.isShown(entry))).map(
    (entry) => ({
      path: entry.path,
      depth: 2,
    }),
  );
  let opened = 0;
  for (
    let next = queue.shift();
    next !== undefined && next.depth <= options.depth && opened < MAX_FOLDERS;
    next = queue.shift()
  ) {
    opened += 1;
    const answer = await callMappingStep(call, 'folder', { path: `${String(call.args.path)}/${next.path}` });
    if (answer.failed) continue;
    for (const child of readListing(call, answer).entries) {
      const entry = { ...child, path: `${next.path}/${child.path}` };
      entries.push(entry);
      if (entry.folder && (await options.isShown(entry))) queue.push({ path: entry.path, depth: next.depth + 1 });
    }
  }
  return { entries, gaps: opened === MAX_FOLDERS ? [`only ${MAX_FOLDERS} folders were opened`] : [] };
}

/** Parses lines such as `[DIR] name`. A line without a kind continues the name before it. */
function readListing(call: MappedCall, answer: BackendAnswer): Listing {
  if (answer.failed || matchMappingText(call, 'absent', answer.text)) throw backendFailure(call, answer);
  if (matchMappingText(call, 'notFolder', answer.text.split('\n', 1)[0] ?? '') && !answer.text.includes('\n'))
    throw fileSystemError({ code: 'ENOTDIR' }, shownPathOf(call));
  const entries: ListedEntry[] = [];
  const gaps: string[] = [];
  const lines = answer.text === '' ? [] : answer.text.split('\n', MAX_ENTRIES + 1);
  if (lines.length > MAX_ENTRIES) gaps.push(`only ${MAX_ENTRIES} lines were read`);
  for (const line of lines.slice(0, MAX_ENTRIES)) {
    const entry = matchMappingText(call, 'entry', line);
    const cut = matchMappingText(call, 'entriesCut', line);
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

/**
 * Returns a filter that drops dot files and files that the .gitignore files from the root down to the folder ignore.
 * .gitignore files below the folder are not read.
 */
export async function shownEntryFilter(call: MappedCall): Promise<IsShown> {
  if (call.args.hidden === true) return () => Promise.resolve(true);
  const rules: IgnoreRule[] = [];
  const names = shownPathOf(call) === '.' ? [] : shownPathOf(call).split('/');
  for (let depth = 0; depth <= names.length; depth += 1) {
    const base = names.slice(0, depth).join('/');
    const answer = await callMappingStep(call, 'lines', {
      path: [call.root, ...names.slice(0, depth), '.gitignore'].join('/'),
    });
    if (answer.failed) continue;
    const hasHeader = matchMappingText(call, 'header', answer.text.split('\n', 1)[0] ?? '') !== undefined;
    rules.push(...parseIgnore(hasHeader ? answer.text.slice(answer.text.indexOf('\n') + 2) : answer.text, base));
  }
  const usedRules = rules.slice(0, MAX_IGNORE_RULES);
  const pace = new TimeSlices();
  return async ({ path, folder }) => {
    const parts = path.split('/', MAX_DEPTH + 1);
    if (parts.length > MAX_DEPTH || parts.some((name) => name.startsWith('.'))) return false;
    let ancestor = folderPrefix(shownPathOf(call));
    for (const [index, name] of parts.entries()) {
      ancestor += index === 0 ? name : `/${name}`;
      if (await isIgnored(usedRules, { path: ancestor, isFolder: index < parts.length - 1 || folder }, pace))
        return false;
    }
    return true;
  };
}
