/** Owns the way from a name to a value at a start; refuses to hand out a value that the redactor does not know. */
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import type { Config, SecretSource } from '../config/config.ts';
import type { Redactor } from '../output/redactor.ts';
import { type Keychain, openKeychain } from './keychain.ts';
import { readSecret, type SecretPlaces } from './secret-source.ts';
import { Vault } from './vault.ts';
import type { KeySources } from './vault-key.ts';

/** Shorter values cannot be told from other text, so results could not be searched for them (facade/output/redactor.ts). */
export const MIN_SECRET = 6;
/** Lines of this length and more are looked for by themselves: a key file is often shown line by line. */
const MIN_LINE = 16;

/** Where secrets are read from: state folder, sources of tollgate.yaml, environment. `ask` is given where a person sits at a terminal. */
export interface SecretWorld {
  readonly state: string;
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly ask?: () => Promise<string>;
  readonly keychain?: () => Promise<Keychain | undefined>;
}

/** The vault and the other places of secrets. */
export function openPlaces({ state, env, ask, keychain }: SecretWorld): SecretPlaces {
  const reach = once(keychain ?? (() => openKeychain(env)));
  const fromEnv = env.TOLLGATE_VAULT_PASSPHRASE || undefined;
  const sources: KeySources = {
    keychain: reach,
    passphrase: async (when) => fromEnv ?? (when === 'needed' ? ask?.() : undefined),
  };
  return { vault: new Vault(state, sources), keychain: reach, env };
}

/**
 * Resolves names of secrets by the configuration of now. Each value is registered with the redactor before anybody gets it. The function throws
 * SECRET_MISSING for a secret that is not there or too short to be redacted, VAULT_FAILED.
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
        detail: `Secret "${name}" is shorter than ${MIN_SECRET} characters, so it could not be kept out of results.`,
        next: 'Take a longer one.',
      });
    return value;
  };
}

/** Registers a value, and the longer lines of one that has several. False when it is too short. */
export function registerSecret(redactor: Redactor, value: string): boolean {
  const lines = value.split(/\r?\n/);
  // The frame of a PEM file is no secret, and stands in many other texts.
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
