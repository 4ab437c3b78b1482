/**
 * Pins and installs packages of Python in a virtual environment: only wheels, each with its hash, so that no code of a
 * package runs.
 */
import { createHash } from 'node:crypto';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { type InstallWorld, installFailure, runInstaller } from './installer.ts';
import type { NamedPackage } from './package-spec.ts';
import { makeFolder, type PinnedPackage } from './pinned-package.ts';

/** The part of pip's report that is read. */
interface PipReport {
  readonly install: readonly {
    readonly metadata: { readonly name: string; readonly version: string };
    readonly download_info: {
      readonly url: string;
      readonly archive_info?: { readonly hashes?: { readonly sha256?: string } };
    };
    readonly requested?: boolean;
  }[];
}

const WHEELS = '--only-binary=:all:';
const QUIET = ['--quiet', '--no-input', '--disable-pip-version-check'];
const REQUIREMENTS = 'requirements.txt';
/** The Python that looks packages up, one for each run of a command. Making one takes seconds. */
const lookups = new WeakMap<InstallWorld, Promise<string>>();

/**
 * Finds the version, and the hash of the package and of all that it needs. `bin`: the program, if it is not called like
 * the package. `into`: a folder for what pip downloads. Throws INSTALL_FAILED for a package that does not exist, was
 * withdrawn (yanked) or has no wheel; CANCELLED.
 */
export async function pinFromPypi(
  spec: NamedPackage,
  { bin, into }: { readonly bin?: string; readonly into: string },
  world: InstallWorld,
): Promise<PinnedPackage> {
  const { name, extras, version = 'latest' } = spec;
  const wanted = `${name}${extras === undefined ? '' : `[${extras}]`}${version === 'latest' ? '' : `==${version}`}`;
  const folder = mkdtempSync(path.join(into, 'pip-'));
  try {
    const made = lookups.get(world) ?? makeEnvironment(path.join(into, 'python'), wanted, world);
    lookups.set(world, made);
    const python = await made;
    const report = path.join(folder, 'report.json');
    let warnings = '';
    await runInstaller(
      {
        program: 'python3',
        file: python,
        args: ['-m', 'pip', 'install', '--dry-run', '--ignore-installed', WHEELS, '--report', report, ...QUIET, wanted],
        cwd: folder,
        what: `Looking up ${wanted}`,
        warned: (text) => (warnings = text),
      },
      world,
    ).catch((thrown: unknown) => {
      throw /Could not find a version|No matching distribution/.test(warnings) ? noWheel(wanted) : thrown;
    });
    const { install } = JSON.parse(readFileSync(report, 'utf8')) as PipReport;
    refuseWarned(warnings);
    return pinnedOf(install, wanted, bin);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

function noWheel(wanted: string): Error {
  return installFailure(
    `The index has no ${wanted} with a wheel for this machine and its Python.`,
    'Check the name and the version. A package of sources only is not installed, because its build would run its code.',
  );
}

function digestOf(content: string | Buffer): string {
  return createHash('sha256').update(content).digest('hex');
}

/** pip installs a withdrawn version if it is asked for exactly, and leaves out an unknown extra. It only warns. */
function refuseWarned(warnings: string): void {
  const [, whole, extra] = /WARNING: (\S+ \S+) does not provide the extra '([^']*)'/.exec(warnings) ?? [];
  if (extra !== undefined) throw installFailure(`${whole} has no extra ${extra}.`, 'Check the name between [ and ].');
  const [, name = '', version = ''] = /yanked version: '([^']*)' candidate \(version (\S+) /.exec(warnings) ?? [];
  if (name === '') return;
  const [, reason = ''] = /Reason for being yanked: (.*)/.exec(warnings) ?? [];
  const why = /^(?:<none given>)?$/.test(reason.trim()) ? '' : `: ${reason.trim().slice(0, 200)}`;
  throw installFailure(
    `Its authors have withdrawn ${name} ${version} (yanked)${why}.`,
    `Take another version: pypi:${name}@VERSION, or pypi:${name} for the newest one.`,
  );
}

function pinnedOf(install: PipReport['install'], wanted: string, bin: string | undefined): PinnedPackage {
  const own = install.find(({ requested }) => requested === true);
  if (own === undefined) throw installFailure(`pip found no ${wanted}.`, 'Check the name and the version.');
  const { name, version } = own.metadata;
  const lines = install.map(({ metadata, download_info: { url, archive_info: archive } }) => {
    // pip gives no hash of a file of this machine (PIP_FIND_LINKS).
    const hash = url.startsWith('file:') ? digestOf(readFileSync(fileURLToPath(url))) : archive?.hashes?.sha256;
    if (hash === undefined)
      throw installFailure(`The index gives no hash of ${metadata.name} ${metadata.version}.`, 'Use another index.');
    return `${metadata.name}==${metadata.version} --hash=sha256:${hash}`;
  });
  const text = `${lines.sort().join('\n')}\n`;
  const integrity = `sha256:${digestOf(text)}`;
  return { kind: 'pypi', name, version, integrity, bin: bin ?? name, from: text, notes: [] };
}

/**
 * Installs the files of the requirements, each with the hash that it must have. Returns false if exactly these were
 * installed before. Throws INSTALL_FAILED, or CANCELLED after the signal, and then changes no files.
 */
export async function installWithPip(pinned: PinnedPackage, folder: string, world: InstallWorld): Promise<boolean> {
  const { name, version, from = '' } = pinned;
  const before = path.join(folder, REQUIREMENTS);
  if (existsSync(before) && readFileSync(before, 'utf8') === from) {
    checkProgram(folder, pinned);
    return false;
  }
  await makeFolder(folder, async (part) => {
    const python = await makeEnvironment(part, name, world);
    writeFileSync(path.join(part, REQUIREMENTS), from);
    await runInstaller(
      {
        program: 'python3',
        file: python,
        args: ['-m', 'pip', 'install', '--require-hashes', '--no-deps', WHEELS, ...QUIET, '-r', REQUIREMENTS],
        cwd: part,
        what: `Installing ${name} ${version}`,
      },
      world,
    );
    namePlace(part, folder);
    checkProgram(part, pinned);
    // The same version with other files: other extras, or a newer version of what it needs.
    rmSync(folder, { recursive: true, force: true });
  });
  return true;
}

function checkProgram(folder: string, { name, version, bin }: PinnedPackage): void {
  const programs = readdirSync(path.join(folder, 'bin')).filter((file) => !/^(?:activate|pip|python)/i.test(file));
  if (programs.includes(bin)) return;
  const others = programs.length === 0 ? '' : `; it and what it needs have ${programs.join(', ')}`;
  throw installFailure(
    `${name} ${version} has no program ${bin}${others}.`,
    programs.length === 0 ? 'Check the name of the package.' : `Name one with --bin, for example --bin ${programs[0]}.`,
  );
}

/** Makes a virtual environment; returns its Python. */
async function makeEnvironment(folder: string, what: string, world: InstallWorld): Promise<string> {
  await runInstaller(
    {
      program: 'python3',
      args: ['-m', 'venv', folder],
      cwd: path.dirname(folder),
      what: `Preparing Python for ${what}`,
    },
    world,
  );
  return path.join(folder, 'bin', 'python');
}

/** The programs of an environment name its folder in their first lines. */
function namePlace(part: string, folder: string): void {
  const bin = path.join(part, 'bin');
  for (const name of readdirSync(bin)) {
    const file = path.join(bin, name);
    const text = /^python/.test(name) ? '' : readFileSync(file, 'utf8');
    if (text.includes(part)) writeFileSync(file, text.replaceAll(part, folder));
  }
}
