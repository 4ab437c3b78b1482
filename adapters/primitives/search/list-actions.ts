/** Owns the actions list and find of read: names only; refuses to descend without end. */
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
/** Entries looked at; a walk through more is stopped and says so. */
const MAX_ENTRIES = 100_000;
const EVERY_LEVEL = 1000;

/** Entries of a folder, paths relative to it; folders end with `/`, symlinks with `@`. */
export async function listAction(desk: ActionContext, held: PathHandle, args: ReadArgs): Promise<ToolResult> {
  const depth = args.depth ?? 1;
  if (depth < 1) throw invalidArguments('depth must be at least 1.', 'Leave depth out for one level.');
  const { relative } = held.location;
  const entries = collect(desk, held, {
    depth,
    hidden: args.hidden === true,
    show: (entry) => entry.path.slice(folderPrefix(relative).length),
  });
  return pageOf(await entries, { ...args, action: 'list' }, relative);
}

/** Files whose path below the folder matches a glob; paths relative to the workspace. */
export async function findAction(desk: ActionContext, held: PathHandle, args: ReadArgs): Promise<ToolResult> {
  if (args.pattern === undefined || args.pattern === '')
    throw invalidArguments('find needs pattern.', 'Give a glob such as pattern="src/**/*.ts".');
  const { relative } = held.location;
  const glob = compileGlob(args.pattern);
  const show = (entry: WalkedEntry): string | undefined =>
    glob(entry.path.slice(folderPrefix(relative).length)) ? entry.path : undefined;
  const found = collect(desk, held, { depth: EVERY_LEVEL, hidden: args.hidden === true, show });
  return pageOf(await found, { ...args, action: 'find' }, relative);
}

/** What stands before the path of everything in the folder. */
export function folderPrefix(relative: string): string {
  return relative === '.' ? '' : `${relative}/`;
}

/** The rules of the .gitignore files from the root, or the folder of another workspace, down to the folder that holds a path. */
export async function ignoreRulesAbove(desk: ActionContext, held: PathHandle): Promise<readonly IgnoreRule[]> {
  const reach = await outsideFolderOf(held, desk.outsideFolders);
  if (reach === undefined) bindPath(held);
  const { relative, absolute } = held.location;
  const names = pathComponents(reach === undefined ? relative : path.relative(reach, absolute) || '.');
  const rules: IgnoreRule[] = [];
  for (let depth = 0; depth < names.length; depth += 1) {
    const above = names.slice(0, depth);
    const folder = await openFolder(reach ?? desk.root, above);
    rules.push(...(await readIgnoreRules(folder, [...(reach === undefined ? [] : [reach]), ...above].join('/'))));
    await folder.close();
  }
  return rules;
}

interface Names {
  readonly lines: readonly string[];
  readonly all: boolean;
}

/** What to gather: `show` gives an entry's line, or nothing. */
interface Gathering {
  readonly depth: number;
  readonly hidden: boolean;
  readonly show: (entry: WalkedEntry) => string | undefined;
}

async function collect(desk: ActionContext, held: PathHandle, how: Gathering): Promise<Names> {
  const { relative } = held.location;
  const ignored = how.hidden ? [] : await ignoreRulesAbove(desk, held);
  const folder = await openJudgedFolder(held);
  const lines: string[] = [];
  let looked = 0;
  try {
    for await (const entry of walkFolder(
      folder,
      { ...how, ignored, signal: desk.signal },
      relative === '.' ? '' : relative,
    )) {
      looked += 1;
      if (looked > MAX_ENTRIES) return { lines, all: false };
      const shown = how.show(entry);
      if (shown !== undefined)
        lines.push(printableName(shown) + (entry.kind === 'folder' ? '/' : entry.kind === 'link' ? '@' : ''));
    }
    return { lines, all: true };
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
  const count = names.all ? `${total}` : `more than ${total}`;
  const pattern = args.action === 'find' ? ` pattern=${JSON.stringify(args.pattern)}` : '';
  const next =
    to < total ? ` Next: read action="${args.action}" path=${JSON.stringify(relative)}${pattern} offset=${to + 1}` : '';
  const cut = from > 1 || to < total || !names.all ? note(`entries ${from}-${to} of ${count}.${next}`) : undefined;
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
