/** Owns the signals to a program in a sandbox; refuses to signal a process that only has the number of an earlier one. */
import type { ChildProcess, ChildProcessWithoutNullStreams } from 'node:child_process';
import { signalGroup } from '../process-group.ts';
import type { Jailed } from './jail.ts';
import type { Lifetime } from './lifetime.ts';
import { type Born, descendantsOf, hasEnded, isGone, signalOne } from './tree.ts';

/** Of a sandbox that stands: `first` is its first process, as we number it. */
export function handleOf(child: ChildProcess, first: Born, life: Pick<Lifetime, 'ended'>): Jailed {
  return {
    child: child as ChildProcessWithoutNullStreams,
    signal: (signal) => (signal === 0 ? !hasEnded(first) : signalInside(first, signal)),
    kill: () => killInside(child, first),
    ended: life.ended,
  };
}

/** Ends all of it at once. */
export function killInside(child: ChildProcess, first: Born): void {
  // Asked for after the end too, when its number may be that of another. Bubblewrap reaps its first process and ends with it; killed
  // beside it, it would leave it to process 1 of the machine or container, which may reap nothing.
  if (isGone(first.pid, first.born) || !signalOne(first.pid, 'SIGKILL')) signalGroup(child, 'SIGKILL');
}

/** Bubblewrap would die of a signal without a word to the program: it goes to all processes inside. */
function signalInside(first: Born, signal: NodeJS.Signals): boolean {
  if (hasEnded(first)) return false;
  if (signal === 'SIGKILL') return signalOne(first.pid, signal);
  for (const pid of descendantsOf(first.pid)) signalOne(pid, signal);
  // Also where all of it has ended by now: the signal was for something that was there.
  return true;
}
