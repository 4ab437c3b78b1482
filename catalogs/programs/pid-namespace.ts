/** The PID namespace in which this process sees process ids. */
import { readlinkSync } from 'node:fs';

/**
 * Returns the number of the PID namespace of this process; '' if the kernel does not tell. Two containers with one host
 * name give the same id to different processes, and one would take a living process of the other for dead.
 */
export function pidNamespace(): string {
  try {
    return /\d+/.exec(readlinkSync('/proc/self/ns/pid'))?.[0] ?? '';
  } catch {
    return '';
  }
}
