/** Finds where Tollgate can create control groups for sandboxes. They never escape a limit that Tollgate itself has. */
import { accessSync, constants, existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';

/** A folder for control groups that count memory, and the version of the kernel's control groups. */
export interface ControlGroupParent {
  readonly version: 1 | 2;
  readonly folder: string;
}

/**
 * Input of the search: the texts of /proc/self/cgroup and /proc/self/mountinfo, and the number of this process in them.
 */
export interface ControlGroupView {
  readonly groups: string;
  readonly mounts: string;
  readonly pid: number;
}

/** Subgroup for this process: only a group without processes may pass its controllers to subgroups. */
const OWN_SUBGROUP = 'tollgate';

/**
 * Returns the folder, or undefined. Version 1: the own group, for root. Version 2: the own group if this process is
 * alone in it or if it is the root group. Otherwise the nearest writable group above that passes memory to its
 * children, as in a desktop session. The search ends at a group with a limit. Source: kernel documentation,
 * admin-guide/cgroup-v2, "Delegation".
 */
export function findControlGroupParent(view: ControlGroupView): ControlGroupParent | undefined {
  const first = locate(view, 'memory');
  if (first !== undefined) return isWritable(first.own) ? { version: 1, folder: first.own } : undefined;
  const unified = locate(view, '');
  if (unified === undefined) return undefined;
  const { own, mount } = unified;
  for (let folder = own; ; folder = path.dirname(folder)) {
    if (canCountMemory(folder, own, view.pid)) return { version: 2, folder };
    if (folder === mount || isLimited(folder)) return undefined;
  }
}

/** Returns the folder of the own group in the hierarchy of a controller; `''` means the hierarchy of version 2. */
function locate(
  { groups, mounts }: ControlGroupView,
  controller: string,
): { readonly own: string; readonly mount: string } | undefined {
  const group = groups
    .split('\n')
    .map((line) => /^\d+:([^:]*):(.*)$/.exec(line))
    .find((found) => found?.[1]?.split(',').includes(controller) === true)?.[2];
  if (group === undefined) return undefined;
  for (const line of mounts.split('\n')) {
    const [fields = '', rest = ''] = line.split(' - ');
    const [, , , root = '', mount = ''] = fields.split(' ');
    const [kind, , options = ''] = rest.split(' ');
    const isIt = controller === '' ? kind === 'cgroup2' : kind === 'cgroup' && options.split(',').includes(controller);
    const below = path.relative(root, group);
    if (isIt && !below.startsWith('..')) return { own: path.join(mount, below), mount };
  }
  return undefined;
}

/** Returns true if subgroups of the folder count memory. Turns the counting on if needed. */
function canCountMemory(folder: string, own: string, pid: number): boolean {
  if (!isWritable(folder) || !isWritable(path.join(folder, 'cgroup.procs'))) return false;
  if (passesMemory(folder)) return true;
  if (
    folder !== own ||
    path.basename(own) === OWN_SUBGROUP ||
    !wordsOf(path.join(folder, 'cgroup.controllers')).includes('memory')
  )
    return false;
  try {
    // Only the root group has no type, and only it may contain processes and groups at once.
    if (existsSync(path.join(folder, 'cgroup.type'))) {
      if (wordsOf(path.join(folder, 'cgroup.procs')).some((member) => member !== `${pid}`)) return false;
      mkdirSync(path.join(folder, OWN_SUBGROUP), { recursive: true });
      writeFileSync(path.join(folder, OWN_SUBGROUP, 'cgroup.procs'), `${pid}`);
    }
    const pids = wordsOf(path.join(folder, 'cgroup.controllers')).includes('pids') ? ' +pids' : '';
    writeFileSync(path.join(folder, 'cgroup.subtree_control'), `+memory${pids}`);
    return true;
  } catch {
    // Not delegated. The search continues with the group above.
    return false;
  }
}

function passesMemory(folder: string): boolean {
  return wordsOf(path.join(folder, 'cgroup.subtree_control')).includes('memory');
}

function isLimited(folder: string): boolean {
  return ['memory.max', 'memory.high'].some((name) => wordsOf(path.join(folder, name)).some((word) => word !== 'max'));
}

function isWritable(file: string): boolean {
  try {
    accessSync(file, constants.W_OK);
    return true;
  } catch {
    return false;
  }
}

function wordsOf(file: string): readonly string[] {
  return existsSync(file)
    ? readFileSync(file, 'latin1')
        .split(/\s+/)
        .filter((word) => word !== '')
    : [];
}
