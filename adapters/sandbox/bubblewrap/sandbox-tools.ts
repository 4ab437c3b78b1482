/** Owns the programs of the system that a sandbox is made with; refuses to go on without one, and says how it is installed. */
import { existsSync, readFileSync } from 'node:fs';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { findHelper, locateHelper } from '../../../catalogs/programs/helper-programs.ts';

/** Absolute paths. `socat` is needed by sandboxes with a way out only. */
export interface SandboxTools {
  readonly bwrap: string;
  readonly prlimit: string;
  readonly socat?: string;
}

/** How each is installed on Debian and Ubuntu; other systems name their packages alike. */
export const INSTALL_HINTS: Readonly<Record<keyof SandboxTools, string>> = {
  bwrap: 'sudo apt-get install bubblewrap',
  prlimit: 'sudo apt-get install util-linux',
  socat: 'sudo apt-get install socat',
};

/** What to do where the system forbids namespaces to users; the fix of Ubuntu 24.04 and of Debian before 11. */
const NAMESPACES: readonly (readonly [file: string, forbidden: string, fix: string])[] = [
  [
    '/proc/sys/kernel/apparmor_restrict_unprivileged_userns',
    '1',
    'sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0',
  ],
  ['/proc/sys/kernel/unprivileged_userns_clone', '0', 'sudo sysctl -w kernel.unprivileged_userns_clone=1'],
  ['/proc/sys/user/max_user_namespaces', '0', 'sudo sysctl -w user.max_user_namespaces=15000'],
];

/** Finds what a sandbox needs. Throws SANDBOX_UNAVAILABLE that names the missing program and its command of installation. */
export function findSandboxTools(bridged: boolean): SandboxTools {
  if (process.platform !== 'linux')
    throw new TollgateError('SANDBOX_UNAVAILABLE', {
      detail: `There is no sandbox for ${process.platform}.`,
      next: elsewhere(),
    });
  const socat = findHelper('socat');
  const tools = { bwrap: need('bwrap'), prlimit: need('prlimit') };
  if (bridged && socat === undefined) throw missing('socat');
  return socat === undefined ? tools : { ...tools, socat };
}

/** The command that lifts what forbids namespaces here; undefined when nothing known does. */
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
  if (refused !== undefined)
    return new TollgateError('SANDBOX_UNAVAILABLE', {
      detail: `The program ${name} is not run: ${refused}.`,
      next: `Install it for the whole system (${INSTALL_HINTS[name]}), or name it under programs in tollgate.yaml.`,
    });
  return new TollgateError('SANDBOX_UNAVAILABLE', {
    detail: `The program ${name} is not installed.`,
    next: `Install it: ${INSTALL_HINTS[name]}`,
  });
}

function elsewhere(): string {
  return process.platform === 'win32'
    ? 'Run Tollgate inside WSL.'
    : 'Write `isolation: container` for the server, with docker or podman installed.';
}
