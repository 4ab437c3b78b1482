/** Owns the signals to a program in a sandbox; refuses to signal a process that only has the number of an earlier one. */
import type { ChildProcess, ChildProcessWithoutNullStreams } from 'node:child_process';
import { signalGroup } from '../process-group.ts';
import type { Jailed } from './jail.ts';
import { bornAt, descendantsOf, isGone, signalOne } from './tree.ts';

/** Of a sandbox that stands: `inner` is its first process, as we number it. */
export function handleOf(child: ChildProcess, inner: number): Jailed {
  const born = bornAt(inner);
  return {
    child: child as ChildProcessWithoutNullStreams,
    signal: (signal) => signalInside(child, inner, signal),
    kill: () => {
      // Asked for after the end too, when its number may be that of another.
      if (!isGone(inner, born)) signalOne(inner, 'SIGKILL');
      signalGroup(child, 'SIGKILL');
    },
  };
}

/** Bubblewrap would die of a signal without a word to the program: it goes to all processes inside, and 0 asks for the first of them. */
function signalInside(child: ChildProcess, first: number, signal: NodeJS.Signals | 0): boolean {
  if (child.exitCode !== null || child.signalCode !== null) return false;
  if (signal === 0 || signal === 'SIGKILL') return signalOne(first, signal);
  for (const pid of descendantsOf(first)) signalOne(pid, signal);
  return signalOne(first, 0);
}
