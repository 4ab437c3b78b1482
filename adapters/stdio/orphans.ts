/** Owns the search for processes that left the group of a program started without isolation; refuses to touch one without our mark. */
import { randomBytes } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';

/** Variable in the environment of such a program: `<owner>/<random>`. What it starts inherits it, whatever group or parent it moves to. */
export const MARK_VARIABLE = 'TOLLGATE_SERVER';
/** A program that starts others faster than they are ended does not hold the caller for ever. */
const MOST_SCANS = 40;

/** A mark of one start. `owner` names the facade's process, without `/`. */
export function newProcessMark(owner: string): string {
  return `${owner}/${randomBytes(8).toString('hex')}`;
}

/**
 * Ends at once every process whose mark matches; synchronous, for the exit of our own process too. Answers how many. Linux only. What one of
 * them started during a scan is found by the next: scans end with the second in a row that finds nobody new, and a killed process starts nothing.
 * A process that is becoming another program has no environment for a moment, so who has none for the first time counts as new.
 */
export function killMarked(matches: (mark: string) => boolean): number {
  const ended = new Set<number>();
  const bare = new Set<number>();
  for (let scan = 0, quiet = 0; quiet < 2 && scan < MOST_SCANS; scan += 1) {
    const before = ended.size + bare.size;
    for (const pid of pids()) {
      const mark = ended.has(pid) ? undefined : markOf(pid);
      if (mark === '') bare.add(pid);
      if (mark === undefined || mark === '' || !matches(mark)) continue;
      try {
        process.kill(pid, 'SIGKILL');
        ended.add(pid);
      } catch {
        // It has ended by itself in between.
      }
    }
    quiet = ended.size + bare.size === before ? quiet + 1 : 0;
  }
  return ended.size;
}

function pids(): readonly number[] {
  try {
    return readdirSync('/proc')
      .map(Number)
      .filter((pid) => Number.isInteger(pid) && pid !== process.pid);
  } catch {
    // No /proc: only the group can be ended here.
    return [];
  }
}

/** Empty for a process without an environment; undefined for processes of others, which cannot be read, and for those without a mark. */
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
