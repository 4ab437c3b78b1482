/**
 * Starts bubblewrap as the program's user. As root, first mounts folders that this user cannot reach where it can reach
 * them.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { statSync } from 'node:fs';
import path from 'node:path';
import { findHelper } from '../../../catalogs/programs/helper-programs.ts';
import { isPathWithin } from '../../../catalogs/readers/path-location.ts';
import { withoutInheritedDescriptors } from '../inherited-descriptors.ts';
import type { SandboxUser } from '../sandbox-spec.ts';
import type { SandboxPlan } from './bubblewrap-arguments.ts';

/** A folder that every Linux has. A tmpfs covers it in the mount namespace of one start only. */
const STAGE = '/dev/shm';

/**
 * Runs in its own mount namespace. It replaces itself by the rest of its arguments, so that no other process stays in
 * between.
 */
const STAGE_MOUNTS = `mount -t tmpfs -o mode=0711,size=4m stage ${STAGE} || exit 1
n=0; while [ "$1" != -- ]; do
if [ -d "$1" ]; then mkdir ${STAGE}/$n; else : >${STAGE}/$n; fi
mount --rbind "$1" ${STAGE}/$n || exit 1; n=$((n+1)); shift
done; shift; exec "$@"`;

/**
 * A plan with folders that the user can reach, and the command that mounts them there. The command goes before that of
 * bubblewrap.
 */
export interface StagedPlan {
  readonly plan: SandboxPlan;
  readonly commandPrefix: readonly string[];
}

/**
 * Plans the mounts of folders below /root or in another private folder. bubblewrap runs as the owner of the workspace,
 * who cannot name them, so root mounts them in a folder that the owner can reach. Undefined if this is not needed, or
 * if its programs are missing.
 */
export function stagePlan(plan: SandboxPlan, identity: SandboxUser): StagedPlan | undefined {
  if (!identity.drop || plan.mounts.every(({ from }) => isReachable(from, identity))) return undefined;
  const [unshare, setpriv] = [findHelper('unshare'), findHelper('setpriv')];
  if (unshare === undefined || setpriv === undefined) return undefined;
  const changeUser = [setpriv, `--reuid=${identity.uid}`, `--regid=${identity.gid}`, '--clear-groups', '--'];
  // A mount includes the folders inside it.
  const staged = plan.mounts
    .filter(({ from }) => !plan.mounts.some((other) => other.from !== from && isPathWithin(from, other.from)))
    .map(({ from }) => from);
  const stagedAt = (file: string): string => {
    const index = staged.findIndex((folder) => isPathWithin(file, folder));
    return `${STAGE}/${index}${file.slice(staged[index]?.length)}`;
  };
  return {
    plan: { ...plan, mounts: plan.mounts.map((mount) => ({ ...mount, from: stagedAt(mount.from) })) },
    commandPrefix: [unshare, '--mount', '--', '/bin/sh', '-c', STAGE_MOUNTS, 'stage', ...staged, '--', ...changeUser],
  };
}

/**
 * Decides by the modes of the folders above. It ignores access control lists; at worst a mount is staged without need.
 */
function isReachable(file: string, { uid, gid }: SandboxUser): boolean {
  for (let folder = path.dirname(file); ; folder = path.dirname(folder)) {
    const { uid: owner, gid: group, mode } = statSync(folder);
    const bit = owner === uid ? 0o100 : group === gid ? 0o010 : 0o001;
    if ((mode & bit) === 0) return false;
    if (path.dirname(folder) === folder) return true;
  }
}

/** Starts bubblewrap as the leader of a process group. `groupPrefix` enters a control group first. */
export function spawnBubblewrap(
  bubblewrap: readonly string[],
  {
    identity,
    staged,
    stdio,
    groupPrefix = [],
  }: {
    readonly identity: SandboxUser;
    readonly staged: StagedPlan | undefined;
    readonly stdio: readonly ('pipe' | 'ignore' | number)[];
    readonly groupPrefix?: readonly string[];
  },
): ChildProcess {
  const [command = '', ...args] = [...groupPrefix, ...(staged?.commandPrefix ?? []), ...bubblewrap];
  return withoutInheritedDescriptors(stdio, (descriptors) =>
    spawn(command, args, {
      // bubblewrap gets its options by descriptor. The sandbox can read the environment of bubblewrap.
      env: {},
      cwd: '/',
      detached: true,
      shell: false,
      stdio: descriptors,
      ...(identity.drop && staged === undefined && { uid: identity.uid, gid: identity.gid }),
    }),
  );
}
