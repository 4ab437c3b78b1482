/**
 * Runs programs that download and install: npm, git, Python and container engines. They get no secret of this process,
 * can be stopped, and their errors are told in one line.
 */
import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import path from 'node:path';
import type { FindContainerClient } from '../../adapters/port.ts';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { findHelper, HELPER_PATH, type HelperName, isHelperNamed } from '../../catalogs/programs/helper-programs.ts';

/** The environment of an installation. `say` receives a progress line every few seconds. */
export interface InstallWorld {
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly say: (line: string) => void;
  readonly containerClient: FindContainerClient;
  /** Stops the installation. */
  readonly signal?: AbortSignal;
}

/** One run of an installer. */
export interface InstallerRun {
  readonly program: InstallerName;
  readonly args: readonly string[];
  readonly cwd: string;
  /** What is fetched or installed, as messages name it. */
  readonly what: string;
  /** Runs this file instead of the program of that name. */
  readonly file?: string;
  /** More variables of the program. */
  readonly env?: Readonly<Record<string, string>>;
  /** Receives what the program wrote to stderr, at most its last 4000 characters. */
  readonly warned?: (text: string) => void;
}

/** The programs that install. */
export type InstallerName = Extract<HelperName, 'npm' | 'python3' | 'podman' | 'docker' | 'git'>;

/** The variables that installers receive. They get no others, because a variable may contain a credential. */
const SYSTEM_VARIABLES =
  /^(HOME|USER|LANG|LC_\w+|TMPDIR|XDG_\w+|SSL_CERT_\w+|NODE_EXTRA_CA_CERTS|(https?|no|all)_proxy)$/i;
const SETTINGS: Readonly<Record<InstallerName, RegExp>> = {
  npm: /^npm_config_(?!.*(?:_auth|token|password))/i,
  python3: /^pip_(?!.*(?:token|password))/i,
  git: /^(?:SSH_AUTH_SOCK|GIT_SSL_CA(?:INFO|PATH))$/,
  podman: /^CONTAINERS?_/,
  docker: /^DOCKER_(?!.*(?:token|password))/,
};
const MISSING: Readonly<Record<InstallerName, { readonly why: string; readonly how: string }>> = {
  npm: {
    why: 'there is no npm next to Node.js or in the system folders',
    how: 'Install npm, which comes with Node.js',
  },
  python3: { why: 'there is no python3 in the system folders', how: 'Install Python 3 with its modules venv and pip' },
  git: { why: 'there is no git in the system folders', how: 'Install git' },
  podman: { why: 'there is no Podman in the system folders', how: 'Install Podman' },
  docker: { why: 'there is no Docker in the system folders', how: 'Install Docker' },
};
const TICK_MS = 5000;
/** The most output that is kept, in characters. */
const MOST_OUTPUT = 16 * 1024 * 1024;

/**
 * Runs an installer, and returns what it printed. Throws INSTALL_FAILED with the first line of its error, CANCELLED
 * after the signal.
 */
export function runInstaller(run: InstallerRun, { env, say, signal }: InstallWorld): Promise<string> {
  const { program, args, cwd, what } = run;
  const passed = Object.fromEntries(
    Object.entries(env).filter(([key]) => SYSTEM_VARIABLES.test(key) || SETTINGS[program].test(key)),
  );
  const began = Date.now();
  return new Promise((resolve, reject) => {
    const ticker = setInterval(() => say(`${what}: ${Math.round((Date.now() - began) / 1000)} s …`), TICK_MS);
    const child = spawn(run.file ?? programOf(program), args, {
      cwd,
      env: { ...passed, ...run.env, PATH: `${path.dirname(process.execPath)}:${HELPER_PATH}` },
      stdio: ['ignore', 'pipe', 'pipe'],
      ...(signal !== undefined && { signal }),
    });
    let [output, errors] = ['', ''];
    child.stdout.on('data', (chunk: Buffer) => (output = (output + chunk.toString('utf8')).slice(0, MOST_OUTPUT)));
    child.stderr.on('data', (chunk: Buffer) => (errors = (errors + chunk.toString('utf8')).slice(-4000)));
    const fail = (why: string, next: string): void => reject(installFailure(`${what}: ${why}.`, next));
    child.once('error', (thrown: NodeJS.ErrnoException) => {
      // After the signal, wait for `close`: the program writes until it ends.
      if (signal?.aborted === true) return;
      clearInterval(ticker);
      const { why, how } = MISSING[program];
      if (thrown.code === 'ENOENT') fail(why, `${how}, or name it (programs.${program} in tollgate.yaml), and repeat.`);
      else fail(`${program} could not be started (${thrown.code ?? 'unknown'})`, 'Repeat it. Finished steps are kept.');
    });
    child.once('exit', (_code, killed) => {
      // A terminal sends Ctrl-C to the program too, and it may end before this process handles the signal.
      if (signal?.aborted === true || killed === 'SIGINT') reject(cancelled());
    });
    child.once('close', (code) => {
      clearInterval(ticker);
      run.warned?.(errors);
      if (code === 0) resolve(output);
      else
        fail(
          `${program} ended with ${code ?? 'a signal'}${reasonOf(errors)}`,
          `Correct what ${program} reports, such as the network, the name or the registry, and repeat.`,
        );
    });
  });
}

/** Returns the error of an installation that failed. */
export function installFailure(detail: string, next: string): TollgateError {
  return new TollgateError('INSTALL_FAILED', { detail, next });
}

/**
 * Returns the program that the owner names, or the npm of the running Node.js.
 * An attacker who can replace the latter can already replace Node.js.
 */
function programOf(name: InstallerName): string {
  const bundled = path.join(path.dirname(process.execPath), name);
  const isBundled = name === 'npm' && !isHelperNamed(name) && existsSync(bundled);
  return (isBundled ? bundled : findHelper(name)) ?? `/nonexistent/${name}`;
}

function cancelled(): TollgateError {
  return new TollgateError('CANCELLED', {
    detail: 'Stopped by a signal. Nothing was kept.',
    next: 'Run it again when you want it.',
  });
}

/** Returns the first error line. It may name local folders, which the person who runs the command may see. */
function reasonOf(errors: string): string {
  const lines = errors
    .split('\n')
    .map((one) => one.replace(/^(?:npm (?:error|ERR!)|ERROR:|Error:)\s*/, '').trim())
    .filter((one) => one !== '' && !/^(?:npm warn|WARNING|time="\S+" level=warn)/.test(one));
  const first = lines.find((one) => !/^code E\w+$/.test(one)) ?? lines[0];
  return first === undefined ? '' : ` (${first.slice(0, 200)})`;
}
