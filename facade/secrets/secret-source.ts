/** Reads a secret from its source: the vault, the keychain, a variable, a file, or a program. No other is tried. */
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { isPathWithin } from '../../catalogs/readers/path-location.ts';
import type { SecretSource } from '../config/config.ts';
import { readText, realPath } from '../config/reading/text-files.ts';
import type { Keychain } from './keychain.ts';
import { runProgram } from './secret-program.ts';
import type { Vault } from './vault.ts';

/** The objects that sources are read with. */
export interface SecretPlaces {
  readonly vault: Vault;
  readonly keychain: () => Promise<Keychain | undefined>;
  readonly env: Readonly<Record<string, string | undefined>>;
}

/** The most bytes of a file with a secret. */
export const MAX_SECRET_FILE = 64 * 1024;

/** Returns the word for a source in lists and messages. */
export function sourceName(source: SecretSource | undefined): 'vault' | SecretSource['from'] {
  return source?.from ?? 'vault';
}

/**
 * Reads a secret; undefined if its source has none. Throws VAULT_FAILED, and SECRET_MISSING for a program that fails or
 * a file that cannot be read.
 */
export async function readSecret(
  name: string,
  source: SecretSource | undefined,
  places: SecretPlaces & { readonly workspace?: string },
): Promise<string | undefined> {
  if (source === undefined) return places.vault.get(name);
  if (source.from === 'env')
    return Object.hasOwn(places.env, source.variable) ? places.env[source.variable] : undefined;
  if (source.from === 'file') return readSecretFile(name, source.file, places.workspace);
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

/** Reads the file each time, because an orchestrator replaces it when the secret changes. */
function readSecretFile(name: string, file: string, workspace: string | undefined): string {
  // A link may have changed since the configuration was read.
  const isForeign = workspace !== undefined && isPathWithin(realPath(file), realPath(workspace));
  const read = isForeign
    ? ({ ok: false, reason: 'it is in the workspace, where agents write' } as const)
    : readText(file, MAX_SECRET_FILE);
  if (read.ok) return read.text.replace(/\r?\n$/, '');
  throw new TollgateError('SECRET_MISSING', {
    detail: `The file of secret "${name}" was not used: ${read.reason}.`,
    next: 'Correct the file, or its entry under secrets in tollgate.yaml.',
  });
}
