/** The file format of the vault: a header in clear text, and one AES-256-GCM text. It refuses a changed file. */
import { createCipheriv, createDecipheriv, randomBytes } from 'node:crypto';
import { TollgateError } from '../../catalogs/errors/error-table.ts';

/** Where the key of a vault comes from. It is in clear text in the file, and authenticated. */
export type KeyOrigin =
  | { readonly from: 'passphrase'; readonly salt: string; readonly cost: number }
  | { readonly from: 'keychain'; readonly account: string }
  | { readonly from: 'file' };

/** A vault on the disk. `nonce` and `text` are base64. `text` ends with the tag of 16 bytes. */
export interface Sealed {
  readonly tollgateVault: 1;
  readonly key: KeyOrigin;
  readonly nonce: string;
  readonly text: string;
}

const NONCE_BYTES = 12;
const TAG_BYTES = 16;
/**
 * The accepted values of scrypt's N. A smaller value makes guessing too cheap. A larger one in a prepared file would
 * block the process that opens it.
 */
const COSTS: readonly number[] = [2 ** 15, 2 ** 16, 2 ** 17, 2 ** 18];

/** Encrypts with a new nonce. */
export function seal(plain: string, key: Buffer, origin: KeyOrigin): string {
  const nonce = randomBytes(NONCE_BYTES);
  const cipher = createCipheriv('aes-256-gcm', key, nonce).setAAD(additionalData(origin));
  const text = Buffer.concat([cipher.update(plain, 'utf8'), cipher.final(), cipher.getAuthTag()]);
  const sealed: Sealed = {
    tollgateVault: 1,
    key: origin,
    nonce: nonce.toString('base64'),
    text: text.toString('base64'),
  };
  return `${JSON.stringify(sealed)}\n`;
}

/** Decrypts. Throws VAULT_FAILED for a wrong key and for a changed file, which cannot be told apart. */
export function unseal({ key: origin, nonce, text }: Sealed, secretKey: Buffer): string {
  const bytes = Buffer.from(text, 'base64');
  try {
    const decipher = createDecipheriv('aes-256-gcm', secretKey, Buffer.from(nonce, 'base64'), {
      authTagLength: TAG_BYTES,
    })
      .setAAD(additionalData(origin))
      .setAuthTag(bytes.subarray(-TAG_BYTES));
    return Buffer.concat([decipher.update(bytes.subarray(0, -TAG_BYTES)), decipher.final()]).toString('utf8');
  } catch (cause) {
    const key = origin.from === 'file' ? 'in vault.key' : 'in the keychain';
    const reset = 'remove vault.json and set the secrets again.';
    throw new TollgateError('VAULT_FAILED', {
      ...(origin.from === 'passphrase'
        ? {
            detail: 'The passphrase is wrong, or vault.json was changed.',
            next: `Set TOLLGATE_VAULT_PASSPHRASE to the passphrase of this vault. If it is lost, ${reset}`,
          }
        : {
            detail: `The key ${key} does not open vault.json, or vault.json was changed.`,
            next: `Restore both from a backup. If one is lost, ${reset}`,
          }),
      cause,
    });
  }
}

/** Reads the file format. Throws VAULT_FAILED for a damaged file, and for one of a newer version. */
export function readSealed(text: string): Sealed {
  const value = parse(text);
  if (typeof value?.tollgateVault === 'number' && value.tollgateVault > 1)
    throw new TollgateError('VAULT_FAILED', {
      detail: 'vault.json was written by a newer Tollgate.',
      next: 'Upgrade Tollgate.',
    });
  const key = value?.key as Record<string, unknown> | undefined;
  const isWhole =
    value?.tollgateVault === 1 &&
    typeof value.nonce === 'string' &&
    Buffer.from(value.nonce, 'base64').length === NONCE_BYTES &&
    typeof value.text === 'string' &&
    isOrigin(key);
  if (!isWhole)
    throw new TollgateError('VAULT_FAILED', {
      detail: 'vault.json is damaged.',
      next: 'Restore a copy of it. If there is none, remove it and set the secrets again.',
    });
  return value as unknown as Sealed;
}

function parse(text: string): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : undefined;
  } catch {
    return undefined;
  }
}

function isOrigin(key: Record<string, unknown> | undefined): boolean {
  if (key?.from === 'passphrase') return typeof key.salt === 'string' && COSTS.includes(Number(key.cost));
  return key?.from === 'file' || (key?.from === 'keychain' && typeof key.account === 'string');
}

function additionalData(origin: KeyOrigin): Buffer {
  const parts =
    origin.from === 'passphrase' ? [origin.salt, origin.cost] : origin.from === 'keychain' ? [origin.account] : [];
  return Buffer.from(JSON.stringify(['tollgate-vault', 1, origin.from, ...parts]));
}
