/** Finds all occurrences of one text in another in linear time. */
/** Up to this length, `indexOf` is used. Its worst case is then a small constant for each character. */
const SHORT = 32;

/** The text to find. */
export interface OccurrenceQuery {
  readonly needle: string;
  /** True to include overlapping occurrences. */
  readonly overlap: boolean;
  /** The search stops after this many occurrences. */
  readonly limit: number;
}

/**
 * Returns the UTF-16 offsets at which `needle` occurs, in order. Long needles use the algorithm of Knuth, Morris and
 * Pratt, because `indexOf` of V8 is quadratic for a needle such as `aaa…b…aaa` (43 s for 250 kB in 1 MB).
 */
export function occurrences(text: string, { needle, overlap, limit }: OccurrenceQuery): number[] {
  if (needle === '' || needle.length > text.length) return [];
  if (needle.length > SHORT) return longOccurrences(text, { needle, overlap, limit });
  const found: number[] = [];
  const step = overlap ? 1 : needle.length;
  for (let at = text.indexOf(needle); at !== -1 && found.length < limit; at = text.indexOf(needle, at + step))
    found.push(at);
  return found;
}

function longOccurrences(text: string, { needle, overlap, limit }: OccurrenceQuery): number[] {
  const borders = bordersOf(needle);
  const found: number[] = [];
  let matched = 0;
  for (let at = 0; at < text.length && found.length < limit; at += 1) {
    const unit = text.charCodeAt(at);
    while (matched > 0 && needle.charCodeAt(matched) !== unit) matched = borders[matched - 1] ?? 0;
    if (needle.charCodeAt(matched) === unit) matched += 1;
    if (matched < needle.length) continue;
    found.push(at + 1 - needle.length);
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
