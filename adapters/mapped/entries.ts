/** Owns lists of directory entries from backends' texts, and finding names in a tree; refuses to hide what the backend left out. */
import { firstOf, note } from '../../catalogs/paging.ts';
import type { ToolResult } from '../../catalogs/tool.ts';
import { explain } from '../internal/desk.ts';
import { compileGlob } from '../internal/globs.ts';
import { answer, invalid, printable } from '../internal/text.ts';
import { isIgnored, parseIgnore, type IgnoreRule } from '../internal/walk.ts';
import { pathOf } from './facts.ts';
import { askMain, failure, find, step, type Answer, type Work } from './work.ts';

const ENTRIES = 500;
const MAX_FOLDERS = 500;

/** One entry; `path` is relative to the listed folder. */
export interface Entry {
  readonly path: string;
  readonly folder: boolean;
}

/** Entries and what the backend says it left out. */
interface Listing {
  readonly entries: readonly Entry[];
  readonly gaps: readonly string[];
}

/** Carries out `read action="list"`: one call when the backend descends by itself, else one a folder, at most 500. */
export async function list(work: Work): Promise<ToolResult> {
  const depth = typeof work.args['depth'] === 'number' ? work.args['depth'] : 1;
  if (depth < 1) throw invalid('depth must be at least 1.', 'Leave depth out for one level.');
  const first = await askMain(work);
  const isShown = await filterOf(work);
  const listing = work.mapping.steps.has('folder') ? await descend(work, first, { depth, isShown }) : readListing(work, first);
  const names = listing.entries.filter(isShown).sort(byPath).map((entry) => printable(entry.path) + (entry.folder ? '/' : ''));
  return pageOf(work, names, listing.gaps);
}

/** Carries out `read action="find"` on a backend that gives its whole tree as JSON: names are matched here. */
export async function findInTree(work: Work): Promise<ToolResult> {
  const { pattern } = work.args;
  if (typeof pattern !== 'string' || pattern === '') throw invalid('pattern is missing.', 'Give a glob such as src/**/*.ts.');
  const matches = compileGlob(pattern);
  const answered = await askMain(work);
  if (answered.failed) throw failure(work, answered);
  const isShown = await filterOf(work);
  const files = flatten(JSON.parse(answered.text) as readonly Node[], '').filter((entry) => !entry.folder && matches(entry.path) && isShown(entry));
  return pageOf(work, files.sort(byPath).map((entry) => printable(prefixOf(work) + entry.path)), []);
}

interface Node {
  readonly name: string;
  readonly type: string;
  readonly children?: readonly Node[];
}

function flatten(nodes: readonly Node[], prefix: string): Entry[] {
  return nodes.flatMap((node) => {
    const path = prefix + node.name;
    const own = { path, folder: node.type === 'directory' };
    return node.children ? [own, ...flatten(node.children, `${path}/`)] : [own];
  });
}

/** Breadth first, so that the folders asked for are those nearest to the start. */
async function descend(work: Work, first: Answer, how: { readonly depth: number; readonly isShown: (entry: Entry) => boolean }): Promise<Listing> {
  const entries = [...readListing(work, first).entries];
  const queue = entries.filter((entry) => entry.folder && how.isShown(entry)).map((entry) => ({ path: entry.path, depth: 2 }));
  let asked = 0;
  for (let next = queue.shift(); next !== undefined && next.depth <= how.depth && asked < MAX_FOLDERS; next = queue.shift()) {
    asked += 1;
    const answered = await step(work, 'folder', { path: `${String(work.args['path'])}/${next.path}` });
    if (answered.failed) continue;
    for (const child of readListing(work, answered).entries) {
      const entry = { ...child, path: `${next.path}/${child.path}` };
      entries.push(entry);
      if (entry.folder && how.isShown(entry)) queue.push({ path: entry.path, depth: next.depth + 1 });
    }
  }
  return { entries, gaps: asked === MAX_FOLDERS ? [`only ${MAX_FOLDERS} folders were opened`] : [] };
}

/** Reads lines such as `[DIR] name`; a line without a kind belongs to the name before it. */
function readListing(work: Work, answered: Answer): Listing {
  if (answered.failed || find(work, 'absent', answered.text)) throw failure(work, answered);
  if (find(work, 'notFolder', answered.text.split('\n', 1)[0] ?? '') && !answered.text.includes('\n')) throw explain({ code: 'ENOTDIR' }, pathOf(work));
  const entries: Entry[] = [];
  const gaps: string[] = [];
  for (const line of answered.text === '' ? [] : answered.text.split('\n')) {
    const entry = find(work, 'entry', line);
    const cut = find(work, 'entriesCut', line);
    const last = entries.at(-1);
    if (cut) gaps.push(`${cut['count']} more in ${printable(cut['name'] ?? '')}`);
    else if (entry) entries.push({ path: entry['name'] ?? '', folder: entry['kind'] === 'DIR' });
    else if (last) entries[entries.length - 1] = { ...last, path: `${last.path}\n${line}` };
  }
  return { entries, gaps };
}

function byPath(a: Entry, b: Entry): number {
  return a.path < b.path ? -1 : 1;
}

/** What stands before the path of everything in the folder. */
export function prefixOf(work: Work): string {
  return pathOf(work) === '.' ? '' : `${pathOf(work)}/`;
}

/** Leaves out dot files and what the .gitignore files from the root down to the folder name; those below it are not asked for. */
export async function filterOf(work: Work): Promise<(entry: Entry) => boolean> {
  if (work.args['hidden'] === true) return () => true;
  const rules: IgnoreRule[] = [];
  const names = pathOf(work) === '.' ? [] : pathOf(work).split('/');
  for (let depth = 0; depth <= names.length; depth += 1) {
    const base = names.slice(0, depth).join('/');
    const answered = await step(work, 'lines', { path: [work.root, ...names.slice(0, depth), '.gitignore'].join('/') });
    if (answered.failed) continue;
    const headed = find(work, 'header', answered.text.split('\n', 1)[0] ?? '') !== undefined;
    rules.push(...parseIgnore(headed ? answered.text.slice(answered.text.indexOf('\n') + 2) : answered.text, base));
  }
  return ({ path, folder }) => {
    const whole = prefixOf(work) + path;
    const parts = path.split('/');
    if (parts.some((name) => name.startsWith('.'))) return false;
    const before = whole.split('/').length - parts.length;
    const ancestors = parts.map((_, index) => whole.split('/').slice(0, before + index + 1).join('/'));
    return !ancestors.some((ancestor, index) => isIgnored(rules, ancestor, index < parts.length - 1 || folder));
  };
}

/** One page of names with its note: which they are, what is left out, and the next call. */
export function pageOf(work: Work, all: readonly string[], gaps: readonly string[]): ToolResult {
  const { action, offset, limit, pattern } = work.args as { readonly action?: string; readonly offset?: number; readonly limit?: number; readonly pattern?: string };
  const from = firstOf({ offset, limit }, all.length, 'entries');
  const lines = all.slice(from - 1, from - 1 + (limit ?? ENTRIES));
  const to = from - 1 + lines.length;
  const whole = lines.length === all.length;
  if (all.length === 0) return answer(note([action === 'find' ? 'no file matches' : 'no entries', ...gaps].join('; ')));
  const named = pattern === undefined ? '' : ` pattern=${JSON.stringify(pattern)}`;
  const next = to < all.length ? ` Next: read action="${action}" path=${JSON.stringify(pathOf(work))}${named} offset=${to + 1}` : '';
  return answer(lines.join('\n'), whole && gaps.length === 0 ? undefined : note(`${[`entries ${from}-${to} of ${all.length}`, ...gaps].join('; ')}.${next}`));
}
