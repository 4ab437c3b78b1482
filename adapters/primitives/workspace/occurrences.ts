/** Finds every place of one text in another in linear time, whatever both hold; callers bound the number of places. */

/** Up to this length the native search is used: its worst case is then a small constant for each character. */
const SHORT = 32;

/** What is looked for. */
export interface OccurrenceQuery {
  readonly needle: string;
  /** True to count places that overlap; false to go on behind each place. */
  readonly overlap: boolean;
  /** The search stops after this many places. */
  readonly most: number;
}

/**
 * Returns the offsets (UTF-16) at which `wanted` occurs, in order. Long texts are searched with the algorithm of Knuth, Morris and
 * Pratt: V8's `indexOf` is quadratic for a needle such as `aaa…b…aaa` (1 MB against 250 kB: 43 s).
 */
export function occurrences(text: string, { needle: wanted, overlap, most }: OccurrenceQuery): number[] {
  if (wanted === '' || wanted.length > text.length) return [];
  if (wanted.length > SHORT) return longOccurrences(text, { needle: wanted, overlap, most });
  const found: number[] = [];
  const step = overlap ? 1 : wanted.length;
  for (let at = text.indexOf(wanted); at !== -1 && found.length < most; at = text.indexOf(wanted, at + step))
    found.push(at);
  return found;
}

function longOccurrences(text: string, { needle: wanted, overlap, most }: OccurrenceQuery): number[] {
  const borders = bordersOf(wanted);
  const found: number[] = [];
  let matched = 0;
  for (let at = 0; at < text.length && found.length < most; at += 1) {
    const unit = text.charCodeAt(at);
    while (matched > 0 && wanted.charCodeAt(matched) !== unit) matched = borders[matched - 1] ?? 0;
    if (wanted.charCodeAt(matched) === unit) matched += 1;
    if (matched < wanted.length) continue;
    found.push(at + 1 - wanted.length);
    matched = overlap ? (borders[matched - 1] ?? 0) : 0;
  }
  return found;
}

/** For each prefix of the text, the length of its longest border: a proper prefix that is also a suffix. */
function bordersOf(text: string): Int32Array {
  const borders = new Int32Array(text.length);
  let length = 0;
  for (let at = 1; at < text.length; at += 1) {
    const unit = text.charCodeAt(at);
    while (length > 0 && text.charCodeAt(length) !== unit) length = borders[length - 1] ?? 0;
    if (text.charCodeAt(length) === unit) length += 1;
    borders[at] = length;
  }
  return borders;
}
