/** The action `search` of `read`: uses ripgrep if it and its sandbox are available, else the scan of Tollgate. */
import path from 'node:path';
import type { PathHandle } from '../../../catalogs/readers/path-handles.ts';
import type { ToolResult } from '../../../catalogs/tools/tool-definition.ts';
import type { ActionContext } from '../workspace/action-context.ts';
import { invalidArguments } from '../workspace/file-text.ts';
import { OpenFolder, openJudgedFolder } from '../workspace/open-folder.ts';
import { compileGlob } from './glob-matcher.ts';
import { folderPrefix, ignoreRulesAbove, type ReadArgs } from './list-actions.ts';
import { searchWithRipgrep } from './ripgrep.ts';
import { searchByScan } from './scan-search.ts';
import { SearchHits, type SearchQuery } from './search-hits.ts';

const MAX_CONTEXT = 50;
const SEARCH_MS = 20_000;

/** Finds lines that match a regular expression, below a folder or in one file, 100 at a time. */
export async function searchAction(
  context: ActionContext,
  pathHandle: PathHandle,
  args: ReadArgs,
): Promise<ToolResult> {
  const query = queryOf(args);
  const hits = new SearchHits();
  const { relative, absolute } = pathHandle.location;
  const isFolder = pathHandle.stat?.isDirectory() === true;
  const ignored = query.hidden || !isFolder ? [] : await ignoreRulesAbove(context, pathHandle);
  const folder = isFolder ? await openJudgedFolder(pathHandle) : await OpenFolder.around(pathHandle);
  const timeLimit = AbortSignal.timeout(SEARCH_MS);
  const prefix = isFolder ? folderPrefix(relative) : relative;
  const scope = {
    folder,
    root: context.root,
    name: isFolder ? undefined : path.basename(absolute),
    prefix,
    ignored,
    signal: AbortSignal.any([context.signal, timeLimit]),
  };
  try {
    if (!(await searchWithRipgrep(scope, query, hits))) await searchByScan(scope, query, hits);
  } catch (error) {
    if (!timeLimit.aborted) throw error;
  } finally {
    await folder.close();
  }
  context.signal.throwIfAborted();
  if (timeLimit.aborted) hits.ended = `ended after ${SEARCH_MS / 1000} s`;
  if (context.call.mayRead !== undefined)
    await hits.keepReadable(context.call.mayRead, AbortSignal.any([context.signal, AbortSignal.timeout(SEARCH_MS)]));
  return hits.page(args, query.context);
}

function queryOf(args: ReadArgs): SearchQuery {
  const { context = 0, glob } = args;
  const pattern = checkSearchPattern(args);
  if (context < 0 || context > MAX_CONTEXT)
    throw invalidArguments(
      `context must be 0 to ${MAX_CONTEXT}.`,
      'Use a smaller context, then read the file around the match.',
    );
  if (glob !== undefined) compileGlob(glob);
  return {
    pattern,
    glob,
    context,
    ignoreCase: args.ignore_case === true,
    literal: args.literal === true,
    hidden: args.hidden === true,
  };
}

/** Returns the pattern of a search. Throws ARGS_INVALID if it is missing or contains a line end. */
export function checkSearchPattern({ pattern }: Partial<ReadArgs>): string {
  if (pattern === undefined || pattern === '')
    throw invalidArguments(
      'action="search" needs pattern.',
      'Set pattern to a regular expression, or to plain text with literal=true.',
    );
  if (/[\r\n]/.test(pattern))
    throw invalidArguments(
      'A pattern is matched against single lines, so it cannot contain a line end.',
      'Search for one line of it, then read around the match.',
    );
  return pattern;
}
