/** Owns which folders Tollgate works in; refuses a workspace that is everything, and state or audit that an agent could rewrite. */
import { createHash } from 'node:crypto';
import { statSync } from 'node:fs';
import path from 'node:path';
import type { Config } from './config.ts';
import type { ProblemReport } from './config-problems.ts';
import { isWithin, realPath } from './reading/text-files.ts';
import { toSlug } from './servers/server-names.ts';
import type { WrittenConfig } from './written-config.ts';

/** The world that a file is loaded in. */
export interface World {
  readonly env: Readonly<Record<string, string | undefined>>;
  /** The home folder of the user, absolute. */
  readonly home: string;
  /** Where a load reads a file: the copy that an owner accepted; default: the file itself. */
  readonly at?: (file: string) => string;
  /** Whether it is loaded to serve many (`serve`): some limits that are not written are larger then. */
  readonly isShared?: boolean;
}

const HERE = path.join(import.meta.dirname, '..', '..');
/** The folder of Tollgate's own programs: the built one, also where the sources run. */
export const PROGRAM = path.basename(HERE) === 'dist' ? HERE : path.join(HERE, 'dist');

/** Makes a path of the file absolute: `~/` is the home folder, everything else is relative to the file. */
export function resolver(folder: string, home: string): (written: string) => string {
  return (written) =>
    written === '~' || written.startsWith('~/') ? path.join(home, written.slice(1)) : path.resolve(folder, written);
}

/** Why a folder cannot be a workspace; undefined when it can. `folder` is absolute and real. */
export function workspaceFault(folder: string, home: string): string | undefined {
  if (kindOf(folder) !== 'folder') return 'there is no such folder; make it, or name another';
  if (path.dirname(folder) === folder)
    return 'it would be the whole disk, so an agent could read and change everything; name a project folder';
  if (isWithin(realPath(home), folder))
    return 'it would hold the home folder with its keys and settings; name a project folder';
  return undefined;
}

/** The workspace, absolute and real; undefined when it was refused. */
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
  /** Absent when it was refused: there is nothing to compare with then. */
  readonly workspace?: string;
  readonly resolve: (written: string) => string;
  readonly report: ProblemReport;
}

/** The state and audit folders, absolute; made on use. By default one a project under the user's state folder (XDG base directories). */
export function placeState(
  written: Pick<WrittenConfig, 'state' | 'audit'>,
  context: StateContext,
): Pick<Config, 'state'> & { readonly auditFolder: string } {
  const state = stateFolder(written.state, context);
  const auditFolder = realPath(
    written.audit?.folder === undefined ? path.join(state, 'audit') : context.resolve(written.audit.folder),
  );
  const { workspace } = context;
  const exposed = (folder: string): boolean =>
    workspace !== undefined && (isWithin(folder, workspace) || isWithin(workspace, folder));
  if (exposed(state))
    context.report.refuse(
      ['state'],
      'the state folder and the workspace hold one another: an agent could rewrite budgets and approvals; name a folder outside it, for example ~/.local/state/tollgate/my-project',
    );
  else if (exposed(auditFolder))
    context.report.refuse(
      ['audit', 'folder'],
      'the audit folder and the workspace hold one another: an agent could rewrite the log; name a folder outside it',
    );
  return { state, auditFolder };
}

/** The state folder as it is written, or the default one; absolute and real. */
export function stateFolder(
  written: string | undefined,
  context: Pick<StateContext, 'env' | 'home' | 'folder' | 'resolve'>,
): string {
  return realPath(written === undefined || written === '' ? defaultState(context) : context.resolve(written));
}

/** The state folder of a configuration that names none: one per folder of a configuration. */
export function defaultState({ env, home, folder }: Pick<StateContext, 'env' | 'home' | 'folder'>): string {
  const wanted = env.XDG_STATE_HOME ?? '';
  // The XDG specification has relative values ignored.
  const base = path.isAbsolute(wanted) ? wanted : path.join(home, '.local', 'state');
  const digest = createHash('sha256').update(folder).digest('hex').slice(0, 12);
  return path.join(base, 'tollgate', `${toSlug(path.basename(folder))}-${digest}`);
}

/** What stands at a path; undefined when nothing does. */
export function kindOf(file: string): 'file' | 'folder' | undefined {
  try {
    return statSync(file).isDirectory() ? 'folder' : 'file';
  } catch {
    return undefined;
  }
}
