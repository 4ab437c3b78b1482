/** Owns `read action="file"` on backends; refuses lines whose place the backend only guesses. */
import { firstOf, NOTE_BYTES, NOTE_LINES, note, pageText } from '../../catalogs/paging.ts';
import type { ToolResult } from '../../catalogs/tool.ts';
import { explain } from '../internal/desk.ts';
import { answer, versionOf } from '../internal/text.ts';
import { type Desk, type Facts, fileFacts, pathOf, remember, unsupported, versionOfFacts, wholeText } from './facts.ts';
import { askMain, failure, find, type Work } from './work.ts';

/** Reads the file whole, byte for byte, and cuts the page here. */
export async function readWhole(work: Work, desk: Desk): Promise<ToolResult> {
  const text = await wholeText(work);
  const page = pageText(text, { ...request(work), cap: work.call.cap }, pathOf(work));
  const version = versionOf(Buffer.from(text));
  remember(work, desk, version);
  return answer(page.text, page.note);
}

/** Lets the backend cut the page; it drops line ends, which is said unless the size proves that nothing was lost. */
export async function readPaged(work: Work, desk: Desk): Promise<ToolResult> {
  firstOf(request(work), Number.MAX_SAFE_INTEGER);
  const facts = await fileFacts(work);
  const answered = await askMain(work);
  if (answered.failed) throw failure(work, answered);
  if (find(work, 'isFolder', answered.text)) throw explain({ code: 'EISDIR' }, pathOf(work));
  const gap = answered.text.indexOf('\n\n');
  const header = find(work, 'header', answered.text.slice(0, Math.max(0, gap)));
  if (!header)
    throw unsupported(
      `${JSON.stringify(pathOf(work))} is not a text file for this backend`,
      'Expose its own tool read_file, which converts documents and pictures.',
    );
  const total = header.total === undefined ? undefined : Number(header.total);
  const { offset = 1, limit = 2000 } = request(work);
  if (total === undefined && (offset > 1000 || offset < 0))
    throw unsupported('above 10 MiB this backend only estimates where a line is');
  const count = Number(header.count);
  const lines = count === 0 ? [] : answered.text.slice(gap + 2).split('\n', limit);
  const from = total === undefined ? offset : firstOf({ offset, limit }, total);
  const shownLines = fitting(lines, work.call.cap);
  remember(work, desk, versionOfFacts(facts));
  return answer(
    shownLines.join('\n') + endOf(facts, { lines: shownLines, total }),
    footer(work, { facts, from, lines: shownLines, total }),
  );
}

/** As many lines as will be shown with their note: what is cut here can be read on, what the facade cuts only from a spill. */
function fitting(lines: readonly string[], cap: Work['call']['cap']): readonly string[] {
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
function endOf(facts: Facts, part: Part): string {
  return part.lines.length === part.total && Buffer.byteLength(part.lines.join('\n')) + 1 === facts.size ? '\n' : '';
}

function footer(work: Work, part: Part & { readonly facts: Facts; readonly from: number }): string | undefined {
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
    total === undefined || to < total ? `. Next: read path=${JSON.stringify(pathOf(work))} offset=${to + 1}` : '';
  return note(`lines ${from}-${to} of ${total ?? 'more'} · ${ends}${next}`);
}

function request(work: Work): { offset?: number; limit?: number } {
  const { offset, limit } = work.args;
  return { ...(typeof offset === 'number' ? { offset } : {}), ...(typeof limit === 'number' ? { limit } : {}) };
}
