/** Owns the installation of a server's package ahead of its first start, in the state folder; refuses an archive that is not the one of the catalog, and runs nothing of it. */
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

/** What is installed, and where. */
export interface Installation {
  readonly package: KnownPackage;
  /** ISO date: what the package depends on is taken as of the end of that day. */
  readonly asOf: string;
  /** Absolute; it appears whole or not at all. */
  readonly folder: string;
}

/** What an installation may use. `say` gets a line now and then. */
export interface InstallWorld {
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly say: (line: string) => void;
  /** Ends it early. */
  readonly signal?: AbortSignal;
}

/** What npm needs of our environment; a credential that a person keeps in a variable is none of its business. */
const PASSED =
  /^(HOME|USER|LANG|LC_\w+|TMPDIR|SSL_CERT_\w+|NODE_EXTRA_CA_CERTS|https?_proxy|no_proxy|all_proxy|npm_config_(?!.*(?:_auth|token|password)).*)$/i;
const TICK_MS = 5000;
/** An installation that has not changed for so long was killed, ms. */
const LEFT_MS = 86_400_000;

/** Folder of one version of one server's package. */
export function packageFolder(state: string, server: string, version: string): string {
  return path.join(state, 'packages', server, version);
}

/**
 * Installs a package with its dependencies by npm, without running any of their scripts; the lock file stays beside them. False when it
 * was there already. Throws INSTALL_FAILED, or CANCELLED by the signal, and then leaves nothing.
 */
export async function installPackage(installation: Installation, world: InstallWorld): Promise<boolean> {
  const { folder, package: wanted } = installation;
  if (existsSync(folder)) {
    checkInstalled(folder, wanted);
    return false;
  }
  const parent = path.dirname(folder);
  mkdirSync(parent, { recursive: true, mode: 0o700 });
  // What an installation that was killed has left.
  for (const name of readdirSync(parent))
    if (name.startsWith('.part-') && isLeft(path.join(parent, name)))
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

/** The lock file is what npm checked the archives against; what it names for the package must be what the catalog names. */
function checkInstalled(folder: string, { name, version, integrity, bin }: KnownPackage): void {
  const lock = readLock(path.join(folder, 'package-lock.json'));
  const entry = lock.packages?.[`node_modules/${name}`];
  if (entry?.version !== version || entry.integrity !== integrity) {
    throw new TollgateError('INSTALL_FAILED', {
      detail: `The archive of ${name} ${version} is not the one that was verified: its digest differs from the catalog's. Nothing of it was run.`,
      next: 'Do not use it. Look at the package, and ask its authors or the registry what happened.',
    });
  }
  if (!existsSync(path.join(folder, 'node_modules', name, bin)))
    throw new TollgateError('INSTALL_FAILED', {
      detail: `${name} ${version} is not there as it was installed: it has no ${bin}.`,
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

/** Of two processes that install the same, one comes first; the other finds its folder, made of the same archive. */
function moveInto(part: string, folder: string): void {
  try {
    renameSync(part, folder);
  } catch (thrown) {
    if (!existsSync(folder)) throw thrown;
  }
}

/** The age tells: a process that installs may run in another container, under a number that is another's here. */
function isLeft(part: string): boolean {
  return (statSync(part, { throwIfNoEntry: false })?.mtimeMs ?? Number.POSITIVE_INFINITY) < Date.now() - LEFT_MS;
}

/** Named by the owner, or installed with the Node.js that runs us: whoever can change that one has us already. */
function npmProgram(): string {
  const beside = path.join(path.dirname(process.execPath), 'npm');
  return (!isHelperNamed('npm') && existsSync(beside) ? beside : findHelper('npm')) ?? '/nonexistent/npm';
}

function runNpm(
  cwd: string,
  { package: { name, version }, asOf }: Installation,
  { env, say, signal }: InstallWorld,
): Promise<void> {
  const before = /^\d{4}-\d\d-\d\d$/.test(asOf) ? [`--before=${asOf}T23:59:59Z`] : [];
  const args = [
    'install',
    '--ignore-scripts',
    '--save-exact',
    '--no-fund',
    '--no-audit',
    '--no-update-notifier',
    '--prefer-offline',
    '--loglevel=error',
    ...before,
  ];
  const own = Object.fromEntries(Object.entries(env).filter(([key]) => PASSED.test(key)));
  const began = Date.now();
  return new Promise((resolve, reject) => {
    const ticker = setInterval(
      () => say(`Installing ${name} ${version}: ${Math.round((Date.now() - began) / 1000)} s …`),
      TICK_MS,
    );
    const child = spawn(npmProgram(), args, {
      cwd,
      env: { ...own, PATH: `${path.dirname(process.execPath)}:${HELPER_PATH}` },
      stdio: ['ignore', 'ignore', 'pipe'],
      ...(signal !== undefined && { signal }),
    });
    let words = '';
    child.stderr.on('data', (chunk: Buffer) => (words = (words + chunk.toString('utf8')).slice(-2000)));
    const fail = (why: string, next: string): void =>
      reject(new TollgateError('INSTALL_FAILED', { detail: `${name} ${version} was not installed: ${why}.`, next }));
    child.once('error', (thrown: NodeJS.ErrnoException) => {
      // Its end is waited for: until then it still writes.
      if (signal?.aborted === true) return;
      clearInterval(ticker);
      if (thrown.code === 'ENOENT')
        fail(
          'there is no npm beside Node.js or in the folders of the system',
          'Install npm, which comes with Node.js, or name it (programs.npm in tollgate.yaml), and connect again.',
        );
      else
        fail(`npm could not be started (${thrown.code ?? 'unknown'})`, 'Connect again; what is done already is kept.');
    });
    child.once('exit', (_code, killed) => {
      // A terminal sends its Ctrl-C to npm too, which may end before we know of it.
      if (signal?.aborted === true || killed === 'SIGINT')
        reject(
          new TollgateError('CANCELLED', {
            detail: 'Stopped by a signal; nothing of it was kept.',
            next: 'Connect again when you want it.',
          }),
        );
    });
    child.once('close', (code) => {
      clearInterval(ticker);
      if (code === 0) resolve();
      else
        fail(
          `npm ended with ${code ?? 'a signal'}${reasonOf(words)}`,
          'Mend what npm names, such as the network or the registry, and connect again.',
        );
    });
  });
}

/** The first word of npm on what went wrong. Its lines may name folders of this machine, which are no secret from whoever started it. */
function reasonOf(words: string): string {
  const line = words
    .split('\n')
    .map((one) => one.replace(/^npm (?:error|ERR!)\s*/, '').trim())
    .find((one) => one !== '' && !one.startsWith('npm warn'));
  return line === undefined ? '' : ` (${line.slice(0, 200)})`;
}
