/**
 * Installs a server's package into the state folder before the first start of the server.
 * Refuses an archive whose digest differs from the catalog's, and runs no code of the package.
 */
import { spawn } from 'node:child_process';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import path from 'node:path';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { findHelper, HELPER_PATH, isHelperNamed } from '../../../catalogs/programs/helper-programs.ts';
import type { KnownPackage } from '../../../catalogs/servers/known-server.ts';
import { removeIfEmpty } from '../../config/reading/file-replacement.ts';

/** A package to install, and the folder for it. */
export interface Installation {
  readonly package: KnownPackage;
  /** ISO date. npm uses the newest dependencies that were published by the end of that day. */
  readonly asOf: string;
  /** Absolute path. The folder appears complete or not at all. */
  readonly folder: string;
}

/** The environment of an installation. `say` receives a progress line every few seconds. */
export interface InstallWorld {
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly say: (line: string) => void;
  /** Stops the installation. */
  readonly signal?: AbortSignal;
}

/** The variables that npm receives. It gets no others, because a variable may contain a credential. */
const SYSTEM_VARIABLES = /^(HOME|USER|LANG|LC_\w+|TMPDIR|SSL_CERT_\w+|NODE_EXTRA_CA_CERTS|(https?|no|all)_proxy)$/i;
const NPM_SETTINGS = /^npm_config_(?!.*(?:_auth|token|password))/i;
const TICK_MS = 5000;
/** A partial installation that has not changed for this time was killed, ms. */
const ABANDONED_MS = 86_400_000;

/** Returns the folder of one version of a server's package. */
export function packageFolder(state: string, server: string, version: string): string {
  return path.join(state, 'packages', server, version);
}

/**
 * Installs a package and its dependencies with npm, without running their scripts. The lock file stays in the folder.
 * Returns false if the package was already installed. Throws INSTALL_FAILED, or CANCELLED after the signal, and then
 * leaves no files.
 */
export async function installPackage(installation: Installation, world: InstallWorld): Promise<boolean> {
  const { folder, package: wanted } = installation;
  if (existsSync(folder)) {
    checkInstalled(folder, wanted);
    return false;
  }
  const parent = path.dirname(folder);
  mkdirSync(parent, { recursive: true, mode: 0o700 });
  // Remove the files of installations that were killed.
  for (const name of readdirSync(parent))
    if (name.startsWith('.part-') && isAbandoned(path.join(parent, name)))
      rmSync(path.join(parent, name), { recursive: true, force: true });
  const part = mkdtempSync(path.join(parent, '.part-'));
  try {
    writeFileSync(
      path.join(part, 'package.json'),
      `${JSON.stringify({ private: true, dependencies: { [wanted.name]: wanted.version } })}\n`,
    );
    await runNpm(part, installation, world);
    checkInstalled(part, wanted);
    moveInto(part, folder);
  } finally {
    rmSync(part, { recursive: true, force: true });
    for (const empty of [parent, path.dirname(parent)]) removeIfEmpty(empty);
  }
  return true;
}

/** npm checks archives against the lock file, so its version and digest of the package must equal the catalog's. */
function checkInstalled(folder: string, { name, version, integrity, bin }: KnownPackage): void {
  const lock = readLock(path.join(folder, 'package-lock.json'));
  const entry = lock.packages?.[`node_modules/${name}`];
  if (entry?.version !== version || entry.integrity !== integrity) {
    throw new TollgateError('INSTALL_FAILED', {
      detail:
        `The archive of ${name} ${version} is not the one that was verified: its digest differs from the catalog's. ` +
        'None of its code was run.',
      next: 'Do not use it. Examine the package, and ask its authors or the registry what happened.',
    });
  }
  if (!existsSync(path.join(folder, 'node_modules', name, bin)))
    throw new TollgateError('INSTALL_FAILED', {
      detail: `The installation of ${name} ${version} is incomplete: it has no ${bin}.`,
      next: `Remove the folder packages/${path.basename(path.dirname(folder))} in the state folder, and connect again.`,
    });
}

interface Lock {
  readonly packages?: Readonly<Record<string, { readonly version?: string; readonly integrity?: string }>>;
}

function readLock(file: string): Lock {
  try {
    return JSON.parse(readFileSync(file, 'utf8')) as Lock;
  } catch {
    return {};
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

/**
 * Returns the npm that the owner names, or the one of the running Node.js.
 * An attacker who can replace the latter can already replace Node.js.
 */
function npmProgram(): string {
  const bundled = path.join(path.dirname(process.execPath), 'npm');
  return (!isHelperNamed('npm') && existsSync(bundled) ? bundled : findHelper('npm')) ?? '/nonexistent/npm';
}

function npmArguments(asOf: string): string[] {
  const quiet = ['--no-fund', '--no-audit', '--no-update-notifier', '--loglevel=error'];
  const before = /^\d{4}-\d\d-\d\d$/.test(asOf) ? [`--before=${asOf}T23:59:59Z`] : [];
  return ['install', '--ignore-scripts', '--save-exact', '--prefer-offline', ...quiet, ...before];
}

function runNpm(
  cwd: string,
  { package: { name, version }, asOf }: Installation,
  { env, say, signal }: InstallWorld,
): Promise<void> {
  const passed = Object.fromEntries(
    Object.entries(env).filter(([key]) => SYSTEM_VARIABLES.test(key) || NPM_SETTINGS.test(key)),
  );
  const began = Date.now();
  return new Promise((resolve, reject) => {
    const ticker = setInterval(
      () => say(`Installing ${name} ${version}: ${Math.round((Date.now() - began) / 1000)} s …`),
      TICK_MS,
    );
    const child = spawn(npmProgram(), npmArguments(asOf), {
      cwd,
      env: { ...passed, PATH: `${path.dirname(process.execPath)}:${HELPER_PATH}` },
      stdio: ['ignore', 'ignore', 'pipe'],
      ...(signal !== undefined && { signal }),
    });
    let errors = '';
    child.stderr.on('data', (chunk: Buffer) => (errors = (errors + chunk.toString('utf8')).slice(-2000)));
    const fail = ({ why, next }: NpmFailure): void =>
      reject(new TollgateError('INSTALL_FAILED', { detail: `${name} ${version} was not installed: ${why}.`, next }));
    child.once('error', (thrown: NodeJS.ErrnoException) => {
      // After the signal, wait for `close`: npm writes until it ends.
      if (signal?.aborted === true) return;
      clearInterval(ticker);
      fail(startFailure(thrown));
    });
    child.once('exit', (_code, killed) => {
      // A terminal sends Ctrl-C to npm too, and npm may end before this process handles the signal.
      if (signal?.aborted === true || killed === 'SIGINT') reject(cancelled());
    });
    child.once('close', (code) => {
      clearInterval(ticker);
      if (code === 0) resolve();
      else
        fail({
          why: `npm ended with ${code ?? 'a signal'}${reasonOf(errors)}`,
          next: 'Correct what npm reports, such as the network or the registry, and connect again.',
        });
    });
  });
}

interface NpmFailure {
  readonly why: string;
  readonly next: string;
}

function startFailure(thrown: NodeJS.ErrnoException): NpmFailure {
  return thrown.code === 'ENOENT'
    ? {
        why: 'there is no npm next to Node.js or in the system folders',
        next: 'Install npm, which comes with Node.js, or name it (programs.npm in tollgate.yaml), and connect again.',
      }
    : {
        why: `npm could not be started (${thrown.code ?? 'unknown'})`,
        next: 'Connect again. Finished steps are kept.',
      };
}

function cancelled(): TollgateError {
  return new TollgateError('CANCELLED', {
    detail: 'Stopped by a signal. Nothing was kept.',
    next: 'Run it again when you want it.',
  });
}

/** Returns npm's first error line. It may name local folders, which the person who runs the command may see. */
function reasonOf(errors: string): string {
  const line = errors
    .split('\n')
    .map((one) => one.replace(/^npm (?:error|ERR!)\s*/, '').trim())
    .find((one) => one !== '' && !one.startsWith('npm warn'));
  return line === undefined ? '' : ` (${line.slice(0, 200)})`;
}
