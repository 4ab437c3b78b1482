/** Reads regular expressions that only list literal texts, which the policy compares without a regular expression. */
import { nullMap, type PatternForms } from './rule-patterns.ts';

/** Longer patterns stay regular expressions. Searching for a text takes time in proportion to its length. */
const MAX_CHARS = 256;
/** From about this number, one regular expression is faster. */
const MAX_LITERALS = 16;

/** One text that a pattern matches, and whether it must be at the start or at the end. */
interface Literal {
  readonly start: boolean;
  readonly text: string;
  readonly end: boolean;
}

const START: Literal = { start: true, text: '', end: false };
const END: Literal = { start: false, text: '', end: true };

/** Thrown for a pattern that is more than literal texts. */
class NotLiteral extends Error {}

/**
 * Returns forms that match the same texts as an RE2 pattern. `whole`: the pattern must match the whole text. Undefined
 * if the pattern does more than list some texts, with anchors and groups.
 */
export function literalForms(pattern: string, whole: boolean): PatternForms | undefined {
  const literals = readLiterals(pattern);
  const isEmpty = ({ start, text, end }: Literal): boolean => text === '' && !whole && !(start && end);
  // An empty text is in every string. Such a pattern is a mistake, and rare.
  if (literals === undefined || literals.some(isEmpty)) return undefined;
  const forms: PatternForms = {};
  for (const { start, text, end } of literals) {
    if (whole || (start && end)) (forms.equal ??= nullMap())[text] = true;
    else if (start) (forms.prefix ??= []).push(text);
    else if (end) (forms.suffix ??= []).push(text);
    else (forms.contain ??= []).push(text);
  }
  return forms;
}

function readLiterals(pattern: string): readonly Literal[] | undefined {
  // The engine ends a regular expression at a NUL.
  if (pattern.length > MAX_CHARS || pattern.includes('\0')) return undefined;
  const reader = new LiteralReader(pattern);
  try {
    const literals = reader.alternatives();
    return reader.isAtEnd ? literals : undefined;
  } catch (thrown) {
    if (thrown instanceof NotLiteral) return undefined;
    throw thrown;
  }
}

/** Reads the part of RE2's syntax that lists texts: literals, escaped punctuation, `|`, `(…)`, `(?:…)`, `^` and `$`. */
class LiteralReader {
  readonly #pattern: string;
  #at = 0;

  constructor(pattern: string) {
    this.#pattern = pattern;
  }

  get isAtEnd(): boolean {
    return this.#at === this.#pattern.length;
  }

  alternatives(): readonly Literal[] {
    const all = [...this.#sequence()];
    while (this.#take('|')) all.push(...this.#sequence());
    return all;
  }

  #sequence(): readonly Literal[] {
    let all: readonly Literal[] = [{ start: false, text: '', end: false }];
    while (!this.isAtEnd && !'|)'.includes(this.#next)) {
      const part = this.#part();
      all = all.flatMap((before) => part.map((after) => join(before, after)));
      if (all.length > MAX_LITERALS) throw new NotLiteral();
    }
    return all;
  }

  #part(): readonly Literal[] {
    if (this.#take('^')) return [START];
    if (this.#take('$')) return [END];
    if (!this.#take('(')) return [{ start: false, text: this.#character(), end: false }];
    if (this.#take('?') && !this.#take(':')) throw new NotLiteral();
    const inner = this.alternatives();
    if (!this.#take(')')) throw new NotLiteral();
    return inner;
  }

  /** A quantifier is refused here too, as the character after what it repeats. */
  #character(): string {
    const isEscaped = this.#take('\\');
    const character = this.#next;
    const isLiteral = isEscaped ? /^[!-/:-@[-^`{-~]$/.test(character) : !/^[.*+?[\]{}]?$/.test(character);
    if (!isLiteral) throw new NotLiteral();
    this.#at += 1;
    return character;
  }

  get #next(): string {
    return this.#pattern[this.#at] ?? '';
  }

  #take(character: string): boolean {
    if (this.#next !== character) return false;
    this.#at += 1;
    return true;
  }
}

/** A text before `^` or after `$` matches nothing, which no one means. */
function join(before: Literal, after: Literal): Literal {
  const isPossible = (!before.end || (after.text === '' && !after.start)) && (!after.start || before.text === '');
  if (!isPossible) throw new NotLiteral();
  return { start: before.start || after.start, text: before.text + after.text, end: before.end || after.end };
}
