/** Owns `edit` on backends: the new text is computed here by exact match, the backend only stores it; refuses what it would damage. */
import { countLines, holdsNote } from '../../../catalogs/text/text-pages.ts';
import type { ToolResult } from '../../../catalogs/tools/tool-definition.ts';
import { abortSignalOf } from '../../rpc/cancellation.ts';
import { textResult, toolFailure, versionOf } from '../workspace/file-text.ts';
import { occurrences } from '../workspace/occurrences.ts';
import { applyEdit, type EditArgs, type EditedText, type TextRange } from '../workspace/text-edit.ts';
import { changedLines, refuseCutText, textAround } from '../workspace/write-actions.ts';
import {
  backendFailure,
  type callBackendTool,
  callMainTool,
  callMappingStep,
  type MappedCall,
  matchMappingText,
} from './mapped-call.ts';
import {
  checkVersion,
  type MappedState,
  notSupported,
  readFileFacts,
  readWholeText,
  regularFileFacts,
  rememberVersion,
  shownPathOf,
  versionOfFacts,
} from './mapped-file-facts.ts';
import { storeWholeText } from './mapped-write.ts';

/** Occurrences counted at most. */
const MAX_COUNT = 1_000_000;

/** For backends that keep every byte of a text: read, replace here, store whole. */
export function editWhole(work: MappedCall, desk: MappedState): Promise<ToolResult> {
  return desk.locks.hold(String(work.args.path), async () => {
    const before = await readWholeText(work);
    checkVersion(work, desk, versionOf(Buffer.from(before)));
    const edited = await compute(work, before);
    const version = await storeWholeText(work, edited.text);
    rememberVersion(work, desk, version);
    return report(work, edited, version);
  });
}

/**
 * For backends that hide line ends when they read but keep them when they replace: the place is found in the text that is shown,
 * widened until it is unique, and replaced by the backend's own tool, whose answer and the new size are checked.
 */
export function editChecked(work: MappedCall, desk: MappedState): Promise<ToolResult> {
  return desk.locks.hold(String(work.args.path), async () => {
    const facts = await regularFileFacts(work);
    checkVersion(work, desk, versionOfFacts(facts));
    const before = await shownText(work, facts.size);
    const edited = await compute(work, before);
    const answered = await replaceBy(work, before, edited);
    if (answered.failed) throw backendFailure(work, answered);
    if (!matchMappingText(work, 'edited', answered.text))
      throw toolFailure(
        `${JSON.stringify(shownPathOf(work))}: the backend found the text in another form than it shows, probably other line ends. Nothing was changed.`,
        'Give an old_string of one line.',
      );
    const after = await readFileFacts(work);
    const grown = (after?.size ?? 0) - facts.size;
    const bytes = Buffer.byteLength(edited.text) - Buffer.byteLength(before);
    // With a line end behind both, each end of line counts once.
    const lines = countLines(`${edited.text}\n`) - countLines(`${before}\n`);
    if (!after || (grown !== bytes && grown !== bytes + lines))
      throw toolFailure(
        `${JSON.stringify(shownPathOf(work))} grew by ${grown} bytes, not by ${bytes}: the backend stored something else, or someone wrote at the same time.`,
        'Read the file to see what stands there.',
      );
    const version = versionOfFacts(after);
    rememberVersion(work, desk, version);
    return report(work, edited, version);
  });
}

/** What such a backend cannot edit honestly. Pure; throws NOT_SUPPORTED. */
export function checkEdit(args: Readonly<Record<string, unknown>>): void {
  if (args.edits !== undefined)
    throw notSupported(
      'this backend makes one replacement a call, so several cannot be all or nothing',
      'Call edit once for each.',
    );
  if (String(args.new_string).includes('\r'))
    throw notSupported(
      'this backend replaces the line ends of new_string by those of the file',
      'Give new_string with plain line feeds.',
    );
}

async function compute(work: MappedCall, before: string): Promise<EditedText> {
  const args = work.args as unknown as EditArgs;
  for (const one of [args, ...(args.edits ?? [])])
    if (!holdsNote(one.old_string)) refuseCutText(one.new_string, 'new_string');
  const outcome = await applyEdit(before, args, abortSignalOf(work.call.signal));
  if ('refusal' in outcome) throw toolFailure(`${shownPathOf(work)}: ${outcome.refusal.what}`, outcome.refusal.next);
  return outcome;
}

async function shownText(work: MappedCall, size: number): Promise<string> {
  if (size > work.mapping.maxFileBytes)
    throw notSupported(
      `${JSON.stringify(shownPathOf(work))} has ${size} bytes; this backend edits at most ${work.mapping.maxFileBytes}`,
    );
  const answered = await callMappingStep(work, 'lines', { path: work.args.path });
  if (answered.failed) throw backendFailure(work, answered);
  const gap = answered.text.indexOf('\n\n');
  const header = matchMappingText(work, 'header', answered.text.slice(0, Math.max(0, gap)));
  const text = answered.text.slice(gap + 2);
  if (!header || text.includes('\uFFFD'))
    throw notSupported(`${JSON.stringify(shownPathOf(work))} is not UTF-8 text; this backend would damage it`);
  // The last line end is not shown; with it, an old_string that ends the file can still be found.
  return text === '' ? text : `${text}\n`;
}

function replaceBy(work: MappedCall, before: string, edited: EditedText): ReturnType<typeof callBackendTool> {
  const old = String(work.args.old_string);
  const fresh = String(work.args.new_string);
  const count = countOf(before, old, MAX_COUNT);
  const [place] = edited.places;
  if (count === 1 && edited.notes.length === 0) return callMainTool(work);
  if (count > 0 && work.args.replace_all === true)
    return callMappingStep(work, 'replace', { path: work.args.path, old, new: fresh, count });
  if (edited.count !== 1 || !place)
    throw notSupported(
      'this backend cannot replace several places that differ from old_string',
      'Copy the text exactly from the file.',
    );
  const widened = widenUntilUnique(before, edited.text, place);
  return callMappingStep(work, 'replace', { path: work.args.path, ...widened, count: 1 });
}

/** The changed place with whole lines around it, as few as make it unique in the old text. A wider text occurs no more often, so the width is bisected. */
export function widenUntilUnique(
  before: string,
  after: string,
  place: TextRange,
): { readonly old: string; readonly new: string } {
  const oldEnd = before.length - (after.length - place.end);
  const starts = [place.start];
  for (let at = place.start; at > 0; starts.push(at)) at = at <= 1 ? 0 : before.lastIndexOf('\n', at - 2) + 1;
  const ends = [oldEnd];
  for (let at = oldEnd; at < before.length; ends.push(at)) at = before.indexOf('\n', at) + 1 || before.length;
  const span = (width: number): readonly [number, number] => [
    starts[Math.min(width, starts.length - 1)] ?? 0,
    ends[Math.min(width, ends.length - 1)] ?? before.length,
  ];
  let [low, high] = [0, Math.max(starts.length, ends.length) - 1];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (countOf(before, before.slice(...span(middle)), 2) === 1) high = middle;
    else low = middle + 1;
  }
  const [start, end] = span(low);
  return { old: before.slice(start, end), new: after.slice(start, place.end + end - oldEnd) };
}

/** Overlapping ones count, as they do for the backend. */
function countOf(text: string, wanted: string, most: number): number {
  return occurrences(text, { needle: wanted, overlap: true, most }).length;
}

function report(work: MappedCall, { text, places, count, notes }: EditedText, version: string): ToolResult {
  const extra = notes.map((one) => ` Note: ${one}.`).join('');
  return textResult(
    `Edited ${shownPathOf(work)}, ${changedLines(text, { places, count })}. Version ${version}.${extra}\n${textAround(text, places)}`,
  );
}
