/** Owns what a search gathers and how it is shown; refuses lines and lists without bounds. */
import { firstOf, note } from '../../catalogs/paging.ts';
import type { ToolResult } from '../../catalogs/tool.ts';
import { answer, headOf, printable } from './text.ts';

/** One line of a file: a match, or one of the lines around it. */
export interface Hit {
  /** Relative to the workspace. */
  readonly path: string;
  readonly line: number;
  readonly text: string;
  readonly matches: boolean;
}

/** What an engine is asked for. */
export interface Query {
  readonly pattern: string;
  readonly glob: string | undefined;
  readonly context: number;
  readonly ignoreCase: boolean;
  readonly literal: boolean;
  readonly hidden: boolean;
}

const PAGE_MATCHES = 100;
const MAX_LINE = 500;
/** Matches kept; a search that finds more is ended, and the total is given as `more than`. */
const MAX_MATCHES = 5000;

/** The hits of one search, in the order in which they come. */
export class Hits {
  #hits: Hit[] = [];
  #matches = 0;
  /** Why the search ended early; undefined when it saw everything. */
  ended: string | undefined;

  /** Takes a hit; false when no more are wanted. */
  add(hit: Hit): boolean {
    if (hit.matches && this.#matches >= MAX_MATCHES) {
      this.ended ??= 'ended after the first matches';
      return false;
    }
    if (hit.matches) this.#matches += 1;
    const text = hit.text.replace(/\r?\n$/, '');
    const cut = headOf(text, MAX_LINE);
    this.#hits.push({ ...hit, text: cut.length < text.length ? `${cut}…[+${text.length - cut.length} chars]` : cut });
    return true;
  }

  /** Drops every line of files that may not be read, and what would tell of them. */
  async keep(mayRead: (path: string) => Promise<boolean>): Promise<void> {
    const open = new Set<string>();
    for (const path of new Set(this.#hits.map((hit) => hit.path))) if (await mayRead(path)) open.add(path);
    this.#hits = this.#hits.filter((hit) => open.has(hit.path));
    this.#matches = this.#hits.filter((hit) => hit.matches).length;
  }

  /** One page of matches with the lines around them: `path:line:text`, `path-line-text`, `--` between separate places. */
  page(request: { offset?: number | undefined; limit?: number | undefined }, context: number): ToolResult {
    const early = this.ended === undefined ? '' : `; ${this.ended}`;
    if (this.#matches === 0) return answer(note(`no match${early}`));
    const from = firstOf(request, this.#matches, 'matches');
    const to = Math.min(this.#matches, from - 1 + (request.limit ?? PAGE_MATCHES));
    const total = this.ended === undefined ? `${this.#matches}` : `more than ${this.#matches}`;
    const complete = from === 1 && to === this.#matches && this.ended === undefined;
    const next = to < this.#matches ? ` Narrow with glob or path, or go on with offset=${to + 1}` : '';
    const shown = note(`matches ${from}-${to} of ${total}${early}.${next}`);
    return answer(this.#lines(from, to, context).join('\n'), complete ? undefined : shown);
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
    let last: Hit | undefined;
    for (const hit of this.#hits) {
      if (wanted.get(hit.path)?.has(hit.line) !== true) continue;
      const apart = last !== undefined && (last.path !== hit.path || hit.line > last.line + 1);
      if (context > 0 && apart) shown.push('--');
      const mark = hit.matches ? ':' : '-';
      shown.push(`${printable(hit.path)}${mark}${hit.line}${mark}${hit.text}`);
      last = hit;
    }
    return shown;
  }
}
