/** Turns names, descriptions and queries into the words by which tools are found. */
import { stemmer } from 'stemmer';
import { indexedText } from '../internal-servers/search-terms.ts';
import { WORD_GROUPS } from './word-groups.ts';

/** Words that say nothing about what a tool does. */
const STOP_WORDS = new Set(
  (
    'a an and any are as at be been by can could do does did for from had has have how i if in into is it its just ' +
    'me my of on or our please should so some that the their them there these they this those to up us want was we ' +
    'were what when where which while who why will with would you your'
  ).split(' '),
);

/** A longer word is a hash or another id. */
const MAX_WORD = 40;
const WORD = /[\p{L}\p{M}]+|\p{N}+/gu;

/** Returns the words of a text, in order, reduced to their stems. `createIssue` and `create_issue` have two words. */
export function toolWordsOf(text: string): readonly string[] {
  const apart = text.replace(/(\p{Ll}|\p{N})(\p{Lu})/gu, '$1 $2').replace(/(\p{Lu})(\p{Lu}\p{Ll})/gu, '$1 $2');
  return (indexedText(apart).match(WORD) ?? [])
    .filter((word) => word.length <= MAX_WORD && !STOP_WORDS.has(word))
    .map((word) => stemmer(americanSpelling(word)));
}

/** Colour is color, and organise is organize: both spellings give one word. */
function americanSpelling(word: string): string {
  return word
    .replace(/^(\w{2,})our(s|ed|ing|ful)?$/, '$1or$2')
    .replace(/is(e|ed|es|er|ing|ation|ations)$/, 'iz$1')
    .replace(/ys(e|ed|es|er|ing)$/, 'yz$1');
}

/** Word or phrase → the words and phrases that may stand for it. Phrases are words with one space between them. */
const ALTERNATIVES: ReadonlyMap<string, ReadonlySet<string>> = (() => {
  const found = new Map<string, Set<string>>();
  for (const group of WORD_GROUPS) {
    const members = new Set(group.split(',').map((member) => toolWordsOf(member).join(' ')));
    members.delete('');
    for (const member of members) found.set(member, new Set([...(found.get(member) ?? []), ...members]));
  }
  return found;
})();

/** The most words of a phrase. */
const MAX_PHRASE = 3;
/** The most words of one query. The rest is ignored. */
const MAX_WORDS = 16;

/** Returns the words and phrases that may stand for a word or phrase, and itself. */
export function alternativesOf(phrase: string): ReadonlySet<string> {
  return ALTERNATIVES.get(phrase) ?? new Set([phrase]);
}

/** Returns the words of a query, each once. Words that are one of the known phrases together are one of them. */
export function queryPhrases(query: string): readonly string[] {
  const words = toolWordsOf(query).slice(0, MAX_WORDS);
  const phrases: string[] = [];
  for (let at = 0; at < words.length; ) {
    let length = Math.min(MAX_PHRASE, words.length - at);
    while (length > 1 && !ALTERNATIVES.has(words.slice(at, at + length).join(' '))) length -= 1;
    phrases.push(words.slice(at, at + length).join(' '));
    at += length;
  }
  return [...new Set(phrases)];
}
