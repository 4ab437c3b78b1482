/**
 * Seals short texts that a client keeps and sends back. Every process of a state folder can open them; no client can
 * read, change or make one.
 */
import { createCipheriv, createDecipheriv, hkdfSync, randomBytes } from 'node:crypto';
import type { State } from './state-port.ts';

/** Seals and opens texts. */
export interface Seals {
  /** Returns the text sealed. It opens only with the same `bound`. Throws STATE_FAILED. */
  seal(text: string, bound: string): Promise<string>;
  /** Returns undefined for anything that was not sealed with this `bound` in the last day. Throws STATE_FAILED. */
  open(sealed: string, bound: string): Promise<string | undefined>;
  /** Returns a secret that all processes derive for one purpose, and the name of its day. Throws STATE_FAILED. */
  secret(purpose: string): Promise<DaySecret>;
  /** Returns the secret of a day that `secret` named; undefined for any other. Throws STATE_FAILED. */
  secretOf(purpose: string, day: string): Buffer | undefined;
}

/** A secret of 256 bits. `day`: days since 1970. */
export interface DaySecret {
  readonly day: string;
  readonly key: Buffer;
}

const SPACE = 'seal-keys';
const DAY_MS = 86_400_000;
const [KEY_BYTES, DAY_BYTES, NONCE_BYTES, TAG_BYTES] = [32, 4, 12, 16];
const HEAD_BYTES = DAY_BYTES + NONCE_BYTES + TAG_BYTES;
const DAY_FORM = /^\d{1,9}$/;
const FORM = /^[A-Za-z0-9_-]+$/;

/**
 * Seals with AES-256-GCM and a random nonce (NIST SP 800-38D). The key is in the state, a new one for each day; that of
 * the day before still opens. `now` in ms since 1970.
 */
export function createSeals(
  state: Pick<State, 'get' | 'swap' | 'list' | 'remove' | 'refresh'>,
  now: () => number,
): Seals {
  const today = (): number => Math.floor(now() / DAY_MS);
  const known = (day: number): Buffer | undefined => {
    const text = state.get(SPACE, String(day));
    return text === undefined ? undefined : Buffer.from(text, 'hex');
  };
  const keyOf = async (day: number): Promise<Buffer | undefined> => {
    if (known(day) === undefined) await state.refresh('exact');
    return known(day);
  };
  // A day begins on one machine before it does on another.
  const isCurrent = (day: number): boolean => Math.abs(day - today()) <= 1;
  const makeKey = async (day: number): Promise<Buffer> => {
    // Processes that make one at the same time use the one that was first.
    await state.swap(SPACE, String(day), { to: randomBytes(KEY_BYTES).toString('hex') });
    for (const old of state.list(SPACE).keys()) if (Number(old) < day - 1) await state.remove(SPACE, old);
    return (await keyOf(day)) ?? makeKey(day);
  };
  return {
    seal: async (text, bound) => {
      const day = today();
      const key = (await keyOf(day)) ?? (await makeKey(day));
      const nonce = randomBytes(NONCE_BYTES);
      const cipher = createCipheriv('aes-256-gcm', key, nonce).setAAD(Buffer.from(bound));
      const body = Buffer.concat([cipher.update(text, 'utf8'), cipher.final()]);
      const head = Buffer.alloc(DAY_BYTES);
      head.writeUInt32BE(day);
      return Buffer.concat([head, nonce, cipher.getAuthTag(), body]).toString('base64url');
    },
    open: async (sealed, bound) => {
      if (!FORM.test(sealed)) return undefined;
      const bytes = Buffer.from(sealed, 'base64url');
      // Another spelling of the same bytes is another text.
      if (bytes.length < HEAD_BYTES || bytes.toString('base64url') !== sealed) return undefined;
      const day = bytes.readUInt32BE();
      if (!isCurrent(day)) return undefined;
      const key = await keyOf(day);
      return key === undefined ? undefined : decrypt(bytes, { key, bound });
    },
    secret: async (purpose) => {
      const day = today();
      return { day: String(day), key: derive((await keyOf(day)) ?? (await makeKey(day)), purpose) };
    },
    secretOf: (purpose, day) => {
      const key = DAY_FORM.test(day) && isCurrent(Number(day)) ? known(Number(day)) : undefined;
      return key === undefined ? undefined : derive(key, purpose);
    },
  };
}

/** HKDF (RFC 5869): a derived key says nothing about the key that seals. */
function derive(key: Buffer, purpose: string): Buffer {
  return Buffer.from(hkdfSync('sha256', key, '', purpose, KEY_BYTES));
}

function decrypt(bytes: Buffer, { key, bound }: { readonly key: Buffer; readonly bound: string }): string | undefined {
  const nonce = bytes.subarray(DAY_BYTES, DAY_BYTES + NONCE_BYTES);
  const decipher = createDecipheriv('aes-256-gcm', key, nonce, { authTagLength: TAG_BYTES });
  decipher.setAAD(Buffer.from(bound)).setAuthTag(bytes.subarray(DAY_BYTES + NONCE_BYTES, HEAD_BYTES));
  try {
    return Buffer.concat([decipher.update(bytes.subarray(HEAD_BYTES)), decipher.final()]).toString('utf8');
  } catch {
    return undefined;
  }
}
