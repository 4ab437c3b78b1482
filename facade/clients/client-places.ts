/** Lists the places of clients' files on this machine. */
import path from 'node:path';
import { isPathWithin } from '../../catalogs/readers/path-location.ts';
import { CLIENTS, type ClientFormat, type Root } from './client-formats.ts';

/** A place where a client keeps its servers. It need not exist. */
export interface ClientPlace {
  readonly client: ClientFormat;
  readonly file: string;
  /** True for a file of this project; false for a file of the user, for all projects. */
  readonly ofProject: boolean;
}

/** Where to look. `cwd`: the folder of the project. */
export interface ClientRoots {
  readonly cwd: string;
  readonly home: string;
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly platform: NodeJS.Platform;
}

/** Returns where to look for the files of a user on this machine. `cwd`: the folder of the project. */
export function rootsAt(cwd: string, { home, env }: Pick<ClientRoots, 'home' | 'env'>): ClientRoots {
  return { cwd, home, env, platform: process.platform };
}

/** Returns every known place, those of the project first. */
export function clientPlaces(roots: ClientRoots): readonly ClientPlace[] {
  const places = CLIENTS.flatMap((client) =>
    client.places.map(
      ([root, ...parts]): ClientPlace => ({
        client,
        file: path.join(folderOf(root, roots), ...parts),
        ofProject: root === 'project',
      }),
    ),
  );
  return [...places.filter(({ ofProject }) => ofProject), ...places.filter(({ ofProject }) => !ofProject)];
}

function folderOf(root: Root, { cwd, home, env, platform }: ClientRoots): string {
  if (root === 'project') return cwd;
  if (root === 'home') return home;
  if (root === 'codex') return absolute(env.CODEX_HOME) ?? path.join(home, '.codex');
  if (platform === 'win32') return env.APPDATA ?? path.join(home, 'AppData', 'Roaming');
  if (platform === 'darwin')
    return root === 'settings' ? path.join(home, 'Library', 'Application Support') : path.join(home, '.config');
  return absolute(env.XDG_CONFIG_HOME) ?? path.join(home, '.config');
}

function absolute(folder: string | undefined): string | undefined {
  return folder !== undefined && path.isAbsolute(folder) ? folder : undefined;
}

/** Returns a file as people write it: relative to the project if it is in it, else with `~/`. */
export function shownPath(file: string, { cwd, home }: Pick<ClientRoots, 'cwd' | 'home'>): string {
  if (isPathWithin(file, cwd)) return path.relative(cwd, file);
  return isPathWithin(file, home) ? `~/${path.relative(home, file)}` : file;
}

/** Returns true for the file that export writes by default. */
export function isDefaultPlace({ client, ofProject }: Pick<ClientPlace, 'client' | 'ofProject'>): boolean {
  return (client.places[0]?.[0] === 'project') === ofProject;
}
