/**
 * Backups of files that Tollgate changed. Their texts may contain keys, so the vault encrypts them; names and hashes
 * stay readable.
 */
import { createHash, randomBytes } from 'node:crypto';
import { existsSync, readdirSync, rmSync, statSync } from 'node:fs';
import path from 'node:path';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { readPrivate, writePrivate } from '../../secrets/private-file.ts';
import type { Vault } from '../../secrets/vault.ts';
import type { ClientId } from '../client-formats.ts';

/** Which command made a set of changes; each undoes its own. */
export type Changer = 'import' | 'export' | 'setup';

/** The names in a set of changes that may be recorded: ids of clients, servers. */
export interface ChangeNames {
  readonly clients: readonly string[];
  readonly servers: readonly string[];
}

/** One file of a set of changes. */
export interface ChangedFile {
  readonly file: string;
  /** The client whose file it is; absent for a file of Tollgate. */
  readonly client?: ClientId;
  /** Permissions before; absent for a new file. */
  readonly mode?: number;
  /** SHA-256 of the new text, hex. */
  readonly afterHash: string;
}

/** What a backup tells without the key. */
export interface Manifest {
  readonly files: readonly ChangedFile[];
  /** Names of secrets that went into the vault with them. */
  readonly secrets: readonly string[];
  readonly of: ChangeNames;
  /** Folders that were made for the files, the deepest first. */
  readonly folders: readonly string[];
}

/** The texts of one file. `before` is absent for a new file. */
export interface FileTexts {
  readonly before?: string;
  readonly after: string;
}

/** One backup that is kept. */
export interface Backup {
  readonly name: string;
  readonly file: string;
  /** ms since 1970. */
  readonly at: number;
}

interface Stored extends Manifest {
  /** `FileTexts` of each file, as the vault encrypts them. */
  readonly sealed: string;
}

/** Stores a backup. Throws VAULT_FAILED. */
export async function storeBackup(
  { manifest, texts }: { readonly manifest: Manifest; readonly texts: readonly FileTexts[] },
  {
    state,
    changer,
    now,
    vault,
  }: { readonly state: string; readonly changer: Changer; readonly now: number; readonly vault: Vault },
): Promise<Backup> {
  const name = `${new Date(now).toISOString().replace(/[:.]/g, '-')}-${changer}-${randomBytes(2).toString('hex')}`;
  const sealed = await vault.seal(JSON.stringify(texts));
  const file = path.join(folderOf(state), `${name}.json`);
  writePrivate(file, JSON.stringify({ ...manifest, sealed } satisfies Stored));
  return { name, file, at: now };
}

/** Returns the backups, the oldest first. */
export function listBackups(state: string): readonly Backup[] {
  const folder = folderOf(state);
  const names = existsSync(folder)
    ? readdirSync(folder)
        .filter((name) => /-(import|export|setup)-[0-9a-f]{4}\.json$/.test(name))
        .sort()
    : [];
  return names.map((name) => ({
    name: name.replace('.json', ''),
    file: path.join(folder, name),
    at: statSync(path.join(folder, name)).mtimeMs,
  }));
}

/** Returns true if this command made the backup. */
export function isOf({ name }: Backup, changer: Changer): boolean {
  return name.includes(`-${changer}-`);
}

/** Throws VAULT_FAILED for a file that others can read. */
export function readManifest({ file }: Backup): Manifest {
  return read(file);
}

/** Returns the texts of the files of the manifest, in its order. Throws VAULT_FAILED without the key of the vault. */
export async function readTexts({ name, file }: Backup, vault: Vault): Promise<readonly FileTexts[]> {
  try {
    return JSON.parse(await vault.unseal(read(file).sealed)) as readonly FileTexts[];
  } catch (cause) {
    throw new TollgateError('VAULT_FAILED', {
      detail: `The backup ${name} cannot be opened with the key of the vault.`,
      next: 'Restore the key of the vault, or change the files by hand.',
      cause,
    });
  }
}

/** Deletes a backup that was restored. */
export function dropBackup({ file }: Backup): void {
  rmSync(file, { force: true });
}

/** SHA-256, hex. */
export function textHash(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}

function read(file: string): Stored {
  const stored = JSON.parse(readPrivate(file) ?? '{}') as Partial<Stored>;
  return { files: [], secrets: [], of: { clients: [], servers: [] }, folders: [], sealed: '', ...stored };
}

function folderOf(state: string): string {
  return path.join(state, 'backups');
}
