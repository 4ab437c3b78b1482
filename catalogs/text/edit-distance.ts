/** The measure of typing errors for every "did you mean". */
import { distance } from 'fastest-levenshtein';

/** The distance of longer words is not computed, because it would be expensive for hostile keys. */
const MAX_CHARS = 64;

/** Returns the Levenshtein distance of two words, in UTF-16 units; 64 if one of them is longer than 64. */
export function editDistance(a: string, b: string): number {
  return a.length > MAX_CHARS || b.length > MAX_CHARS ? MAX_CHARS : distance(a, b);
}
