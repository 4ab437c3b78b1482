/**
 * Writes files that belong to other programs: checked, backed up, completely or not at all. Links, foreign files, and
 * files that changed since are refused.
 */
import { lstatSync, readFileSync, statSync, unlinkSync } from 'node:fs';
import path from 'node:path';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { captureWrite, missingFolders, removeIfEmpty, replaceFile } from '../../config/reading/file-replacement.ts';
import type { Vault } from '../../secrets/vault.ts';
import type { ClientId } from '../client-formats.ts';
import { type ChangeNames, type Changer, dropBackup, storeBackup, textHash } from './backups.ts';

/** A file with its present and its new text. Texts keep a byte order mark. */
export interface FileChange {
  readonly file: string;
  /** Absent: there is no such file yet. */
  readonly before?: string;
  readonly after: string;
  /** The client whose file it is; absent for a file of Tollgate. */
  readonly client?: ClientId;
}

/** Where backups are stored, and the names for a set of changes. `secrets`: names that were added to the vault. */
export interface ChangeSet {
  readonly state: string;
  readonly changer: Changer;
  readonly now: number;
  readonly vault: Vault;
  readonly secrets?: readonly string[];
  readonly of?: ChangeNames;
}

const MAX_BYTES = 32 * 1024 * 1024;

/**
 * Returns the text of a file that is to be written; undefined if there is none. Throws USAGE for a file that must not
 * be written.
 */
export function readTarget(file: string): string | undefined {
  const status = lstatSync(file, { throwIfNoEntry: false });
  checkFolder(path.dirname(file));
  if (status === undefined) return undefined;
  if (status.isSymbolicLink())
    throw changeRefusal(
      file,
      'is a link, and its target may belong to another program',
      'Name the file itself with --file.',
    );
  if (!status.isFile()) throw changeRefusal(file, 'is not a plain file', 'Name another with --file.');
  if (!mayWrite(status.uid, path.dirname(file)))
    throw changeRefusal(file, 'belongs to another user', 'Run this as the user who owns it.');
  if ((status.mode & 0o002) !== 0)
    throw changeRefusal(
      file,
      'is writable for everyone',
      'Remove that permission with chmod o-w, check the file, then run the command again.',
    );
  if (status.size > MAX_BYTES)
    throw changeRefusal(file, `is larger than ${MAX_BYTES / 1024 / 1024} MiB`, 'Make the change by hand.');
  return decode(file);
}

/** Root writes for the owner of the folder, who could have written it too. */
function mayWrite(uid: number, folder: string): boolean {
  const self = process.getuid?.();
  return self === undefined || uid === self || (self === 0 && uid === statSync(folder).uid);
}

function decode(file: string): string {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(readFileSync(file));
  } catch {
    throw changeRefusal(file, 'cannot be read as UTF-8 text', 'Correct it, or make the change by hand.');
  }
}

/** In a folder that everyone may write, another user decides what is there in the end. */
function checkFolder(folder: string): void {
  // A project that is cloned may bring `.vscode` or `servers` as a link to anywhere.
  if (lstatSync(folder, { throwIfNoEntry: false })?.isSymbolicLink() === true)
    throw changeRefusal(
      folder,
      'is a link, so the text would be written elsewhere',
      'Name the file behind it with --file, or make it a folder.',
    );
  const status = statSync(folder, { throwIfNoEntry: false });
  const isOpen = status !== undefined && (status.mode & 0o002) !== 0 && (status.mode & 0o1000) === 0;
  if (isOpen) throw changeRefusal(folder, 'is writable for everyone', 'Remove that permission with chmod o-w.');
}

/**
 * Backs up the files, then writes all of them. Throws VAULT_FAILED, and USAGE if one
 * changed meanwhile; then nothing is written.
 */
export async function writeChanges(
  changes: readonly FileChange[],
  { secrets = [], of = { clients: [], servers: [] }, ...place }: ChangeSet,
): Promise<void> {
  const folders = [...new Set(changes.flatMap(({ file }) => missingFolders(file)))].sort(
    (one, other) => other.length - one.length,
  );
  const files = changes.map(({ file, before, after, client }) => ({
    file,
    ...(client !== undefined && { client }),
    ...(before !== undefined && { mode: (statSync(file, { throwIfNoEntry: false })?.mode ?? 0o600) & 0o777 }),
    afterHash: textHash(after),
  }));
  const texts = changes.map(({ before, after }) => ({ after, ...(before !== undefined && { before }) }));
  checkUnchanged(changes);
  const backup = await storeBackup({ manifest: { files, secrets, of, folders }, texts }, place);
  const done: FileChange[] = [];
  try {
    // The vault may have asked for a passphrase meanwhile.
    checkUnchanged(changes);
    for (const change of changes) {
      placeText(change.file, change.after);
      done.push(change);
    }
  } catch (thrown) {
    for (const { file, before } of done)
      if (before === undefined) captureWrite(file, undefined, () => unlinkSync(file));
      else placeText(file, before);
    for (const folder of folders) removeIfEmpty(folder);
    dropBackup(backup);
    throw thrown;
  }
}

function checkUnchanged(changes: readonly FileChange[]): void {
  for (const { file, before } of changes)
    if (readTarget(file) !== before)
      throw changeRefusal(file, 'was changed meanwhile', 'Run the command again: nothing was written.');
}

/** Writes in one step: a client sees the old text or the new one. Throws USAGE. */
export function placeText(file: string, text: string, mode?: number): void {
  try {
    replaceFile(file, text, mode);
  } catch (thrown) {
    throw changeRefusal(
      file,
      `cannot be written (${(thrown as NodeJS.ErrnoException).code ?? 'unknown'})`,
      'Check the permissions of its folder.',
    );
  }
}

/** A refusal to write a file. */
export function changeRefusal(file: string, why: string, next: string): TollgateError {
  return new TollgateError('USAGE', { detail: `${file} ${why}.`, next });
}
