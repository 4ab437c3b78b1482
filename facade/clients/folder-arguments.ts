/**
 * Finds the folders among a server's arguments, and proposes their permissions in its sandbox. Folders outside the
 * workspace are never proposed.
 */
import path from 'node:path';
import { isPathWithin } from '../../catalogs/readers/path-location.ts';
import { loadAllKnown } from '../../catalogs/servers/known-server.ts';
import { realPath } from '../config/reading/text-files.ts';
import { kindOf } from '../config/work-folders.ts';
import type { ClientEntry } from './client-entry.ts';
import { fetchedPackage } from './client-entry-view.ts';

/** Folders as they are written in the arguments. */
export interface HandedFolders {
  readonly allowRead: readonly string[];
  readonly allowWrite: readonly string[];
  /** Outside the workspace. A person must add these. */
  readonly outside: readonly string[];
}

/**
 * Returns the existing folders. Writing is proposed if the catalog knows that the package writes to its folders.
 * `workspace`, `home`: absolute.
 */
export function handedFolders(
  entry: Pick<ClientEntry, 'command' | 'args'>,
  { workspace, home }: { readonly workspace: string; readonly home: string },
): HandedFolders {
  const placed = (arg: string): string =>
    arg.replace(/^\$\{workspaceFolder\}/, workspace).replace(/^(?:\$\{userHome\}|~(?=\/|$))/, home);
  const folders = [...new Set(entry.args)].filter(
    (arg) => path.isAbsolute(placed(arg)) && kindOf(placed(arg)) === 'folder',
  );
  const inside = folders.filter((arg) => isPathWithin(realPath(placed(arg)), workspace));
  const writes = inside.length > 0 && doesWrite(entry);
  return {
    allowRead: writes ? [] : inside,
    allowWrite: writes ? inside : [],
    outside: folders.filter((arg) => !inside.includes(arg)),
  };
}

function doesWrite(entry: Pick<ClientEntry, 'command' | 'args'>): boolean {
  const fetched = fetchedPackage(entry);
  const known = fetched === undefined ? undefined : loadAllKnown().find(({ package: pkg }) => pkg?.name === fetched);
  return known?.choices?.some(({ kind, access }) => kind === 'folder' && access !== 'read') === true;
}
