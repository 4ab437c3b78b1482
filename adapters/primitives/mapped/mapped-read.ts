/** `read action="file"` through a backend. Lines whose number the backend only estimates are refused. */
import {
  firstOf,
  NOTE_BYTES,
  NOTE_LINES,
  note,
  type PageRequest,
  pageText,
} from '../../../catalogs/text/text-pages.ts';
import type { ToolResult } from '../../../catalogs/tools/tool-definition.ts';
import { fileSystemError } from '../workspace/action-context.ts';
import { textResult, versionOf } from '../workspace/file-text.ts';
import { callMainTool, type MappedCall, matchMappingText, requireSuccess, splitHeader } from './mapped-call.ts';
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

/** Reads the whole file, byte for byte, and cuts the page here. */
export async function readMappedWhole(call: MappedCall, state: MappedState): Promise<ToolResult> {
  const text = await readWholeText(call);
  const page = pageText(text, { ...pageRequest(call), cap: call.request.cap }, shownPathOf(call));
  const version = versionOf(Buffer.from(text));
  rememberVersion(call, state, version);
  return textResult(page.text, page.note);
}

/**
 * Reads a page that the backend cuts. The backend drops line ends. The note says so, unless the size of the file proves
 * that nothing was lost.
 */
export async function readMappedPage(call: MappedCall, state: MappedState): Promise<ToolResult> {
  firstOf(pageRequest(call), Number.MAX_SAFE_INTEGER);
  const facts = await regularFileFacts(call);
  const answer = await requireSuccess(call, callMainTool(call));
  if (matchMappingText(call, 'isFolder', answer)) throw fileSystemError({ code: 'EISDIR' }, shownPathOf(call));
  const page = splitHeader(call, answer);
  if (!page)
    throw notSupported(
      `${JSON.stringify(shownPathOf(call))} is not a text file for this backend`,
      'Expose its own tool read_file, which converts documents and images.',
    );
  const { header, rest } = page;
  const total = header.total === undefined ? undefined : Number(header.total);
  const { offset = 1, limit = 2000 } = pageRequest(call);
  if (total === undefined && (offset > 1000 || offset < 0))
    throw notSupported('in files over 10 MiB, this backend only estimates line numbers');
  const count = Number(header.count);
  const lines = count === 0 ? [] : rest.split('\n', limit);
  const from = total === undefined ? offset : firstOf({ offset, limit }, total);
  const shownLines = linesWithinCap(lines, call.request.cap);
  rememberVersion(call, state, versionOfFacts(facts));
  return textResult(
    shownLines.join('\n') + lastLineEnd(facts, { lines: shownLines, total }),
    footer(call, { facts, from, lines: shownLines, total }),
  );
}

/**
 * Returns the lines that fit into the cap together with the note. The caller can read on after a cut made here. A cut
 * made later by the facade would need a spill.
 */
function linesWithinCap(lines: readonly string[], cap: MappedCall['request']['cap']): readonly string[] {
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

/** Returns the last line end, if the sizes prove that there is one. */
function lastLineEnd(facts: MappedFileFacts, part: Part): string {
  return part.lines.length === part.total && Buffer.byteLength(part.lines.join('\n')) + 1 === facts.size ? '\n' : '';
}

function footer(
  call: MappedCall,
  part: Part & { readonly facts: MappedFileFacts; readonly from: number },
): string | undefined {
  const { facts, from, lines, total } = part;
  if (total === 0) return note('empty, 0 lines');
  const bytes = Buffer.byteLength(lines.join('\n'));
  const isWhole = total !== undefined && lines.length >= total;
  const isExact = isWhole && (bytes === facts.size || bytes + 1 === facts.size);
  if (isExact) return undefined;
  const lineEnds = 'line ends are shown as LF, because this backend hides those of the file';
  if (isWhole) return note(lineEnds);
  const to = from + lines.length - 1;
  const next =
    total === undefined || to < total ? `. Next: read path=${JSON.stringify(shownPathOf(call))} offset=${to + 1}` : '';
  return note(`lines ${from}-${to} of ${total ?? 'more'} · ${lineEnds}${next}`);
}

function pageRequest({ args }: MappedCall): PageRequest {
  const { offset, limit } = args as PageRequest;
  return { offset, limit };
}
