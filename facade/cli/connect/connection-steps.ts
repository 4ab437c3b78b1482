/** Owns the steps of connecting and of taking it back, in an order that leaves nothing half done; refuses to go on after one that failed. */
import { existsSync, readdirSync, rmdirSync, rmSync } from 'node:fs';
import path from 'node:path';
import type { Vault } from '../../secrets/vault.ts';
import { serverFileText } from './connected-server-file.ts';
import type { ConnectionDraft } from './connection-draft.ts';
import {
  beginJournal,
  dropJournal,
  isUntouched,
  type Journal,
  type Places,
  readJournal,
  readServerFile,
  restoreServerFile,
  writeServerFile,
} from './connection-journal.ts';
import { type InstallWorld, installPackage, packageFolder } from './package-install.ts';

/** What the steps work with. */
export interface Carrying extends Places {
  readonly vault: Vault;
  readonly install: InstallWorld;
  /** Reads the configuration anew; throws when it does not load. */
  readonly reload: () => void;
}

/** What was done that was not done before. */
export interface Done {
  readonly installed: boolean;
  readonly stored: readonly string[];
  readonly written: boolean;
}

/**
 * Installs, stores the secrets, writes the file and reads it. After a failure everything of this run but an installed package is as it was,
 * and calling it again goes on from there. Throws INSTALL_FAILED, VAULT_FAILED, CONFIG_INVALID, USAGE.
 */
export async function carryOut(
  draft: ConnectionDraft,
  values: ReadonlyMap<string, string>,
  carrying: Carrying,
): Promise<Done> {
  const { name, package: pkg } = draft;
  const installed =
    pkg !== undefined &&
    (await installPackage(
      { package: pkg, asOf: pkg.asOf, folder: packageFolder(carrying.state, name, pkg.version) },
      carrying.install,
    ));
  const known = new Set((await carrying.vault.list()).map((item) => item.name));
  const stored = [...values.keys()].filter((secret) => !known.has(secret));
  const before = readJournal(carrying, name);
  const text = textFor(draft, carrying);
  const written = readServerFile(carrying, name) !== text;
  beginJournal(carrying, { server: name, text, secrets: stored, ...(pkg !== undefined && { version: pkg.version }) });
  try {
    for (const [secret, value] of values) await carrying.vault.set(secret, value);
    if (written) writeServerFile(carrying, { server: name, text });
    carrying.reload();
  } catch (thrown) {
    // What an earlier run has done stays; what this one began is taken back.
    // Where even that fails the journal stays, and with it the way back.
    if (before === undefined) await takeBack(readJournal(carrying, name), carrying).catch(() => undefined);
    throw thrown;
  }
  return { installed, stored: [...values.keys()], written };
}

/** The file as it shall be; one that a person has edited since stays as it is. */
export function textFor(draft: ConnectionDraft, places: Places): string {
  const text = readServerFile(places, draft.name);
  const journal = readJournal(places, draft.name);
  return text !== undefined && journal !== undefined && !isUntouched(journal, text) ? text : serverFileText(draft);
}

/** Takes back what was done, the journal last, so that a run that was killed can be repeated. Throws USAGE for a file that was edited, VAULT_FAILED. */
export async function takeBack(
  journal: Journal | undefined,
  { vault, ...places }: Places & { readonly vault: Vault },
): Promise<void> {
  if (journal === undefined) return;
  restoreServerFile(places, journal);
  const known = new Set((await vault.list()).map(({ name }) => name));
  for (const secret of journal.secrets) if (known.has(secret)) await vault.remove(secret);
  dropJournal(places, journal.server);
}

/** Removes all versions of a server's package. */
export function removePackages(state: string, server: string): boolean {
  const folder = path.join(state, 'packages', server);
  const was = existsSync(folder);
  rmSync(folder, { recursive: true, force: true });
  const all = path.dirname(folder);
  if (existsSync(all) && readdirSync(all).length === 0) rmdirSync(all);
  return was;
}
