/** Owns the way to folders that the program's user may not walk to, when we are root; refuses nothing, for root was asked to give them. */
import { statSync } from 'node:fs';
import path from 'node:path';
import { findHelper } from '../../../catalogs/programs/helper-programs.ts';
import { isPathWithin } from '../closed-paths/closed-paths.ts';
import type { SandboxUser } from '../sandbox-spec.ts';
import type { SandboxPlan } from './bubblewrap-arguments.ts';

/** A folder of every Linux, covered by memory in the view of one start only. */
const STAGE = '/dev/shm';

/** In a view of mounts of its own; becomes the rest of the words, so that no further process stands between us and the sandbox. */
const BRING = `mount -t tmpfs -o mode=0711,size=4m stage ${STAGE} || exit 1
n=0; while [ "$1" != -- ]; do
if [ -d "$1" ]; then mkdir ${STAGE}/$n; else : >${STAGE}/$n; fi
mount --rbind "$1" ${STAGE}/$n || exit 1; n=$((n+1)); shift
done; shift; exec "$@"`;

/** A plan whose folders were brought to where the user can reach them, and the words that bring them, to stand before bubblewrap's. */
export interface StagedPlan {
  readonly plan: SandboxPlan;
  readonly commandPrefix: readonly string[];
}

/**
 * A project beneath /root or in a private folder: bubblewrap, which runs as the workspace's owner, cannot name what it shall
 * mount there. Root mounts it under a name that it can. Undefined when that is not needed, or its programs are missing.
 */
export function stagePlan(plan: SandboxPlan, identity: SandboxUser): StagedPlan | undefined {
  if (!identity.drop || plan.mounts.every(({ from }) => isReachable(from, identity))) return undefined;
  const [unshare, setpriv] = [findHelper('unshare'), findHelper('setpriv')];
  if (unshare === undefined || setpriv === undefined) return undefined;
  const become = [setpriv, `--reuid=${identity.uid}`, `--regid=${identity.gid}`, '--clear-groups', '--'];
  // What lies in another comes with it.
  const brought = plan.mounts
    .filter(({ from }) => !plan.mounts.some((other) => other.from !== from && isPathWithin(from, other.from)))
    .map(({ from }) => from);
  const stagedAt = (file: string): string => {
    const index = brought.findIndex((folder) => isPathWithin(file, folder));
    return `${STAGE}/${index}${file.slice(brought[index]?.length)}`;
  };
  return {
    plan: { ...plan, mounts: plan.mounts.map((mount) => ({ ...mount, from: stagedAt(mount.from) })) },
    commandPrefix: [unshare, '--mount', '--', '/bin/sh', '-c', BRING, 'stage', ...brought, '--', ...become],
  };
}

/** By the modes of the folders above it; lists of access beyond them are not read, which only costs the detour. */
function isReachable(file: string, { uid, gid }: SandboxUser): boolean {
  for (let folder = path.dirname(file); ; folder = path.dirname(folder)) {
    const { uid: owner, gid: group, mode } = statSync(folder);
    const bit = owner === uid ? 0o100 : group === gid ? 0o010 : 0o001;
    if ((mode & bit) === 0) return false;
    if (path.dirname(folder) === folder) return true;
  }
}
