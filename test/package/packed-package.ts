/** Packs Tollgate and installs the package in empty folders, as `npx` does. */
import { execFileSync, spawnSync } from 'node:child_process';
import { lstatSync, mkdtempSync, readdirSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';

const ROOT = path.join(import.meta.dirname, '..', '..');

/** A packed package: the archive, the bytes of its files, and their paths in it. */
export interface PackedPackage {
  readonly archive: string;
  readonly bytes: number;
  readonly files: readonly string[];
}

let packed: PackedPackage | undefined;

/**
 * Packs the build of this folder with npm, once in a run. The archive is in the folder of temporary files of the run.
 */
export const packedPackage = (): PackedPackage => (packed ??= packPackage());

function packPackage(): PackedPackage {
  const folder = mkdtempSync(path.join(tmpdir(), 'packed-'));
  const printed = execFileSync('npm', ['pack', '--silent', '--json', '--pack-destination', folder], {
    cwd: ROOT,
    encoding: 'utf8',
  });
  const [packed] = JSON.parse(printed) as [
    { readonly filename: string; readonly unpackedSize: number; readonly files: readonly { readonly path: string }[] },
  ];
  return {
    archive: path.join(folder, packed.filename),
    bytes: packed.unpackedSize,
    files: packed.files.map((file) => file.path),
  };
}

/** Installs the archive in a new folder, with all scripts of packages permitted, and returns the folder. */
export function installPacked(archive: string, options: readonly string[] = []): string {
  const folder = mkdtempSync(path.join(path.dirname(archive), 'installed-'));
  writeFileSync(path.join(folder, 'package.json'), '{}');
  const words = ['install', '--silent', '--no-audit', '--no-fund', '--ignore-scripts=false', ...options, archive];
  const { status, stderr } = spawnSync('npm', words, { cwd: folder, encoding: 'utf8' });
  if (status !== 0) throw new Error(`npm install ended with ${status}: ${stderr}`);
  return folder;
}

/** Returns the bytes that a folder takes on the disk, as `du` counts them. */
export function bytesOnDisk(folder: string): number {
  return readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .map((name) => lstatSync(path.join(folder, name)).blocks * 512)
    .reduce((sum, bytes) => sum + bytes, 0);
}
