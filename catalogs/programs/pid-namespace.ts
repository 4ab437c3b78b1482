/** Owns where the numbers of processes that this one sees are those of processes; refuses to compare what lies beyond. */
import { readlinkSync } from 'node:fs';

/**
 * The PID namespace of this process: the number that the kernel gives it; '' where it does not tell. Two containers with one name
 * of a host give the same number to different processes: one of them takes a living process of the other for dead.
 */
export function pidNamespace(): string {
  try {
    return /\d+/.exec(readlinkSync('/proc/self/ns/pid'))?.[0] ?? '';
  } catch {
    return '';
  }
}
