/**
 * The manifest of a folder of chain files: where chains begin whose first files are elsewhere, and what an archive
 * contains. It counts only if the key of the state folder signed it.
 */
import { createHash } from 'node:crypto';
import fs from 'node:fs';
import { join } from 'node:path';
import { unlessMissing } from '../../catalogs/readers/missing-files.ts';
import { readCompressed } from './compressed-file.ts';

/** Name of the file, in the folder of a log and of an archive. */
export const MANIFEST = 'archive.json';
/** A prefix of what is digested, so that no digest of a call is of such a text. */
const DOMAIN = 'tollgate-audit-manifest\0';

/** Keyed digest, see key-files.ts. */
export type Digest = (text: string) => string;

/**
 * The chain of `file` begins there in this folder. It follows `before`, which is elsewhere and ended with record `seq`
 * and the hash `head`.
 */
export interface ChainStart {
  readonly file: string;
  readonly before: string;
  readonly seq: number;
  readonly head: string;
}

/** A file that was moved into an archive. */
export interface ArchivedFile {
  readonly file: string;
  readonly bytes: number;
  readonly sha256: string;
  /** The last record of a chain file; 0 for a torn end that was cut. */
  readonly records: number;
}

/**
 * What the manifest of a log says of one archive. `seal` is the seal of the archive's own manifest, '' before there
 * is one: then only the folder identifies the archive. `next` is the seal that a move is about to write, or has just
 * written. Times are ISO.
 */
export interface Archive {
  readonly folder: string;
  readonly seal: string;
  readonly next?: string;
  readonly at: string;
  /** All moved records are older. */
  readonly before: string;
  readonly files: number;
  readonly records: number;
}

/** The content of a manifest: `archives` and `leaving` for a log, `held` for an archive. */
export interface ArchiveManifest {
  readonly v: 1;
  /** For an archive: random, so that two archives with the same files have different seals. */
  readonly id?: string;
  readonly starts: readonly ChainStart[];
  readonly archives: readonly Archive[];
  readonly held: readonly ArchivedFile[];
  /** Files that are archived and about to be removed. One that is still there does not count. */
  readonly leaving: readonly string[];
  /** Every file that an archive ever took: the signed records of these files may be elsewhere. */
  readonly moved?: readonly string[];
}

/** The manifest of a folder that has none. */
export const NO_MANIFEST: ArchiveManifest = { v: 1, starts: [], archives: [], held: [], leaving: [] };

/**
 * A manifest that was read. `fault`: why it does not count; the manifest is empty then. `seal`: '' if there is
 * none.
 */
export interface FoundManifest {
  readonly manifest: ArchiveManifest;
  readonly seal: string;
  readonly fault?: string;
}

/** Reads the manifest of a folder. Throws what node:fs throws. */
export function readArchiveManifest(folder: string, digest: Digest | undefined): FoundManifest {
  const text = unlessMissing(() => fs.readFileSync(join(folder, MANIFEST), 'utf8'));
  if (text === undefined) return { manifest: NO_MANIFEST, seal: '' };
  const refused = (fault: string): FoundManifest => ({ manifest: NO_MANIFEST, seal: '', fault });
  if (digest === undefined)
    return refused(
      'the manifest could not be checked, so it does not count: ' +
        'name the key of its state folder with --key FILE (audit.key)',
    );
  try {
    const { manifest, seal } = JSON.parse(text) as { readonly manifest: ArchiveManifest; readonly seal: string };
    if (archiveSeal(manifest, digest) !== seal) return refused('the manifest was changed, or is under another key');
    return manifest.v === 1 ? { manifest, seal } : refused('the manifest is of a newer Tollgate');
  } catch {
    return refused('the manifest cannot be read');
  }
}

/** Writes it completely or not at all. It is on the disk when this returns. Throws what node:fs throws. */
export function writeArchiveManifest(folder: string, manifest: ArchiveManifest, digest: Digest): void {
  const path = join(folder, MANIFEST);
  const seal = archiveSeal(manifest, digest);
  fs.writeFileSync(`${path}.${process.pid}`, `${JSON.stringify({ manifest, seal })}\n`, { mode: 0o600, flush: true });
  fs.renameSync(`${path}.${process.pid}`, path);
  syncFolder(folder);
}

/** The keyed digest of a manifest. */
export function archiveSeal(manifest: ArchiveManifest, digest: Digest): string {
  return digest(`${DOMAIN}${JSON.stringify(manifest)}`);
}

/**
 * Returns whether a log refers to the archive in this folder, in its present state. `found` is the seal that is there,
 * '' for none.
 */
export function isSameArchive({ folder, seal, next }: Archive, path: string, found: string): boolean {
  return found === '' ? seal === '' && folder === path : found === seal || found === next;
}

/** Writes the names in a folder to the disk. */
export function syncFolder(folder: string): void {
  const fd = fs.openSync(folder, 'r');
  try {
    fs.fsyncSync(fd);
  } finally {
    fs.closeSync(fd);
  }
}

const CHUNK_BYTES = 1024 * 1024;

/** Returns the size and SHA-256 of a file; undefined if there is none. Throws what node:fs throws. */
export function digestFile(path: string): { readonly bytes: number; readonly sha256: string } | undefined {
  const fd = unlessMissing(() => fs.openSync(path, 'r'));
  if (fd === undefined) return digestCompressed(path);
  try {
    const hash = createHash('sha256');
    const chunk = Buffer.allocUnsafe(CHUNK_BYTES);
    let bytes = 0;
    for (let read = fs.readSync(fd, chunk); read > 0; read = fs.readSync(fd, chunk)) {
      hash.update(chunk.subarray(0, read));
      bytes += read;
    }
    return { bytes, sha256: hash.digest('hex') };
  } finally {
    fs.closeSync(fd);
  }
}

/** A file that is damaged has no digest that matches. */
function digestCompressed(path: string): { readonly bytes: number; readonly sha256: string } | undefined {
  try {
    const content = readCompressed(path);
    return content && { bytes: content.length, sha256: createHash('sha256').update(content).digest('hex') };
  } catch {
    return { bytes: 0, sha256: '' };
  }
}
