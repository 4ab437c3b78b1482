/** Replaces paths outside the workspace in the error texts of servers, except those that the caller wrote. */
import { posix } from 'node:path';
import { isPathWithin } from '../../catalogs/readers/path-location.ts';
import type { Redaction } from './redactor.ts';

/**
 * An absolute path in a folder that Unix systems have at the root. `/repos/x` is none: it may be a route of an HTTP
 * API, as in `https://example.org/home/x`.
 */
const START = new RegExp(
  String.raw`(?<![\w.~%/-])(?:file://)?(?=/(?:home|Users|root|tmp|private|var|opt|srv|usr|etc|mnt|media|run|nix|snap|` +
    String.raw`Applications|Library|Volumes)(?:/|$|[\s'"\x60)\],;:]))`,
  'g',
);
/** What ends a path without quotes. */
const END = /[\s'"`<>|()[\]{},;:*?]|$/g;
const QUOTES = ["'", '"', '`'];
/** At most this many paths of one call's arguments are compared. */
const MAX_CALLER_PATHS = 200;
/** Replaces a path; its last name follows. */
const HIDDEN = '[host path]';

/** Replaces paths of the host in a text of a server. */
export type HidePaths = (text: string) => Redaction<string>;

/**
 * Returns a function that writes each path of the host as `[host path]/NAME`. Paths in `workspace` stay, and those in
 * `args` (the text of the call's arguments) with the folders above them, because the caller knows them.
 */
export function hidePaths(workspace: string, args: string): HidePaths {
  let callerPaths: readonly string[] | undefined;
  const isKnown = (path: string): boolean => {
    if (isPathWithin(path, workspace)) return true;
    callerPaths ??= findPaths(args, MAX_CALLER_PATHS).map(({ path: own }) => own);
    return callerPaths.some((own) => isPathWithin(own, path));
  };
  return (text) => {
    const parts: string[] = [];
    let from = 0;
    for (const { path, start, end } of findPaths(text).filter((found) => !isKnown(found.path))) {
      parts.push(text.slice(from, start), path.split('/').length > 3 ? `${HIDDEN}/${posix.basename(path)}` : HIDDEN);
      from = end;
    }
    return parts.length === 0
      ? { value: text, count: 0 }
      : { value: parts.join('') + text.slice(from), count: parts.length / 2 };
  };
}

interface Found {
  /** The path, without `.`, `..` and a slash at the end. */
  readonly path: string;
  readonly start: number;
  readonly end: number;
}

function findPaths(text: string, most = Infinity): readonly Found[] {
  const found: Found[] = [];
  const ends = new QuoteEnds(text);
  START.lastIndex = 0;
  for (let match = START.exec(text); match !== null && found.length < most; match = START.exec(text)) {
    const start = match.index + match[0].length;
    const end = ends.after(text.charAt(match.index - 1), start) ?? plainEnd(text, start);
    found.push({ path: posix.normalize(text.slice(start, end)).replace(/(?<=.)\/$/, ''), start, end });
    // The start is found without consuming a character.
    START.lastIndex = end;
  }
  return found;
}

function plainEnd(text: string, start: number): number {
  END.lastIndex = start;
  const end = END.exec(text)?.index ?? text.length;
  // A dot ends the sentence.
  return text.charAt(end - 1) === '.' ? end - 1 : end;
}

/**
 * Finds where quoted paths end, which may contain spaces. Each quote is searched for once, because a text may open any
 * number of them.
 */
class QuoteEnds {
  readonly #text: string;
  readonly #next = new Map<string, number>();

  constructor(text: string) {
    this.#text = text;
  }

  /** Returns the end of a quoted path; undefined if there is no such quote on the line. */
  after(quote: string, start: number): number | undefined {
    if (!QUOTES.includes(quote)) return undefined;
    const end = this.#nextOf(quote, start);
    return end > this.#nextOf('\n', start) ? undefined : end;
  }

  #nextOf(what: string, start: number): number {
    const known = this.#next.get(what);
    if (known !== undefined && known >= start) return known;
    const at = this.#text.indexOf(what, start);
    const next = at === -1 ? (what === '\n' ? this.#text.length : Infinity) : at;
    this.#next.set(what, next);
    return next;
  }
}
