/** Determines the workspace and the state and audit folders. Refuses those that would give an agent too much. */
import { createHash } from 'node:crypto';
import { statSync } from 'node:fs';
import path from 'node:path';
import { isPathWithin } from '../../catalogs/readers/path-location.ts';
import type { Config } from './config.ts';
import type { ProblemReport } from './config-problems.ts';
import { realPath } from './reading/text-files.ts';
import { toSlug } from './servers/server-names.ts';
import { auditFolders } from './settings/sections.ts';
import { writtenStateFolder } from './settings/store-settings.ts';
import type { WrittenConfig } from './written-config.ts';

/** The environment in which a file is loaded. */
export interface World {
  readonly env: Readonly<Record<string, string | undefined>>;
  /** The home folder of the user, absolute. */
  readonly home: string;
  /** Returns where a load reads a file: the copy that an owner accepted; default: the file itself. */
  readonly at?: (file: string) => string;
  /** Whether it is loaded to serve several agents (`serve`): some default limits are larger then. */
  readonly isShared?: boolean;
  /** The name of the tenant that it is loaded for: some settings are refused then. Default: none. */
  readonly tenant?: string;
}

/**
 * Returns a function that makes a path of the file absolute: `~/` is the home folder, others are relative to `folder`.
 */
export function resolver(folder: string, home: string): (written: string) => string {
  return (written) =>
    written === '~' || written.startsWith('~/') ? path.join(home, written.slice(1)) : path.resolve(folder, written);
}

/** Returns why a folder cannot be a workspace; undefined if it can. `folder` is absolute and real. */
export function workspaceFault(folder: string, home: string): string | undefined {
  if (kindOf(folder) !== 'folder') return 'there is no such folder; make it, or name another';
  if (path.dirname(folder) === folder)
    return 'it would be the whole disk, so an agent could read and change everything; name a project folder';
  if (isPathWithin(realPath(home), folder))
    return 'it would contain the home folder with its keys and settings; name a project folder';
  return undefined;
}

/** Returns the workspace, absolute and real; undefined if it was refused. */
export function placeWorkspace(
  written: string,
  at: { readonly resolve: (written: string) => string; readonly home: string; readonly report: ProblemReport },
): string | undefined {
  const workspace = realPath(at.resolve(written));
  const fault = workspaceFault(workspace, at.home);
  if (fault === undefined) return workspace;
  at.report.refuse(['workspace'], `the workspace is refused: ${fault}`);
  return undefined;
}

/** What `placeState` needs to know. */
export interface StateContext extends World {
  readonly folder: string;
  /** Absent if it was refused; then nothing is compared with it. */
  readonly workspace?: string;
  readonly resolve: (written: string) => string;
  readonly report: ProblemReport;
}

/**
 * Returns the state and audit folders, absolute; they are made when they are used. By default there is one per project
 * in the user's state folder (XDG base directories).
 */
export function placeState(
  written: Pick<WrittenConfig, 'state' | 'audit'>,
  context: StateContext,
): Pick<Config, 'state'> & { readonly auditFolder: string } {
  const state = stateFolder(writtenStateFolder(written.state), context);
  const auditFolder = realPath(
    written.audit?.folder === undefined ? path.join(state, 'audit') : context.resolve(written.audit.folder),
  );
  const { workspace } = context;
  const isExposed = (folder: string): boolean =>
    workspace !== undefined && (isPathWithin(folder, workspace) || isPathWithin(workspace, folder));
  if (isExposed(state))
    context.report.refuse(
      ['state'],
      'the state folder is in the workspace, or contains it: an agent could rewrite budgets and approvals; ' +
        'name a folder outside it, for example ~/.local/state/tollgate/my-project',
    );
  else if (isExposed(auditFolder))
    context.report.refuse(
      ['audit', 'folder'],
      'the audit folder is in the workspace, or contains it: an agent could rewrite the log; name a folder outside it',
    );
  const named = written.audit?.keep?.archive;
  const archive = named === undefined ? undefined : realPath(context.resolve(named));
  if (archive !== undefined && (isPathWithin(archive, auditFolder) || isPathWithin(auditFolder, archive)))
    context.report.refuse(
      ['audit', 'keep', 'archive'],
      'the archive is in the folder of the log, or contains it; name another folder',
    );
  else if (archive !== undefined && isExposed(archive))
    context.report.refuse(
      ['audit', 'keep', 'archive'],
      'the archive is in the workspace, or contains it: an agent could remove records; name a folder outside it',
    );
  return { state, auditFolder };
}

/** What names files and folders of Tollgate itself. */
export type OwnConfig = Pick<Config, 'state' | 'acceptedFolder' | 'audit' | 'secretSources'>;

/** Returns what no agent may read of Tollgate: the state, the accepted copy, the log and its key, files of secrets. */
export function ownPlaces({ state, acceptedFolder, audit, secretSources }: OwnConfig): readonly string[] {
  const { signing } = audit;
  const secrets = [...secretSources.values()].flatMap((source) =>
    source.from === 'file' ? [source.file, realPath(source.file)] : [],
  );
  return [
    state,
    acceptedFolder,
    ...auditFolders(audit),
    ...(signing.key === undefined ? [] : [signing.key]),
    ...secrets,
  ];
}

/** Returns the written state folder, or the default one; absolute and real. */
export function stateFolder(
  written: string | undefined,
  context: Pick<StateContext, 'env' | 'home' | 'folder' | 'resolve'>,
): string {
  return realPath(written === undefined || written === '' ? defaultState(context) : context.resolve(written));
}

/** Returns the state folder of a configuration that names none: one per folder of a configuration. */
export function defaultState({ env, home, folder }: Pick<StateContext, 'env' | 'home' | 'folder'>): string {
  const configured = env.XDG_STATE_HOME ?? '';
  // The XDG specification says that relative values are ignored.
  const base = path.isAbsolute(configured) ? configured : path.join(home, '.local', 'state');
  const digest = createHash('sha256').update(folder).digest('hex').slice(0, 12);
  return path.join(base, 'tollgate', `${toSlug(path.basename(folder))}-${digest}`);
}

/** Returns what is at a path; undefined if nothing is. */
export function kindOf(file: string): 'file' | 'folder' | undefined {
  try {
    return statSync(file).isDirectory() ? 'folder' : 'file';
  } catch {
    return undefined;
  }
}
