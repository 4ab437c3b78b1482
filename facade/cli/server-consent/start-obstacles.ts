/** Finds what prevents an approved server from starting or from reading its files, without starting it. */
import { statSync } from 'node:fs';
import path from 'node:path';
import { isPathWithin } from '../../../catalogs/readers/path-location.ts';
import { loadAllKnown } from '../../../catalogs/servers/known-server.ts';
import { fetchedPackage } from '../../clients/client-entry-view.ts';
import type { Config, ServerConfig } from '../../config/config.ts';
import { realPath } from '../../config/reading/text-files.ts';
import { kindOf } from '../../config/work-folders.ts';
import { connectWords } from '../connect/same-service.ts';
import { commandLine } from '../print.ts';

/** Returns one line for each obstacle, with its remedy. */
export function obstaclesTo(server: ServerConfig, { workspace }: Pick<Config, 'workspace'>): readonly string[] {
  const { transport, isolation = 'sandbox' } = server;
  if (transport !== 'stdio' || isolation !== 'sandbox') return [];
  const fetches = fetchObstacle(server);
  return [
    ...ownerObstacle(workspace).map((line) => `it cannot start in a sandbox: ${line}`),
    ...(fetches === undefined ? [] : [`it cannot start like this: ${fetches.seen}; ${fetches.fix}`]),
    ...closedPaths(server),
  ];
}

/**
 * Returns one line if root owns the workspace: it cannot be isolated from a program that root starts
 * (adapters/sandbox/sandbox-spec.ts). `user`: the new owner that the line proposes.
 */
export function ownerObstacle(workspace: string, user = process.env.SUDO_USER ?? 'USER'): readonly string[] {
  if (process.getuid?.() !== 0 || statSync(workspace, { throwIfNoEntry: false })?.uid !== 0) return [];
  const command = commandLine(['chown', '-R', `${user}:`, workspace]);
  return [`Tollgate runs as root, and the workspace belongs to root; run Tollgate as an ordinary user, or: ${command}`];
}

/** Programs that download their package at every start (adapters/supervisor/server-settings.ts refuses them). */
const FETCHERS = /^(npx|bunx|pnpx|uvx|pipx)$/;

/**
 * Returns why a program that downloads its package cannot start in its sandbox, and the remedy; undefined for any other
 * server.
 */
export function fetchObstacle(server: ServerConfig): { readonly seen: string; readonly fix: string } | undefined {
  const { transport, isolation = 'sandbox', command = '', sandbox } = server;
  if (
    transport !== 'stdio' ||
    isolation !== 'sandbox' ||
    !FETCHERS.test(path.basename(command)) ||
    (sandbox?.network.allowedDomains.length ?? 0) > 0
  )
    return undefined;
  const words = fetchedPackage(server) === undefined ? undefined : connectWords(loadAllKnown(), server);
  return {
    seen: `${path.basename(command)} downloads its package at each start, and its sandbox has no network`,
    fix:
      words === undefined
        ? 'install the package, and name its own program'
        : `this installs it beforehand: ${commandLine(['tollgate', ...words])}`,
  };
}

/** Finds folders among the arguments that the sandbox does not contain. */
function closedPaths({ args, sandbox }: ServerConfig): readonly string[] {
  const { allowRead = [], allowWrite = [] } = sandbox?.filesystem ?? {};
  const shown = [...allowRead, ...allowWrite].map(realPath);
  const closed = args.filter(
    (arg) =>
      path.isAbsolute(arg) && kindOf(arg) === 'folder' && !shown.some((folder) => isPathWithin(realPath(arg), folder)),
  );
  return closed.map((folder) => {
    const shown = JSON.stringify(folder);
    const setting = `sandbox: {filesystem: {allowRead: [${shown}]}}`;
    return `it cannot read ${shown}, which is one of its arguments; write in its entry: ${setting}, or allowWrite`;
  });
}
