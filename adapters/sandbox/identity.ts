/** Owns the choice of the user that a sandboxed program runs as; refuses root, whose rights on the host no namespace takes away. */
import { statSync } from 'node:fs';
import { TollgateError } from '../../catalogs/errors.ts';
import type { Identity } from './jail.ts';

/** Group of a workspace that belongs to the group of root: the group then grants nothing. */
const NO_GROUP = 65_534;

/**
 * Started as an ordinary user: that user. Started as root: the owner of the workspace, so that files in it stay usable. As
 * host user 0, mapped or not, a program would escape the count of processes and own files of /proc and /etc (measured with
 * bubblewrap 0.8). Throws SANDBOX_UNAVAILABLE when root owns the workspace.
 */
export function chooseIdentity(workspace: string): Identity {
  const uid = process.getuid?.();
  const gid = process.getgid?.();
  if (uid === undefined || gid === undefined)
    throw new TollgateError('SANDBOX_UNAVAILABLE', {
      detail: 'This system has no users as Linux knows them.',
      next: 'Run Tollgate inside WSL.',
    });
  if (uid !== 0) return { uid, gid, drop: false };
  const owner = statSync(workspace);
  if (owner.uid === 0) {
    throw new TollgateError('SANDBOX_UNAVAILABLE', {
      detail:
        'Tollgate runs as root and the workspace belongs to root: the rights of root cannot be taken from a program that runs as root.',
      next: 'Run Tollgate as an ordinary user, or give the workspace to one: `chown -R USER: WORKSPACE`; `tollgate doctor` prints the line with its paths.',
    });
  }
  return { uid: owner.uid, gid: owner.gid === 0 ? NO_GROUP : owner.gid, drop: true };
}
