/** Owns the values that must never leave: every registered secret is replaced wherever it stands, in plain and in common encodings. */

/** Shorter values would tear ordinary text apart; the loader warns about them. */
const MIN_LENGTH = 6;
const MASK = '[redacted]';

/** Text with its secrets replaced, and how many were. */
export interface Redaction<T> {
  readonly value: T;
  readonly count: number;
}

/** Replaces registered secrets. One per process; shared by replies, spills, logs and errors (HA-02). */
export class Redactor {
  readonly #forms = new Set<string>();
  #pattern: RegExp | undefined;

  /** Registers a secret with its base64, base64url, percent-encoded and JSON-escaped forms. Too short: returns false. */
  register(secret: string): boolean {
    if (secret.length < MIN_LENGTH) return false;
    const base64 = Buffer.from(secret, 'utf8').toString('base64').replace(/=+$/, '');
    const forms = [secret, base64, base64.replaceAll('+', '-').replaceAll('/', '_'), encodeURIComponent(secret)];
    for (const form of [...forms, JSON.stringify(secret).slice(1, -1)]) this.#forms.add(form);
    const longestFirst = [...this.#forms].sort((a, b) => b.length - a.length);
    this.#pattern = new RegExp(longestFirst.map((form) => form.replace(/[$()*+.?[\\\]^{|}]/g, '\\$&')).join('|'), 'g');
    return true;
  }

  /** True when `text` may hold a secret; cheap, so that clean results skip the walk. */
  touches(text: string): boolean {
    if (this.#pattern === undefined) return false;
    this.#pattern.lastIndex = 0;
    return this.#pattern.test(text);
  }

  /** The text without registered secrets. */
  redact(text: string): Redaction<string> {
    if (this.#pattern === undefined) return { value: text, count: 0 };
    let count = 0;
    const value = text.replace(this.#pattern, () => {
      count += 1;
      return MASK;
    });
    return { value, count };
  }
}
