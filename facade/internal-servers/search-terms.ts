/** Turns text into words of the search index, and queries into search expressions, for every script. */

/** Scripts without spaces between words. Each letter is indexed as a word, and a word is searched as a phrase. */
const SPACELESS = ['Han', 'Hiragana', 'Katakana', 'Hangul', 'Thai', 'Lao', 'Khmer', 'Myanmar']
  .map((script) => `\\p{Script=${script}}`)
  .join('');
const LETTER = new RegExp(`[${SPACELESS}]`, 'gu');
/** A sequence of such letters, or of any other word characters. */
const RUNS = new RegExp(`[${SPACELESS}]+|(?:(?![${SPACELESS}])[\\p{L}\\p{N}\\p{M}])+`, 'gu');

/** The most distinct words of one query. The rest is ignored. */
const MAX_WORDS = 32;
/**
 * The index reduces English words to their stems. Longer words of other languages match as prefixes; short ones would
 * match almost everything.
 */
const INFLECTED = /[^\x00-\x7f]/;
const MIN_PREFIX = 3;
/** How many letters at the end of a longer word may be different in a text. */
const MAX_ENDING = 3;

/** Returns text as the index stores it. */
export function indexedText(text: string): string {
  return fold(text).replace(LETTER, ' $& ');
}

/**
 * Returns the words of a query, in order, each once. Long sequences without spaces become pairs of letters, because the
 * ends of their words are unknown.
 */
export function searchTermsOf(query: string): readonly string[] {
  const runs = [...fold(query).matchAll(RUNS)].map(([run]) => run);
  return [...new Set(runs.flatMap(partsOf))].slice(0, MAX_WORDS);
}

/**
 * Returns an FTS5 expression that matches any of the words. Each word is a quoted string, so a model's text cannot use
 * operators such as NEAR, AND, NOT, columns, ^ and *.
 */
export function searchExpression(words: readonly string[]): string {
  return words
    .map((word) =>
      isSpaceless(word)
        ? `"${[...word].join(' ')}"`
        : `"${word}"${INFLECTED.test(word) && [...word].length >= MIN_PREFIX ? ' *' : ''}`,
    )
    .join(' OR ');
}

/** Returns the offset of the first of the words in a text, in UTF-16 units; 0 if none is found. */
export function firstTermOffset(text: string, words: readonly string[]): number {
  const plain = text.toLowerCase();
  const places = words
    .map((word) => plain.indexOf(word.length > MAX_ENDING + 3 ? word.slice(0, -MAX_ENDING) : word))
    .filter((place) => place !== -1);
  return places.length === 0 ? 0 : Math.min(...places);
}

function fold(text: string): string {
  return text.normalize('NFKC').toLowerCase();
}

function partsOf(run: string): readonly string[] {
  const letters = [...run];
  if (!isSpaceless(run) || letters.length <= 2) return [run];
  return letters.slice(1).map((letter, at) => `${letters[at] ?? ''}${letter}`);
}

function isSpaceless(word: string): boolean {
  return new RegExp(`^[${SPACELESS}]`, 'u').test(word);
}
