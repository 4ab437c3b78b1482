/** Finds the system programs that a sandbox needs, or says how to install them. */
import { existsSync, readFileSync } from 'node:fs';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { findHelper, locateHelper } from '../../../catalogs/programs/helper-programs.ts';

/** Absolute paths. Only sandboxes with a network need `socat`. */
export interface SandboxTools {
  readonly bwrap: string;
  readonly prlimit: string;
  readonly socat?: string;
}

/** Commands for Debian and Ubuntu. Other systems have packages with similar names. */
export const INSTALL_HINTS: Readonly<Record<keyof SandboxTools, string>> = {
  bwrap: 'sudo apt-get install bubblewrap',
  prlimit: 'sudo apt-get install util-linux',
  socat: 'sudo apt-get install socat',
};

/** Settings that forbid users to create namespaces (Ubuntu 24.04, Debian before 11), each with its fix. */
const NAMESPACES: readonly (readonly [file: string, forbidden: string, fix: string])[] = [
  [
    '/proc/sys/kernel/apparmor_restrict_unprivileged_userns',
    '1',
    'sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0',
  ],
  ['/proc/sys/kernel/unprivileged_userns_clone', '0', 'sudo sysctl -w kernel.unprivileged_userns_clone=1'],
  ['/proc/sys/user/max_user_namespaces', '0', 'sudo sysctl -w user.max_user_namespaces=15000'],
];

/** Finds what a sandbox needs. Throws SANDBOX_UNAVAILABLE with the missing program and the command that installs it. */
export function findSandboxTools(needsSocat: boolean): SandboxTools {
  if (process.platform !== 'linux')
    throw new TollgateError('SANDBOX_UNAVAILABLE', {
      detail: `Sandboxes are not available on ${process.platform}.`,
      next: alternativeHint(),
    });
  const socat = findHelper('socat');
  const tools = { bwrap: need('bwrap'), prlimit: need('prlimit') };
  if (needsSocat && socat === undefined) throw missing('socat');
  return socat === undefined ? tools : { ...tools, socat };
}

/** Returns the command that allows users to create namespaces; undefined if no known setting forbids it. */
export function namespaceFix(): string | undefined {
  return NAMESPACES.find(
    ([file, forbidden]) => existsSync(file) && readFileSync(file, 'utf8').trim() === forbidden,
  )?.[2];
}

function need(name: keyof SandboxTools): string {
  const found = findHelper(name);
  if (found === undefined) throw missing(name);
  return found;
}

function missing(name: keyof SandboxTools): TollgateError {
  const { refused } = locateHelper(name);
  return new TollgateError(
    'SANDBOX_UNAVAILABLE',
    refused === undefined
      ? { detail: `The program ${name} is not installed.`, next: `Install it: ${INSTALL_HINTS[name]}` }
      : {
          detail: `The program ${name} is not run: ${refused}.`,
          next:
            `Install it for the whole system (${INSTALL_HINTS[name]}), ` +
            'or give its path under programs in tollgate.yaml.',
        },
  );
}

function alternativeHint(): string {
  return process.platform === 'win32'
    ? 'Run Tollgate inside WSL.'
    : 'Write `isolation: container` for the server, with docker or podman installed.';
}
