/** Owns the action search of read: ripgrep where it and a sandbox for it are, our own scan elsewhere; refuses searches without bounds. */
import path from 'node:path';
import type { Held } from '../../catalogs/held.ts';
import type { ToolResult } from '../../catalogs/tool.ts';
import type { Desk } from './desk.ts';
import { enterJudged, Folder } from './folder.ts';
import { compileGlob } from './globs.ts';
import type { Query } from './hits.ts';
import { Hits } from './hits.ts';
import { prefixOf, rulesAbove } from './listing.ts';
import type { ReadArgs } from './read.ts';
import { ripgrep } from './ripgrep.ts';
import { scan } from './scan.ts';
import { invalid } from './text.ts';
import type { IgnoreRule } from './walk.ts';

const MAX_CONTEXT = 50;
const SEARCH_MS = 20_000;

/** Where an engine searches: beneath an open folder, or in the one file `name` in it. */
export interface Ground {
  readonly folder: Folder;
  /** The workspace, real. */
  readonly root: string;
  readonly name: string | undefined;
  /** Stands before the path of every hit. */
  readonly prefix: string;
  readonly ignored: readonly IgnoreRule[];
  /** Ends the search: the caller gave up, or the time is over. */
  readonly signal: AbortSignal;
}

/** Lines that match a regular expression, beneath a folder or in one file, 100 at a time. */
export async function search(desk: Desk, held: Held, args: ReadArgs): Promise<ToolResult> {
  const query = queryOf(args);
  const hits = new Hits();
  const { relative, absolute } = held.location;
  const isFolder = held.stat?.isDirectory() === true;
  const ignored = query.hidden || !isFolder ? [] : await rulesAbove(desk, held);
  const folder = isFolder ? await enterJudged(held) : await Folder.around(held);
  const time = AbortSignal.timeout(SEARCH_MS);
  const prefix = isFolder ? prefixOf(relative) : relative;
  const ground = {
    folder,
    root: desk.root,
    name: isFolder ? undefined : path.basename(absolute),
    prefix,
    ignored,
    signal: AbortSignal.any([desk.signal, time]),
  };
  try {
    if (!(await ripgrep(ground, query, hits))) await scan(ground, query, hits);
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

function queryOf(args: ReadArgs): Query {
  const { pattern, context = 0, glob } = args;
  if (pattern === undefined || pattern === '')
    throw invalid('search needs pattern.', 'Give a regular expression, or literal=true with a plain text.');
  if (context < 0 || context > MAX_CONTEXT)
    throw invalid(
      `context must be 0 to ${MAX_CONTEXT}.`,
      'Use a smaller context, then read the file around the match.',
    );
  if (/[\r\n]/.test(pattern))
    throw invalid(
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
