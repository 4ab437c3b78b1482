/** The steps of connecting and of undoing it, in an order that leaves nothing half done. */
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
  /** Reads the configuration again; throws if it does not load. */
  readonly reload: () => void;
}

/** What was done that was not done before. */
export interface Done {
  readonly installed: boolean;
  readonly stored: readonly string[];
  readonly written: boolean;
}

/**
 * Installs, stores the secrets, writes the file and reads it. After a failure everything of this run except an
 * installed package is undone, and another run continues from there. Throws INSTALL_FAILED, VAULT_FAILED,
 * CONFIG_INVALID, USAGE.
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
    // What an earlier run has done stays; what this one did is undone. If even that fails the journal stays, so that it
    // can be undone later.
    if (before === undefined) await takeBack(readJournal(carrying, name), carrying).catch(() => undefined);
    throw thrown;
  }
  return { installed, stored: [...values.keys()], written };
}

/** The file to write; one that a person has edited since stays unchanged. */
export function textFor(draft: ConnectionDraft, places: Places): string {
  const text = readServerFile(places, draft.name);
  const journal = readJournal(places, draft.name);
  return text !== undefined && journal !== undefined && !isUntouched(journal, text) ? text : serverFileText(draft);
}

/**
 * Undoes what was done, the journal last, so that a killed run can be repeated. Throws USAGE for an edited file,
 * VAULT_FAILED.
 */
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
