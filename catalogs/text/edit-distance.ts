/** The one measure of typing errors, for every "did you mean". */
import { distance } from 'fastest-levenshtein';

/** Longer words count as far apart, so that hostile keys cost nothing. */
const MOST = 64;

/** Returns the Levenshtein distance of two words, in UTF-16 units; 64 if one of them is longer than 64. */
export function editDistance(a: string, b: string): number {
  return a.length > MOST || b.length > MOST ? MOST : distance(a, b);
}
