/**
 * Finds texts of which every match of a regular expression contains one. The policy searches for them first, because
 * the module that opa builds compiles each regular expression again for each decision.
 */

/** A longer pattern, or one with more texts, is tried on every value. */
const [MAX_CHARS, MAX_TEXTS] = [1024, 16];
/** A single character is in most values. */
const MIN_CHARS = 2;
/** Escapes that stand for one character of a kind, or for a place. */
const KINDS = /^[dDsSwWbBAztnrfv]$/;
const LITERAL_ESCAPE = /^[!-/:-@[-^`{-~]$/;

/** Thrown for syntax that is not followed here. */
class NotFollowed extends Error {}

/** One of these texts is in every match; undefined if none is known. */
type Texts = readonly string[] | undefined;

/**
 * Returns texts of which each match of an RE2 pattern contains at least one. Of several lists, returns the one whose
 * shortest text is longest. Undefined if no list is known, as for patterns with flags, named groups, character codes or
 * text beyond ASCII.
 */
export function requiredTexts(pattern: string): Texts {
  if (pattern.length > MAX_CHARS || !/^[ -~]*$/.test(pattern)) return undefined;
  const reader = new PatternReader(pattern);
  try {
    const found = reader.alternatives();
    return reader.isAtEnd ? found : undefined;
  } catch (thrown) {
    if (thrown instanceof NotFollowed) return undefined;
    throw thrown;
  }
}

/** Reads a pattern in RE2's syntax, as far as it is followed. */
class PatternReader {
  readonly #pattern: string;
  #at = 0;

  constructor(pattern: string) {
    this.#pattern = pattern;
  }

  get isAtEnd(): boolean {
    return this.#at === this.#pattern.length;
  }

  alternatives(): Texts {
    const all = [this.#sequence()];
    while (this.#take(/\|/y) !== undefined) all.push(this.#sequence());
    const texts = all.flatMap((one) => one ?? []);
    return all.includes(undefined) || texts.length > MAX_TEXTS ? undefined : texts;
  }

  /** Returns the best texts of the parts that follow each other. */
  #sequence(): Texts {
    let best: Texts;
    let run = '';
    const offer = (texts: Texts): void => {
      if (texts !== undefined && shortest(texts) >= MIN_CHARS && shortest(texts) > shortest(best)) best = texts;
    };
    while (!this.isAtEnd && this.#take(/(?=[|)])/y) === undefined) {
      const part = this.#part();
      const isOptional = this.#quantifier();
      if (typeof part === 'string' && isOptional === undefined) {
        run += part;
        continue;
      }
      offer([run]);
      run = '';
      if (isOptional !== true) offer(typeof part === 'string' ? [part] : part);
    }
    offer([run]);
    return best;
  }

  /** Returns a character that stands for itself, the texts of a group, or undefined. */
  #part(): string | Texts {
    if (this.#take(/\((?:\?:)?(?!\?)/y) !== undefined) {
      const inner = this.alternatives();
      if (this.#take(/\)/y) === undefined) throw new NotFollowed();
      return inner;
    }
    if (this.#take(/\[\^?\]?(?:[^\]\\[]|\\[^pPQxdDsSwW0-9]|\\[dDsSwW])*\]|[.^$]/y) !== undefined) return undefined;
    const [first = '', second = ''] = this.#take(/\\.|[^()[\]{}*+?|\\]/y) ?? '';
    if (first === '') throw new NotFollowed();
    if (first !== '\\') return first;
    if (LITERAL_ESCAPE.test(second)) return second;
    if (!KINDS.test(second)) throw new NotFollowed();
    return undefined;
  }

  /** Returns whether what comes before may be left out; undefined without a quantifier. */
  #quantifier(): boolean | undefined {
    const found = this.#take(/(?:[*+?]|\{\d{1,3}(?:,\d{0,3})?\})\??/y);
    return found === undefined ? undefined : /^(?:[*?]|\{0+[,}])/.test(found);
  }

  #take(what: RegExp): string | undefined {
    what.lastIndex = this.#at;
    const found = what.exec(this.#pattern)?.[0];
    this.#at += found?.length ?? 0;
    return found;
  }
}

function shortest(texts: Texts): number {
  return texts === undefined ? 0 : Math.min(...texts.map((text) => text.length));
}
