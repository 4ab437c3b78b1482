/** The steps of connecting and of undoing it. Their order leaves nothing half done. */
import { stringify } from 'yaml';
import type { InstallWorld } from '../../packages/installer.ts';
import { installPackage } from '../../packages/package-source.ts';
import { type PinnedPackage, packageFolder } from '../../packages/pinned-package.ts';
import type { Vault } from '../../secrets/vault.ts';
import type { Io } from '../command-io.ts';
import { printable } from '../print.ts';
import type { Wiring } from '../wiring.ts';
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

/** The objects that the steps work with. */
export interface ConnectContext extends Places {
  readonly vault: Vault;
  readonly install: InstallWorld;
  /** `setup` connects, and undoes it together with everything else. */
  readonly bySetup?: true;
  /** Reads the configuration again. Throws if it does not load. */
  readonly reload: () => void;
}

/** Returns the world of installations of a command: its progress goes to stderr, and Ctrl-C stops it. */
export function installWorldOf(io: Io, { containerClient }: Pick<Wiring, 'containerClient'>): InstallWorld {
  const stop = new AbortController();
  void io.stopped.then(() => stop.abort());
  const say = (line: string): void => io.stderr(`${printable(line)}\n`);
  return { env: io.env, say, signal: stop.signal, containerClient };
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
    pkg !== undefined && (await installPackage(pkg, packageFolder(context.state, name, pkg.version), context.install));
  const known = new Set((await context.vault.list()).map((item) => item.name));
  const stored = [...values.keys()].filter((secret) => !known.has(secret));
  const before = readJournal(context, name);
  const text = textFor(draft, context);
  const written = readServerFile(context, name) !== text;
  beginJournal(context, {
    server: name,
    text,
    secrets: stored,
    ...(pkg !== undefined && { package: pkg }),
    ...(context.bySetup === true && { bySetup: true }),
  });
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
  const origin = pkg === undefined ? '' : ` ${pkg.name} ${pkg.version}${digestText(pkg)}.`;
  const subject = title === pkg?.name ? '' : `${title}.`;
  const undo = `\`tollgate connect --undo ${name}\``;
  const comment = `# ${`${subject}${origin}`.trim()} Written by \`tollgate connect\`; ${undo} removes it.`;
  return `${comment}\n${stringify(entry, { lineWidth: 0, flowCollectionPadding: false, collectionStyle: 'block' })}`;
}

/** The digest of a package that is not in the catalog, where it could be read. */
function digestText({ kind, asOf, integrity }: PinnedPackage): string {
  return kind === 'npm' && asOf !== undefined ? '' : `, ${integrity}`;
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
