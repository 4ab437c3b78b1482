/**
 * Reads the name of a package as a person writes it: `npm:NAME@VERSION`, `pypi:NAME@VERSION`, `oci:IMAGE`,
 * `git:URL#COMMIT`, or the path of a folder.
 */
import path from 'node:path';
import { TollgateError } from '../../catalogs/errors/error-table.ts';

/** A package of a registry. Without a version, the newest one counts. */
export interface NamedPackage {
  readonly kind: 'npm' | 'pypi';
  readonly name: string;
  readonly version?: string;
  /** pypi: optional parts, separated by commas. */
  readonly extras?: string;
}

/** A package that npm packs from its source. `commit` has 40 hexadecimal digits; `folder` is absolute. */
export type PackageSource =
  | { readonly kind: 'git'; readonly url: string; readonly commit: string }
  | { readonly kind: 'folder'; readonly folder: string };

/** A package that is not pinned yet. */
export type PackageSpec = NamedPackage | PackageSource | { readonly kind: 'oci'; readonly image: string };

const NPM_NAME = /^(?:@[a-z0-9~-][a-z0-9._~-]{0,100}\/)?[a-z0-9~-][a-z0-9._~-]{0,213}$/i;
/** A version, a range or a tag. */
const NPM_VERSION = /^[\w.^~<>=|*+ -]{1,100}$/;
const PYPI_NAME = /^[a-z0-9](?:[a-z0-9._-]{0,100}[a-z0-9])?$/i;
const PYPI_VERSION = /^[a-z0-9][a-z0-9.!+_-]{0,60}$/i;
/** The registry and path, then a tag or a digest. */
const IMAGE = /^[a-z0-9][\w.:/-]{0,200}(?:@sha256:[0-9a-f]{64})?$/i;
const GIT_ADDRESS = /^(?:https|ssh):\/\/[^\s#'"$`]{1,500}$|^git@[\w.-]+:[\w./~-]{1,300}$/;

/**
 * Returns the package that a text names; undefined if the text has none of these forms. A relative folder starts at
 * `cwd`; both folders are absolute. Throws USAGE for a form that cannot be pinned.
 */
export function readPackageSpec(
  text: string,
  { cwd, home }: { readonly cwd: string; readonly home: string },
): PackageSpec | undefined {
  const [, prefix, rest = ''] = /^(npm|pypi|oci|git):(.*)$/s.exec(text) ?? [];
  if (prefix === 'npm') return readNpm(rest);
  if (prefix === 'pypi') return readPypi(rest);
  if (prefix === 'oci') return readImage(rest);
  if (prefix === 'git') return readGit(rest);
  if (!/^(?:\.{1,2}|~)?(?:\/|$)/.test(text) || text === '') return undefined;
  return { kind: 'folder', folder: path.resolve(cwd, text.replace(/^~(?=\/|$)/, home)) };
}

/** Reads `NAME`, `NAME@VERSION`. Throws USAGE. */
export function readNpm(text: string): NamedPackage {
  const [, name = '', version] = /^(@?[^@]*)(?:@(.*))?$/s.exec(text) ?? [];
  return readNamed('npm', { name, version }, [NPM_NAME, NPM_VERSION]);
}

/** Reads `NAME`, `NAME@VERSION`, `NAME[EXTRA]==VERSION`, as pip and uv write them. Throws USAGE. */
export function readPypi(text: string): NamedPackage {
  const [, name = '', extras, version] = /^([^@=[]*)(?:\[([^\]]*)\])?(?:@|==)?(.*)$/s.exec(text) ?? [];
  const read = readNamed('pypi', { name, version: version === '' ? undefined : version }, [PYPI_NAME, PYPI_VERSION]);
  if (extras === undefined) return read;
  if (extras.split(',').every((one) => PYPI_NAME.test(one))) return { ...read, extras };
  throw new TollgateError('USAGE', {
    detail: `${JSON.stringify(extras.slice(0, 80))} does not name extras of a package.`,
    next: `Write for example "pypi:${name}[cli]".`,
  });
}

function readNamed(
  kind: 'npm' | 'pypi',
  { name, version }: { readonly name: string; readonly version: string | undefined },
  [nameForm, versionForm]: readonly [RegExp, RegExp],
): NamedPackage {
  if (!nameForm.test(name))
    throw new TollgateError('USAGE', {
      detail: `${JSON.stringify(name.slice(0, 80))} is not the name of a package of ${kind}.`,
      next: `Write for example ${kind === 'npm' ? 'npm:@scope/name@1.2.3' : 'pypi:name@1.2.3'}.`,
    });
  if (version !== undefined && !versionForm.test(version))
    throw new TollgateError('USAGE', {
      detail: `${JSON.stringify(version.slice(0, 80))} is not a version of a package.`,
      next: `Write for example ${kind}:${name}@1.2.3.`,
    });
  return { kind, name, ...(version !== undefined && { version }) };
}

/** Reads the name of an image, with a tag, a digest or neither. Throws USAGE. */
export function readImage(image: string): PackageSpec {
  if (IMAGE.test(image)) return { kind: 'oci', image };
  throw new TollgateError('USAGE', {
    detail: `${JSON.stringify(image.slice(0, 80))} is not the name of an image.`,
    next: 'Write for example oci:ghcr.io/name/server:1.2.3.',
  });
}

function readGit(text: string): PackageSpec {
  const [, url = '', commit = ''] = /^([^#]*)#?(.*)$/s.exec(text) ?? [];
  if (!GIT_ADDRESS.test(url) || /^\w+:\/\/[^/]*@/.test(url.replace(/^ssh:\/\/git@/, 'ssh://')))
    throw new TollgateError('USAGE', {
      detail: 'The address of the repository is not https, ssh or git@HOST:PATH, or it contains a user.',
      next: 'Write for example git:https://github.com/name/server.git#COMMIT.',
    });
  if (!/^[0-9a-f]{40}$/.test(commit))
    throw new TollgateError('USAGE', {
      detail: 'The repository is given without a complete commit. A branch or a tag can move to other code.',
      next: `Add # and the 40 digits of the commit. \`git ls-remote ${url}\` prints those of its branches and tags.`,
    });
  return { kind: 'git', url, commit };
}
