/**
 * Writes files that belong to other programs: checked, backed up, completely or not at all, and undone byte for byte.
 * Links, foreign files, and files that changed since are refused.
 */
import { createHash, randomBytes } from 'node:crypto';
import { existsSync, lstatSync, readdirSync, readFileSync, rmSync, statSync, unlinkSync } from 'node:fs';
import path from 'node:path';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { captureWrite, missingFolders, removeIfEmpty, replaceFile } from '../config/reading/file-replacement.ts';
import { readPrivate, writePrivate } from '../secrets/private-file.ts';

/** A file with its present and its new text. Texts keep a byte order mark. */
export interface FileChange {
  readonly file: string;
  /** Absent: there is no such file yet. */
  readonly before?: string;
  readonly after: string;
}

/** Which command made a set of changes; each undoes its own. */
export type Changer = 'import' | 'export';

/** What a backup contains besides the files: `before` is absent for a new file. */
interface Manifest {
  readonly files: readonly {
    readonly file: string;
    readonly before?: string;
    readonly afterHash: string;
    readonly mode?: number;
  }[];
  /** Names of secrets that went into the vault with them. */
  readonly secrets: readonly string[];
  /** Absent in backups of older versions, as are the folders. */
  readonly of?: ChangeNames;
  /** Folders that were made for the files, the deepest first. */
  readonly folders?: readonly string[];
}

/** The names in a set of changes that may be recorded: ids of clients, servers. */
export interface ChangeNames {
  readonly clients: readonly string[];
  readonly servers: readonly string[];
}

/** Where backups are stored, and the name of a set of changes. `secrets`: names that were added to the vault for it. */
export interface ChangeSet {
  readonly state: string;
  readonly changer: Changer;
  readonly now: number;
  readonly secrets?: readonly string[];
  readonly of?: ChangeNames;
}

/** One backup that is kept. */
export interface Backup {
  readonly name: string;
  readonly file: string;
  /** ms since 1970. */
  readonly at: number;
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
    throw refusal(file, 'is a link, and its target may belong to another program', 'Name the file itself with --file.');
  if (!status.isFile()) throw refusal(file, 'is not a plain file', 'Name another with --file.');
  if (!mayWrite(status.uid, path.dirname(file)))
    throw refusal(file, 'belongs to another user', 'Run this as the user who owns it.');
  if ((status.mode & 0o002) !== 0)
    throw refusal(
      file,
      'is writable for everyone',
      'Remove that permission with chmod o-w, check the file, then run the command again.',
    );
  if (status.size > MAX_BYTES)
    throw refusal(file, `is larger than ${MAX_BYTES / 1024 / 1024} MiB`, 'Make the change by hand.');
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
    throw refusal(file, 'cannot be read as UTF-8 text', 'Correct it, or make the change by hand.');
  }
}

/** In a folder that everyone may write, another user decides what is there in the end. */
function checkFolder(folder: string): void {
  // A project that is cloned may bring `.vscode` or `servers` as a link to anywhere.
  if (lstatSync(folder, { throwIfNoEntry: false })?.isSymbolicLink() === true)
    throw refusal(
      folder,
      'is a link, so the text would be written elsewhere',
      'Name the file behind it with --file, or make it a folder.',
    );
  const status = statSync(folder, { throwIfNoEntry: false });
  const isOpen = status !== undefined && (status.mode & 0o002) !== 0 && (status.mode & 0o1000) === 0;
  if (isOpen) throw refusal(folder, 'is writable for everyone', 'Remove that permission with chmod o-w.');
}

/**
 * Backs up the files, then writes all of them. Returns the name of the backup. Throws USAGE if one changed meanwhile;
 * then nothing is written.
 */
export function writeChanges(
  changes: readonly FileChange[],
  { state, changer, now, secrets = [], of }: ChangeSet,
): string {
  for (const { file, before } of changes)
    if (readTarget(file) !== before)
      throw refusal(file, 'was changed meanwhile', 'Run the command again: nothing was written.');
  const files = changes.map(({ file, before, after }) => ({
    file,
    ...(before !== undefined && { before, mode: statSync(file).mode & 0o777 }),
    afterHash: hashOf(after),
  }));
  const folders = [...new Set(changes.flatMap(({ file }) => missingFolders(file)))].sort(
    (one, other) => other.length - one.length,
  );
  const name = `${new Date(now).toISOString().replace(/[:.]/g, '-')}-${changer}-${randomBytes(2).toString('hex')}`;
  writePrivate(
    path.join(folderOf(state), `${name}.json`),
    JSON.stringify({ files, secrets, folders, ...(of !== undefined && { of }) } satisfies Manifest),
  );
  const done: FileChange[] = [];
  try {
    for (const change of changes) {
      place(change.file, change.after);
      done.push(change);
    }
  } catch (thrown) {
    for (const { file, before } of done)
      if (before === undefined) captureWrite(file, undefined, () => unlinkSync(file));
      else place(file, before);
    for (const folder of folders) removeIfEmpty(folder);
    throw thrown;
  }
  return name;
}

/** What can be restored. `secrets` are still in the vault. */
export interface UndoPlan {
  readonly files: readonly string[];
  readonly secrets: readonly string[];
  readonly of: ChangeNames;
  readonly restore: () => void;
}

/**
 * Returns the last changes of this command, to be undone. Throws USAGE if there are none, if one of the files has
 * changed since, or if a later export removed servers from a client's file that would be lost then.
 */
export function openUndo(state: string, changer: Changer): UndoPlan {
  const backups = listBackups(state);
  const last = backups.findLast(({ name }) => name.includes(`-${changer}-`));
  if (last === undefined)
    throw new TollgateError('USAGE', {
      detail: `There is nothing to undo for ${changer}.`,
      next: 'Only what it wrote from this tollgate.yaml can be undone, once.',
    });
  const { files, secrets, of = { clients: [], servers: [] }, folders = [] } = readManifest(last);
  if (changer === 'import')
    refuseLostServers(
      backups.filter((one) => timeOf(one) >= timeOf(last)),
      of,
    );
  for (const { file, afterHash } of files) {
    const current = readTarget(file);
    if (current === undefined || hashOf(current) !== afterHash)
      throw refusal(
        file,
        'was changed since, and undoing would lose that change',
        'If `tollgate connect` replaced a server, undo that first. ' +
          `Otherwise restore it by hand: the former text is in ${last.file}.`,
      );
  }
  const restore = (): void => {
    for (const { file, before, mode } of files) {
      if (before === undefined) captureWrite(file, undefined, () => unlinkSync(file));
      else place(file, before, mode);
    }
    for (const folder of folders) removeIfEmpty(folder);
    rmSync(last.file);
  };
  return { files: files.map(({ file }) => file), secrets, of, restore };
}

function readManifest({ file }: Backup): Manifest {
  return JSON.parse(readPrivate(file) ?? '{"files": [], "secrets": []}') as Manifest;
}

/** The names of backups begin with it. */
function timeOf({ name }: Backup): string {
  return name.split('Z')[0] ?? '';
}

function refuseLostServers(later: readonly Backup[], { servers }: ChangeNames): void {
  const moved = later
    .filter(({ name }) => name.includes('-export-'))
    .flatMap((backup) => readManifest(backup).of?.servers ?? []);
  const lost = servers.filter((name) => moved.includes(name));
  if (lost.length > 0)
    throw new TollgateError('USAGE', {
      detail:
        `A later export removed servers from a client's file because Tollgate has them: ${lost.join(', ')}. ` +
        'Without the import they would be lost.',
      next: 'Restore them there first: tollgate export --undo',
    });
}

/** Returns the backups, the oldest first. They contain what the files contained, including keys. */
export function listBackups(state: string): readonly Backup[] {
  const folder = folderOf(state);
  const names = existsSync(folder)
    ? readdirSync(folder)
        .filter((name) => /-(import|export)-[0-9a-f]{4}\.json$/.test(name))
        .sort()
    : [];
  return names.map((name) => ({
    name: name.replace('.json', ''),
    file: path.join(folder, name),
    at: statSync(path.join(folder, name)).mtimeMs,
  }));
}

/** In one step: a client sees the old text or the new one. */
function place(file: string, text: string, mode?: number): void {
  try {
    replaceFile(file, text, mode);
  } catch (thrown) {
    throw refusal(
      file,
      `cannot be written (${(thrown as NodeJS.ErrnoException).code ?? 'unknown'})`,
      'Check the permissions of its folder.',
    );
  }
}

function folderOf(state: string): string {
  return path.join(state, 'backups');
}

function hashOf(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}

function refusal(file: string, why: string, next: string): TollgateError {
  return new TollgateError('USAGE', { detail: `${file} ${why}.`, next });
}
