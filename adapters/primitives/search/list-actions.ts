/** The actions `list` and `find` of `read`. They return names only. */
import path from 'node:path';
import type { PathHandle } from '../../../catalogs/readers/path-handles.ts';
import { firstOf, note } from '../../../catalogs/text/text-pages.ts';
import type { ToolResult } from '../../../catalogs/tools/tool-definition.ts';
import type { ActionContext } from '../workspace/action-context.ts';
import { invalidArguments, printableName, textResult } from '../workspace/file-text.ts';
import { openFolder, openJudgedFolder } from '../workspace/open-folder.ts';
import { bindPath, outsideFolderOf, pathComponents } from '../workspace/path-binding.ts';
import { type IgnoreRule, readIgnoreRules, type WalkedEntry, walkFolder } from './folder-walk.ts';
import { compileGlob, type Glob } from './glob-matcher.ts';

const PAGE_ENTRIES = 500;
/** Most entries that are visited. The result says if a walk was stopped. */
const MAX_ENTRIES = 100_000;
const ALL_LEVELS = 1000;

/** Lists the entries of a folder, with paths relative to it. Folders end with `/`, symlinks with `@`. */
export async function listAction(context: ActionContext, pathHandle: PathHandle, args: ReadArgs): Promise<ToolResult> {
  const depth = checkDepth(args);
  const { relative } = pathHandle.location;
  const entries = collect(context, pathHandle, {
    depth,
    hidden: args.hidden === true,
    show: (entry) => entry.path.slice(folderPrefix(relative).length),
  });
  return namesPage(await entries, args, relative);
}

/** Finds entries whose path below the folder matches a glob. Paths are relative to the workspace. */
export async function findAction(context: ActionContext, pathHandle: PathHandle, args: ReadArgs): Promise<ToolResult> {
  const glob = checkGlobPattern(args);
  const { relative } = pathHandle.location;
  const show = (entry: WalkedEntry): string | undefined =>
    glob(entry.path.slice(folderPrefix(relative).length)) ? entry.path : undefined;
  const found = collect(context, pathHandle, { depth: ALL_LEVELS, hidden: args.hidden === true, show });
  return namesPage(await found, args, relative);
}

/** Returns the depth of a list, by default one level. Throws ARGS_INVALID for a depth below 1. */
export function checkDepth({ depth = 1 }: Partial<ReadArgs>): number {
  if (depth < 1) throw invalidArguments('depth must be at least 1.', 'Omit depth for one level.');
  return depth;
}

/** Compiles the pattern of a find. Throws ARGS_INVALID if it is missing or not a valid glob. */
export function checkGlobPattern({ pattern }: Partial<ReadArgs>): Glob {
  if (pattern === undefined || pattern === '')
    throw invalidArguments('action="find" needs pattern.', 'Set pattern to a glob such as src/**/*.ts.');
  return compileGlob(pattern);
}

/** Returns the prefix of the paths of all entries of a folder. */
export function folderPrefix(relative: string): string {
  return relative === '.' ? '' : `${relative}/`;
}

/** Returns the rules of the .gitignore files above a path, from the root of its workspace downwards. */
export async function ignoreRulesAbove(context: ActionContext, pathHandle: PathHandle): Promise<readonly IgnoreRule[]> {
  const otherWorkspace = await outsideFolderOf(pathHandle, context.call.outsideFolders);
  if (otherWorkspace === undefined) bindPath(pathHandle);
  const { relative, absolute } = pathHandle.location;
  const names = pathComponents(
    otherWorkspace === undefined ? relative : path.relative(otherWorkspace, absolute) || '.',
  );
  const rules: IgnoreRule[] = [];
  for (let depth = 0; depth < names.length; depth += 1) {
    const above = names.slice(0, depth);
    const folder = await openFolder(otherWorkspace ?? context.root, above);
    rules.push(
      ...(await readIgnoreRules(
        folder,
        [...(otherWorkspace === undefined ? [] : [otherWorkspace]), ...above].join('/'),
      )),
    );
    await folder.close();
  }
  return rules;
}

interface Names {
  readonly lines: readonly string[];
  /** False if the walk was stopped. */
  readonly isComplete: boolean;
}

/** What to collect. `show` returns the line of an entry, or undefined to leave it out. */
interface CollectOptions {
  readonly depth: number;
  readonly hidden: boolean;
  readonly show: (entry: WalkedEntry) => string | undefined;
}

async function collect(context: ActionContext, pathHandle: PathHandle, options: CollectOptions): Promise<Names> {
  const { relative } = pathHandle.location;
  const ignored = options.hidden ? [] : await ignoreRulesAbove(context, pathHandle);
  const folder = await openJudgedFolder(pathHandle);
  const lines: string[] = [];
  let visited = 0;
  try {
    for await (const entry of walkFolder(
      folder,
      { ...options, ignored, signal: context.signal },
      relative === '.' ? '' : relative,
    )) {
      visited += 1;
      if (visited > MAX_ENTRIES) return { lines, isComplete: false };
      const line = options.show(entry);
      if (line !== undefined)
        lines.push(printableName(line) + (entry.kind === 'folder' ? '/' : entry.kind === 'link' ? '@' : ''));
    }
    return { lines, isComplete: true };
  } finally {
    await folder.close();
  }
}

/** Returns one page of names. Its note says which entries these are, what was left out (`gaps`), and the next call. */
export function namesPage(
  { lines, isComplete, gaps = [] }: Names & { readonly gaps?: readonly string[] },
  { action, pattern, offset, limit }: Partial<ReadArgs>,
  shownPath: string,
): ToolResult {
  const total = lines.length;
  const from = firstOf({ offset, limit }, total, 'entries');
  if (total === 0) return textResult(note([action === 'find' ? 'no file matches' : 'no entries', ...gaps].join('; ')));
  const shown = lines.slice(from - 1, from - 1 + (limit ?? PAGE_ENTRIES));
  const to = from - 1 + shown.length;
  if (from === 1 && to === total && isComplete && gaps.length === 0) return textResult(shown.join('\n'));
  const range = `entries ${from}-${to} of ${isComplete ? '' : 'more than '}${total}`;
  const patternArgument = action === 'find' ? ` pattern=${JSON.stringify(pattern)}` : '';
  const call = `read action="${action}" path=${JSON.stringify(shownPath)}${patternArgument} offset=${to + 1}`;
  const next = to < total ? ` Next: ${call}` : '';
  return textResult(shown.join('\n'), note(`${[range, ...gaps].join('; ')}.${next}`));
}

/** Arguments of `read`, catalogs/primitives/schemas.json. */
export interface ReadArgs {
  readonly action?: 'file' | 'list' | 'find' | 'search' | 'stat' | undefined;
  readonly path: string;
  readonly offset?: number | undefined;
  readonly limit?: number | undefined;
  readonly pattern?: string | undefined;
  readonly glob?: string | undefined;
  readonly context?: number | undefined;
  readonly ignore_case?: boolean | undefined;
  readonly literal?: boolean | undefined;
  readonly depth?: number | undefined;
  readonly hidden?: boolean | undefined;
}
