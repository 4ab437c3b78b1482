/** Owns the actions write and edit on files of the workspace; refuses to replace what the caller has not seen, and text with cut marks. */
import type { BigIntStats } from 'node:fs';
import { type PathHandle, pathChanged } from '../../../catalogs/readers/path-handles.ts';
import { countLines, holdsNote } from '../../../catalogs/text/text-pages.ts';
import type { ToolResult } from '../../../catalogs/tools/tool-definition.ts';
import { type ActionContext, fileSystemError } from './action-context.ts';
import { appendFile, storeFile } from './atomic-write.ts';
import { currentFileVersion, type FileOpener, type FileSnapshot, withFileSnapshot } from './file-snapshot.ts';
import {
  decodeText,
  headOf,
  invalidArguments,
  isHashed,
  refusalResult,
  textResult,
  toolFailure,
  versionOf,
  versionOfStat,
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

/** A file about to be changed, under its lock. */
interface Spot {
  readonly folder: OpenFolder;
  /** Opens what has the name now, and refuses what was not judged. */
  readonly present: FileOpener;
  readonly name: string;
  readonly relative: string;
  readonly absolute: string;
  /** Makes sure, right before the change, that the path is still open to this call. Throws DENIED. */
  readonly confirm: () => Promise<unknown>;
}

/** Places that an answer names. */
const SHOWN_PLACES = 20;
const CONTEXT_LINES = 3;
const CONTEXT_CHARS = 2000;

/** Writes a file whole or appends to it. Atomic; parents are made; mode and owner stay. */
export function writeAction(desk: ActionContext, args: WriteArgs): Promise<ToolResult> {
  refuseCutText(args.content, 'content');
  return atSpot(desk, { path: args.path, create: true }, async (spot) => {
    const mode = args.mode ?? 'auto';
    const present = await currentFileVersion(spot.present, spot.name);
    checkVersion(spot, args.version, present?.version);
    if (mode === 'create' && present !== undefined) throw fileSystemError({ code: 'EEXIST' }, spot.relative);
    if (mode === 'auto' && present !== undefined && args.version === undefined) checkSeen(desk, spot, present.version);
    const bytes = Buffer.from(args.content, 'utf8');
    await spot.confirm();
    const appends = mode === 'append' && present !== undefined;
    const stat = appends ? await appendFile(spot, bytes) : await storeFile({ ...spot, previous: present?.stat }, bytes);
    desk.stored.note(spot.absolute, stat);
    const version = appends ? (await currentFileVersion(spot.present, spot.name))?.version : versionFor(bytes, stat);
    if (version !== undefined) desk.versions.note(desk.scope, spot.absolute, version);
    const done = appends ? 'Appended to' : present === undefined ? 'Created' : 'Replaced';
    return textResult(
      `${done} ${spot.relative}: ${bytes.length} bytes, ${countLines(args.content)} lines. Version ${version}.`,
    );
  });
}

/** Replaces text in a file. Everything outside the places keeps its bytes. */
export function editAction(
  desk: ActionContext,
  args: EditArgs & { readonly path: string; readonly version?: string | undefined },
): Promise<ToolResult> {
  for (const step of [args, ...(args.edits ?? [])])
    if (!holdsNote(step.old_string)) refuseCutText(step.new_string, 'new_string');
  return atSpot(desk, { path: args.path, create: false }, (spot) =>
    withFileSnapshot({ folder: spot.present, name: spot.name, signal: desk.signal }, (before) =>
      editIn(desk, { spot, before }, args),
    ),
  );
}

async function editIn(
  desk: ActionContext,
  { spot, before }: { spot: Spot; before: FileSnapshot },
  args: EditArgs & { readonly version?: string | undefined },
): Promise<ToolResult> {
  checkVersion(spot, args.version, before.version);
  const seen = desk.versions.seen(desk.scope, spot.absolute);
  if (args.version === undefined && seen !== undefined) checkSeen(desk, spot, before.version);
  const decoded = decodeText(before.bytes);
  if (!('text' in decoded))
    throw toolFailure(
      `${spot.relative} is not UTF-8 text; editing it would damage it.`,
      'Change it with a program: bash.',
    );
  const outcome = await applyEdit(decoded.text, args, desk.signal);
  if ('refusal' in outcome) return refusalResult(`${spot.relative}: ${outcome.refusal.what}`, outcome.refusal.next);
  const bytes = Buffer.from(outcome.text, 'utf8');
  await spot.confirm();
  const stat = await storeFile({ ...spot, previous: before.stat }, bytes);
  desk.stored.note(spot.absolute, stat);
  const version = versionFor(bytes, stat);
  desk.versions.note(desk.scope, spot.absolute, version);
  const notes = outcome.notes.map((text) => ` Note: ${text}.`).join('');
  return textResult(
    `Edited ${spot.relative}, ${changedLines(outcome.text, outcome)}. Version ${version}.${notes}\n${textAround(outcome.text, outcome.places)}`,
  );
}

async function atSpot(
  desk: ActionContext,
  at: { path: string; create: boolean },
  work: (spot: Spot) => Promise<ToolResult>,
): Promise<ToolResult> {
  const held = await bindOpenPath(desk.pathHandles.of(at.path), desk.outsideFolders);
  const { relative, absolute, inside } = held.location;
  const name = pathComponents(relative).at(-1);
  // A folder of another workspace is not replaced by a file, not even where it was removed.
  if (name === undefined || at.path.endsWith('/') || (await outsideFolderOf(held, desk.outsideFolders)) === absolute)
    throw fileSystemError({ code: 'EISDIR' }, relative);
  const confirm = async (): Promise<unknown> => inside || bindOpenPath(held, desk.outsideFolders);
  return desk.locks.hold(absolute, async () => {
    desk.signal.throwIfAborted();
    await confirm();
    let folder: OpenFolder | undefined;
    try {
      folder = await OpenFolder.of(held, at.create);
      return await work({ folder, present: presentIn(folder, held, desk), name, relative, absolute, confirm });
    } catch (error) {
      throw fileSystemError(error, relative);
    } finally {
      await folder?.close();
    }
  });
}

/** A name may have gone to another object since it was judged: only the judged one counts, and what was stored here under the same path. */
function presentIn(folder: OpenFolder, held: PathHandle, desk: ActionContext): FileOpener {
  return {
    openFile: async (name, flags, mode) => {
      const handle = await folder.openFile(name, flags, mode);
      const stat = await handle.stat({ bigint: true });
      if (held.isObject(stat) || desk.stored.is(held.location.absolute, stat)) return handle;
      await handle.close();
      throw pathChanged();
    },
  };
}

/** Throws ARGS_INVALID for text that was cut by Tollgate: writing it back would lose the rest. */
export function refuseCutText(text: string, argument: string): void {
  if (!holdsNote(text)) return;
  throw invalidArguments(
    `${argument} holds a note of Tollgate that marks cut output: writing it would lose what was cut.`,
    'Read the rest, then give the whole text without the note.',
  );
}

function checkVersion(spot: Spot, wanted: string | undefined, present: string | undefined): void {
  if (wanted === undefined || wanted === present) return;
  const now = present === undefined ? 'does not exist' : `has version ${present}`;
  throw toolFailure(
    `${spot.relative} ${now}, not ${headOf(wanted, 40)}. Nothing was changed.`,
    `Read it again: read path=${JSON.stringify(spot.relative)}`,
  );
}

function checkSeen(desk: ActionContext, spot: Spot, present: string): void {
  const seen = desk.versions.seen(desk.scope, spot.absolute);
  if (seen === present) return;
  const why =
    seen === undefined
      ? 'exists and you have not read it'
      : `has changed since you saw it (then version ${seen}, now ${present})`;
  throw toolFailure(
    `${spot.relative} ${why}. Nothing was changed.`,
    `Read it first: read path=${JSON.stringify(spot.relative)}`,
  );
}

function versionFor(bytes: Buffer, stat: BigIntStats): string {
  return isHashed(bytes.length) ? versionOf(bytes) : versionOfStat(stat);
}

/** First and last line of the first places of an edit. Places ascend. */
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

/** The places of an edit for people: `lines 3, 7-9 (2 places)`. */
export function changedLines(text: string, { places, count }: Pick<EditedText, 'places' | 'count'>): string {
  const ranges = lineRanges(text, places.slice(0, SHOWN_PLACES));
  const shown = ranges.map(({ first, last }) => (first === last ? `${first}` : `${first}-${last}`));
  const word = count === 1 && ranges[0]?.first === ranges[0]?.last ? 'line' : 'lines';
  return `${word} ${shown.join(', ')}${count > shown.length ? ', …' : ''} (${count} ${count === 1 ? 'place' : 'places'})`;
}

/** The changed lines with three around each place, so that the caller sees what now stands there. */
export function textAround(text: string, places: readonly TextRange[]): string {
  let shown = '';
  /** The last line that is shown, and the offset of its end. */
  let [done, doneEnd] = [0, -1];
  for (const [index, { first, last }] of lineRanges(text, places).entries()) {
    const { start = 0, end = 0 } = places[index] ?? {};
    const from = Math.max(done + 1, first - CONTEXT_LINES);
    const after = linesAfter(text, Math.max(start, end - 1));
    const to = last + after.lines;
    if (to <= done) continue;
    const isApart = from > done + 1 || done === 0;
    if (isApart) shown += `@@ from line ${from}\n`;
    const begin = isApart ? lineBegin(text, start, first - from) : doneEnd + 1;
    shown += `${text.slice(begin, Math.min(after.end, begin + CONTEXT_CHARS + 1)).replace(/\r(?=\n|$)/g, '')}\n`;
    [done, doneEnd] = [to, after.end];
    if (shown.length > CONTEXT_CHARS) return `${headOf(shown, CONTEXT_CHARS)}…`;
  }
  return shown;
}

/** Where the line begins that is so many lines above that of an offset. */
function lineBegin(text: string, offset: number, above: number): number {
  let begin = offset === 0 ? 0 : text.lastIndexOf('\n', offset - 1) + 1;
  for (let left = above; left > 0 && begin > 0; left -= 1)
    begin = begin === 1 ? 0 : text.lastIndexOf('\n', begin - 2) + 1;
  return begin;
}

/** Of the lines that are shown after that of an offset: how many there are, and where the last one ends. */
function linesAfter(text: string, offset: number): { readonly lines: number; readonly end: number } {
  let end = text.indexOf('\n', offset);
  let lines = 0;
  for (; end !== -1 && lines < CONTEXT_LINES; lines += 1) end = text.indexOf('\n', end + 1);
  return { lines, end: end === -1 ? text.length : end };
}
