/**
 * Pins and installs packages with npm: from a registry, a repository or a folder. Refuses an archive whose digest is
 * another one, and runs no code of the package.
 */
import { existsSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { fetchCommit } from './git-repository.ts';
import { type InstallWorld, installFailure, runInstaller } from './installer.ts';
import type { NamedPackage, PackageSource } from './package-spec.ts';
import { makeFolder, type PinnedPackage } from './pinned-package.ts';

/** What npm tells about one version of a package. */
interface Manifest {
  readonly name: string;
  readonly version: string;
  readonly integrity: string;
  /** One program, or several by their names. */
  readonly bin?: string | Readonly<Record<string, string>>;
  readonly hasScripts: boolean;
  readonly deprecated?: string;
}

interface LockEntry {
  readonly version?: string;
  readonly integrity?: string;
  readonly bin?: Readonly<Record<string, string>>;
  readonly hasInstallScript?: boolean;
}

/**
 * npm would run an installation in each repository that a dependency names, with the `.npmrc` of that repository, which
 * can name a program as git. npm 10 does not know allow-git, so there is no git for it either.
 */
const NO_REPOSITORIES = ['--allow-git=none', '--git=/dev/null'];
const QUIET = ['--no-fund', '--no-audit', '--no-update-notifier', '--loglevel=error', ...NO_REPOSITORIES];
/** What a build makes must be there already if these would make it. */
const BUILD_SCRIPTS = ['prepare', 'prepack', 'build', 'prepublish'];
const INSTALL_SCRIPTS = ['preinstall', 'install', 'postinstall'];

/**
 * Finds the version, its digest and its program. `bin`: the program, if the package has several. Throws INSTALL_FAILED
 * for a package or a program that does not exist, CANCELLED.
 */
export async function pinFromRegistry(
  spec: NamedPackage,
  { bin, into }: { readonly bin?: string; readonly into: string },
  world: InstallWorld,
): Promise<PinnedPackage> {
  const wanted = `${spec.name}@${spec.version ?? 'latest'}`;
  const fields = ['name', 'version', 'dist.integrity', 'bin', 'scripts', 'deprecated'];
  const output = await runInstaller(
    {
      program: 'npm',
      args: ['view', wanted, ...fields, '--json', '--prefer-online', ...QUIET],
      cwd: into,
      what: `Looking up ${wanted}`,
    },
    world,
  );
  const found = output.trim() === '' ? undefined : ([JSON.parse(output) as ViewAnswer].flat().at(-1) as ViewAnswer);
  const integrity = found?.['dist.integrity'];
  if (found === undefined || integrity === undefined)
    throw installFailure(
      `The registry has no ${wanted} with a digest of its archive.`,
      'Check the name and the version of the package.',
    );
  const { deprecated, scripts = {} } = found;
  return pinnedOf(
    'npm',
    {
      name: found.name,
      version: found.version,
      integrity,
      ...(found.bin !== undefined && { bin: found.bin }),
      ...(deprecated !== undefined && { deprecated }),
      hasScripts: INSTALL_SCRIPTS.some((name) => scripts[name] !== undefined),
    },
    bin,
  );
}

interface ViewAnswer {
  readonly name: string;
  readonly version: string;
  readonly 'dist.integrity'?: string;
  readonly bin?: Manifest['bin'];
  readonly scripts?: Readonly<Record<string, string>>;
  readonly deprecated?: string;
}

/**
 * Packs a repository or a folder into an archive in `into`, so that it can be pinned by its digest. Its scripts do not
 * run, so what a build would make must be there already. Throws as `pinFromRegistry`.
 */
export async function pinFromSource(
  spec: PackageSource,
  { bin, into }: { readonly bin?: string; readonly into: string },
  world: InstallWorld,
): Promise<PinnedPackage> {
  const folder = spec.kind === 'git' ? await fetchCommit(spec, into, world) : spec.folder;
  const shown = spec.kind === 'git' ? spec.url : path.basename(spec.folder);
  const manifest = path.join(folder, 'package.json');
  if (statSync(manifest, { throwIfNoEntry: false }) === undefined)
    throw installFailure(
      `${shown} has no package.json, so npm cannot install it.`,
      'Name a package of npm, or configure the server by hand: docs/configuration.md.',
    );
  const packed = await runInstaller(
    {
      program: 'npm',
      args: ['pack', folder, '--json', '--ignore-scripts', '--pack-destination', into, ...QUIET],
      cwd: into,
      what: `Packing ${shown}`,
    },
    world,
  );
  const [archive] = JSON.parse(packed) as readonly PackAnswer[];
  if (archive === undefined) throw installFailure(`npm made no archive of ${shown}.`, 'Check its package.json.');
  const file = path.join(into, archive.filename.replace('@', '').replaceAll('/', '-'));
  const entry = await lockEntryOf(file, archive.name, world);
  const { version = '', integrity = '' } = entry;
  const pinned = pinnedOf(
    spec.kind,
    {
      name: archive.name,
      version: spec.kind === 'git' ? `${version}-${spec.commit.slice(0, 12)}` : `${version}-${digestWord(integrity)}`,
      integrity,
      ...(entry.bin !== undefined && { bin: entry.bin }),
      hasScripts: entry.hasInstallScript === true,
    },
    bin,
  );
  const builds = buildScriptsOf(manifest);
  if (!archive.files.some((one) => one.path === pinned.bin)) throw unbuilt(pinned, shown, builds);
  const note = `It has scripts that build it (${builds.join(', ')}). They do not run here.`;
  const notes = spec.kind === 'git' && builds.length > 0 ? [...pinned.notes, note] : pinned.notes;
  return { ...pinned, notes, from: file };
}

interface PackAnswer {
  readonly filename: string;
  readonly name: string;
  readonly files: readonly { readonly path: string }[];
}

/** Returns the error of a source without the file of its program. */
function unbuilt({ kind, bin }: PinnedPackage, shown: string, builds: readonly string[]): Error {
  const how =
    kind === 'git'
      ? 'Clone it at this commit, examine it, build it, and connect the folder: tollgate connect ./FOLDER'
      : 'Build it, for example with npm install and npm run build, and connect it again.';
  return builds.length === 0
    ? installFailure(`${shown} has no file ${bin}, its program.`, 'Correct bin and files in its package.json.')
    : installFailure(
        `${shown} has no file ${bin}, its program. Its scripts (${builds.join(', ')}) may make it, ` +
          'but no script of a package runs here.',
        how,
      );
}

/** Returns the names of the scripts that build a package. npm has read this file before. */
function buildScriptsOf(manifest: string): readonly string[] {
  const { scripts } = JSON.parse(readFileSync(manifest, 'utf8').replace(/^\uFEFF/, '')) as Pick<ViewAnswer, 'scripts'>;
  return BUILD_SCRIPTS.filter((name) => scripts?.[name] !== undefined);
}

/** The first letters of a digest, as a part of a folder's name. */
function digestWord(integrity: string): string {
  return integrity
    .replace(/^sha\d+-/, '')
    .replace(/[^A-Za-z0-9]/g, '')
    .slice(0, 8)
    .toLowerCase();
}

/** Returns what a lock file says of an archive. */
async function lockEntryOf(file: string, name: string, world: InstallWorld): Promise<LockEntry> {
  const folder = mkdtempSync(path.join(path.dirname(file), 'lock-'));
  try {
    writeFileSync(path.join(folder, 'package.json'), '{"private": true}\n');
    await runInstaller(
      {
        program: 'npm',
        args: ['install', '--package-lock-only', '--ignore-scripts', '--prefer-offline', file, ...QUIET],
        cwd: folder,
        what: `Reading ${name}`,
      },
      world,
    );
    return readLock(folder)[`node_modules/${name}`] ?? {};
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

function pinnedOf(kind: 'npm' | 'git' | 'folder', manifest: Manifest, wanted: string | undefined): PinnedPackage {
  const { name, version, integrity, hasScripts, deprecated } = manifest;
  return {
    kind,
    name,
    version,
    integrity,
    bin: programIn(manifest, wanted),
    notes: [
      ...(hasScripts
        ? ['It has scripts that run when it is installed. They do not run here, and it may miss them.']
        : []),
      ...(deprecated === undefined ? [] : [`Its author has deprecated it: ${deprecated.slice(0, 200)}`]),
    ],
  };
}

/**
 * Returns the file of the program: the named one, the only one, or the one with the package's own name, as npx chooses
 * it. Throws INSTALL_FAILED.
 */
function programIn({ name, bin }: Manifest, wanted: string | undefined): string {
  const own = name.replace(/^@[^/]*\//, '');
  const programs = typeof bin === 'string' ? { [own]: bin } : { ...bin };
  const names = Object.keys(programs);
  if (names.length === 0)
    throw installFailure(
      `${name} has no program (bin in its package.json), so it is no server that can be started.`,
      'Check the name of the package.',
    );
  const only = new Set(Object.values(programs)).size === 1 ? names[0] : undefined;
  const chosen = wanted ?? only ?? own;
  const file = Object.hasOwn(programs, chosen) ? programs[chosen] : undefined;
  if (file === undefined)
    throw installFailure(
      wanted === undefined
        ? `${name} has several programs: ${names.join(', ')}.`
        : `${name} has no program ${JSON.stringify(wanted.slice(0, 80))}; it has ${names.join(', ')}.`,
      `Name one with --bin, for example --bin ${names[0]}.`,
    );
  const inside = path.posix.normalize(file);
  if (!/^(?:\.\.(?:\/|$)|\/)/.test(inside)) return inside;
  throw installFailure(
    `The program of ${name} (bin in its package.json) is outside of the package: ${JSON.stringify(file.slice(0, 80))}.`,
    'Do not use it. Ask its authors.',
  );
}

/**
 * Installs a package and its dependencies, without running their scripts. The lock file stays in the folder. Returns
 * false if it was installed before. Throws INSTALL_FAILED, or CANCELLED after the signal, and then leaves no files.
 */
export async function installWithNpm(pinned: PinnedPackage, folder: string, world: InstallWorld): Promise<boolean> {
  if (existsSync(folder)) {
    checkInstalled(folder, pinned);
    return false;
  }
  await makeFolder(folder, async (part) => {
    const { name, version, asOf = '', from } = pinned;
    const wanted = from === undefined ? version : `file:${from}`;
    writeFileSync(
      path.join(part, 'package.json'),
      `${JSON.stringify({ private: true, dependencies: { [name]: wanted } })}\n`,
    );
    const before = /^\d{4}-\d\d-\d\d$/.test(asOf) ? [`--before=${asOf}T23:59:59Z`] : [];
    await runInstaller(
      {
        program: 'npm',
        args: ['install', '--ignore-scripts', '--save-exact', '--prefer-offline', ...QUIET, ...before],
        cwd: part,
        what: `Installing ${name} ${version}`,
      },
      world,
    );
    checkInstalled(part, pinned);
  });
  return true;
}

/** npm checks archives against the lock file, so its digest of the package must equal the pinned one. */
function checkInstalled(folder: string, { kind, name, version, integrity, bin }: PinnedPackage): void {
  const entry = readLock(folder)[`node_modules/${name}`];
  if ((kind === 'npm' && entry?.version !== version) || entry?.integrity !== integrity)
    throw installFailure(
      `The archive of ${name} ${version} is not the one that was verified: its digest is another one. ` +
        'None of its code was run.',
      'Do not use it. Examine the package, and ask its authors or the registry what happened.',
    );
  if (!existsSync(path.join(folder, 'node_modules', name, bin)))
    throw installFailure(
      `The installation of ${name} ${version} is incomplete: it has no ${bin}.`,
      `Remove the folder packages/${path.basename(path.dirname(folder))} in the state folder, and connect again.`,
    );
}

function readLock(folder: string): Readonly<Record<string, LockEntry>> {
  try {
    const lock = JSON.parse(readFileSync(path.join(folder, 'package-lock.json'), 'utf8')) as {
      readonly packages?: Readonly<Record<string, LockEntry>>;
    };
    return lock.packages ?? {};
  } catch {
    return {};
  }
}
