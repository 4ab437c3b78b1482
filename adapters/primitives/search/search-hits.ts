/** Owns what a search gathers and how it is shown; refuses lines and lists without bounds. */

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

/** What an engine is asked for. */
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
/** Bytes between two looks at the clock. */
const BYTES_A_LOOK = 1_048_576;
/** Largest file whose lines are shown where reading is restricted: it is read again, from the descriptor that was judged. */
const MOST_JUDGED_BYTES = 4 * MAX_INPUT_BYTES;
/** Matches kept; a search that finds more is ended, and the total is given as `more than`. */
const MAX_MATCHES = 5000;

type MayRead = NonNullable<UpstreamCall['mayRead']>;
type Shows = (line: string, text: string) => boolean;

/** The hits of one search, in the order in which they come. */
export class SearchHits {
  #hits: SearchHit[] = [];
  #matches = 0;
  /** Why the search ended early; undefined when it saw everything. */
  ended: string | undefined;

  /** Takes a hit; false when no more are wanted. */
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
   * Drops every line of files that may not be read, and what would tell of them. A line stays if the file that was judged holds it:
   * the engine may have read another file under that name. `shows` compares a line with what the engine gave of it.
   */
  async keep(
    mayRead: MayRead,
    signal: AbortSignal,
    shows: Shows = (line, text) => shorten(line) === text,
  ): Promise<void> {
    const byPath = new Map<string, SearchHit[]>();
    for (const hit of this.#hits) {
      const known = byPath.get(hit.path);
      if (known === undefined) byPath.set(hit.path, [hit]);
      else known.push(hit);
    }
    const kept = new Set<SearchHit>();
    const pace = new TimeSlices();
    for (const [path, hits] of byPath) {
      if (signal.aborted) this.ended ??= 'ended before every file was judged';
      if (signal.aborted) break;
      const lines = await judgedLines(path, { mayRead, wanted: new Set(hits.map(({ line }) => line)), pace, signal });
      if (lines === 'too large') this.ended ??= `lines of files over ${MOST_JUDGED_BYTES} bytes are not shown`;
      for (const hit of lines === undefined || lines === 'too large'
        ? []
        : hits.filter(({ line, text }) => shows(lines.get(line) ?? '', text)))
        kept.add(hit);
    }
    this.#hits = this.#hits.filter((hit) => kept.has(hit));
    this.#matches = this.#hits.filter((hit) => hit.matches).length;
  }

  /** One page of matches with the lines around them: `path:line:text`, `path-line-text`, `--` between separate places. */
  page(request: { offset?: number | undefined; limit?: number | undefined }, context: number): ToolResult {
    const early = this.ended === undefined ? '' : `; ${this.ended}`;
    if (this.#matches === 0) return textResult(note(`no match${early}`));
    const from = firstOf(request, this.#matches, 'matches');
    const to = Math.min(this.#matches, from - 1 + (request.limit ?? PAGE_MATCHES));
    const total = this.ended === undefined ? `${this.#matches}` : `more than ${this.#matches}`;
    const complete = from === 1 && to === this.#matches && this.ended === undefined;
    const next = to < this.#matches ? ` Narrow with glob or path, or go on with offset=${to + 1}` : '';
    const shown = note(`matches ${from}-${to} of ${total}${early}.${next}`);
    return textResult(this.#lines(from, to, context).join('\n'), complete ? undefined : shown);
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
      const apart = last !== undefined && (last.path !== hit.path || hit.line > last.line + 1);
      if (context > 0 && apart) shown.push('--');
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

interface Wanted {
  readonly mayRead: MayRead;
  readonly wanted: ReadonlySet<number>;
  readonly pace: TimeSlices;
  readonly signal: AbortSignal;
}

/** The wanted lines of a file that may be read, by number from 1, out of the descriptor that was judged. */
async function judgedLines(
  path: string,
  { mayRead, wanted, pace, signal }: Wanted,
): Promise<ReadonlyMap<number, string> | 'too large' | undefined> {
  const paths = await mayRead(path);
  const held = paths?.all()[0];
  if (paths === undefined || held === undefined) return undefined;
  let folder: OpenFolder | undefined;
  try {
    folder = await OpenFolder.around(held);
    return await withFileSnapshot(
      { folder, name: basename(held.location.absolute), most: MOST_JUDGED_BYTES, signal },
      ({ bytes }) => linesIn(asUtf8(bytes), wanted, pace),
    );
  } catch {
    if (held.stat !== undefined && Number(held.stat.size) > MOST_JUDGED_BYTES) return 'too large';
    return undefined; // Gone or unreadable by now: nothing of it is shown.
  } finally {
    await folder?.close();
    paths.close();
  }
}

/** Looks for line ends byte by byte: the text of a large file could be millions of lines. */
async function linesIn(
  bytes: Buffer,
  wanted: ReadonlySet<number>,
  pace: TimeSlices,
): Promise<ReadonlyMap<number, string>> {
  const lines = new Map<number, string>();
  let [line, start] = [1, 0];
  for (let at = 0; at <= bytes.length && lines.size < wanted.size; at += 1) {
    if (at % BYTES_A_LOOK === 0 && pace.isDue) await pace.rest();
    if (at < bytes.length && bytes[at] !== NEWLINE) continue;
    if (wanted.has(line)) lines.set(line, bytes.toString('utf8', start, at).replace(/\r$/, ''));
    line += 1;
    start = at + 1;
  }
  return lines;
}

/** As ripgrep decodes: UTF-16 by its byte order mark, else UTF-8. */
function asUtf8(bytes: Buffer): Buffer {
  const mark = bytes.length >= 2 ? bytes.readUInt16BE(0) : 0;
  if (mark === 0xfffe || mark === 0xfeff)
    return Buffer.from(new TextDecoder(mark === 0xfffe ? 'utf-16le' : 'utf-16be').decode(bytes));
  return bytes.subarray(bytes.length >= 3 && bytes.readUIntBE(0, 3) === 0xefbbbf ? 3 : 0);
}
/** Where an engine searches: beneath an open folder, or in the one file `name` in it. */
export interface SearchScope {
  readonly folder: OpenFolder;
  /** The workspace, real. */
  readonly root: string;
  readonly name: string | undefined;
  /** Stands before the path of every hit. */
  readonly prefix: string;
  readonly ignored: readonly IgnoreRule[];
  /** Ends the search: the caller gave up, or the time is over. */
  readonly signal: AbortSignal;
}
