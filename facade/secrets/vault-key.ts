/** Creates the key of a new vault, and finds the key of an existing one. Only the key that the vault names is used. */
import { randomBytes, randomUUID, scrypt } from 'node:crypto';
import path from 'node:path';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { KEYCHAIN_SERVICE, type Keychain } from './keychain.ts';
import { createPrivate, readPrivate } from './private-file.ts';
import type { KeyOrigin } from './vault-file.ts';

/** Where keys may come from. A source is used only when it is needed. */
export interface KeySources {
  /** The passphrase from the environment, or from the person at the terminal. */
  readonly passphrase: (ask: 'if-set' | 'needed') => Promise<string | undefined>;
  readonly keychain: () => Promise<Keychain | undefined>;
}

/** A key and where it came from. */
export interface VaultKey {
  readonly key: Buffer;
  readonly origin: KeyOrigin;
}

const KEY_BYTES = 32;
/** Scrypt's N: 64 MiB and about 0.2 s for each guess. */
const COST = 2 ** 16;

/** Finds the key of an existing vault. Throws VAULT_FAILED. */
export async function findKey(folder: string, origin: KeyOrigin, sources: KeySources): Promise<Buffer> {
  if (origin.from === 'file')
    return (
      fileKey(folder) ??
      fail(
        'The key file vault.key is missing.',
        'Restore it in the state folder. If it is lost, remove vault.json and set the secrets again.',
      )
    );
  if (origin.from === 'keychain') return keychainKey(origin.account, sources);
  const passphrase = await sources.passphrase('needed');
  if (passphrase === undefined)
    return fail(
      'The vault is locked with a passphrase.',
      'Set TOLLGATE_VAULT_PASSPHRASE in the environment of Tollgate.',
    );
  return derive(passphrase, origin);
}

/**
 * Creates the key of a new vault. It is derived from the passphrase if one is set, or else stored in the keychain, or
 * else in a file next to the vault.
 */
export async function makeKey(folder: string, sources: KeySources): Promise<VaultKey> {
  const passphrase = await sources.passphrase('if-set');
  if (passphrase !== undefined) {
    const origin = { from: 'passphrase', salt: randomBytes(16).toString('base64'), cost: COST } as const;
    return { key: await derive(passphrase, origin), origin };
  }
  const key = randomBytes(KEY_BYTES);
  const account = `vault-${randomUUID()}`;
  if (await storeInKeychain(account, key, sources)) return { key, origin: { from: 'keychain', account } };
  // An existing key is kept. It may open a vault that was moved away, or belong to a process that starts at the same
  // time.
  const isNew = createPrivate(path.join(folder, 'vault.key'), `${key.toString('base64')}\n`);
  return { key: isNew ? key : (fileKey(folder) ?? key), origin: { from: 'file' } };
}

function fileKey(folder: string): Buffer | undefined {
  const text = readPrivate(path.join(folder, 'vault.key'));
  return text === undefined ? undefined : readKey(text, 'vault.key');
}

async function keychainKey(account: string, sources: KeySources): Promise<Buffer> {
  const keychain = await sources.keychain();
  if (keychain === undefined)
    return fail(
      'The key of the vault is in the keychain, which cannot be reached.',
      'Unlock the keychain, or run Tollgate in a desktop session.',
    );
  const text = await keychain.get(KEYCHAIN_SERVICE, account).catch(() => undefined);
  return text === undefined
    ? fail('The keychain has no key for this vault.', 'If it is lost, remove vault.json and set the secrets again.')
    : readKey(text, 'the keychain');
}

/** Stores a key, and returns whether it can be read back. */
async function storeInKeychain(account: string, key: Buffer, sources: KeySources): Promise<boolean> {
  const keychain = await sources.keychain();
  if (keychain === undefined) return false;
  const text = key.toString('base64');
  try {
    await keychain.set(KEYCHAIN_SERVICE, account, text);
    return (await keychain.get(KEYCHAIN_SERVICE, account)) === text;
  } catch {
    return false;
  }
}

function readKey(text: string, where: string): Buffer {
  const key = Buffer.from(text.trim(), 'base64');
  return key.length === KEY_BYTES
    ? key
    : fail(
        `The content of ${where} is not a key.`,
        'Restore it from a backup. If it is lost, remove vault.json and set the secrets again.',
      );
}

function derive(passphrase: string, { salt, cost }: { readonly salt: string; readonly cost: number }): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    // Keyboards can produce the same letters as different code points.
    scrypt(
      passphrase.normalize('NFKC'),
      Buffer.from(salt, 'base64'),
      KEY_BYTES,
      { N: cost, r: 8, p: 1, maxmem: 160 * cost * 8 },
      (error, key) => (error === null ? resolve(key) : reject(error)),
    );
  });
}

function fail(detail: string, next: string): never {
  throw new TollgateError('VAULT_FAILED', { detail, next });
}
