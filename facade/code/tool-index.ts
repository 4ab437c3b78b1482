/**
 * Ranks tools for a query. MiniSearch scores each word (BM25, with a weight for each field); here the words of a query
 * are joined: a tool that has more of them comes first, and another word for the same thing counts less.
 */

import { LRUCache } from 'lru-cache';
import MiniSearch from 'minisearch';
import { inTimeSlices } from '../../catalogs/text/time-slices.ts';
import { alternativesOf, queryPhrases, toolWordsOf } from './tool-words.ts';

/** What is known of a tool, by field. */
export interface ToolText {
  readonly name: string;
  readonly title: string;
  readonly description: string;
  /** Names and descriptions of its arguments. */
  readonly args: string;
  readonly server: string;
}

/** How much a word counts in each field. A query that names a server wants a tool of it. */
const WEIGHTS: Readonly<Record<keyof ToolText, number>> = { name: 3, title: 1.5, description: 1, args: 0.3, server: 4 };
const FIELDS = Object.keys(WEIGHTS) as (keyof ToolText)[];
/** BM25: how soon repetition counts less, and how much a long text counts less. */
const BM25 = { k: 1.2, b: 0.6, d: 0.5 };
/** How much another word for the same thing counts, and a word that no tool has but that is spelled alike. */
const ALTERNATIVE = 0.4;
const ALIKE = 0.5;
/** Letters from which a word is compared with similar ones, and the share of letters that may differ. */
const MIN_ALIKE = 4;
const FUZZY = 0.25;
const MAX_ALIKE = 20;
/** How much more a tool counts if the query has all words of its name. */
const WHOLE_NAME = 0.5;
/** The words whose scores are kept. */
const MAX_KEPT = 1_000;

type Scores = ReadonlyMap<number, number>;

/** An index of the tools of one table. */
export class ToolIndex {
  readonly #index = new MiniSearch<ToolText & { readonly id: number }>({
    fields: FIELDS,
    tokenize: (text) => [...toolWordsOf(text)],
    processTerm: (word) => word,
  });
  readonly #nameWords: ReadonlySet<string>[] = [];
  readonly #kept = new LRUCache<string, Scores>({ max: MAX_KEPT });

  /** Indexes the tools, and lets other calls run meanwhile. */
  static async of(tools: Iterable<ToolText>): Promise<ToolIndex> {
    const made = new ToolIndex();
    for await (const tool of inTimeSlices(tools)) {
      made.#index.add({ ...tool, id: made.#nameWords.length });
      made.#nameWords.push(new Set(toolWordsOf(tool.name)));
    }
    return made;
  }

  /** Returns the places of the tools that have a word of the query, the best first. Lets other calls run meanwhile. */
  async search(query: string): Promise<readonly number[]> {
    const phrases = queryPhrases(query);
    const best = new Map(phrases.map((phrase) => [phrase, new Map<number, number>()]));
    const words = new Set<string>();
    for await (const { phrase, other, factor } of inTimeSlices(this.#alternatives(phrases))) {
      for (const word of other.split(' ')) words.add(word);
      const scores = best.get(phrase) ?? new Map<number, number>();
      for (const [id, score] of this.#scoresOf(other))
        if (score * factor > (scores.get(id) ?? 0)) scores.set(id, score * factor);
    }
    return this.#ranked([...best.values()], words);
  }

  /** `words`: those of the query, and those that stand for them. */
  #ranked(phrases: readonly Scores[], words: ReadonlySet<string>): readonly number[] {
    const totals = new Map<number, { score: number; weight: number }>();
    let weights = 0;
    for (const scores of phrases) {
      // A rare word of the query says more than one that many tools have.
      const weight = Math.log(1 + this.#nameWords.length / (1 + scores.size));
      weights += weight;
      for (const [id, score] of scores) {
        const total = totals.get(id) ?? { score: 0, weight: 0 };
        totals.set(id, { score: total.score + score, weight: total.weight + weight });
      }
    }
    const ranked = [...totals].map(([id, { score, weight }]) => {
      const name = [...(this.#nameWords[id] ?? [])];
      const known = name.filter((word) => words.has(word)).length / Math.max(1, name.length);
      return { id, score: score * (weight / weights) * (1 + WHOLE_NAME * known) };
    });
    return ranked.sort((left, right) => right.score - left.score || left.id - right.id).map(({ id }) => id);
  }

  /** Yields what is searched for each phrase, and how much it counts. A tool gets the score of its best one. */
  *#alternatives(phrases: readonly string[]): Generator<{ phrase: string; other: string; factor: number }> {
    for (const phrase of phrases) {
      const bases = this.#scoresOf(phrase).size > 0 ? [phrase] : this.#alike(phrase);
      for (const base of bases)
        for (const other of alternativesOf(base))
          yield { phrase, other, factor: (base === phrase ? 1 : ALIKE) * (other === base ? 1 : ALTERNATIVE) };
    }
  }

  /** Returns words of the index that are spelled like a word, or begin with it; the word itself if there are none. */
  #alike(word: string): readonly string[] {
    if (word.includes(' ') || word.length < MIN_ALIKE) return [word];
    const found = this.#index.search(word, { ...EXACT, prefix: true, fuzzy: FUZZY, maxFuzzy: 2 });
    return [word, ...new Set(found.flatMap(({ terms }) => terms))].slice(0, MAX_ALIKE);
  }

  /** Returns the score of each tool that has the word, or all words of the phrase. */
  #scoresOf(phrase: string): Scores {
    const kept = this.#kept.get(phrase);
    if (kept !== undefined) return kept;
    const parts = phrase.split(' ');
    const found = this.#index.search(phrase, { ...EXACT, tokenize: () => parts, combineWith: 'AND', bm25: BM25 });
    const scores = new Map(found.map(({ id, score }) => [id as number, score / parts.length]));
    this.#kept.set(phrase, scores);
    return scores;
  }
}

/** The words of a query are stems already. */
const EXACT = { tokenize: (text: string) => [text], processTerm: (word: string) => word, boost: { ...WEIGHTS } };
