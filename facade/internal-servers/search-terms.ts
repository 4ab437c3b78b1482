/** Owns how text becomes words to find and queries over them, in every script; refuses to let a query mean anything but words. */

/** Scripts that do not part their words: each letter is a word, and a word is a phrase of letters. */
const SPACELESS =
  '\\p{Script=Han}\\p{Script=Hiragana}\\p{Script=Katakana}\\p{Script=Hangul}\\p{Script=Thai}\\p{Script=Lao}\\p{Script=Khmer}\\p{Script=Myanmar}';
const LETTER = new RegExp(`[${SPACELESS}]`, 'gu');
/** A run of such letters, or of any other word characters. */
const RUNS = new RegExp(`[${SPACELESS}]+|(?:(?![${SPACELESS}])[\\p{L}\\p{N}\\p{M}])+`, 'gu');

/** Distinct words that one query is taken for; the rest is left out. */
const MAX_WORDS = 32;
/** The index takes English words by their stems. Longer words of other languages match as beginnings; as beginnings, short ones would match nearly everything. */
const INFLECTED = /[^\x00-\x7f]/;
const MIN_PREFIX = 3;
/** Letters at the end of a longer word that a text may have otherwise. */
const MAX_ENDING = 3;

/** Text as the index keeps it. */
export function indexedText(text: string): string {
  return fold(text).replace(LETTER, ' $& ');
}

/** The words of a query, in order, each once. Long runs without spaces become pairs of letters, because nobody knows where their words end. */
export function searchTermsOf(query: string): readonly string[] {
  const runs = [...fold(query).matchAll(RUNS)].map(([run]) => run);
  return [...new Set(runs.flatMap(partsOf))].slice(0, MAX_WORDS);
}

/**
 * The words as an FTS5 expression: any of them, each a quoted string. Quoted strings are all that a model's text becomes, so
 * NEAR, AND, NOT, columns, ^ and * in it are words like others, and what is no letter or digit is not in it at all.
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

/** Where in a text the first of the words stands, in UTF-16 units; 0 when their forms differ too much to tell. */
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
