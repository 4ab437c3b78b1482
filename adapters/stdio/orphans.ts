/** Finds and ends orphans of servers that run without isolation. It touches no process without our mark. */
import { randomBytes } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';

/** Environment variable of such a server: `<owner>/<random>`. Its child processes inherit it, in any process group. */
export const MARK_VARIABLE = 'TOLLGATE_SERVER';
/** Bounds the time, because a program may start processes faster than they can be ended. */
const MAX_SCANS = 40;

/** Returns the mark of one start. `owner` names the facade's process, without `/`. */
export function newProcessMark(owner: string): string {
  return `${owner}/${randomBytes(8).toString('hex')}`;
}

/**
 * Kills every process whose mark matches, and returns their number. Linux only. Synchronous, so that it also works when
 * this process exits. A process may start others during a scan, so scans repeat until two in a row find none that is
 * new. During `execve` a process has no environment for a moment. Such a process counts as new the first time.
 */
export function killMarked(matches: (mark: string) => boolean): number {
  const ended = new Set<number>();
  const bare = new Set<number>();
  for (let scan = 0, quiet = 0; quiet < 2 && scan < MAX_SCANS; scan += 1) {
    const before = ended.size + bare.size;
    for (const pid of pids().filter((one) => !ended.has(one))) {
      const mark = markOf(pid);
      if (mark === '') bare.add(pid);
      else if (mark !== undefined && matches(mark) && isKilled(pid)) ended.add(pid);
    }
    quiet = ended.size + bare.size === before ? quiet + 1 : 0;
  }
  return ended.size;
}

/** Returns false if the process has already ended. */
function isKilled(pid: number): boolean {
  try {
    return process.kill(pid, 'SIGKILL');
  } catch {
    return false;
  }
}

function pids(): readonly number[] {
  try {
    return readdirSync('/proc')
      .map(Number)
      .filter((pid) => Number.isInteger(pid) && pid !== process.pid);
  } catch {
    // Without /proc, only the process group can be ended.
    return [];
  }
}

/** Returns '' for a process without an environment, and undefined if it has no mark or belongs to another user. */
function markOf(pid: number): string | undefined {
  try {
    const environment = readFileSync(`/proc/${pid}/environ`, 'latin1');
    return environment === ''
      ? ''
      : environment
          .split('\0')
          .find((entry) => entry.startsWith(`${MARK_VARIABLE}=`))
          ?.slice(MARK_VARIABLE.length + 1);
  } catch {
    return undefined;
  }
}
