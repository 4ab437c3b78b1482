/** Replaces every registered secret in outgoing texts, in plain and in common encodings. */

import { unescapeBytes } from './escaped-bytes.ts';
import { MultiStringSearch, viewOf } from './multi-string-search.ts';

/** Characters of the shortest secret. Shorter values would match ordinary text. The loader warns about them. */
const MIN_LENGTH = 6;
/**
 * `\u0073` is an s, `\/` a slash, and `\\` begins an escape in a text that is JSON itself: the bytes may not look like
 * the secret.
 */
const FREE_ESCAPE = /\\[u/\\]/;
const MASK = '[redacted]';

/** Text with its secrets replaced, and how many were. */
export interface Redaction<T> {
  readonly value: T;
  readonly count: number;
}

/** Replaces registered secrets. One per process; shared by replies, spills, logs and errors (HA-02). */
export class Redactor {
  readonly #forms = new Set<string>();
  /** Made when it is first needed after a secret was registered. */
  #search: MultiStringSearch | undefined;

  /**
   * Registers a secret with its base64, base64url, hex, percent-encoded and JSON-escaped forms. Returns false if it is
   * too short.
   */
  register(secret: string): boolean {
    if (secret.length < MIN_LENGTH) return false;
    const percent = encodeURIComponent(secret);
    const hex = Buffer.from(secret, 'utf8').toString('hex');
    const forms = [
      secret,
      ...base64Forms(secret),
      hex,
      hex.toUpperCase(),
      percent,
      percent.replace(/%../g, (code) => code.toLowerCase()),
    ];
    for (const form of [...forms, inJson(secret), inJson(inJson(secret)), ...inAscii(inJson(secret))])
      this.#forms.add(form);
    this.#search = undefined;
    return true;
  }

  /**
   * Returns true if this JSON text may contain a secret, also behind optional escapes. It is cheap, so that clean
   * results skip the walk.
   */
  touches(json: string): boolean {
    return this.#forms.size > 0 && this.touchesBytes(Buffer.from(json), FREE_ESCAPE.test(json));
  }

  /** As `touches`, for the bytes of a JSON text. `hasFreeEscape`: it contains `\u`, `\/` or `\\`. */
  touchesBytes(json: Buffer, hasFreeEscape: boolean): boolean {
    if (this.#forms.size === 0) return false;
    return this.#found().next(viewOf(hasFreeEscape ? unescapeBytes(json) : json), 0) !== undefined;
  }

  /** Returns the text without registered secrets. */
  redact(text: string): Redaction<string> {
    if (this.#forms.size === 0) return { value: text, count: 0 };
    const search = this.#found();
    const bytes = Buffer.from(text);
    const view = viewOf(bytes);
    const parts: string[] = [];
    let [from, place] = [0, 0];
    for (let found = search.next(view, 0); found !== undefined; found = search.next(view, from)) {
      const start = place + bytes.toString('utf8', from, found.start).length;
      parts.push(text.slice(place, start), MASK);
      place = start + bytes.toString('utf8', found.start, found.end).length;
      from = found.end;
    }
    return parts.length === 0
      ? { value: text, count: 0 }
      : { value: parts.join('') + text.slice(place), count: parts.length / 2 };
  }

  #found(): MultiStringSearch {
    return (this.#search ??= new MultiStringSearch([...this.#forms]));
  }
}

/** Returns a value as it is in a JSON string. JSON in JSON escapes twice. */
function inJson(text: string): string {
  return JSON.stringify(text).slice(1, -1);
}

/** Returns a value in the form of programs that write JSON in ASCII (Python does by default). */
function inAscii(json: string): readonly string[] {
  const escape = (digits: (hex: string) => string): string =>
    json.replace(/[\u0080-\uffff]/g, (unit) => `\\u${digits(unit.charCodeAt(0).toString(16).padStart(4, '0'))}`);
  return [escape((hex) => hex), escape((hex) => hex.toUpperCase())];
}

/**
 * Returns the base64 forms, alone and within more text: the same bytes give other characters at each of three offsets.
 * Ends that share bits with a neighbour are left out.
 */
function base64Forms(secret: string): readonly string[] {
  const inside = [0, 1, 2].map((offset) => {
    const bytes = Buffer.concat([Buffer.alloc(offset), Buffer.from(secret, 'utf8')]);
    return bytes.toString('base64').slice(Math.ceil((offset * 8) / 6), Math.floor((bytes.length * 8) / 6));
  });
  const forms = [Buffer.from(secret, 'utf8').toString('base64').replace(/=+$/, ''), ...inside];
  return [...forms, ...forms.map((form) => form.replaceAll('+', '-').replaceAll('/', '_'))];
}
