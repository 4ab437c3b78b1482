/** What a task puts into the context of a model: bytes and tokens of lists, calls and results. */
import { countTokens } from 'gpt-tokenizer/encoding/o200k_base';

/** The parts of a task's cost. */
export const COST_KINDS = ['lists', 'calls', 'results'] as const;
type CostKind = (typeof COST_KINDS)[number];

/** The size of some texts. Tokens are those of o200k_base. */
export interface TextSize {
  readonly bytes: number;
  readonly tokens: number;
}

/** The cost of one task in one way. `count`: how many calls of tools a client makes. */
export interface TaskCost extends Readonly<Record<CostKind, TextSize>> {
  readonly count: number;
  readonly seconds: number;
}

/**
 * Letters that are counted at once, as `tollgate stats` counts: the time of a word grows with the square of its length.
 */
const MAX_LETTERS = 4096;

/** Tokens by text: lists are long, and the same in several tasks. */
const counted = new Map<string, number>();

function tokensOf(text: string): number {
  const known = counted.get(text);
  if (known !== undefined) return known;
  let tokens = 0;
  for (let at = 0; at < text.length; at += MAX_LETTERS)
    tokens += countTokens(text.slice(at, at + MAX_LETTERS), { disallowedSpecial: new Set() });
  if (text.length > MAX_LETTERS) counted.set(text, tokens);
  return tokens;
}

/** Collects the texts of one task. */
export class CostMeter {
  readonly #texts: Record<CostKind, string[]> = { lists: [], calls: [], results: [] };
  readonly #started = performance.now();

  /** Adds a text. A temporary folder in it counts as the folder of a user, so that runs are equal. */
  add(kind: CostKind, text: string, folder: string): void {
    this.#texts[kind].push(text.replaceAll(folder, '/home/user/project'));
  }

  /** Returns the sums. */
  cost(): TaskCost {
    const seconds = (performance.now() - this.#started) / 1000;
    const sizeOf = (kind: CostKind): TextSize => ({
      bytes: this.#texts[kind].reduce((sum, text) => sum + Buffer.byteLength(text), 0),
      tokens: this.#texts[kind].reduce((sum, text) => sum + tokensOf(text), 0),
    });
    return {
      lists: sizeOf('lists'),
      calls: sizeOf('calls'),
      results: sizeOf('results'),
      count: this.#texts.calls.length,
      seconds: Math.round(seconds * 1000) / 1000,
    };
  }
}

/** Returns the tokens of all parts of a cost. */
export function totalTokens({ lists, calls, results }: TaskCost): number {
  return lists.tokens + calls.tokens + results.tokens;
}
