/** The steps of connecting and of undoing it. Their order leaves nothing half done. */
import { existsSync, rmSync } from 'node:fs';
import path from 'node:path';
import { stringify } from 'yaml';
import { removeIfEmpty } from '../../config/reading/file-replacement.ts';
import type { Vault } from '../../secrets/vault.ts';
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

/** The objects that the steps work with. */
export interface ConnectContext extends Places {
  readonly vault: Vault;
  readonly install: InstallWorld;
  /** Reads the configuration again. Throws if it does not load. */
  readonly reload: () => void;
}

/** What this run has done. */
export interface Done {
  readonly installed: boolean;
  readonly stored: readonly string[];
  readonly written: boolean;
}

/**
 * Installs the package, stores the secrets, writes the file and loads it. After a failure it undoes everything except
 * the installation, and another run continues from there. Throws INSTALL_FAILED, VAULT_FAILED, CONFIG_INVALID, USAGE.
 */
export async function carryOut(
  draft: ConnectionDraft,
  values: ReadonlyMap<string, string>,
  context: ConnectContext,
): Promise<Done> {
  const { name, package: pkg } = draft;
  const installed =
    pkg !== undefined &&
    (await installPackage(
      { package: pkg, asOf: pkg.asOf, folder: packageFolder(context.state, name, pkg.version) },
      context.install,
    ));
  const known = new Set((await context.vault.list()).map((item) => item.name));
  const stored = [...values.keys()].filter((secret) => !known.has(secret));
  const before = readJournal(context, name);
  const text = textFor(draft, context);
  const written = readServerFile(context, name) !== text;
  beginJournal(context, { server: name, text, secrets: stored, ...(pkg !== undefined && { version: pkg.version }) });
  try {
    for (const [secret, value] of values) await context.vault.set(secret, value);
    if (written) writeServerFile(context, { server: name, text });
    context.reload();
  } catch (thrown) {
    // The work of an earlier run stays. If undoing fails too, the journal stays, so that it can be repeated.
    if (before === undefined) await takeBack(readJournal(context, name), context).catch(() => undefined);
    throw thrown;
  }
  return { installed, stored: [...values.keys()], written };
}

/** Returns the text of a new server file. The same draft gives the same text. */
export function serverFileText({ name, title, entry, package: pkg }: ConnectionDraft): string {
  const origin = pkg === undefined ? '' : ` ${pkg.name} ${pkg.version}.`;
  const undo = `\`tollgate connect --undo ${name}\``;
  const comment = `# ${title}.${origin} Written by \`tollgate connect\`; ${undo} removes it.`;
  return `${comment}\n${stringify(entry, { lineWidth: 0, flowCollectionPadding: false, collectionStyle: 'block' })}`;
}

/** Returns the file to write. A file that was edited since it was written stays unchanged. */
export function textFor(draft: ConnectionDraft, places: Places): string {
  const text = readServerFile(places, draft.name);
  const journal = readJournal(places, draft.name);
  return text !== undefined && journal !== undefined && !isUntouched(journal, text) ? text : serverFileText(draft);
}

/**
 * Undoes what a journal lists. The journal is deleted last, so that a killed run can be repeated. Throws USAGE for an
 * edited file, VAULT_FAILED.
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

/** Removes all versions of a server's package. Returns whether there were any. */
export function removePackages(state: string, server: string): boolean {
  const folder = path.join(state, 'packages', server);
  const existed = existsSync(folder);
  rmSync(folder, { recursive: true, force: true });
  removeIfEmpty(path.dirname(folder));
  return existed;
}
