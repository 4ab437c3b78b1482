/** Owns what keeps a server from starting or from its files whatever a person agrees to, seen before anybody is asked; refuses to guess at what only a start can show. */
import { statSync } from 'node:fs';
import path from 'node:path';
import { loadAllKnown } from '../../../catalogs/servers/known-server.ts';
import type { Config, ServerConfig } from '../../config/config.ts';
import { isWithin, realPath } from '../../config/reading/text-files.ts';
import { kindOf } from '../../config/work-folders.ts';
import { fetchedPackage } from '../clients/client-entry-view.ts';
import { connectWords } from '../connect/same-service.ts';
import { commandLine } from '../print.ts';

/** A line for each, with what mends it. */
export function obstaclesTo(server: ServerConfig, { workspace }: Pick<Config, 'workspace'>): readonly string[] {
  const { transport, isolation = 'sandbox' } = server;
  if (transport !== 'stdio' || isolation !== 'sandbox') return [];
  const fetches = fetchObstacle(server);
  return [
    ...ownerObstacle(workspace).map((line) => `it cannot start in a sandbox: ${line}`),
    ...(fetches === undefined ? [] : [`it cannot start so: ${fetches.seen}; ${fetches.fix}`]),
    ...closedPaths(server),
  ];
}

/** A workspace of root cannot be isolated from a program that root starts (adapters/sandbox/sandbox-spec.ts). `user`: whom it could be given to. */
export function ownerObstacle(workspace: string, user = process.env.SUDO_USER ?? 'USER'): readonly string[] {
  if (process.getuid?.() !== 0 || statSync(workspace, { throwIfNoEntry: false })?.uid !== 0) return [];
  return [
    `Tollgate runs as root, and the workspace belongs to root; run Tollgate as an ordinary user, or: ${commandLine(['chown', '-R', `${user}:`, workspace])}`,
  ];
}

/** Programs that fetch their package at every start (adapters/supervisor/server-settings.ts refuses them so). */
const FETCHERS = /^(npx|bunx|pnpx|uvx|pipx)$/;

/** Why a program that fetches its package cannot start in its sandbox, and what mends it; undefined for any other server. */
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
    seen: `${path.basename(command)} fetches its package at each start, and its sandbox has no network`,
    fix:
      words === undefined
        ? 'install the package, and name its own program'
        : `this installs it ahead: ${commandLine(['tollgate', ...words])}`,
  };
}

/** Folders are handed to servers as arguments; what the sandbox does not show is not there for them. */
function closedPaths({ args, sandbox }: ServerConfig): readonly string[] {
  const { allowRead = [], allowWrite = [] } = sandbox?.filesystem ?? {};
  const shown = [...allowRead, ...allowWrite].map(realPath);
  const closed = args.filter(
    (arg) =>
      path.isAbsolute(arg) && kindOf(arg) === 'folder' && !shown.some((folder) => isWithin(realPath(arg), folder)),
  );
  return closed.map(
    (folder) =>
      `it does not see ${JSON.stringify(folder)}, which stands among its arguments; write in its entry: sandbox: {filesystem: {allowRead: [${JSON.stringify(folder)}]}}, or allowWrite`,
  );
}
