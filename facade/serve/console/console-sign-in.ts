/**
 * Who may use the console: a person who has the one-time code from the terminal. A session is a cookie and a token of
 * the page, and neither is of use without the other.
 */
import { createHmac, randomBytes, randomInt, timingSafeEqual } from 'node:crypto';

/** Letters that no reader confuses: 32, so that a letter has 5 bits. */
const LETTERS = 'ABCDEFGHJKLMNPQRSTUVWXYZ23456789';
/** 80 bits in four groups. */
const [GROUPS, GROUP_LETTERS] = [4, 4];
const KEY_BYTES = 32;
/** How long a code can be used, ms. */
export const CODE_MS = 5 * 60_000;
/** A code with this many wrong attempts is used up. */
const MAX_ATTEMPTS = 5;
/** A session ends after this time without a request, and in any case after the second time, ms. */
const [IDLE_MS, MAX_MS] = [60 * 60_000, 12 * 60 * 60_000];
/** Older sessions end when there are more. */
const MAX_SESSIONS = 16;

interface Code {
  readonly text: string;
  readonly until: number;
  attempts: number;
}

interface ConsoleSession {
  readonly cookie: string;
  readonly began: number;
  used: number;
}

/** What a browser gets for a code. `cookie` goes into a cookie that scripts cannot read, `page` to the script. */
export interface SignedIn {
  readonly cookie: string;
  readonly page: string;
}

/** The codes and sessions of one console. They end with its process. */
export class ConsoleSignIn {
  readonly #now: () => number;
  readonly #key = randomBytes(KEY_BYTES);
  readonly #sessions = new Map<string, ConsoleSession>();
  #code: Code | undefined;

  /** `now` in ms, of any beginning. */
  constructor(now: () => number) {
    this.#now = now;
  }

  /** Returns a new code for the terminal. Earlier codes are of no use any more. */
  newCode(): string {
    const letters = Array.from({ length: GROUPS * GROUP_LETTERS }, () => LETTERS[randomInt(LETTERS.length)]).join('');
    this.#code = { text: letters, until: this.#now() + CODE_MS, attempts: 0 };
    return (letters.match(new RegExp(`.{${GROUP_LETTERS}}`, 'g')) ?? []).join('-');
  }

  /** Exchanges the code for a session. It works once. Returns undefined for any other text. */
  signIn(typed: string): SignedIn | undefined {
    const code = this.#code;
    const now = this.#now();
    if (code === undefined || now > code.until) return undefined;
    if (!isEqual(typed.toUpperCase().replaceAll(/[\s-]/g, ''), code.text)) {
      code.attempts += 1;
      if (code.attempts >= MAX_ATTEMPTS) this.#code = undefined;
      return undefined;
    }
    this.#code = undefined;
    const cookie = randomBytes(KEY_BYTES).toString('base64url');
    this.#sessions.set(cookie, { cookie, began: now, used: now });
    const [oldest] = this.#sessions.keys();
    if (this.#sessions.size > MAX_SESSIONS && oldest !== undefined) this.#sessions.delete(oldest);
    return { cookie, page: this.#pageToken(cookie) };
  }

  /**
   * Returns whether a request belongs to a session. The cookie alone is not enough: browsers send it to every port of
   * this host, so another server on this machine can learn it. The token of the page stays in the page's origin.
   */
  isSignedIn(cookie: string | undefined, page: string | undefined): boolean {
    const session = this.#valid(cookie);
    if (session === undefined || page === undefined || !isEqual(page, this.#pageToken(session.cookie))) return false;
    session.used = this.#now();
    return true;
  }

  /** Returns whether a session still goes on, without counting as a request of it: for a stream that it opened. */
  goesOn(cookie: string | undefined): boolean {
    return this.#valid(cookie) !== undefined;
  }

  #valid(cookie: string | undefined): ConsoleSession | undefined {
    const session = cookie === undefined ? undefined : this.#sessions.get(cookie);
    if (session === undefined) return undefined;
    const now = this.#now();
    if (now - session.used <= IDLE_MS && now - session.began <= MAX_MS) return session;
    this.#sessions.delete(session.cookie);
    return undefined;
  }

  /** Ends a session. */
  signOut(cookie: string | undefined): void {
    if (cookie !== undefined) this.#sessions.delete(cookie);
  }

  #pageToken(cookie: string): string {
    return createHmac('sha256', this.#key).update(cookie).digest('base64url');
  }
}

/** Compares in constant time. The HMAC makes both sides equally long. */
function isEqual(one: string, other: string): boolean {
  const [left, right] = [one, other].map((text) => createHmac('sha256', 'equal').update(text).digest());
  return left !== undefined && right !== undefined && timingSafeEqual(left, right);
}
