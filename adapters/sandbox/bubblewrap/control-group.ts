/** Creates the control group of a sandbox, which counts the memory of all its processes together. */
import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { chownSync, existsSync, mkdirSync, readdirSync, readFileSync, rmdirSync, writeFileSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { pidNamespace } from '../../../catalogs/programs/pid-namespace.ts';
import { unlessUnreadable } from '../../../catalogs/readers/missing-files.ts';
import { isGone, startTimeOf } from '../process-tree.ts';
import type { SandboxLimits } from '../sandbox-spec.ts';
import { type ControlGroupParent, findControlGroupParent } from './control-group-parent.ts';

/** Processes of bubblewrap and of the network bridge, in addition to those that the limit means. */
const EXTRA_PROCESSES = 8;
/** Version 1: a shell moves itself, which needs no waiting. */
const ENTER = 'echo 0 >"$0" && exec "$@"';
const REPEAT_MS = 4;
/** A killed process takes some time to disappear. */
const REMOVE_AFTER_MS = [5, 50, 500, 5000];

/** Creates control groups for sandboxes. */
export interface ControlGroups {
  readonly parent: ControlGroupParent;
  /** Creates a group for a program of this user. Throws system errors. */
  make(limits: SandboxLimits, uid: number): ControlGroup;
}

/** One sandbox's control group. */
export interface ControlGroup {
  /**
   * Arguments to put before a program: they run a shell that enters the group and then executes the program. Empty in
   * version 2, where a process cannot move itself.
   */
  readonly commandPrefix: readonly string[];
  /**
   * In version 2, moves a process into the group; the returned function then moves its descendants. Later children
   * start in the group. After a pause, the kernel's first move takes 5 to 20 ms, because it waits for all processors.
   * Meanwhile the setup continues. Moves shortly after another one do not wait, so the first move is repeated until the
   * rest follows. Throws system errors.
   */
  moveIn(first: number): (rest: readonly number[]) => Promise<void>;
  /** Returns true if the kernel killed a process of the group because the group reached its memory limit. */
  hasKilled(): boolean;
  /** Removes the group as soon as it is empty, at the latest at the next start of Tollgate. */
  remove(): void;
}

let own: Promise<ControlGroups | undefined> | undefined;
/** True if a sandbox of this process may have had a control group. */
let wereAvailable = false;

/**
 * Returns the groups of this process, or undefined if the machine allows none. The first call tests them with a short
 * process, and removes groups that killed processes left. Throws if groups were available before and are not now: a
 * sandbox must not have weaker limits than an earlier one.
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
  if (groups === undefined && wereAvailable) {
    forgetControlGroups();
    throw new Error('control groups are no longer available');
  }
  wereAvailable ||= groups !== undefined;
  return groups;
}

/** Makes the next start search again: a service manager may have moved this process and removed its old group. */
export function forgetControlGroups(): void {
  own = undefined;
}

/** Returns the groups of a folder if a process can be moved into one of them. */
export async function tryControlGroups(place: ControlGroupParent | undefined): Promise<ControlGroups | undefined> {
  if (place === undefined) return undefined;
  const groups: ControlGroups = { parent: place, make: (limits, uid) => makeGroup(place, limits, uid) };
  let group: ControlGroup | undefined;
  try {
    removeOrphanGroups(place.folder);
    group = groups.make({ memoryMb: 16, processes: 1, fileMb: 1 }, process.getuid?.() ?? 0);
    return (await canEnter(group)) ? groups : undefined;
  } catch {
    // The kernel does not allow it. `tollgate doctor` shows this.
    return undefined;
  } finally {
    group?.remove();
  }
}

async function canEnter({ commandPrefix, moveIn }: ControlGroup): Promise<boolean> {
  const [command = '', ...args] = [...commandPrefix, '/bin/cat'];
  const trial = spawn(command, args, { stdio: ['pipe', 'ignore', 'ignore'], env: {} });
  const ended = new Promise<boolean>((resolve) =>
    trial.once('error', () => resolve(false)).once('exit', (code) => resolve(code === 0)),
  );
  // Without a number it does not exist. For the kernel, 0 would mean this process.
  if (trial.pid === undefined) return ended;
  trial.stdin.on('error', () => undefined);
  await moveIn(trial.pid)([]).finally(() => trial.stdin.end());
  return ended;
}

/**
 * Returns the limits in the order to write them: with swap must not be less than without. In version 1, TCP is counted
 * separately.
 */
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
    ['pids.max', processes + EXTRA_PROCESSES],
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
    // The process that moves itself already runs as that user. The file is not visible in the sandbox.
    if (version === 1) chownSync(path.join(group, 'tasks'), uid, -1);
  } catch (thrown) {
    removeGroup(group);
    throw thrown;
  }
  const killed = /^oom_kill ([1-9]\d*)/m;
  return {
    commandPrefix: version === 1 ? ['/bin/sh', '-c', ENTER, path.join(group, 'tasks')] : [],
    moveIn:
      version === 1
        ? () => () => Promise.resolve()
        : (first) => moveRepeatedly(path.join(group, 'cgroup.procs'), first),
    hasKilled: () => killed.test(textOf(path.join(group, version === 1 ? 'memory.oom_control' : 'memory.events'))),
    remove: () => void removeSoon(group),
  };
}

function moveRepeatedly(file: string, first: number): (rest: readonly number[]) => Promise<void> {
  let isWaiting = true;
  const moved = writeFile(file, `${first}`);
  const repeated = moved.then(async () => {
    for (; isWaiting; await writeFile(file, `${first}`)) await sleep(REPEAT_MS, undefined, { ref: false });
  });
  // The caller awaits the first move below. Failed repetitions do not matter.
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

/** Returns true if the group is gone. The kernel does not remove a group that contains a process. */
function removeGroup(group: string): boolean {
  try {
    rmdirSync(group);
    return true;
  } catch (thrown) {
    return (thrown as NodeJS.ErrnoException).code === 'ENOENT';
  }
}

/**
 * Removes groups of ended processes. Skips other PID namespaces, where the same number means another process that may
 * still run.
 */
function removeOrphanGroups(folder: string): void {
  for (const name of readdirSync(folder)) {
    const [, namespace, pid, startTime] = /^tollgate-(\d*)-(\d+)-(\d+)-[\da-f]{8}$/.exec(name) ?? [];
    if (namespace === pidNamespace() && isGone(Number(pid), Number(startTime))) removeGroup(path.join(folder, name));
  }
}

function textOf(file: string): string {
  return unlessUnreadable(() => readFileSync(file, 'latin1')) ?? '';
}
