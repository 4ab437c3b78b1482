/** Owns find and search on a backend whose searches are sessions: polled to their end, then stopped; refuses silent failures. */
import type { ToolResult } from '../../../catalogs/tools/tool-definition.ts';
import { compileGlob } from '../search/glob-matcher.ts';
import { type SearchHit, SearchHits } from '../search/search-hits.ts';
import { fileSystemError } from '../workspace/action-context.ts';
import { invalidArguments, printableName, toolFailure } from '../workspace/file-text.ts';
import {
  backendFailure,
  callMainTool,
  callMappingStep,
  type MappedCall,
  matchMappingText,
  workspacePath,
} from './mapped-call.ts';
import { notSupported, readFileFacts, shownPathOf } from './mapped-file-facts.ts';
import { filterEntries, namesPage, shownEntryFilter } from './mapped-listing.ts';
import { cancellableSleep } from './mapped-session.ts';

const MAX_RESULTS = 20_000;
const PAGE = 1000;
const POLL_MS = 100;
/** The backend cuts what matched to this many characters and adds three dots. */
const CUT_CHARS = 100;
const CUT_MARK = '…[cut by the backend]';

/** What the backend gave, and what it left out. */
interface Results {
  readonly lines: readonly string[];
  readonly gaps: readonly string[];
}

/** What the backend cannot search for honestly. Pure; throws ARGS_INVALID or NOT_SUPPORTED. */
export function checkMappedSearch(args: Readonly<Record<string, unknown>>): void {
  const { pattern, context, glob } = args;
  if (typeof pattern !== 'string' || pattern === '')
    throw invalidArguments('pattern is missing.', 'Give a regular expression, or a glob for action="find".');
  if (/[\r\n]/.test(pattern))
    throw invalidArguments(
      'A pattern is matched against single lines; it cannot hold a line end.',
      'Search for one line of it, then read around the match.',
    );
  if (typeof context === 'number' && context > 0) {
    throw notSupported(
      'this backend trims the lines around a match and does not mark them',
      'Search without context, then read the file around the match.',
    );
  }
  if (typeof glob === 'string' && glob.includes('|'))
    throw notSupported('this backend takes | in a glob as a separator', 'Use {a,b} for alternatives.');
}

/** Carries out `read action="find"` and `read action="search"`. */
export async function searchMapped(work: MappedCall): Promise<ToolResult> {
  if (!(await readFileFacts(work))) throw fileSystemError({ code: 'ENOENT' }, shownPathOf(work));
  const started = await callMainTool(work);
  const id = matchMappingText(work, 'searchId', started.text)?.id;
  if (started.failed || id === undefined) throw backendFailure(work, started);
  const results = await collect(work, id).finally(() => callMappingStep(work, 'stop', { id }));
  const hidden = work.args.hidden === true ? ['ignored files stay out on this backend'] : [];
  const gaps = [...results.gaps, ...hidden];
  const files = work.lowered.args.searchType === 'files';
  const isWanted = await filterBy(work, files ? work.args.pattern : work.args.glob);
  return files
    ? namesPage(work, await foundFiles(work, results.lines, isWanted), gaps)
    : matchPage(work, { ...results, gaps }, isWanted);
}

/** Polls until the search is complete. A search that failed looks like one without matches, but for a warning. */
async function collect(work: MappedCall, id: string): Promise<Results> {
  const lines: string[] = [];
  const deadline = Date.now() + work.call.timeoutMs;
  for (;;) {
    const answered = await callMappingStep(work, 'results', { id, start: lines.length });
    if (answered.failed) throw backendFailure(work, answered);
    const fresh = answered.text
      .split('\n', MAX_RESULTS)
      .filter((line) => matchMappingText(work, 'match', line) ?? matchMappingText(work, 'found', line));
    lines.push(...fresh);
    const total = Number(matchMappingText(work, 'searchTotal', answered.text)?.count ?? 0);
    const done = matchMappingText(work, 'searchDone', answered.text) !== undefined;
    if (done && fresh.length < PAGE)
      return finish(work, {
        lines,
        total,
        partial: matchMappingText(work, 'searchPartial', answered.text) !== undefined,
      });
    if (lines.length >= MAX_RESULTS) return { lines, gaps: [`ended after ${MAX_RESULTS} results`] };
    if (Date.now() > deadline) return { lines, gaps: [`ended after ${Math.round(work.call.timeoutMs / 1000)} s`] };
    if (fresh.length === 0) await cancellableSleep(POLL_MS, work.call.signal);
  }
}

function finish(
  work: MappedCall,
  found: { readonly lines: readonly string[]; readonly total: number; readonly partial: boolean },
): Results {
  const { lines, total, partial } = found;
  if (total === 0 && partial) {
    throw toolFailure(
      `${work.inner.name} could not search: the pattern is not valid for ripgrep, or no file could be read. It does not say which.`,
      'Correct the pattern, or give literal=true.',
    );
  }
  const unread = Math.max(0, total - lines.length);
  const gaps = [
    ...(partial ? ['some files could not be read'] : []),
    ...(unread > 0 ? [`${unread} results have names that cannot be told apart`] : []),
  ];
  return { lines, gaps };
}

type IsWanted = (path: string) => Promise<boolean>;

/** Globs and ignored files are judged here again: the backend anchors globs where it happens to run, and wants a repository. */
async function filterBy(work: MappedCall, glob: unknown): Promise<IsWanted> {
  const matches = typeof glob === 'string' ? compileGlob(glob) : () => true;
  const isShown = await shownEntryFilter(work);
  const base = String(work.args.path);
  return async (path) => {
    if (path === base) return matches(path.slice(path.lastIndexOf('/') + 1));
    const inner = workspacePath({ root: base }, path);
    return matches(inner) && isShown({ path: inner, folder: false });
  };
}

async function foundFiles(work: MappedCall, lines: readonly string[], isWanted: IsWanted): Promise<readonly string[]> {
  const paths = lines.flatMap((line) => matchMappingText(work, 'found', line)?.path ?? []);
  return (await filterEntries(work, paths, isWanted))
    .map((path) => workspacePath(work, path))
    .sort()
    .map(printableName);
}

/** The backend trims lines, and cuts long ones. */
function isPartOf(line: string, text: string): boolean {
  return line.includes(
    text
      .replace(CUT_MARK, '')
      .replace(/…\[\+\d+ chars\]$/, '')
      .trim(),
  );
}

async function matchPage(work: MappedCall, results: Results, isWanted: IsWanted): Promise<ToolResult> {
  const { offset, limit } = work.args as { readonly offset?: number; readonly limit?: number };
  const found = results.lines.flatMap((line): SearchHit[] => {
    const { path = '', line: number, text = '' } = matchMappingText(work, 'match', line) ?? {};
    const cut = text.length === CUT_CHARS + 3 && text.endsWith('...');
    return [{ path, line: Number(number), text: cut ? `${text.slice(0, CUT_CHARS)}${CUT_MARK}` : text, matches: true }];
  });
  const wanted = (await filterEntries(work, found, ({ path }) => isWanted(path))).map((hit) => ({
    ...hit,
    path: workspacePath(work, hit.path),
  }));
  const hits = new SearchHits();
  for (const hit of wanted.sort((a, b) => (a.path === b.path ? a.line - b.line : a.path < b.path ? -1 : 1)))
    hits.add(hit);
  if (results.gaps.length > 0) hits.ended ??= results.gaps.join('; ');
  if (work.call.mayRead !== undefined)
    await hits.keep(work.call.mayRead, AbortSignal.timeout(work.call.timeoutMs), isPartOf);
  return hits.page({ offset, limit }, 0);
}
