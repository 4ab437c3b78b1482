/** Reads which folders of other workspaces an upgrade may open; refuses one that agents, Tollgate or keys of the user have anything to do with. */
import { broadFolderProblem } from '../../../catalogs/readers/broad-folders.ts';
import { wordInside } from '../../secrets/secret-program-place.ts';
import type { Config, OtherWorkspaces } from '../config.ts';
import { quote } from '../config-problems.ts';
import { isExposed } from '../reading/control-files.ts';
import { isWithin, realPath } from '../reading/text-files.ts';
import { kindOf, PROGRAM } from '../work-folders.ts';
import type { WrittenConfig } from '../written-config.ts';
import { writableFolders } from './helper-program-settings.ts';
import type { Guarded } from './sandbox-settings.ts';

/** Nothing outside of the workspace. */
export const NO_OTHERS: OtherWorkspaces = { read: [], write: [] };

/** What the folders are compared with. */
export interface Around extends Guarded {
  readonly resolve: (written: string) => string;
  /** Without their own folders. */
  readonly config: Pick<Config, 'workspace' | 'bash' | 'servers' | 'programs' | 'secretSources' | 'reads'>;
}

interface Entry {
  readonly list: 'read' | 'write';
  readonly index: number;
  /** As it is written, absolute. */
  readonly named: string;
  /** Real. */
  readonly folder: string;
}

/** The folders, absolute and real. Reports each that cannot be one. */
export function placeOtherWorkspaces(written: WrittenConfig['otherWorkspaces'], around: Around): OtherWorkspaces {
  const entries = (['read', 'write'] as const).flatMap((list) =>
    (written?.[list] ?? []).map((one, index): Entry => {
      const named = around.resolve(one);
      return { list, index, named, folder: realPath(named) };
    }),
  );
  for (const [at, entry] of entries.entries()) {
    const fault = faultOf(entry, around) ?? overlapOf(entry, entries.slice(0, at));
    if (fault !== undefined)
      around.report.refuse(['otherWorkspaces', entry.list, entry.index], `the folder is refused: ${fault}`);
  }
  const foldersOf = (list: Entry['list']): readonly string[] =>
    entries.flatMap((entry) => (entry.list === list ? [entry.folder] : []));
  return { read: foldersOf('read'), write: foldersOf('write') };
}

function faultOf({ list, named, folder }: Entry, { config, home, hidden }: Around): string | undefined {
  if (kindOf(folder) !== 'folder') return 'there is no such folder; make it, or name another';
  const fault = broadFolderProblem(folder, list === 'write', { home: realPath(home), hidden });
  if (fault !== undefined) return fault;
  if (isExposed(named, [...writableFolders({ ...config, otherWorkspaces: NO_OTHERS }), ...readableFolders(config)]))
    return 'agents reach it, or the way to it, without any upgrade: by the workspace, or by a sandbox that is given this folder, one in it or one around it; name a folder apart from these';
  // A file that was refused has left no path.
  if (config.reads.some((file: string | undefined) => file !== undefined && isExposed(file, [folder])))
    return 'files of this configuration lie there, or it lies in a folder of them; name a folder without them';
  return list === 'write' ? startedFrom(folder, config) : undefined;
}

/** Folders that sandboxes may read, and those in which servers start. */
function readableFolders({ bash, servers }: Pick<Config, 'bash' | 'servers'>): readonly string[] {
  const given = [bash, ...servers.values()].flatMap(({ sandbox }) => sandbox?.filesystem.allowRead ?? []);
  const starts = [...servers.values()].flatMap(({ cwd, isolation = 'sandbox' }) =>
    cwd === undefined || isolation !== 'sandbox' ? [] : [realPath(cwd)],
  );
  return [...given, ...starts];
}

/** What Tollgate itself starts or reaches must not be written by an agent. */
function startedFrom(folder: string, { programs, secretSources, servers }: Around['config']): string | undefined {
  if (isWithin(PROGRAM, folder) || isWithin(folder, PROGRAM))
    return 'it holds the program of Tollgate, or is part of it; name another folder';
  const helper = Object.entries(programs).find(([, file]) => file !== undefined && isExposed(file, [folder]));
  if (helper !== undefined)
    return `the program ${quote(helper[0])} of programs lies there, and an agent could replace it; name another folder, or give it under read`;
  const secret = [...secretSources].find(
    ([, source]) => source.from === 'exec' && wordInside(source.command, folder) !== -1,
  );
  if (secret !== undefined)
    return `the program that gives secret ${quote(secret[0])} lies there, and an agent could replace it; name another folder, or give it under read`;
  const socket = [...servers.values()].find(
    (server) => server.socket !== undefined && isExposed(server.socket, [folder]),
  );
  return socket === undefined
    ? undefined
    : `the socket of server ${quote(socket.name)} lies there, and an agent could replace it; name another folder, or give it under read`;
}

function overlapOf({ folder }: Entry, before: readonly Entry[]): string | undefined {
  return before.some((one) => isWithin(folder, one.folder) || isWithin(one.folder, folder))
    ? 'another entry names it, a folder in it or one around it; name each once (write includes read)'
    : undefined;
}
