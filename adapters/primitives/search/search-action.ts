/** Owns the action search of read: ripgrep where it and a sandbox for it are, our own scan elsewhere; refuses searches without bounds. */
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

/** Lines that match a regular expression, beneath a folder or in one file, 100 at a time. */
export async function searchAction(desk: ActionContext, held: PathHandle, args: ReadArgs): Promise<ToolResult> {
  const query = queryOf(args);
  const hits = new SearchHits();
  const { relative, absolute } = held.location;
  const isFolder = held.stat?.isDirectory() === true;
  const ignored = query.hidden || !isFolder ? [] : await ignoreRulesAbove(desk, held);
  const folder = isFolder ? await openJudgedFolder(held) : await OpenFolder.around(held);
  const time = AbortSignal.timeout(SEARCH_MS);
  const prefix = isFolder ? folderPrefix(relative) : relative;
  const ground = {
    folder,
    root: desk.root,
    name: isFolder ? undefined : path.basename(absolute),
    prefix,
    ignored,
    signal: AbortSignal.any([desk.signal, time]),
  };
  try {
    if (!(await searchWithRipgrep(ground, query, hits))) await searchByScan(ground, query, hits);
  } catch (error) {
    if (!time.aborted) throw error;
  } finally {
    await folder.close();
  }
  desk.signal.throwIfAborted();
  if (time.aborted) hits.ended = `ended after ${SEARCH_MS / 1000} s`;
  if (desk.mayRead !== undefined)
    await hits.keep(desk.mayRead, AbortSignal.any([desk.signal, AbortSignal.timeout(SEARCH_MS)]));
  return hits.page(args, query.context);
}

function queryOf(args: ReadArgs): SearchQuery {
  const { pattern, context = 0, glob } = args;
  if (pattern === undefined || pattern === '')
    throw invalidArguments('search needs pattern.', 'Give a regular expression, or literal=true with a plain text.');
  if (context < 0 || context > MAX_CONTEXT)
    throw invalidArguments(
      `context must be 0 to ${MAX_CONTEXT}.`,
      'Use a smaller context, then read the file around the match.',
    );
  if (/[\r\n]/.test(pattern))
    throw invalidArguments(
      'A pattern is matched against single lines; it cannot hold a line end.',
      'Search for one line of it, then read around the match.',
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
