/** Reads the folders of other workspaces, and refuses those that agents, Tollgate or keys of the user already use. */
import { PROGRAM } from '../../../catalogs/programs/own-code.ts';
import { broadFolderProblem } from '../../../catalogs/readers/broad-folders.ts';
import { isPathWithin } from '../../../catalogs/readers/path-location.ts';
import { wordInside } from '../../secrets/secret-program-place.ts';
import type { Config, OtherWorkspaces } from '../config.ts';
import { quote } from '../config-problems.ts';
import { isExposed } from '../reading/control-files.ts';
import { realPath } from '../reading/text-files.ts';
import { kindOf } from '../work-folders.ts';
import type { WrittenConfig } from '../written-config.ts';
import { writableFolders } from './helper-program-settings.ts';
import type { Guarded } from './sandbox-settings.ts';

/** Nothing outside the workspace. */
export const NO_OTHER_WORKSPACES: OtherWorkspaces = { read: [], write: [] };

/** What the folders are compared with. */
export interface OtherWorkspacesContext extends Guarded {
  readonly resolve: (written: string) => string;
  /** Without the folders themselves. */
  readonly config: Pick<Config, 'workspace' | 'bash' | 'servers' | 'programs' | 'secretSources' | 'reads'>;
}

interface Entry {
  readonly list: 'read' | 'write';
  readonly index: number;
  /** As it is written, absolute. */
  readonly absolute: string;
  /** Real. */
  readonly folder: string;
}

/** Returns the folders, absolute and real, and reports each that cannot be one. */
export function placeOtherWorkspaces(
  written: WrittenConfig['otherWorkspaces'],
  context: OtherWorkspacesContext,
): OtherWorkspaces {
  const entries = (['read', 'write'] as const).flatMap((list) =>
    (written?.[list] ?? []).map((one, index): Entry => {
      const absolute = context.resolve(one);
      return { list, index, absolute, folder: realPath(absolute) };
    }),
  );
  for (const [at, entry] of entries.entries()) {
    const fault = faultOf(entry, context) ?? overlapOf(entry, entries.slice(0, at));
    if (fault !== undefined)
      context.report.refuse(['otherWorkspaces', entry.list, entry.index], `the folder is refused: ${fault}`);
  }
  const foldersOf = (list: Entry['list']): readonly string[] =>
    entries.flatMap((entry) => (entry.list === list ? [entry.folder] : []));
  return { read: foldersOf('read'), write: foldersOf('write') };
}

function faultOf(
  { list, absolute, folder }: Entry,
  { config, home, hidden }: OtherWorkspacesContext,
): string | undefined {
  if (kindOf(folder) !== 'folder') return 'there is no such folder; make it, or name another';
  const fault = broadFolderProblem(folder, list === 'write', { home: realPath(home), hidden });
  if (fault !== undefined) return fault;
  if (
    isExposed(absolute, [
      ...writableFolders({ ...config, otherWorkspaces: NO_OTHER_WORKSPACES }),
      ...readableFolders(config),
    ])
  )
    return (
      'agents reach it, or a folder on the way to it, without the capability: through the workspace, or ' +
      'through a sandbox that is given this folder, one in it or one around it; name a separate folder'
    );
  // A refused file has no path.
  if (config.reads.some((file: string | undefined) => file !== undefined && isExposed(file, [folder])))
    return 'files of this configuration are there, or it is in a folder of them; name a folder without them';
  const secret = [...config.secretSources].find(
    ([, source]) => source.from === 'file' && isExposed(source.file, [folder]),
  );
  if (secret !== undefined)
    return `the file that gives secret ${quote(secret[0])} is there, and an agent could read it; name another folder`;
  return list === 'write' ? programFault(folder, config) : undefined;
}

/** Folders that sandboxes may read, and folders in which servers start. */
function readableFolders({ bash, servers }: Pick<Config, 'bash' | 'servers'>): readonly string[] {
  const readable = [bash, ...servers.values()].flatMap(({ sandbox }) => sandbox?.filesystem.allowRead ?? []);
  const starts = [...servers.values()].flatMap(({ cwd, isolation = 'sandbox' }) =>
    cwd === undefined || isolation !== 'sandbox' ? [] : [realPath(cwd)],
  );
  return [...readable, ...starts];
}

/** Returns why a folder must not be writable: Tollgate starts a program in it, or uses a socket in it. */
function programFault(
  folder: string,
  { programs, secretSources, servers }: OtherWorkspacesContext['config'],
): string | undefined {
  if (isPathWithin(PROGRAM, folder) || isPathWithin(folder, PROGRAM))
    return 'it contains the program of Tollgate, or is part of it; name another folder';
  const helper = Object.entries(programs).find(([, file]) => file !== undefined && isExposed(file, [folder]));
  if (helper !== undefined)
    return (
      `the program ${quote(helper[0])} of programs is there, and an agent could replace it; name another ` +
      'folder, or write it under read'
    );
  const secret = [...secretSources].find(
    ([, source]) => source.from === 'exec' && wordInside(source.command, folder) !== -1,
  );
  if (secret !== undefined)
    return (
      `the program that gives secret ${quote(secret[0])} is there, and an agent could replace it; name another ` +
      'folder, or write it under read'
    );
  const socket = [...servers.values()].find(
    (server) => server.socket !== undefined && isExposed(server.socket, [folder]),
  );
  return socket === undefined
    ? undefined
    : `the socket of server ${quote(socket.name)} is there, and an agent could replace it; name another ` +
        'folder, or write it under read';
}

function overlapOf({ folder }: Entry, before: readonly Entry[]): string | undefined {
  return before.some((one) => isPathWithin(folder, one.folder) || isPathWithin(one.folder, folder))
    ? 'another entry names it, a folder in it or one around it; name each once (write includes read)'
    : undefined;
}
