/** Binds path arguments to the workspace; refuses what leads outside or could be read in two ways. */
import { TollgateError } from '../../catalogs/errors.ts';
import type { Held } from '../../catalogs/held.ts';

/** Gives `held` back if it lies in the workspace. Throws ARGS_INVALID for a path that cannot be meant, DENIED for one that leads outside. */
export function bindPath(held: Held, argument = 'path'): Held {
  const { problem, inside } = held.location;
  if (problem !== undefined) {
    throw new TollgateError('ARGS_INVALID', { detail: `${argument}: ${problem}.`, next: 'Give a plain path relative to the workspace.' });
  }
  if (!inside) {
    throw new TollgateError('DENIED', { detail: `${argument} leads outside the workspace.`, next: 'Use a path inside the workspace; `.` is its root.' });
  }
  return held;
}

/** The components of a path relative to the workspace; none for the root. */
export function namesOf(relative: string): readonly string[] {
  return relative === '.' ? [] : relative.split('/');
}
