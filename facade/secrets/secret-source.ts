/** Reads a secret from its source: the vault, the keychain, a variable, or a program. No other source is tried. */
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import type { SecretSource } from '../config/config.ts';
import type { Keychain } from './keychain.ts';
import { runProgram } from './secret-program.ts';
import type { Vault } from './vault.ts';

/** The objects that sources are read with. */
export interface SecretPlaces {
  readonly vault: Vault;
  readonly keychain: () => Promise<Keychain | undefined>;
  readonly env: Readonly<Record<string, string | undefined>>;
}

/** Returns the word for a source in lists and messages. */
export function sourceName(source: SecretSource | undefined): 'vault' | SecretSource['from'] {
  return source?.from ?? 'vault';
}

/** Reads a secret; undefined if its source has none. Throws SECRET_MISSING for a program that fails, VAULT_FAILED. */
export async function readSecret(
  name: string,
  source: SecretSource | undefined,
  places: SecretPlaces & { readonly workspace?: string },
): Promise<string | undefined> {
  if (source === undefined) return places.vault.get(name);
  if (source.from === 'env')
    return Object.hasOwn(places.env, source.variable) ? places.env[source.variable] : undefined;
  if (source.from === 'exec')
    return runProgram({
      name,
      command: source.command,
      env: places.env,
      ...(places.workspace !== undefined && { workspace: places.workspace }),
    });
  const keychain = await places.keychain();
  if (keychain === undefined)
    throw new TollgateError('SECRET_MISSING', {
      detail: `Secret "${name}" is in the keychain, which cannot be reached.`,
      next: 'Unlock the keychain, or run Tollgate in a desktop session.',
    });
  return keychain.get(source.service, source.account).catch(() => undefined);
}
