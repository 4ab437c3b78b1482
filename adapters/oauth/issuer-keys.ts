/**
 * The public keys of an issuer whose tokens clients send. Keys are read again after a while, so a key that the issuer
 * removed is not accepted for long. Neither clients nor a failing issuer can cause many requests.
 */
import { createLocalJWKSet, type JSONWebKeySet, type JWTVerifyGetKey } from 'jose';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import type { Lookup } from '../egress/dial.ts';
import { type GuardedFetch, guardFetch } from './guarded-fetch.ts';
import { readIssuer, shownHost } from './issuer-discovery.ts';

/** Whose keys, and where they are. `jwks` absent: the metadata of the issuer say. */
export interface IssuerAddress {
  readonly issuer: string;
  readonly jwks?: string;
}

/** Returns the key of a token by its header. Throws ISSUER_UNAVAILABLE, and the errors of jose for an unknown key. */
export type IssuerKeys = JWTVerifyGetKey;

/** Returns the keys of an issuer. Nothing is read before the first token. */
export type OpenIssuerKeys = (address: IssuerAddress, world?: KeyWorld) => IssuerKeys;

/** What tests replace. `now`: milliseconds, of any beginning. */
export interface KeyWorld {
  readonly now?: () => number;
  readonly lookup?: Lookup;
}

/** Keys are used this long. */
const MAX_AGE_MS = 600_000;
/** The least time between two requests for keys, whatever tokens name. */
const PAUSE_MS = 30_000;
/** An issuer has a few keys. */
const MAX_KEYS = 100;

interface HeldKeys {
  readonly find: IssuerKeys;
  readonly readAt: number;
}

/** Implements OpenIssuerKeys. */
export const openIssuerKeys: OpenIssuerKeys = (address, { now = () => performance.now(), lookup } = {}) => {
  let held: HeldKeys | undefined;
  let triedAt = Number.NEGATIVE_INFINITY;
  let reading: Promise<HeldKeys> | undefined;
  const isOld = (since: number, limit: number): boolean => now() - since >= limit;

  const read = (): Promise<HeldKeys> => {
    if (reading !== undefined) return reading;
    if (!isOld(triedAt, PAUSE_MS)) throw unavailable(address);
    triedAt = now();
    // Each reading resolves the names again, because an issuer may move.
    reading = readKeys(address, guardFetch(new URL(address.issuer), lookup))
      .then((find) => {
        held = { find, readAt: now() };
        return held;
      })
      .catch((thrown: unknown) => {
        throw unavailable(address, thrown);
      })
      .finally(() => {
        reading = undefined;
      });
    return reading;
  };

  return async (header, token) => {
    const current = held === undefined || isOld(held.readAt, MAX_AGE_MS) ? await read() : held;
    try {
      return await current.find(header, token);
    } catch (thrown) {
      // The issuer may have a new key. Anyone can name a key that does not exist, so this is limited.
      if (!isUnknownKey(thrown) || (reading === undefined && !isOld(triedAt, PAUSE_MS))) throw thrown;
      return (await read()).find(header, token);
    }
  };
};

async function readKeys({ issuer, jwks }: IssuerAddress, fetch: GuardedFetch): Promise<IssuerKeys> {
  const place = jwks ?? (await readIssuer(issuer, fetch)).jwks;
  if (place === undefined) throw new Error('the metadata name no keys');
  const response = await fetch(place, { headers: { accept: 'application/json' } });
  if (!response.ok) throw new Error(`the keys cannot be read: HTTP ${response.status}`);
  const { keys } = (await response.json()) as JSONWebKeySet;
  // A symmetric key in a public document is known to everyone.
  return createLocalJWKSet({ keys: keys.filter(({ kty }) => kty !== 'oct').slice(0, MAX_KEYS) });
}

function isUnknownKey(thrown: unknown): boolean {
  return (thrown as { code?: unknown } | null)?.code === 'ERR_JWKS_NO_MATCHING_KEY';
}

function unavailable({ issuer }: IssuerAddress, cause?: unknown): TollgateError {
  return new TollgateError('ISSUER_UNAVAILABLE', {
    detail: `The keys of the issuer ${shownHost(issuer)} cannot be read at present, so no token of it can be checked.`,
    cause,
  });
}
