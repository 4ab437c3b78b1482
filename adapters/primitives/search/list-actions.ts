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
import { compileGlob } from './glob-matcher.ts';

const PAGE_ENTRIES = 500;
/** Most entries that are visited. The result says if a walk was stopped. */
const MAX_ENTRIES = 100_000;
const ALL_LEVELS = 1000;

/** Lists the entries of a folder, with paths relative to it. Folders end with `/`, symlinks with `@`. */
export async function listAction(context: ActionContext, pathHandle: PathHandle, args: ReadArgs): Promise<ToolResult> {
  const depth = args.depth ?? 1;
  if (depth < 1) throw invalidArguments('depth must be at least 1.', 'Omit depth for one level.');
  const { relative } = pathHandle.location;
  const entries = collect(context, pathHandle, {
    depth,
    hidden: args.hidden === true,
    show: (entry) => entry.path.slice(folderPrefix(relative).length),
  });
  return pageOf(await entries, { ...args, action: 'list' }, relative);
}

/** Finds entries whose path below the folder matches a glob. Paths are relative to the workspace. */
export async function findAction(context: ActionContext, pathHandle: PathHandle, args: ReadArgs): Promise<ToolResult> {
  if (args.pattern === undefined || args.pattern === '')
    throw invalidArguments('action="find" needs pattern.', 'Set pattern to a glob such as src/**/*.ts.');
  const { relative } = pathHandle.location;
  const glob = compileGlob(args.pattern);
  const show = (entry: WalkedEntry): string | undefined =>
    glob(entry.path.slice(folderPrefix(relative).length)) ? entry.path : undefined;
  const found = collect(context, pathHandle, { depth: ALL_LEVELS, hidden: args.hidden === true, show });
  return pageOf(await found, { ...args, action: 'find' }, relative);
}

/** Returns the prefix of the paths of all entries of a folder. */
export function folderPrefix(relative: string): string {
  return relative === '.' ? '' : `${relative}/`;
}

/** Returns the rules of the .gitignore files above a path, from the root of its workspace downwards. */
export async function ignoreRulesAbove(context: ActionContext, pathHandle: PathHandle): Promise<readonly IgnoreRule[]> {
  const otherWorkspace = await outsideFolderOf(pathHandle, context.outsideFolders);
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

function pageOf(names: Names, args: ReadArgs, relative: string): ToolResult {
  const total = names.lines.length;
  const from = firstOf(args, total, 'entries');
  const shown = names.lines.slice(from - 1, from - 1 + (args.limit ?? PAGE_ENTRIES));
  if (total === 0) return textResult(note(args.action === 'find' ? 'no file matches' : 'no entries'));
  const to = from - 1 + shown.length;
  const count = names.isComplete ? `${total}` : `more than ${total}`;
  const pattern = args.action === 'find' ? ` pattern=${JSON.stringify(args.pattern)}` : '';
  const next =
    to < total ? ` Next: read action="${args.action}" path=${JSON.stringify(relative)}${pattern} offset=${to + 1}` : '';
  const cut =
    from > 1 || to < total || !names.isComplete ? note(`entries ${from}-${to} of ${count}.${next}`) : undefined;
  return textResult(shown.join('\n'), cut);
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
