/** Reads the host's process table, and sends signals to the processes of a sandbox. */
import type { ChildProcess } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { unlessUnreadable } from '../../catalogs/readers/missing-files.ts';

/** The kernel still counts a process that is ending, and /proc no longer shows it. */
const ENDING_PROCESSES = 1;

/** Indexes of fields in /proc/PID/stat after the name (proc_pid_stat(5)). */
const [THREADS, START_TIME] = [17, 19] as const;

/**
 * Returns every process below `first`, without `first`. Reads /proc once, and leaves out processes that end meanwhile.
 */
export function descendantsOf(first: number): readonly number[] {
  const children = new Map<number, number[]>();
  for (const entry of readdirSync('/proc')) {
    const parent = /^\d+$/.test(entry) ? parentOf(entry) : undefined;
    if (parent !== undefined) children.set(parent, [...(children.get(parent) ?? []), Number(entry)]);
  }
  return walkTree(first, (pid) => children.get(pid) ?? []);
}

function walkTree(first: number, childrenOf: (pid: number) => readonly number[]): readonly number[] {
  return childrenOf(first).flatMap((child) => [child, ...walkTree(child, childrenOf)]);
}

/**
 * Returns true if the processes and threads of `first` and its descendants have reached the limit, and the processes
 * alone are at least half of it. A program with many threads, which works well at its limit, does not count as full.
 */
export function isProcessLimitReached(first: number, limit: number): boolean {
  const pids = [first, ...descendantsOf(first)];
  const tasks = pids.reduce((sum, pid) => sum + Number(processFields(pid)[THREADS] ?? 0), 0);
  return tasks >= limit - ENDING_PROCESSES && pids.length >= limit / 2;
}

function parentOf(pid: string): number | undefined {
  const [state, parent] = processFields(pid);
  return state === undefined || isEndedState(state) ? undefined : Number(parent);
}

/**
 * Returns the process's start in clock ticks since boot; 0 if unknown. It tells a process from a later one with its
 * number.
 */
export function startTimeOf(pid: number): number {
  return Number(processFields(pid)[START_TIME] ?? 0);
}

/**
 * Returns true if the process is certainly gone, even if another has its number. A process with an unknown start time
 * counts as alive.
 */
export function isGone(pid: number, startTime: number): boolean {
  if (!signalOne(pid, 0)) return true;
  const now = startTimeOf(pid);
  return now !== 0 && startTime !== 0 && now !== startTime;
}

/** Identifies a process, even after its number belongs to a later one. */
export interface ProcessIdentity {
  readonly pid: number;
  readonly startTime: number;
}

/**
 * Returns true if a process is gone or a zombie. The first process of a PID namespace becomes a zombie when all others
 * in it have ended (pid_namespaces(7)).
 */
export function hasEnded({ pid, startTime }: ProcessIdentity): boolean {
  const fields = processFields(pid);
  const [state] = fields;
  return state === undefined
    ? isGone(pid, startTime)
    : isEndedState(state) || Number(fields[START_TIME] ?? 0) !== startTime;
}

/** Zombie, or dead. */
function isEndedState(state: string): boolean {
  return state === 'Z' || state === 'X';
}

/**
 * Returns every process below `first`, from the kernel's list of children where it exists. Valid while these processes
 * have one thread each, and start and end none.
 */
export function stableDescendantsOf(first: number): readonly number[] {
  const childrenOf = (pid: number): readonly number[] =>
    (readFileSync(`/proc/${pid}/task/${pid}/children`, 'latin1').match(/\d+/g) ?? []).map(Number);
  return unlessUnreadable(() => walkTree(first, childrenOf)) ?? descendantsOf(first);
}

/**
 * Returns the fields after the name: state, parent and so on; none if the process is gone. The name can contain
 * anything except a later `)`.
 */
export function processFields(pid: number | string): readonly string[] {
  const stat = unlessUnreadable(() => readFileSync(`/proc/${pid}/stat`, 'latin1'));
  return stat?.slice(stat.lastIndexOf(')') + 2).split(' ') ?? [];
}

/** Sends a signal to one process. Returns true if the process exists. */
export function signalOne(pid: number, signal: NodeJS.Signals | 0): boolean {
  try {
    process.kill(pid, signal);
    return true;
  } catch (thrown) {
    // EPERM: it exists, and belongs to another user.
    return (thrown as NodeJS.ErrnoException).code === 'EPERM';
  }
}

/** Sends a signal to the group that a detached child leads. Returns false if no process of the group exists. */
export function signalGroup(child: ChildProcess, signal: NodeJS.Signals | 0): boolean {
  return child.pid !== undefined && signalOne(-child.pid, signal);
}
