/**
 * What import and export share: preview, consent, and storing secrets in the vault. Nothing is written without consent,
 * and no secret is replaced.
 */
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import type { ChangeNames, Changer } from '../../clients/changes/backups.ts';
import { type FileChange, writeChanges } from '../../clients/changes/client-file-changes.ts';
import type { MovedSecret } from '../../clients/client-server-conversion.ts';
import type { Config } from '../../config/config.ts';
import type { Vault } from '../../secrets/vault.ts';
import type { Io } from '../command-io.ts';
import { recordSetup } from '../command-state.ts';
import { openPlacesFor } from '../configuration/secret-actions.ts';
import { askYes, isInteractive } from '../terminal-prompt.ts';

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

/**
 * Stores secrets in the vault; returns the names that are new there. Throws USAGE for a name that has another value,
 * VAULT_FAILED.
 */
async function keepSecrets(secrets: readonly MovedSecret[], vault: Vault): Promise<readonly string[]> {
  if (secrets.length === 0) return [];
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

const EVENTS = { import: 'imported', export: 'exported', setup: 'set-up' } as const satisfies Record<Changer, string>;

/** A confirmed change of files: what it writes, and the names for its record. */
export interface ConfirmedChange {
  readonly changer: Changer;
  readonly changes: readonly FileChange[];
  readonly of: ChangeNames;
  /** Values that move to the vault. */
  readonly secrets?: readonly MovedSecret[];
}

/**
 * Records a change, stores its secrets and writes its files, in this order. Throws USAGE, AUDIT_FAILED, VAULT_FAILED.
 */
export async function applyConfirmed(
  { changer, changes, of, secrets = [] }: ConfirmedChange,
  { config, io }: { readonly config: Config; readonly io: Io },
): Promise<void> {
  await recordSetup(
    { event: EVENTS[changer], ...of, secrets: secrets.map(({ name }) => name) },
    { audit: config.audit, user: io.user },
  );
  const { vault } = openPlacesFor(config, io);
  const added = await keepSecrets(secrets, vault);
  await writeChanges(changes, { state: config.state, changer, now: Date.now(), vault, secrets: added, of });
}
