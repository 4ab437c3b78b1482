/** Owns `read action="file"` on backends; refuses lines whose place the backend only guesses. */
import { firstOf, NOTE_BYTES, NOTE_LINES, note, pageText } from '../../../catalogs/text/text-pages.ts';
import type { ToolResult } from '../../../catalogs/tools/tool-definition.ts';
import { fileSystemError } from '../workspace/action-context.ts';
import { textResult, versionOf } from '../workspace/file-text.ts';
import { backendFailure, callMainTool, type MappedCall, matchMappingText } from './mapped-call.ts';
import {
  type MappedFileFacts,
  type MappedState,
  notSupported,
  readWholeText,
  regularFileFacts,
  rememberVersion,
  shownPathOf,
  versionOfFacts,
} from './mapped-file-facts.ts';

/** Reads the file whole, byte for byte, and cuts the page here. */
export async function readMappedWhole(work: MappedCall, desk: MappedState): Promise<ToolResult> {
  const text = await readWholeText(work);
  const page = pageText(text, { ...request(work), cap: work.call.cap }, shownPathOf(work));
  const version = versionOf(Buffer.from(text));
  rememberVersion(work, desk, version);
  return textResult(page.text, page.note);
}

/** Lets the backend cut the page; it drops line ends, which is said unless the size proves that nothing was lost. */
export async function readMappedPage(work: MappedCall, desk: MappedState): Promise<ToolResult> {
  firstOf(request(work), Number.MAX_SAFE_INTEGER);
  const facts = await regularFileFacts(work);
  const answered = await callMainTool(work);
  if (answered.failed) throw backendFailure(work, answered);
  if (matchMappingText(work, 'isFolder', answered.text)) throw fileSystemError({ code: 'EISDIR' }, shownPathOf(work));
  const gap = answered.text.indexOf('\n\n');
  const header = matchMappingText(work, 'header', answered.text.slice(0, Math.max(0, gap)));
  if (!header)
    throw notSupported(
      `${JSON.stringify(shownPathOf(work))} is not a text file for this backend`,
      'Expose its own tool read_file, which converts documents and pictures.',
    );
  const total = header.total === undefined ? undefined : Number(header.total);
  const { offset = 1, limit = 2000 } = request(work);
  if (total === undefined && (offset > 1000 || offset < 0))
    throw notSupported('above 10 MiB this backend only estimates where a line is');
  const count = Number(header.count);
  const lines = count === 0 ? [] : answered.text.slice(gap + 2).split('\n', limit);
  const from = total === undefined ? offset : firstOf({ offset, limit }, total);
  const shownLines = fitting(lines, work.call.cap);
  rememberVersion(work, desk, versionOfFacts(facts));
  return textResult(
    shownLines.join('\n') + endOf(facts, { lines: shownLines, total }),
    footer(work, { facts, from, lines: shownLines, total }),
  );
}

/** As many lines as will be shown with their note: what is cut here can be read on, what the facade cuts only from a spill. */
function fitting(lines: readonly string[], cap: MappedCall['call']['cap']): readonly string[] {
  if (cap === undefined) return lines;
  let bytes = NOTE_BYTES;
  const end = lines.findIndex(
    (line, index) => index >= cap.lines - NOTE_LINES || (bytes += Buffer.byteLength(line) + 1) > cap.bytes,
  );
  return end === -1 ? lines : lines.slice(0, Math.max(1, end));
}

interface Part {
  readonly lines: readonly string[];
  readonly total: number | undefined;
}

/** The last line end, where the sizes prove that there is one. */
function endOf(facts: MappedFileFacts, part: Part): string {
  return part.lines.length === part.total && Buffer.byteLength(part.lines.join('\n')) + 1 === facts.size ? '\n' : '';
}

function footer(
  work: MappedCall,
  part: Part & { readonly facts: MappedFileFacts; readonly from: number },
): string | undefined {
  const { facts, from, lines, total } = part;
  if (total === 0) return note('empty, 0 lines');
  const bytes = Buffer.byteLength(lines.join('\n'));
  const whole = total !== undefined && lines.length >= total;
  const exact = whole && (bytes === facts.size || bytes + 1 === facts.size);
  if (exact) return undefined;
  const ends = "line ends are shown as LF, this backend hides the file's own";
  if (whole) return note(ends);
  const to = from + lines.length - 1;
  const next =
    total === undefined || to < total ? `. Next: read path=${JSON.stringify(shownPathOf(work))} offset=${to + 1}` : '';
  return note(`lines ${from}-${to} of ${total ?? 'more'} · ${ends}${next}`);
}

function request(work: MappedCall): { offset?: number; limit?: number } {
  const { offset, limit } = work.args;
  return { ...(typeof offset === 'number' ? { offset } : {}), ...(typeof limit === 'number' ? { limit } : {}) };
}
