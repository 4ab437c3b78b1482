/** `find` and `search` through a backend whose searches are sessions: polls each session to its end, then stops it. */
import type { ToolResult } from '../../../catalogs/tools/tool-definition.ts';
import { compileGlob } from '../search/glob-matcher.ts';
import { checkGlobPattern, namesPage, type ReadArgs } from '../search/list-actions.ts';
import { checkSearchPattern } from '../search/search-action.ts';
import { type SearchHit, SearchHits } from '../search/search-hits.ts';
import { fileSystemError } from '../workspace/action-context.ts';
import { printableName, toolFailure } from '../workspace/file-text.ts';
import {
  backendFailure,
  callMainTool,
  callMappingStep,
  type MappedCall,
  matchMappingText,
  requireSuccess,
  workspacePath,
} from './mapped-call.ts';
import { notSupported, readFileFacts, shownPathOf } from './mapped-file-facts.ts';
import { filterEntries, shownEntryFilter } from './mapped-listing.ts';
import { cancellableSleep } from './mapped-session.ts';

const MAX_RESULTS = 20_000;
const PAGE = 1000;
const POLL_MS = 100;
/** The backend cuts a matching line to this many characters and adds three dots. */
const CUT_CHARS = 100;
const CUT_MARK = '…[cut by the backend]';

/** Result lines of the backend, and descriptions of what it left out. */
interface Results {
  readonly lines: readonly string[];
  readonly gaps: readonly string[];
}

/** Checks that the backend can make this search. Does no I/O. Throws ARGS_INVALID and NOT_SUPPORTED. */
export function checkMappedSearch(args: Partial<ReadArgs>): void {
  const { action, context = 0, glob } = args;
  if (action === 'find') checkGlobPattern(args);
  checkSearchPattern(args);
  if (context > 0)
    throw notSupported(
      'this backend trims the lines around a match and does not mark them',
      'Search without context, then read the file around the match.',
    );
  if (glob?.includes('|') === true)
    throw notSupported('this backend reads | in a glob as a separator', 'Use {a,b} for alternatives.');
}

/** Runs `read action="find"` and `read action="search"`. */
export async function searchMapped(call: MappedCall): Promise<ToolResult> {
  if (!(await readFileFacts(call))) throw fileSystemError({ code: 'ENOENT' }, shownPathOf(call));
  const started = await callMainTool(call);
  const id = matchMappingText(call, 'searchId', started.text)?.id;
  if (started.failed || id === undefined) throw backendFailure(call, started);
  const results = await collect(call, id).finally(() => callMappingStep(call, 'stop', { id }));
  const hidden = call.args.hidden === true ? ['this backend leaves out ignored files'] : [];
  const gaps = [...results.gaps, ...hidden];
  const files = call.lowered.args.searchType === 'files';
  const isWanted = await fileFilter(call, files ? call.args.pattern : call.args.glob);
  return files
    ? namesPage(
        { lines: await foundFiles(call, results.lines, isWanted), isComplete: true, gaps },
        call.args,
        shownPathOf(call),
      )
    : matchPage(call, { ...results, gaps }, isWanted);
}

/** Polls until the search is complete. A failed search looks like one without matches, except for a warning. */
async function collect(call: MappedCall, id: string): Promise<Results> {
  const lines: string[] = [];
  const deadline = Date.now() + call.request.timeoutMs;
  for (;;) {
    const answer = await requireSuccess(call, callMappingStep(call, 'results', { id, start: lines.length }));
    const fresh = answer
      .split('\n', MAX_RESULTS)
      .filter((line) => matchMappingText(call, 'match', line) ?? matchMappingText(call, 'found', line));
    lines.push(...fresh);
    const total = Number(matchMappingText(call, 'searchTotal', answer)?.count ?? 0);
    const done = matchMappingText(call, 'searchDone', answer) !== undefined;
    if (done && fresh.length < PAGE)
      return finish(call, {
        lines,
        total,
        partial: matchMappingText(call, 'searchPartial', answer) !== undefined,
      });
    if (lines.length >= MAX_RESULTS) return { lines, gaps: [`ended after ${MAX_RESULTS} results`] };
    if (Date.now() > deadline) return { lines, gaps: [`ended after ${Math.round(call.request.timeoutMs / 1000)} s`] };
    if (fresh.length === 0) await cancellableSleep(POLL_MS, call.request.signal);
  }
}

function finish(
  call: MappedCall,
  found: { readonly lines: readonly string[]; readonly total: number; readonly partial: boolean },
): Results {
  const { lines, total, partial } = found;
  if (total === 0 && partial) {
    throw toolFailure(
      `${call.inner.name} could not search, and does not say why: the pattern is not valid for ripgrep, or no ` +
        'file could be read.',
      'Correct the pattern, or set literal=true.',
    );
  }
  const unread = Math.max(0, total - lines.length);
  const gaps = [
    ...(partial ? ['some files could not be read'] : []),
    ...(unread > 0 ? [`${unread} results have names that cannot be parsed`] : []),
  ];
  return { lines, gaps };
}

type IsWanted = (path: string) => Promise<boolean>;

/**
 * Returns a filter for globs and ignored files. Tollgate checks them again: the backend resolves globs against its own
 * current folder, and respects .gitignore files in repositories only.
 */
async function fileFilter(call: MappedCall, glob: unknown): Promise<IsWanted> {
  const matches = typeof glob === 'string' ? compileGlob(glob) : () => true;
  const isShown = await shownEntryFilter(call);
  const base = String(call.args.path);
  return async (path) => {
    if (path === base) return matches(path.slice(path.lastIndexOf('/') + 1));
    const inner = workspacePath({ root: base }, path);
    return matches(inner) && isShown({ path: inner, folder: false });
  };
}

async function foundFiles(call: MappedCall, lines: readonly string[], isWanted: IsWanted): Promise<readonly string[]> {
  const paths = lines.flatMap((line) => matchMappingText(call, 'found', line)?.path ?? []);
  return (await filterEntries(call, paths, isWanted))
    .map((path) => workspacePath(call, path))
    .sort()
    .map(printableName);
}

/** True if the line contains the text of the backend, which trims lines and cuts long ones. */
function isPartOf(line: string, text: string): boolean {
  return line.includes(
    text
      .replace(CUT_MARK, '')
      .replace(/…\[\+\d+ chars\]$/, '')
      .trim(),
  );
}

async function matchPage(call: MappedCall, results: Results, isWanted: IsWanted): Promise<ToolResult> {
  const { offset, limit } = call.args as { readonly offset?: number; readonly limit?: number };
  const found = results.lines.flatMap((line): SearchHit[] => {
    const { path = '', line: number, text = '' } = matchMappingText(call, 'match', line) ?? {};
    const cut = text.length === CUT_CHARS + 3 && text.endsWith('...');
    return [{ path, line: Number(number), text: cut ? `${text.slice(0, CUT_CHARS)}${CUT_MARK}` : text, matches: true }];
  });
  const wanted = (await filterEntries(call, found, ({ path }) => isWanted(path))).map((hit) => ({
    ...hit,
    path: workspacePath(call, hit.path),
  }));
  const hits = new SearchHits();
  for (const hit of wanted.sort((a, b) => (a.path === b.path ? a.line - b.line : a.path < b.path ? -1 : 1)))
    hits.add(hit);
  if (results.gaps.length > 0) hits.ended ??= results.gaps.join('; ');
  if (call.request.mayRead !== undefined)
    await hits.keepReadable(call.request.mayRead, AbortSignal.timeout(call.request.timeoutMs), isPartOf);
  return hits.page({ offset, limit }, 0);
}
