/** Sets of words that are written as one text. */

/** Returns the words of a text that spaces or line breaks separate. */
export function wordSet(text: string): ReadonlySet<string> {
  return new Set(text.trim().split(/\s+/));
}
