/** Resolves names of secrets to values. Each value is registered with the redactor before it is returned. */
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import type { Config, SecretSource } from '../config/config.ts';
import type { Redactor } from '../output/redactor.ts';
import { type Keychain, openKeychain } from './keychain.ts';
import { readSecret, type SecretPlaces } from './secret-source.ts';
import { Vault } from './vault.ts';
import type { KeySources } from './vault-key.ts';

/** Shorter values also occur in other text, so they could not be redacted (facade/output/redactor.ts). */
export const MIN_SECRET = 6;
/** Lines of at least this length are redacted separately, because a key file is often shown line by line. */
const MIN_LINE = 16;

/** Where secrets are read from. */
export interface SecretWorld {
  /** The state folder. */
  readonly state: string;
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Asks the person at the terminal for the passphrase. Absent without a terminal. */
  readonly ask?: () => Promise<string>;
  readonly keychain?: () => Promise<Keychain | undefined>;
}

/** Opens the vault and the other sources of secrets. */
export function openPlaces({ state, env, ask, keychain }: SecretWorld): SecretPlaces {
  const openOnce = once(keychain ?? (() => openKeychain(env)));
  const fromEnv = env.TOLLGATE_VAULT_PASSPHRASE || undefined;
  const sources: KeySources = {
    keychain: openOnce,
    passphrase: async (when) => fromEnv ?? (when === 'needed' ? ask?.() : undefined),
  };
  return { vault: new Vault(state, sources), keychain: openOnce, env };
}

/**
 * Returns a function that resolves names of secrets with the present configuration. It registers each value with the
 * redactor first. It throws SECRET_MISSING for a secret that does not exist or is too short to be redacted, and
 * VAULT_FAILED.
 */
export function openSecrets(
  current: () => Pick<Config, 'secretSources' | 'workspace'>,
  parts: { readonly places: SecretPlaces; readonly redactor: Redactor },
): (name: string) => Promise<string> {
  const { places } = parts;
  return async (name) => {
    const { secretSources, workspace } = current();
    const source = secretSources.get(name);
    const value = await readSecret(name, source, { ...places, workspace });
    if (value === undefined) throw missing(name, source);
    if (!registerSecret(parts.redactor, value))
      throw new TollgateError('SECRET_MISSING', {
        detail: `Secret "${name}" is shorter than ${MIN_SECRET} characters, so it could not be redacted in results.`,
        next: 'Use a longer one.',
      });
    return value;
  };
}

/** Registers a value, and its longer lines if it has several. Returns false if it is too short. */
export function registerSecret(redactor: Redactor, value: string): boolean {
  const lines = value.split(/\r?\n/);
  // The header and footer of a PEM file are not secret, and appear in many other texts.
  if (lines.length > 1)
    for (const line of lines) if (line.length >= MIN_LINE && !line.startsWith('-----')) redactor.register(line);
  return redactor.register(value);
}

function missing(name: string, source: SecretSource | undefined): TollgateError {
  if (source?.from === 'env')
    return new TollgateError('SECRET_MISSING', {
      detail: `Secret "${name}" comes from the variable ${source.variable}, which is not set.`,
      next: `Set ${source.variable} in the environment of Tollgate, then call again.`,
    });
  if (source?.from === 'keychain')
    return new TollgateError('SECRET_MISSING', {
      detail: `The keychain has no entry for secret "${name}".`,
      next: `Store it with \`tollgate secret set ${name}\`, then call again.`,
    });
  return new TollgateError('SECRET_MISSING', {
    detail: `Secret "${name}" is not in the vault.`,
    next: `Store it with \`tollgate secret set ${name}\`, then call again.`,
  });
}

function once<T>(make: () => Promise<T>): () => Promise<T> {
  let made: Promise<T> | undefined;
  return () => (made ??= make());
}
