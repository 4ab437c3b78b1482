/** Collects the hits of a search and formats one page of them. */
import { basename } from 'node:path';
import { firstOf, note } from '../../../catalogs/text/text-pages.ts';
import { MAX_INPUT_BYTES, TimeSlices } from '../../../catalogs/text/time-slices.ts';
import type { ToolResult } from '../../../catalogs/tools/tool-definition.ts';
import type { UpstreamCall } from '../../port.ts';
import { withFileSnapshot } from '../workspace/file-snapshot.ts';
import { headOf, printableName, textResult } from '../workspace/file-text.ts';
import { OpenFolder } from '../workspace/open-folder.ts';
import type { IgnoreRule } from './folder-walk.ts';

/** One line of a file: a match, or one of the lines around it. */
export interface SearchHit {
  /** Relative to the workspace. */
  readonly path: string;
  readonly line: number;
  readonly text: string;
  readonly matches: boolean;
}

/** The query of a search. */
export interface SearchQuery {
  readonly pattern: string;
  readonly glob: string | undefined;
  readonly context: number;
  readonly ignoreCase: boolean;
  readonly literal: boolean;
  readonly hidden: boolean;
}

const PAGE_MATCHES = 100;
const MAX_LINE = 500;
const NEWLINE = 0x0a;
/** Bytes between two checks of the time slice. */
const CHECK_BYTES = 1_048_576;
/**
 * Largest file whose lines are shown if reading is restricted. Such a file is read again from the judged descriptor.
 */
const MAX_JUDGED_BYTES = 4 * MAX_INPUT_BYTES;
/** Most matches that are kept. A search that finds more is stopped, and the total is shown as `more than`. */
const MAX_MATCHES = 5000;

type MayRead = NonNullable<UpstreamCall['mayRead']>;
type IsSameLine = (line: string, text: string) => boolean;

/** The hits of one search, in the order in which they were found. */
export class SearchHits {
  #hits: SearchHit[] = [];
  #matches = 0;
  /** Why the search ended early. Undefined if it was complete. */
  ended: string | undefined;

  /** Adds a hit. Returns false if no more hits are wanted. */
  add(hit: SearchHit): boolean {
    if (hit.matches && this.#matches >= MAX_MATCHES) {
      this.ended ??= 'ended after the first matches';
      return false;
    }
    if (hit.matches) this.#matches += 1;
    this.#hits.push({ ...hit, text: shorten(hit.text.replace(/\r?\n$/, '')) });
    return true;
  }

  /**
   * Drops all lines of files that the caller may not read. A line stays only if the judged file contains it, because
   * the engine may have read another file under this name. `isSameLine` compares a line of the file with the text of a
   * hit.
   */
  async keepReadable(
    mayRead: MayRead,
    signal: AbortSignal,
    isSameLine: IsSameLine = (line, text) => shorten(line) === text,
  ): Promise<void> {
    const byPath = new Map<string, SearchHit[]>();
    for (const hit of this.#hits) {
      const fileHits = byPath.get(hit.path);
      if (fileHits === undefined) byPath.set(hit.path, [hit]);
      else fileHits.push(hit);
    }
    const kept = new Set<SearchHit>();
    const pace = new TimeSlices();
    for (const [path, hits] of byPath) {
      if (signal.aborted) this.ended ??= 'ended before every file was judged';
      if (signal.aborted) break;
      const lines = await judgedLines(path, { mayRead, wanted: new Set(hits.map(({ line }) => line)), pace, signal });
      if (lines === 'too large') this.ended ??= `lines of files over ${MAX_JUDGED_BYTES} bytes are not shown`;
      for (const hit of lines === undefined || lines === 'too large'
        ? []
        : hits.filter(({ line, text }) => isSameLine(lines.get(line) ?? '', text)))
        kept.add(hit);
    }
    this.#hits = this.#hits.filter((hit) => kept.has(hit));
    this.#matches = this.#hits.filter((hit) => hit.matches).length;
  }

  /** Formats a page of matches with the lines around them: `path:line:text`, `path-line-text`, `--` between groups. */
  page(request: { offset?: number | undefined; limit?: number | undefined }, context: number): ToolResult {
    const earlyEnd = this.ended === undefined ? '' : `; ${this.ended}`;
    if (this.#matches === 0) return textResult(note(`no match${earlyEnd}`));
    const from = firstOf(request, this.#matches, 'matches');
    const to = Math.min(this.#matches, from - 1 + (request.limit ?? PAGE_MATCHES));
    const total = this.ended === undefined ? `${this.#matches}` : `more than ${this.#matches}`;
    const isComplete = from === 1 && to === this.#matches && this.ended === undefined;
    const next = to < this.#matches ? ` Narrow with glob or path, or continue with offset=${to + 1}` : '';
    const shown = note(`matches ${from}-${to} of ${total}${earlyEnd}.${next}`);
    return textResult(this.#lines(from, to, context).join('\n'), isComplete ? undefined : shown);
  }

  #lines(from: number, to: number, context: number): readonly string[] {
    const wanted = new Map<string, Set<number>>();
    let match = 0;
    for (const hit of this.#hits) {
      if (!hit.matches) continue;
      match += 1;
      if (match < from || match > to) continue;
      const lines = wanted.get(hit.path) ?? new Set();
      wanted.set(hit.path, lines);
      for (let line = hit.line - context; line <= hit.line + context; line += 1) lines.add(line);
    }
    const shown: string[] = [];
    let last: SearchHit | undefined;
    for (const hit of this.#hits) {
      if (wanted.get(hit.path)?.has(hit.line) !== true) continue;
      const isSeparate = last !== undefined && (last.path !== hit.path || hit.line > last.line + 1);
      if (context > 0 && isSeparate) shown.push('--');
      const mark = hit.matches ? ':' : '-';
      shown.push(`${printableName(hit.path)}${mark}${hit.line}${mark}${hit.text}`);
      last = hit;
    }
    return shown;
  }
}

function shorten(text: string): string {
  const cut = headOf(text, MAX_LINE);
  return cut.length < text.length ? `${cut}…[+${text.length - cut.length} chars]` : cut;
}

interface JudgedRead {
  readonly mayRead: MayRead;
  readonly wanted: ReadonlySet<number>;
  readonly pace: TimeSlices;
  readonly signal: AbortSignal;
}

/**
 * Reads the wanted lines of a file from the judged descriptor, by line number. Returns undefined if it may not be
 * read.
 */
async function judgedLines(
  path: string,
  { mayRead, wanted, pace, signal }: JudgedRead,
): Promise<ReadonlyMap<number, string> | 'too large' | undefined> {
  const paths = await mayRead(path);
  const pathHandle = paths?.all()[0];
  if (paths === undefined || pathHandle === undefined) return undefined;
  let folder: OpenFolder | undefined;
  try {
    folder = await OpenFolder.around(pathHandle);
    return await withFileSnapshot(
      { folder, name: basename(pathHandle.location.absolute), maxBytes: MAX_JUDGED_BYTES, signal },
      ({ bytes }) => linesIn(asUtf8(bytes), wanted, pace),
    );
  } catch {
    if (pathHandle.stat !== undefined && Number(pathHandle.stat.size) > MAX_JUDGED_BYTES) return 'too large';
    return undefined; // The file is gone or unreadable, so none of its lines is shown.
  } finally {
    await folder?.close();
    paths.close();
  }
}

/** Returns the wanted lines. Searches bytes for line ends, because a large file could have millions of lines. */
async function linesIn(
  bytes: Buffer,
  wanted: ReadonlySet<number>,
  pace: TimeSlices,
): Promise<ReadonlyMap<number, string>> {
  const lines = new Map<number, string>();
  let [line, start] = [1, 0];
  for (let at = 0; at <= bytes.length && lines.size < wanted.size; at += 1) {
    if (at % CHECK_BYTES === 0 && pace.isDue) await pace.rest();
    if (at < bytes.length && bytes[at] !== NEWLINE) continue;
    if (wanted.has(line)) lines.set(line, bytes.toString('utf8', start, at).replace(/\r$/, ''));
    line += 1;
    start = at + 1;
  }
  return lines;
}

/** Decodes as ripgrep does: UTF-16 if it has a byte order mark, else UTF-8. */
function asUtf8(bytes: Buffer): Buffer {
  const mark = bytes.length >= 2 ? bytes.readUInt16BE(0) : 0;
  if (mark === 0xfffe || mark === 0xfeff)
    return Buffer.from(new TextDecoder(mark === 0xfffe ? 'utf-16le' : 'utf-16be').decode(bytes));
  return bytes.subarray(bytes.length >= 3 && bytes.readUIntBE(0, 3) === 0xefbbbf ? 3 : 0);
}

/** Where to search: below an open folder, or in the one file `name` in it. */
export interface SearchScope {
  readonly folder: OpenFolder;
  /** The real path of the workspace. */
  readonly root: string;
  readonly name: string | undefined;
  /** Prefix of the path of every hit. */
  readonly prefix: string;
  readonly ignored: readonly IgnoreRule[];
  /** Ends the search when the call is cancelled or the time limit is reached. */
  readonly signal: AbortSignal;
}
