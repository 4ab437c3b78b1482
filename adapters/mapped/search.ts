/** Owns find and search on a backend whose searches are sessions: polled to their end, then stopped; refuses silent failures. */
import type { ToolResult } from '../../catalogs/tool.ts';
import { compileGlob } from '../internal/globs.ts';
import { failed, invalid, printable } from '../internal/text.ts';
import { pageOf } from './entries.ts';
import { factsOf, pathOf, unsupported } from './facts.ts';
import { explain } from '../internal/desk.ts';
import { pause } from './session.ts';
import { askMain, failure, find, shown, step, type Work } from './work.ts';

const MAX_RESULTS = 20_000;
const PAGE = 1000;
const POLL_MS = 100;
/** The backend cuts what matched to this many characters and adds three dots. */
const CUT_CHARS = 100;

interface Results {
  readonly lines: readonly string[];
  readonly gaps: readonly string[];
}

/** What the backend cannot search for honestly. Pure; throws ARGS_INVALID or NOT_SUPPORTED. */
export function checkSearch(args: Readonly<Record<string, unknown>>): void {
  if (typeof args['pattern'] !== 'string' || args['pattern'] === '') throw invalid('pattern is missing.', 'Give a regular expression, or a glob for action="find".');
  if (typeof args['context'] === 'number' && args['context'] > 0) {
    throw unsupported('this backend trims the lines around a match and does not mark them', 'Search without context, then read the file around the match.');
  }
}

/** Carries out `read action="find"` and `read action="search"`. */
export async function search(work: Work): Promise<ToolResult> {
  const facts = await factsOf(work);
  if (!facts) throw explain({ code: 'ENOENT' }, pathOf(work));
  const started = await askMain(work);
  const id = find(work, 'searchId', started.text)?.['id'];
  if (started.failed || id === undefined) throw failure(work, started);
  const files = work.lowered.args['searchType'] === 'files';
  const results = await collect(work, id).finally(() => step(work, 'stop', { id }));
  const lines = files ? findLines(work, results) : matchLines(work, results);
  const hidden = work.args['hidden'] === true ? ['ignored files stay out on this backend'] : [];
  return pageOf(work, lines.lines, { what: files ? 'files' : 'matches', limit: files ? 500 : 100, gaps: [...lines.gaps, ...results.gaps, ...hidden] });
}

/** Polls until the search is complete. A search that failed looks like one without matches, but for a warning. */
async function collect(work: Work, id: string): Promise<Results> {
  const lines: string[] = [];
  for (;;) {
    const answered = await step(work, 'results', { id, start: lines.length });
    if (answered.failed) throw failure(work, answered);
    const fresh = answered.text.split('\n').filter((line) => find(work, 'match', line) ?? find(work, 'found', line));
    lines.push(...fresh);
    const total = Number(find(work, 'searchTotal', answered.text)?.['count'] ?? 0);
    const done = find(work, 'searchDone', answered.text) !== undefined;
    if (done && fresh.length < PAGE) return finish(work, { lines, total, partial: find(work, 'searchPartial', answered.text) !== undefined });
    if (lines.length >= MAX_RESULTS) return { lines, gaps: [`stopped after ${MAX_RESULTS}: narrow with glob or path`] };
    if (fresh.length === 0) await pause(POLL_MS, work.call.signal);
  }
}

function finish(work: Work, found: { readonly lines: readonly string[]; readonly total: number; readonly partial: boolean }): Results {
  const { lines, total, partial } = found;
  if (total === 0 && partial) {
    throw failed(`${work.inner.name} could not search: the pattern is not valid for ripgrep, or no file could be read. It does not say which.`, 'Correct the pattern, or give literal=true.');
  }
  const unread = Math.max(0, total - lines.length);
  const gaps = [...(partial ? ['some files could not be read'] : []), ...(unread > 0 ? [`${unread} results have names that cannot be told apart`] : [])];
  return { lines, gaps };
}

function findLines(work: Work, results: Results): Results {
  const matches = compileGlob(String(work.args['pattern']));
  const base = String(work.args['path']);
  const paths = results.lines.flatMap((line) => find(work, 'found', line)?.['path'] ?? []);
  const inside = paths.map((path) => shown({ root: base }, path)).filter((path) => matches(path));
  return { lines: inside.sort().map(printable), gaps: [] };
}

function matchLines(work: Work, results: Results): Results {
  const found = results.lines.flatMap((line) => {
    const match = find(work, 'match', line);
    return match ? [{ path: shown(work, match['path'] ?? ''), line: Number(match['line']), text: match['text'] ?? '' }] : [];
  });
  found.sort((a, b) => (a.path === b.path ? a.line - b.line : a.path < b.path ? -1 : 1));
  const cut = found.some(({ text }) => text.length === CUT_CHARS + 3 && text.endsWith('...'));
  return { lines: found.map(({ path, line, text }) => `${printable(path)}:${line}:${text}`), gaps: cut ? [`lines end after ${CUT_CHARS} characters`] : [] };
}
