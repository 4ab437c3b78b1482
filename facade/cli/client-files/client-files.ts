/**
 * What import and export share: preview, consent, and storing secrets in the vault. Nothing is written without consent,
 * and no secret is replaced.
 */
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import type { MovedSecret } from '../../clients/client-server-conversion.ts';
import type { Config } from '../../config/config.ts';
import { openPlaces } from '../../secrets/secrets.ts';
import type { Vault } from '../../secrets/vault.ts';
import type { Io } from '../command-io.ts';
import { askHidden, askYes, isInteractive } from '../terminal-prompt.ts';

/** How a change is confirmed. */
export interface ConfirmOptions {
  readonly dryRun?: true;
  readonly yes?: true;
  readonly json?: true;
}

/** Returns true if it may be written: by --yes, or by an answer at the terminal. Throws USAGE if there is neither. */
export async function confirmWrite(
  { dryRun, yes }: ConfirmOptions,
  io: Io,
  question = 'Write this?',
): Promise<boolean> {
  if (dryRun === true) return false;
  if (yes === true) return true;
  if (!isInteractive(io))
    throw new TollgateError('USAGE', {
      detail: 'There is no terminal to ask at, so nothing was written.',
      next: 'Look at the changes with --dry-run, then use --yes.',
    });
  return askYes(io, question);
}

/** The vault of a state folder, opened when it is needed. */
export function openVault(config: Pick<Config, 'state'>, io: Io): Vault {
  const ask = isInteractive(io) ? { ask: () => askHidden(io, 'Passphrase of the vault: ') } : {};
  return openPlaces({ state: config.state, env: io.env, ...ask }).vault;
}

/**
 * Stores secrets in the vault; returns the names that are new there. Throws USAGE for a name that has another value,
 * VAULT_FAILED.
 */
export async function keepSecrets(secrets: readonly MovedSecret[], config: Config, io: Io): Promise<readonly string[]> {
  if (secrets.length === 0) return [];
  const vault = openVault(config, io);
  const fresh: MovedSecret[] = [];
  for (const secret of secrets) {
    const stored = await vault.get(secret.name);
    if (stored === undefined) fresh.push(secret);
    else if (stored !== secret.value)
      throw new TollgateError('USAGE', {
        detail: `The vault has another value under ${secret.name}.`,
        next: `Remove it with \`tollgate secret rm ${secret.name}\`, or leave out that server with --only.`,
      });
  }
  for (const { name, value } of fresh) await vault.set(name, value);
  return fresh.map(({ name }) => name);
}
