/** Owns what import and export say, ask and keep alike; refuses to write where nobody agreed, and to replace a secret. */
import { TollgateError } from '../../catalogs/errors.ts';
import type { MovedSecret } from '../clients/convert.ts';
import { shownPath, type ClientRoots } from '../clients/places.ts';
import type { Config } from '../config/config.ts';
import { openPlaces } from '../secrets/secrets.ts';
import { EXIT, type Io } from './io.ts';
import { json, printable } from './print.ts';
import { askHidden, askYes, isInteractive } from './prompt.ts';

/** How a change is agreed to. */
export interface Confirming {
  readonly dryRun?: true;
  readonly yes?: true;
  readonly json?: true;
}

/** True when it shall be written: by --yes, or by an answer at the terminal. Throws USAGE when there is neither. */
export async function agree({ dryRun, yes }: Confirming, io: Io): Promise<boolean> {
  if (dryRun === true) return false;
  if (yes === true) return true;
  if (!isInteractive(io)) throw new TollgateError('USAGE', { detail: 'Nobody can be asked here, so nothing was written.', next: 'Look with --dry-run, then say --yes.' });
  return askYes(io, 'Write this?');
}

/** Says which files are as they were. */
export function told(files: readonly string[], { options, io, roots }: { readonly options: Confirming; readonly io: Io; readonly roots: ClientRoots }): number {
  const shown = files.map((file) => shownPath(file, roots));
  if (options.json === true) io.stdout(json({ restored: shown }));
  else io.stderr(`As before: ${printable(shown.join(', '))}.\n`);
  return EXIT.ok;
}

/** Into the vault. Throws USAGE for a name that has another value there, VAULT_FAILED. */
export async function keepSecrets(secrets: readonly MovedSecret[], config: Config, io: Io): Promise<void> {
  if (secrets.length === 0) return;
  const ask = isInteractive(io) ? { ask: () => askHidden(io, 'Passphrase of the vault: ') } : {};
  const { vault } = openPlaces({ state: config.state, env: io.env, ...ask });
  for (const { name, value } of secrets) {
    const there = await vault.get(name);
    if (there !== undefined && there !== value) throw new TollgateError('USAGE', { detail: `The vault has another value under ${name}.`, next: `Remove it with \`tollgate secret rm ${name}\`, or leave that server out with --only.` });
  }
  for (const { name, value } of secrets) await vault.set(name, value);
}
