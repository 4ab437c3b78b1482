/** Owns the question whether a process that left something behind still lives; refuses to take a reused pid for it. */
import { readFileSync } from 'node:fs';

/** A process, told apart from a later one with the same number: `born` is boot and start tick, '' where the system does not tell. */
export interface ProcessMark {
  readonly pid: number;
  readonly born: string;
}

/** The mark of this very process. */
export const OWN_MARK: ProcessMark = { pid: process.pid, born: readStat(process.pid)?.born ?? '' };

/** True while the marked process runs. A zombie holds nothing any more and counts as dead. */
export function isAlive(mark: ProcessMark): boolean {
  if (!answersSignal(mark.pid)) return false;
  const stat = readStat(mark.pid);
  if (stat === undefined) return true;
  if (stat.state === 'Z' || stat.state === 'X') return false;
  return mark.born === '' || stat.born === mark.born;
}

function answersSignal(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    // EPERM: it lives, but belongs to somebody else.
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}

/** Reads Linux's /proc; undefined elsewhere or when the process is gone. */
function readStat(pid: number): { readonly state: string; readonly born: string } | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1');
    const boot = readFileSync('/proc/sys/kernel/random/boot_id', 'latin1').slice(0, 8);
    // The name in brackets may hold spaces and brackets itself (proc(5)), so count from the last one.
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    return { state: fields[0] ?? '', born: `${boot}.${fields[19] ?? ''}` };
  } catch {
    return undefined;
  }
}
