/**
 * Finds the folders and files among a server's arguments, and proposes their permissions in its sandbox. What is
 * outside the workspace is proposed only after a person has agreed.
 */
import path from 'node:path';
import { isPathWithin } from '../../catalogs/readers/path-location.ts';
import { realPath } from '../config/reading/text-files.ts';
import { kindOf } from '../config/work-folders.ts';
import type { GivenFolder } from '../packages/package-server.ts';

/** Folders and files as they are written in the arguments. */
export interface HandedFolders {
  readonly allowRead: readonly string[];
  readonly allowWrite: readonly string[];
  /** Outside the workspace. A person must add these. */
  readonly outside: readonly GivenFolder[];
}

/** The folders that variables of a client's file stand for, absolute. */
export interface FolderPlaces {
  readonly workspace: string;
  readonly home: string;
}

/** Returns the texts that name an existing folder. Paths of this machine are absolute, or begin with `~`. */
export function namedFolders(texts: readonly string[], places: FolderPlaces): readonly string[] {
  return existing(texts, places).filter((text) => kindOf(placed(text, places)) === 'folder');
}

/** As `namedFolders`, for existing files too, and for the values of arguments such as `--file=PATH`. */
export function namedFiles(texts: readonly string[], places: FolderPlaces): readonly string[] {
  return existing(
    texts.map((text) => text.replace(/^--?[\w-]+=/, '')),
    places,
  );
}

/** Divides folders into those that a server may get, and those that only a person may add. */
export function handedFolders(
  folders: readonly GivenFolder[],
  places: FolderPlaces,
  isGranted: (folder: string) => boolean = () => false,
): HandedFolders {
  const given = folders.filter(
    ({ folder }) => isGranted(folder) || isPathWithin(realPath(placed(folder, places)), places.workspace),
  );
  const of = (access: GivenFolder['access']): readonly string[] => [
    ...new Set(given.filter((one) => one.access === access).map(({ folder }) => folder)),
  ];
  const writes = of('write');
  return {
    allowRead: of('read').filter((folder) => !writes.includes(folder)),
    allowWrite: writes,
    outside: folders.filter((one) => !given.includes(one)),
  };
}

/** Returns each folder once. The first access of a folder counts. */
export function distinctFolders(folders: readonly GivenFolder[]): readonly GivenFolder[] {
  return folders.filter(({ folder }, at) => folders.findIndex((one) => one.folder === folder) === at);
}

function existing(texts: readonly string[], places: FolderPlaces): readonly string[] {
  return [...new Set(texts)].filter(
    (text) => path.isAbsolute(placed(text, places)) && kindOf(placed(text, places)) !== undefined,
  );
}

function placed(text: string, { workspace, home }: FolderPlaces): string {
  return text
    .replace(/^\$\{workspaceFolder\}/, workspace)
    .replace(/^(?:\$\{userHome\}|\$\{env:HOME\}|~(?=\/|$))/, home);
}
