/** Owns lists of directory entries from backends' texts, and finding names in a tree; refuses to hide what the backend left out. */
import { firstOf, note } from '../../catalogs/paging.ts';
import type { ToolResult } from '../../catalogs/tool.ts';
import { explain } from '../internal/desk.ts';
import { compileGlob } from '../internal/globs.ts';
import { answer, invalid, printable } from '../internal/text.ts';
import { pathOf } from './facts.ts';
import { askMain, failure, find, step, type Answer, type Work } from './work.ts';

const ENTRIES = 500;
const MAX_FOLDERS = 500;

/** One entry; `path` is relative to the listed folder. */
interface Entry {
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
  const listing = work.mapping.steps.has('folder') ? await descend(work, first, depth) : readListing(work, first);
  return page(work, listing, { what: 'entries', limit: ENTRIES });
}

/** Carries out `read action="find"` on a backend that gives its whole tree as JSON: names are matched here. */
export async function findInTree(work: Work): Promise<ToolResult> {
  const { pattern } = work.args;
  if (typeof pattern !== 'string' || pattern === '') throw invalid('pattern is missing.', 'Give a glob such as src/**/*.ts.');
  const matches = compileGlob(pattern);
  const answered = await askMain(work);
  if (answered.failed) throw failedOr(work, answered);
  const entries = flatten(JSON.parse(answered.text) as readonly Node[], '');
  const files = entries.filter((entry) => !entry.folder && matches(entry.path));
  return page(work, { entries: files, gaps: [] }, { what: 'files', limit: ENTRIES });
}

interface Node {
  readonly name: string;
  readonly type: string;
  readonly children?: readonly Node[];
}

function flatten(nodes: readonly Node[], prefix: string): readonly Entry[] {
  return nodes.flatMap((node) => {
    const path = prefix + node.name;
    const own = { path, folder: node.type === 'directory' };
    return node.children ? [own, ...flatten(node.children, `${path}/`)] : [own];
  });
}

/** Breadth first, so that the folders asked for are those nearest to the start. */
async function descend(work: Work, first: Answer, depth: number): Promise<Listing> {
  const entries = [...readListing(work, first).entries];
  const queue = entries.filter((entry) => entry.folder && isShown(work, entry.path)).map((entry) => ({ path: entry.path, depth: 2 }));
  let asked = 0;
  for (let next = queue.shift(); next !== undefined && next.depth <= depth && asked < MAX_FOLDERS; next = queue.shift()) {
    asked += 1;
    const answered = await step(work, 'folder', { path: `${String(work.args['path'])}/${next.path}` });
    if (answered.failed) continue;
    for (const child of readListing(work, answered).entries) {
      const entry = { ...child, path: `${next.path}/${child.path}` };
      entries.push(entry);
      if (entry.folder && isShown(work, entry.path)) queue.push({ path: entry.path, depth: next.depth + 1 });
    }
  }
  return { entries, gaps: asked === MAX_FOLDERS ? [`only ${MAX_FOLDERS} folders were opened`] : [] };
}

/** Reads lines such as `[DIR] name`; a line without a kind belongs to the name before it. */
function readListing(work: Work, answered: Answer): Listing {
  if (answered.failed || find(work, 'absent', answered.text)) throw failedOr(work, answered);
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

function failedOr(work: Work, answered: Answer): Error {
  return find(work, 'absent', answered.text) ? explain({ code: 'ENOENT' }, pathOf(work)) : failure(work, answered);
}

function isShown(work: Work, path: string): boolean {
  return work.args['hidden'] === true || !path.split('/').some((name) => name.startsWith('.'));
}

function page(work: Work, listing: Listing, how: { readonly what: string; readonly limit: number }): ToolResult {
  const all = listing.entries.filter((entry) => isShown(work, entry.path)).sort((a, b) => (a.path < b.path ? -1 : 1));
  return pageOf(work, all.map((entry) => printable(entry.path) + (entry.folder ? '/' : '')), { ...how, gaps: listing.gaps });
}

/** One page of lines with its note: what is left out, and the next call. */
export function pageOf(work: Work, all: readonly string[], how: { readonly what: string; readonly limit: number; readonly gaps: readonly string[] }): ToolResult {
  const offset = typeof work.args['offset'] === 'number' ? work.args['offset'] : undefined;
  const asked = typeof work.args['limit'] === 'number' ? work.args['limit'] : undefined;
  const from = firstOf({ offset, limit: asked }, all.length, how.what);
  const lines = all.slice(from - 1, from - 1 + (asked ?? how.limit));
  const to = from + lines.length - 1;
  const next = to < all.length ? `. Next: the same call with offset=${to + 1}` : '';
  const range = all.length === 0 ? `no ${how.what}` : lines.length === all.length ? `${all.length} ${how.what}` : `${how.what} ${from}-${to} of ${all.length}`;
  return answer(lines.join('\n'), note([range, ...how.gaps].join(' · ') + next));
}
