/** Owns the processes inside a sandbox as the host sees them; refuses to signal one that is not beneath its first. */
import type { ChildProcess } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';

/** A process that is just ending counts for the kernel still, and not for us. */
const SPARE = 1;

/** Every process beneath `first`, without it. Reads /proc once; a process that ends meanwhile is left out. */
export function descendantsOf(first: number): readonly number[] {
  const children = new Map<number, number[]>();
  for (const entry of readdirSync('/proc')) {
    const parent = /^\d+$/.test(entry) ? parentOf(entry) : undefined;
    if (parent !== undefined) children.set(parent, [...(children.get(parent) ?? []), Number(entry)]);
  }
  const beneath = (pid: number): readonly number[] =>
    (children.get(pid) ?? []).flatMap((child) => [child, ...beneath(child)]);
  return beneath(first);
}

/**
 * True when the processes at `first` and beneath it, with their threads, are as many as they may be, and half of them are processes: a program
 * with many threads works well at its limit.
 */
export function isProcessLimitReached(first: number, limit: number): boolean {
  const pids = [first, ...descendantsOf(first)];
  const tasks = pids.reduce((sum, pid) => sum + Number(fieldsOf(`${pid}`)[17] ?? 0), 0);
  return tasks >= limit - SPARE && pids.length >= limit / 2;
}

function parentOf(pid: string): number | undefined {
  const [state, parent] = fieldsOf(pid);
  return state === undefined || state === 'Z' || state === 'X' ? undefined : Number(parent);
}

/** Clock ticks from boot to its start, which tell it from a later process with its number; 0 where the system does not say. */
export function startTimeOf(pid: number): number {
  return Number(fieldsOf(`${pid}`)[19] ?? 0);
}

/** True when the process that was born then is certainly gone, though another may have its number. Whose birth cannot be read, now or then, lives. */
export function isGone(pid: number, born: number): boolean {
  if (!signalOne(pid, 0)) return true;
  const now = startTimeOf(pid);
  return now !== 0 && born !== 0 && now !== born;
}

/** A process, and when it was born, which tells it from a later one with its number. */
export interface ProcessIdentity {
  readonly pid: number;
  readonly startTime: number;
}

/**
 * True when a process does nothing any more: it is gone, or a zombie. The first process of a PID namespace becomes one when all others in it
 * have ended (pid_namespaces(7)).
 */
export function hasEnded({ pid, startTime: born }: ProcessIdentity): boolean {
  const fields = fieldsOf(`${pid}`);
  const [state] = fields;
  return state === undefined ? isGone(pid, born) : state === 'Z' || state === 'X' || Number(fields[19] ?? 0) !== born;
}

/** All beneath `first` while none of them starts or ends another, and each has one thread: by the kernel's own list, where it keeps one. */
export function stableDescendantsOf(first: number): readonly number[] {
  try {
    const beneath = (pid: number): readonly number[] => childrenOf(pid).flatMap((child) => [child, ...beneath(child)]);
    return beneath(first);
  } catch {
    return descendantsOf(first);
  }
}

function childrenOf(pid: number): readonly number[] {
  return readFileSync(`/proc/${pid}/task/${pid}/children`, 'latin1')
    .split(' ')
    .filter((word) => word !== '')
    .map(Number);
}

/** Fields after the name, which may hold anything up to the last `)`: state, parent, and so on; none when it is gone. */
function fieldsOf(pid: string): readonly string[] {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1');
    return stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  } catch {
    return [];
  }
}

/** Sends a signal to one process; true when it exists. */
export function signalOne(pid: number, signal: NodeJS.Signals | 0): boolean {
  try {
    process.kill(pid, signal);
    return true;
  } catch (thrown) {
    return (thrown as NodeJS.ErrnoException).code === 'EPERM';
  }
}

/** Sends a signal to the whole group that a detached child leads. False when nothing of it exists any more. */
export function signalGroup(child: ChildProcess, signal: NodeJS.Signals | 0): boolean {
  if (child.pid === undefined) return false;
  try {
    process.kill(-child.pid, signal);
    return true;
  } catch (thrown) {
    // EPERM: the group lives under another user, which only a set-uid program can bring about.
    return (thrown as NodeJS.ErrnoException).code === 'EPERM';
  }
}
