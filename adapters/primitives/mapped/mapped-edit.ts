/**
 * `edit` through a backend: Tollgate computes the new text by exact match, and the backend only stores it. Edits that
 * would damage the file are refused.
 */
import { countLines } from '../../../catalogs/text/text-pages.ts';
import type { ToolResult } from '../../../catalogs/tools/tool-definition.ts';
import { abortSignalOf } from '../../rpc/cancellation.ts';
import { toolFailure, versionOf } from '../workspace/file-text.ts';
import { occurrences } from '../workspace/occurrences.ts';
import { applyEdit, type EditArgs, type EditedText, type TextRange } from '../workspace/text-edit.ts';
import { editReport, refuseCutEdits } from '../workspace/write-actions.ts';
import {
  type BackendAnswer,
  callMainTool,
  callMappingStep,
  type MappedCall,
  matchMappingText,
  requireSuccess,
  splitHeader,
} from './mapped-call.ts';
import {
  checkVersion,
  type MappedState,
  notSupported,
  quotedPathOf,
  readFileFacts,
  readWholeText,
  regularFileFacts,
  rememberVersion,
  shownPathOf,
  versionOfFacts,
} from './mapped-file-facts.ts';
import { storeWholeText } from './mapped-write.ts';

/** Most occurrences that are counted. */
const MAX_COUNT = 1_000_000;

/** Edits through a backend that keeps every byte: reads the file, replaces the text here, and stores the whole file. */
export function editWhole(call: MappedCall, state: MappedState): Promise<ToolResult> {
  return state.locks.hold(String(call.args.path), async () => {
    const before = await readWholeText(call);
    checkVersion(call, state, versionOf(Buffer.from(before)));
    const edited = await computeEdit(call, before);
    const version = await storeWholeText(call, edited.text);
    rememberVersion(call, state, version);
    return editReport(shownPathOf(call), edited, version);
  });
}

/**
 * Edits through a backend that hides line ends when it reads, but keeps them when it replaces text. The place is found
 * in the text that the backend shows and widened until it is unique. Then the backend's own tool replaces it. Its
 * result and the new size of the file are checked.
 */
export function editChecked(call: MappedCall, state: MappedState): Promise<ToolResult> {
  return state.locks.hold(String(call.args.path), async () => {
    const facts = await regularFileFacts(call);
    checkVersion(call, state, versionOfFacts(facts));
    const before = await shownText(call, facts.size);
    const edited = await computeEdit(call, before);
    const answer = await requireSuccess(call, replaceInBackend(call, before, edited));
    if (!matchMappingText(call, 'edited', answer))
      throw toolFailure(
        `${quotedPathOf(call)}: the backend did not find the text that it had shown, probably ` +
          'because the line ends differ. Nothing was changed.',
        'Give an old_string of one line.',
      );
    const after = await readFileFacts(call);
    const sizeChange = (after?.size ?? 0) - facts.size;
    const bytes = Buffer.byteLength(edited.text) - Buffer.byteLength(before);
    // A line end is added to both texts, so that the last line counts too.
    const lines = countLines(`${edited.text}\n`) - countLines(`${before}\n`);
    if (!after || (sizeChange !== bytes && sizeChange !== bytes + lines))
      throw toolFailure(
        `${quotedPathOf(call)} grew by ${sizeChange} bytes, not by ${bytes}: the backend stored ` +
          'another text, or another program wrote the file at the same time.',
        'Read the file to see its present content.',
      );
    const version = versionOfFacts(after);
    rememberVersion(call, state, version);
    return editReport(shownPathOf(call), edited, version);
  });
}

/** Checks that `editChecked` can make this edit. Does no I/O. Throws NOT_SUPPORTED. */
export function checkEdit(args: Readonly<Record<string, unknown>>): void {
  if (args.edits !== undefined)
    throw notSupported(
      'this backend makes one replacement per call, so several edits cannot be atomic',
      'Call edit once for each replacement.',
    );
  if (String(args.new_string).includes('\r'))
    throw notSupported(
      'this backend replaces the line ends of new_string with those of the file',
      'Use only LF line ends in new_string.',
    );
}

async function computeEdit(call: MappedCall, before: string): Promise<EditedText> {
  const args = call.args as unknown as EditArgs;
  refuseCutEdits(args);
  const outcome = await applyEdit(before, args, abortSignalOf(call.request.signal));
  if ('refusal' in outcome) throw toolFailure(`${shownPathOf(call)}: ${outcome.refusal.what}`, outcome.refusal.next);
  return outcome;
}

async function shownText(call: MappedCall, size: number): Promise<string> {
  if (size > call.mapping.maxFileBytes)
    throw notSupported(
      `${quotedPathOf(call)} has ${size} bytes. This backend edits files of at most ` +
        `${call.mapping.maxFileBytes} bytes`,
    );
  const answer = await requireSuccess(call, callMappingStep(call, 'lines', { path: call.args.path }));
  const page = splitHeader(call, answer);
  if (!page || page.rest.includes('\uFFFD'))
    throw notSupported(`${quotedPathOf(call)} is not UTF-8 text, and this backend would damage it`);
  // The backend does not show the last line end. It is added so that an old_string at the end of the file is found.
  return page.rest === '' ? '' : `${page.rest}\n`;
}

function replaceInBackend(call: MappedCall, before: string, edited: EditedText): Promise<BackendAnswer> {
  const old = String(call.args.old_string);
  const replacement = String(call.args.new_string);
  const count = countOf(before, old, MAX_COUNT);
  const [place] = edited.places;
  if (count === 1 && edited.notes.length === 0) return callMainTool(call);
  if (count > 0 && call.args.replace_all === true)
    return callMappingStep(call, 'replace', { path: call.args.path, old, new: replacement, count });
  if (edited.count !== 1 || !place)
    throw notSupported(
      'this backend cannot replace several places that differ from old_string',
      'Copy the text exactly from the file.',
    );
  const widened = widenUntilUnique(before, edited.text, place);
  return callMappingStep(call, 'replace', { path: call.args.path, ...widened, count: 1 });
}

/**
 * Returns the changed place with the fewest whole lines around it that make it unique in the old text. A wider text
 * never occurs more often, so the width is found by bisection.
 */
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

/** Counts occurrences, including overlapping ones, as the backend does. */
function countOf(text: string, needle: string, limit: number): number {
  return occurrences(text, { needle, overlap: true, limit }).length;
}
