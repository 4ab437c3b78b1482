/** The key that signs checkpoints: a secret or a file that the owner names, or a file in the state folder. */
import { createPrivateKey, generateKeyPairSync, type KeyObject } from 'node:crypto';
import { join } from 'node:path';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { isPathWithin } from '../../../catalogs/readers/path-location.ts';
import { createPrivate, readPrivate } from '../../secrets/private-file.ts';

/** Name of the key in the state folder. */
export const SIGNING_KEY = 'audit-signing.pem';

/** How the log is signed. `key`: absolute path; `secret`: a name. Without both, the key is in the state folder. */
export interface SigningConfig {
  readonly key?: string;
  readonly secret?: string;
  /** A checkpoint is signed after this many records of one process, or this many ms. */
  readonly every: number;
  readonly withinMs: number;
  readonly witness?: WitnessConfig;
}

/** A program that gets each checkpoint. `key`: verifier key; with it, the program must print a cosignature. */
export interface WitnessConfig {
  readonly command: readonly string[];
  readonly key?: string;
}

/** Where a key is, and how secrets are read. */
export interface KeyPlaces {
  /** The state folder. */
  readonly state: string;
  readonly signing: Pick<SigningConfig, 'key' | 'secret'>;
  readonly secret: (name: string) => Promise<string | undefined>;
}

/** Returns the key, and makes the one in the state folder if there is none. Throws STATE_FAILED, VAULT_FAILED. */
export async function signingKey(places: KeyPlaces): Promise<KeyObject> {
  const found = await findSigningKey(places);
  if (found !== undefined) return found;
  const { privateKey } = generateKeyPairSync('ed25519');
  createPrivate(join(places.state, SIGNING_KEY), privateKey.export({ format: 'pem', type: 'pkcs8' }).toString());
  return (await findSigningKey(places)) ?? privateKey;
}

/**
 * Returns the key; undefined if it should be in the state folder and is not there yet. Throws STATE_FAILED for a key
 * that an owner names and that cannot be used, VAULT_FAILED.
 */
export async function findSigningKey({ state, signing, secret }: KeyPlaces): Promise<KeyObject | undefined> {
  const name = signing.secret === undefined ? (signing.key ?? SIGNING_KEY) : `secret ${signing.secret}`;
  const pem =
    signing.secret === undefined ? readPrivate(signing.key ?? join(state, SIGNING_KEY)) : await secret(signing.secret);
  if (pem === undefined && signing.secret === undefined && signing.key === undefined) return undefined;
  const key = pem === undefined ? undefined : parsePrivateKey(pem);
  if (key !== undefined) return key;
  throw new TollgateError('STATE_FAILED', {
    detail: `The key that signs the audit log (${name}) ${pem === undefined ? 'does not exist' : 'is no Ed25519 key'}.`,
    next: `Make one with \`openssl genpkey -algorithm ed25519\`, or correct audit.signing in tollgate.yaml.`,
    retryable: false,
  });
}

/** Returns true if someone who holds the state folder or the log holds the key too. */
export function isKeyInState({ state, signing }: Pick<KeyPlaces, 'state' | 'signing'>, folder: string): boolean {
  if (signing.secret !== undefined) return false;
  const file = signing.key ?? join(state, SIGNING_KEY);
  return [state, folder].some((place) => isPathWithin(file, place));
}

function parsePrivateKey(pem: string): KeyObject | undefined {
  try {
    const key = createPrivateKey(pem);
    return key.asymmetricKeyType === 'ed25519' ? key : undefined;
  } catch {
    return undefined;
  }
}
