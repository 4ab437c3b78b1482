/** The tools `write` and `edit` on files of the workspace. They replace only files that the caller has read. */
import { type PathHandle, pathChanged } from '../../../catalogs/readers/path-handles.ts';
import { plural } from '../../../catalogs/text/readable-text.ts';
import { countLines, holdsNote } from '../../../catalogs/text/text-pages.ts';
import type { ToolResult } from '../../../catalogs/tools/tool-definition.ts';
import { type ActionContext, fileSystemError } from './action-context.ts';
import { appendFile, storeFile } from './atomic-write.ts';
import { currentFileVersion, type FileOpener, type FileSnapshot, withFileSnapshot } from './file-snapshot.ts';
import {
  decodeText,
  headOf,
  invalidArguments,
  refusalResult,
  textResult,
  toolFailure,
  versionOfFile,
} from './file-text.ts';
import { OpenFolder } from './open-folder.ts';
import { bindOpenPath, outsideFolderOf, pathComponents } from './path-binding.ts';
import { applyEdit, type EditArgs, type EditedText, linesAt, type TextRange } from './text-edit.ts';

/** Arguments of `write`, catalogs/primitives/schemas.json. */
export interface WriteArgs {
  readonly path: string;
  readonly content: string;
  readonly mode?: 'auto' | 'create' | 'overwrite' | 'append' | undefined;
  readonly version?: string | undefined;
}

/** A file that is about to be changed. Its lock is held. */
interface OpenTarget {
  readonly folder: OpenFolder;
  /** Opens the current object of the name. Throws DENIED if it is not the judged one. */
  readonly present: FileOpener;
  readonly name: string;
  readonly relative: string;
  readonly absolute: string;
  /** Checks, right before the change, that the path is still open to this call. Throws DENIED. */
  readonly confirm: () => Promise<unknown>;
}

/** Most places that a result names. */
const SHOWN_PLACES = 20;
const CONTEXT_LINES = 3;
const CONTEXT_CHARS = 2000;

/** Writes a whole file atomically, or appends to it. Creates missing folders. Keeps mode and owner. */
export function writeAction(context: ActionContext, args: WriteArgs): Promise<ToolResult> {
  refuseCutText(args.content, 'content');
  return withOpenTarget(context, { path: args.path, create: true }, async (target) => {
    const mode = args.mode ?? 'auto';
    const present = await currentFileVersion(target.present, target.name);
    checkVersion(target, args.version, present?.version);
    if (mode === 'create' && present !== undefined) throw fileSystemError({ code: 'EEXIST' }, target.relative);
    if (mode === 'auto' && present !== undefined && args.version === undefined)
      checkSeen(context, target, present.version);
    const bytes = Buffer.from(args.content, 'utf8');
    await target.confirm();
    const appends = mode === 'append' && present !== undefined;
    const stat = appends
      ? await appendFile(target, bytes)
      : await storeFile({ ...target, previous: present?.stat }, bytes);
    context.stored.record(target.absolute, stat);
    const version = appends
      ? (await currentFileVersion(target.present, target.name))?.version
      : versionOfFile(bytes, stat);
    if (version !== undefined) context.versions.record(context.call.scope, target.absolute, version);
    const done = appends ? 'Appended to' : present === undefined ? 'Created' : 'Replaced';
    return writeReport(`${done} ${target.relative}`, args.content, version);
  });
}

/** Replaces text in a file. All other bytes are kept. */
export function editAction(
  context: ActionContext,
  args: EditArgs & { readonly path: string; readonly version?: string | undefined },
): Promise<ToolResult> {
  refuseCutEdits(args);
  return withOpenTarget(context, { path: args.path, create: false }, (target) =>
    withFileSnapshot({ folder: target.present, name: target.name, signal: context.signal }, (before) =>
      editIn(context, { target, before }, args),
    ),
  );
}

async function editIn(
  context: ActionContext,
  { target, before }: { target: OpenTarget; before: FileSnapshot },
  args: EditArgs & { readonly version?: string | undefined },
): Promise<ToolResult> {
  checkVersion(target, args.version, before.version);
  const seen = context.versions.lastSeen(context.call.scope, target.absolute);
  if (args.version === undefined && seen !== undefined) checkSeen(context, target, before.version);
  const decoded = decodeText(before.bytes);
  if (!('text' in decoded))
    throw toolFailure(
      `${target.relative} is not UTF-8 text, so edit would damage it.`,
      'Change it with a program in bash.',
    );
  const outcome = await applyEdit(decoded.text, args, context.signal);
  if ('refusal' in outcome) return refusalResult(`${target.relative}: ${outcome.refusal.what}`, outcome.refusal.next);
  const bytes = Buffer.from(outcome.text, 'utf8');
  await target.confirm();
  const stat = await storeFile({ ...target, previous: before.stat }, bytes);
  context.stored.record(target.absolute, stat);
  const version = versionOfFile(bytes, stat);
  context.versions.record(context.call.scope, target.absolute, version);
  return editReport(target.relative, outcome, version);
}

/** Returns the result of a write. */
export function writeReport(done: string, content: string, version: string | undefined): ToolResult {
  const size = `${plural(Buffer.byteLength(content), 'byte')}, ${plural(countLines(content), 'line')}`;
  return textResult(`${done}: ${size}. Version ${version}.`);
}

/** Returns the result of an edit: its lines, the new version, notes, and the changed text. */
export function editReport(file: string, edited: EditedText, version: string): ToolResult {
  const notes = edited.notes.map((text) => ` Note: ${text}.`).join('');
  const summary = `Edited ${file}, ${changedLines(edited.text, edited)}. Version ${version}.${notes}`;
  return textResult(`${summary}\n${textAround(edited.text, edited.places)}`);
}

async function withOpenTarget(
  context: ActionContext,
  options: { path: string; create: boolean },
  task: (target: OpenTarget) => Promise<ToolResult>,
): Promise<ToolResult> {
  const pathHandle = await bindOpenPath(context.pathHandles.of(options.path), context.call.outsideFolders);
  const { relative, absolute, inside } = pathHandle.location;
  const name = pathComponents(relative).at(-1);
  // A file must not replace the folder of another workspace, even if this folder was removed.
  if (
    name === undefined ||
    options.path.endsWith('/') ||
    (await outsideFolderOf(pathHandle, context.call.outsideFolders)) === absolute
  )
    throw fileSystemError({ code: 'EISDIR' }, relative);
  const confirm = async (): Promise<unknown> => inside || bindOpenPath(pathHandle, context.call.outsideFolders);
  return context.locks.hold(absolute, async () => {
    context.signal.throwIfAborted();
    await confirm();
    let folder: OpenFolder | undefined;
    try {
      folder = await OpenFolder.of(pathHandle, options.create);
      return await task({
        folder,
        present: judgedOpener(folder, pathHandle, context),
        name,
        relative,
        absolute,
        confirm,
      });
    } catch (error) {
      throw fileSystemError(error, relative);
    } finally {
      await folder?.close();
    }
  });
}

/**
 * Opens only the judged object, or the object that Tollgate stored last under this path. Another object was swapped
 * in.
 */
function judgedOpener(folder: OpenFolder, pathHandle: PathHandle, context: ActionContext): FileOpener {
  return {
    openFile: async (name, flags, mode) => {
      const handle = await folder.openFile(name, flags, mode);
      const stat = await handle.stat({ bigint: true });
      if (pathHandle.isObject(stat) || context.stored.isLastStored(pathHandle.location.absolute, stat)) return handle;
      await handle.close();
      throw pathChanged();
    },
  };
}

/** Throws ARGS_INVALID for text that Tollgate cut. Writing it back would lose the rest. */
export function refuseCutText(text: string, argument: string): void {
  if (!holdsNote(text)) return;
  throw invalidArguments(
    `${argument} contains a note of Tollgate that marks cut output. Writing it would lose the rest.`,
    'Read the rest, then send the whole text without the note.',
  );
}

/** Throws ARGS_INVALID if an edit would write back text that Tollgate cut, unless it replaces such text. */
export function refuseCutEdits(args: EditArgs): void {
  for (const step of [args, ...(args.edits ?? [])])
    if (!holdsNote(step.old_string)) refuseCutText(step.new_string, 'new_string');
}

function checkVersion(target: OpenTarget, wanted: string | undefined, present: string | undefined): void {
  if (wanted === undefined || wanted === present) return;
  const now = present === undefined ? 'does not exist' : `has version ${present}`;
  throw toolFailure(
    `${target.relative} ${now}, not ${headOf(wanted, 40)}. Nothing was changed.`,
    `Read it again: read path=${JSON.stringify(target.relative)}`,
  );
}

function checkSeen(context: ActionContext, target: OpenTarget, present: string): void {
  const seen = context.versions.lastSeen(context.call.scope, target.absolute);
  if (seen === present) return;
  const why =
    seen === undefined
      ? 'exists and you have not read it'
      : `has changed since you saw it (then version ${seen}, now ${present})`;
  throw toolFailure(
    `${target.relative} ${why}. Nothing was changed.`,
    `Read it first: read path=${JSON.stringify(target.relative)}`,
  );
}

/** Returns the first and last line of each place. Places ascend. */
function lineRanges(
  text: string,
  places: readonly TextRange[],
): readonly { readonly first: number; readonly last: number }[] {
  const lines = linesAt(
    text,
    places.flatMap(({ start, end }) => [start, Math.max(start, end - 1)]),
  );
  return places.map((_, index) => ({ first: lines[2 * index] ?? 1, last: lines[2 * index + 1] ?? 1 }));
}

/** Describes the places of an edit: `lines 3, 7-9 (2 places)`. */
export function changedLines(text: string, { places, count }: Pick<EditedText, 'places' | 'count'>): string {
  const ranges = lineRanges(text, places.slice(0, SHOWN_PLACES));
  const shown = ranges.map(({ first, last }) => (first === last ? `${first}` : `${first}-${last}`));
  const word = count === 1 && ranges[0]?.first === ranges[0]?.last ? 'line' : 'lines';
  const more = count > shown.length ? ', …' : '';
  return `${word} ${shown.join(', ')}${more} (${count} ${count === 1 ? 'place' : 'places'})`;
}

/** Returns the changed lines, with three lines around each place. */
export function textAround(text: string, places: readonly TextRange[]): string {
  let shown = '';
  /** The last shown line, and the offset of its end. */
  let [lastLine, lastEnd] = [0, -1];
  for (const [index, { first, last }] of lineRanges(text, places).entries()) {
    const { start = 0, end = 0 } = places[index] ?? {};
    const from = Math.max(lastLine + 1, first - CONTEXT_LINES);
    const after = linesAfter(text, Math.max(start, end - 1));
    const to = last + after.lines;
    if (to <= lastLine) continue;
    const isApart = from > lastLine + 1 || lastLine === 0;
    if (isApart) shown += `@@ from line ${from}\n`;
    const begin = isApart ? lineBegin(text, start, first - from) : lastEnd + 1;
    shown += `${text.slice(begin, Math.min(after.end, begin + CONTEXT_CHARS + 1)).replace(/\r(?=\n|$)/g, '')}\n`;
    [lastLine, lastEnd] = [to, after.end];
    if (shown.length > CONTEXT_CHARS) return `${headOf(shown, CONTEXT_CHARS)}…`;
  }
  return shown;
}

/** Returns the offset of the line that is `above` lines above the line of an offset. */
function lineBegin(text: string, offset: number, above: number): number {
  let begin = offset === 0 ? 0 : text.lastIndexOf('\n', offset - 1) + 1;
  for (let count = above; count > 0 && begin > 0; count -= 1)
    begin = begin === 1 ? 0 : text.lastIndexOf('\n', begin - 2) + 1;
  return begin;
}

/** Returns the number of lines shown after the line of an offset, and the offset at which the last one ends. */
function linesAfter(text: string, offset: number): { readonly lines: number; readonly end: number } {
  let end = text.indexOf('\n', offset);
  let lines = 0;
  for (; end !== -1 && lines < CONTEXT_LINES; lines += 1) end = text.indexOf('\n', end + 1);
  return { lines, end: end === -1 ? text.length : end };
}
