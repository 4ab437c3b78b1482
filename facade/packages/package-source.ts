/** Pins and installs a package of any kind. */
import { mkdtempSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import type { InstallWorld } from './installer.ts';
import { installWithNpm, pinFromRegistry, pinFromSource } from './npm-package.ts';
import { pinImage } from './oci-image.ts';
import { knownOf, verifiedPackage } from './package-server.ts';
import type { PackageSpec } from './package-spec.ts';
import type { PinnedPackage } from './pinned-package.ts';
import { installWithPip, pinFromPypi } from './pypi-package.ts';

/** Where a package is pinned. */
export interface Pinning {
  /** The program, if the package has several. */
  readonly bin?: string;
  /** An existing folder for archives. They must stay until the package is installed. */
  readonly into: string;
}

/** Runs `work` with a folder for archives, which is removed afterwards. Throws what `work` throws. */
export async function withArchives<T>(work: (into: string) => Promise<T>): Promise<T> {
  const into = mkdtempSync(path.join(realpathSync(tmpdir()), 'tollgate-packages-'));
  // npm searches the folders above for a project, and reads the settings there. Others may write the temporary folder.
  writeFileSync(path.join(into, 'package.json'), '{"private": true}\n');
  try {
    return await work(into);
  } finally {
    rmSync(into, { recursive: true, force: true });
  }
}

/**
 * Finds the version of a package and what proves its content. The digest of the catalog counts for the version that it
 * verified. Runs none of the package's code. Throws INSTALL_FAILED, CANCELLED.
 */
export async function pinPackage(spec: PackageSpec, pinning: Pinning, world: InstallWorld): Promise<PinnedPackage> {
  if (spec.kind === 'oci') return pinImage(spec.image, world);
  if (spec.kind === 'git' || spec.kind === 'folder') return pinFromSource(spec, pinning, world);
  if (spec.kind === 'pypi') return pinFromPypi(spec, pinning, world);
  const found = await pinFromRegistry(spec, pinning, world);
  const known = knownOf(found);
  const verified = known === undefined ? undefined : verifiedPackage(known);
  return verified?.version === found.version ? { ...verified, bin: found.bin, notes: found.notes } : found;
}

/**
 * Installs a pinned package into a folder, which appears completely or not at all. Returns false if it was there. An
 * image is with its engine already. Throws INSTALL_FAILED, or CANCELLED after the signal.
 */
export async function installPackage(pinned: PinnedPackage, folder: string, world: InstallWorld): Promise<boolean> {
  if (pinned.kind === 'oci') return false;
  return pinned.kind === 'pypi' ? installWithPip(pinned, folder, world) : installWithNpm(pinned, folder, world);
}
