/** Owns the control group of one sandbox, which counts all its memory together; refuses to call one made that holds no process. */
import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { chownSync, existsSync, mkdirSync, readdirSync, readFileSync, rmdirSync, writeFileSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { pidNamespace } from '../../../catalogs/programs/pid-namespace.ts';
import { isGone, startTimeOf } from '../process-tree.ts';
import type { SandboxLimits } from '../sandbox-spec.ts';
import { type ControlGroupParent, findControlGroupParent } from './control-group-parent.ts';

/** Processes of bubblewrap and of the way out, which stand beside those that the limit means. */
const OUR_PROCESSES = 8;
/** A thread that moves itself waits for nobody. */
const ENTER = 'echo 0 >"$0" && exec "$@"';
const REPEAT_MS = 4;
/** A process that was killed needs a moment to be gone. */
const REMOVE_AFTER_MS = [5, 50, 500, 5000];

/** Makes the control groups of sandboxes. */
export interface ControlGroups {
  readonly parent: ControlGroupParent;
  /** For a program that this user runs. Throws an error of the system when it cannot be made. */
  make(limits: SandboxLimits, uid: number): ControlGroup;
}

/** One sandbox's control group. */
export interface ControlGroup {
  /** To stand before a program and its arguments: goes into the group and becomes the program. Only version 1 lets a process go by itself; none in version 2. */
  readonly commandPrefix: readonly string[];
  /**
   * In version 2, moves a process in, and then those that it has started by the time they are told; what they start from then on is born in
   * it. The kernel's first move after a while waits until all processors have passed a point, 5 to 20 ms, in which other work can be done.
   * Moves soon after one wait for nothing, so the first is repeated until the rest are told. Throws an error of the system, as for a
   * process that is gone.
   */
  moveIn(first: number): (rest: readonly number[]) => Promise<void>;
  /** True when the kernel ended a process of it, because all together had reached the limit. */
  hasKilled(): boolean;
  /** Takes it away as soon as it is empty; later, if need be, and at our next start at the latest. */
  remove(): void;
}

let own: Promise<ControlGroups | undefined> | undefined;
/** Whether a sandbox of this process may have had one. */
let had = false;

/**
 * The groups of this process; undefined where a machine lets it have none. Found once, by a try with a process of no worth, and what
 * killed processes left is removed then. Throws when there were some and are none any more: no sandbox is held by less than one before it.
 */
export function ownControlGroups(): Promise<ControlGroups | undefined> {
  return (own ??= findOwn());
}

async function findOwn(): Promise<ControlGroups | undefined> {
  const groups = await tryControlGroups(
    findControlGroupParent({
      groups: textOf('/proc/self/cgroup'),
      mounts: textOf('/proc/self/mountinfo'),
      pid: process.pid,
    }),
  );
  if (groups === undefined && had) {
    forgetControlGroups();
    throw new Error('there are no control groups any more');
  }
  had ||= groups !== undefined;
  return groups;
}

/** The next start looks for a place anew: who manages this machine may have moved us, and removed where we were. */
export function forgetControlGroups(): void {
  own = undefined;
}

/** The groups of a place, if a process can be moved into one. */
export async function tryControlGroups(place: ControlGroupParent | undefined): Promise<ControlGroups | undefined> {
  if (place === undefined) return undefined;
  const groups = groupsIn(place);
  let group: ControlGroup | undefined;
  try {
    reapGroups(place.folder);
    group = groups.make({ memoryMb: 16, processes: 1, fileMb: 1 }, process.getuid?.() ?? 0);
    return (await enters(group)) ? groups : undefined;
  } catch {
    // What the kernel does not let us have is none: `tollgate doctor` shows it.
    return undefined;
  } finally {
    group?.remove();
  }
}

async function enters({ commandPrefix: words, moveIn: hold }: ControlGroup): Promise<boolean> {
  const [command = '', ...args] = [...words, '/bin/cat'];
  const trial = spawn(command, args, { stdio: ['pipe', 'ignore', 'ignore'], env: {} });
  const ended = new Promise<boolean>((resolve) =>
    trial.once('error', () => resolve(false)).once('exit', (code) => resolve(code === 0)),
  );
  // Without a number it does not exist, and 0 would mean ourselves.
  if (trial.pid === undefined) return ended;
  trial.stdin.on('error', () => undefined);
  await hold(trial.pid)([]).finally(() => trial.stdin.end());
  return ended;
}

function groupsIn(place: ControlGroupParent): ControlGroups {
  return {
    parent: place,
    make: (limits, uid) => makeGroup(place, limits, uid),
  };
}

/** Each named file that the kernel has, in this order: with swap may not be less than without, and TCP has an account of its own in version 1. */
function settingsOf(
  version: 1 | 2,
  { memoryMb, processes }: SandboxLimits,
): readonly (readonly [name: string, value: number])[] {
  const bytes = memoryMb * 1024 * 1024;
  if (version === 1)
    return [
      ['memory.limit_in_bytes', bytes],
      ['memory.memsw.limit_in_bytes', bytes],
      ['memory.kmem.tcp.limit_in_bytes', bytes],
    ];
  return [
    ['memory.max', bytes],
    ['memory.swap.max', 0],
    ['memory.oom.group', 1],
    ['pids.max', processes + OUR_PROCESSES],
  ];
}

function makeGroup({ version, folder }: ControlGroupParent, limits: SandboxLimits, uid: number): ControlGroup {
  const group = path.join(
    folder,
    `tollgate-${pidNamespace()}-${process.pid}-${startTimeOf(process.pid)}-${randomBytes(4).toString('hex')}`,
  );
  mkdirSync(group);
  try {
    const [needed, ...more] = settingsOf(version, limits).map(
      ([name, value]) => [path.join(group, name), `${value}`] as const,
    );
    if (needed !== undefined) writeFileSync(...needed);
    for (const [file, value] of more) if (existsSync(file)) writeFileSync(file, value);
    // Who goes in by himself is that user already; nobody sees the file from within.
    if (version === 1) chownSync(path.join(group, 'tasks'), uid, -1);
  } catch (thrown) {
    removeGroup(group);
    throw thrown;
  }
  const killed = /^oom_kill ([1-9]\d*)/m;
  return {
    commandPrefix: version === 1 ? ['/bin/sh', '-c', ENTER, path.join(group, 'tasks')] : [],
    moveIn: version === 1 ? () => () => Promise.resolve() : (first) => holdIn(path.join(group, 'cgroup.procs'), first),
    hasKilled: () => killed.test(textOf(path.join(group, version === 1 ? 'memory.oom_control' : 'memory.events'))),
    remove: () => void removeSoon(group),
  };
}

function holdIn(file: string, first: number): (rest: readonly number[]) => Promise<void> {
  let isWaiting = true;
  const moved = writeFile(file, `${first}`);
  const repeated = moved.then(async () => {
    for (; isWaiting; await writeFile(file, `${first}`)) await sleep(REPEAT_MS, undefined, { ref: false });
  });
  // Who waits for the rest hears of the first; a repetition tells nothing.
  repeated.catch(() => undefined);
  return async (rest) => {
    isWaiting = false;
    await moved;
    for (const pid of rest) writeFileSync(file, `${pid}`);
  };
}

async function removeSoon(group: string): Promise<void> {
  for (const ms of REMOVE_AFTER_MS) {
    if (removeGroup(group)) return;
    await sleep(ms, undefined, { ref: false });
  }
  removeGroup(group);
}

/** True when it is gone. One with a process in it stays: the kernel removes no other. */
function removeGroup(group: string): boolean {
  try {
    rmdirSync(group);
    return true;
  } catch (thrown) {
    return (thrown as NodeJS.ErrnoException).code === 'ENOENT';
  }
}

/** Removes the groups of processes that are gone, of this PID namespace alone: elsewhere a number means another process, which may be about to use its own. */
function reapGroups(folder: string): void {
  for (const name of readdirSync(folder)) {
    const [, namespace, pid, born] = /^tollgate-(\d*)-(\d+)-(\d+)-[\da-f]{8}$/.exec(name) ?? [];
    if (namespace === pidNamespace() && isGone(Number(pid), Number(born))) removeGroup(path.join(folder, name));
  }
}

function textOf(file: string): string {
  try {
    return readFileSync(file, 'latin1');
  } catch {
    return '';
  }
}
