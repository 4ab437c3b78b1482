/** Finds and ends orphans of servers that run without isolation. It touches no process without our mark. */
import { randomBytes } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { unlessUnreadable } from '../../catalogs/readers/missing-files.ts';
import { processFields } from '../sandbox/process-tree.ts';

/** Environment variable of such a server: `<owner>/<random>`. Its child processes inherit it, in any process group. */
export const MARK_VARIABLE = 'TOLLGATE_SERVER';
/** Bounds the time, because a program may start processes faster than they can be ended. */
const MAX_SCANS = 100;
/** Milliseconds between two scans while a process is in the middle of `execve`. */
const PAUSE = 1;

/** Returns the mark of one start. `owner` names the facade's process, without `/`. */
export function newProcessMark(owner: string): string {
  return `${owner}/${randomBytes(8).toString('hex')}`;
}

/**
 * Kills every process whose mark matches, and returns their number. Linux only. Synchronous, so that it also works when
 * this process exits. A process may start others during a scan, so scans repeat until two in a row find nothing to kill
 * and no process in the middle of `execve`, because that one has no environment yet.
 */
export function killMarked(matches: (mark: string) => boolean): number {
  const ended = new Set<number>();
  for (let scan = 0, quiet = 0; quiet < 2 && scan < MAX_SCANS; scan += 1) {
    const before = ended.size;
    let starting = false;
    for (const pid of pids().filter((one) => !ended.has(one))) {
      const mark = markOf(pid);
      if (mark === '') starting ||= isStarting(pid);
      else if (mark !== undefined && matches(mark) && isKilled(pid)) ended.add(pid);
    }
    quiet = ended.size === before && !starting ? quiet + 1 : 0;
    if (starting) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, PAUSE);
  }
  return ended.size;
}

/**
 * Returns true if a process whose environment reads as empty is in the middle of `execve`. In proc(5), an ended process
 * and a kernel thread have no memory (vsize, field 23). The environment of a program lies between env_start and env_end
 * (fields 50 and 51): they are 0 until it is in place, and equal if it is really empty.
 */
function isStarting(pid: number): boolean {
  // The first of these is field 3.
  const fields = processFields(pid);
  const [vsize = '0', start, end] = [fields[20], fields[47], fields[48]];
  return vsize !== '0' && (start === '0' || start !== end);
}

/** Returns false if the process has already ended. */
function isKilled(pid: number): boolean {
  return unlessUnreadable(() => process.kill(pid, 'SIGKILL')) === true;
}

function pids(): readonly number[] {
  // Without /proc, only the process group can be ended.
  return (unlessUnreadable(() => readdirSync('/proc')) ?? [])
    .map(Number)
    .filter((pid) => Number.isInteger(pid) && pid !== process.pid);
}

/** Returns '' for a process without an environment, and undefined if it has no mark or belongs to another user. */
function markOf(pid: number): string | undefined {
  const environment = unlessUnreadable(() => readFileSync(`/proc/${pid}/environ`, 'latin1'));
  if (environment === '') return '';
  const entry = environment?.split('\0').find((one) => one.startsWith(`${MARK_VARIABLE}=`));
  return entry?.slice(MARK_VARIABLE.length + 1);
}
