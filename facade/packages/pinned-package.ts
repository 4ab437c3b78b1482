/** A package at one version with what proves its content, and the folder that holds it. */
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readdirSync, renameSync, rmSync, statSync } from 'node:fs';
import path from 'node:path';
import { removeIfEmpty } from '../config/reading/file-replacement.ts';

/** Where a package comes from. */
export type PackageKind = 'npm' | 'pypi' | 'oci' | 'git' | 'folder';

/** A package at one version. */
export interface PinnedPackage {
  readonly kind: PackageKind;
  readonly name: string;
  readonly version: string;
  /**
   * npm, git, folder: the hash of the archive (SRI). pypi: SHA-256 of the requirements with the hash of each file.
   * oci: the digest of the image.
   */
  readonly integrity: string;
  /** The text that a person connected it by, such as `npm:NAME`. */
  readonly source?: string;
  /** npm, git, folder: the file that Node runs, inside the package. pypi: the program. oci: empty. */
  readonly bin: string;
  /** oci: the command line of the image. Arguments of a user replace `cmd`. */
  readonly image?: { readonly entry: readonly string[]; readonly cmd: readonly string[] };
  /** npm: ISO date. The newest dependencies that were published by the end of that day are installed. */
  readonly asOf?: string;
  /** git and folder: the packed archive. pypi: the text of the requirements. Both are there until it is installed. */
  readonly from?: string;
  /** What the owner should know: scripts that do not run, a deprecation, another version of Node. */
  readonly notes: readonly string[];
}

/** Folders of packages that are being installed begin with this. */
const PART = '.part-';
/** A partial installation that has not changed for this time was killed, ms. */
const ABANDONED_MS = 86_400_000;

/** Returns the folder of one version of a server's package. */
export function packageFolder(state: string, server: string, version: string): string {
  return path.join(state, 'packages', server, version);
}

/** How a server starts, as its file writes it. */
export interface PackageStart {
  readonly command: string;
  readonly args: readonly string[];
  readonly isolation?: 'container';
  readonly image?: string;
}

/** Returns how the installed package of a server starts with arguments. */
export function packageStart(pinned: PinnedPackage, server: string, args: readonly string[]): PackageStart {
  const { kind, name, version, bin, image = { entry: [], cmd: [] } } = pinned;
  const folder = `\${stateFolder}/packages/${server}/${version}`;
  if (kind === 'oci') {
    const [command = '', ...rest] = [...image.entry, ...(args.length === 0 ? image.cmd : args)];
    return { command, args: rest, isolation: 'container', image: name };
  }
  if (kind === 'pypi') return { command: `${folder}/bin/${bin}`, args };
  return { command: 'node', args: [`${folder}/node_modules/${name}/${bin}`, ...args] };
}

/** Removes all versions of a server's package. Returns whether there were any. */
export function removePackages(state: string, server: string): boolean {
  const folder = path.join(state, 'packages', server);
  const existed = existsSync(folder);
  rmSync(folder, { recursive: true, force: true });
  removeIfEmpty(path.dirname(folder));
  return existed;
}

/**
 * Makes a folder completely or not at all: `fill` fills another one, which then gets its name. Whatever `fill` throws
 * is thrown, and nothing is left.
 */
export async function makeFolder(folder: string, fill: (part: string) => Promise<void>): Promise<void> {
  const parent = path.dirname(folder);
  mkdirSync(parent, { recursive: true, mode: 0o700 });
  for (const name of readdirSync(parent))
    if (name.startsWith(PART) && isAbandoned(path.join(parent, name)))
      rmSync(path.join(parent, name), { recursive: true, force: true });
  const part = mkdtempSync(path.join(parent, PART));
  try {
    await fill(part);
    // A sandbox of root runs as another user, and its view of the state folder is this folder alone.
    chmodSync(part, 0o755);
    moveInto(part, folder);
  } finally {
    rmSync(part, { recursive: true, force: true });
    for (const empty of [parent, path.dirname(parent)]) removeIfEmpty(empty);
  }
}

/** If another process installed the same package first, its folder is used: it comes from the same archive. */
function moveInto(part: string, folder: string): void {
  try {
    renameSync(part, folder);
  } catch (thrown) {
    if (!existsSync(folder)) throw thrown;
  }
}

/** Uses the age, not a process id: the installing process may run in another container, which has its own ids. */
function isAbandoned(part: string): boolean {
  return (statSync(part, { throwIfNoEntry: false })?.mtimeMs ?? Number.POSITIVE_INFINITY) < Date.now() - ABANDONED_MS;
}
