/** Owns where on this machine control groups of sandboxes can be made; refuses a place that would take them out from under a limit that we have. */
import { accessSync, constants, existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';

/** Beneath `folder` control groups that count memory can be made; by which version of the kernel's control groups. */
export interface ControlGroupParent {
  readonly version: 1 | 2;
  readonly folder: string;
}

/** What a place is chosen by: texts of /proc/self/cgroup and /proc/self/mountinfo, and the number that we have there. */
export interface ControlGroupView {
  readonly groups: string;
  readonly mounts: string;
  readonly pid: number;
}

/** Where we go ourselves when we divide a group that is ours alone: only a group without processes may give its own controllers on. */
const OURS = 'tollgate';

/**
 * The place on a machine; undefined when there is none. Version 1: our own group, for root. Version 2: our own group where we are
 * alone in it or it is the root of all, else the nearest group above that gives memory to its children and that we may write, as a
 * desktop session has it; never beyond a group with a limit. Kernel: admin-guide/cgroup-v2, "Delegation".
 */
export function findControlGroupParent(view: ControlGroupView): ControlGroupParent | undefined {
  const first = locate(view, 'memory');
  if (first !== undefined) return isWritable(first.own) ? { version: 1, folder: first.own } : undefined;
  const unified = locate(view, '');
  if (unified === undefined) return undefined;
  const { own, mount } = unified;
  for (let folder = own; ; folder = path.dirname(folder)) {
    if (canHold(folder, own, view.pid)) return { version: 2, folder };
    if (folder === mount || isLimited(folder)) return undefined;
  }
}

/** Our group in the hierarchy with a controller, or in the one of version 2, as a folder that we see. */
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

/** Makes it so where that is needed. */
function canHold(folder: string, own: string, pid: number): boolean {
  if (!isWritable(folder) || !isWritable(path.join(folder, 'cgroup.procs'))) return false;
  if (gives(folder)) return true;
  if (
    folder !== own ||
    path.basename(own) === OURS ||
    !wordsOf(path.join(folder, 'cgroup.controllers')).includes('memory')
  )
    return false;
  try {
    // Only the root of all has no type, and only it may hold processes and groups at once.
    if (existsSync(path.join(folder, 'cgroup.type'))) {
      if (wordsOf(path.join(folder, 'cgroup.procs')).some((member) => member !== `${pid}`)) return false;
      mkdirSync(path.join(folder, OURS), { recursive: true });
      writeFileSync(path.join(folder, OURS, 'cgroup.procs'), `${pid}`);
    }
    const pids = wordsOf(path.join(folder, 'cgroup.controllers')).includes('pids') ? ' +pids' : '';
    writeFileSync(path.join(folder, 'cgroup.subtree_control'), `+memory${pids}`);
    return true;
  } catch {
    // Not delegated after all: the next one above is asked.
    return false;
  }
}

function gives(folder: string): boolean {
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
