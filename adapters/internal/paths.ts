/** Owns the binding of a path argument to the workspace; refuses what leads outside or could be read in two ways. */
import { TollgateError } from '../../catalogs/errors.ts';
import { locate } from '../../catalogs/paths.ts';
import type { Location } from '../../catalogs/paths.ts';

/** Binds `raw` to the workspace. Throws ARGS_INVALID for a path that cannot be meant, DENIED for one that leads outside. */
export function bindPath(root: string, raw: string, argument = 'path'): Location {
  const location = locate([root], raw);
  if (location.problem !== undefined) {
    throw new TollgateError('ARGS_INVALID', { detail: `${argument}: ${location.problem}.`, next: 'Give a plain path relative to the workspace.' });
  }
  if (!location.inside) {
    throw new TollgateError('DENIED', { detail: `${argument} leads outside the workspace.`, next: 'Use a path inside the workspace; `.` is its root.' });
  }
  return location;
}

/** The components of a path relative to the workspace; none for the root. */
export function namesOf(relative: string): readonly string[] {
  return relative === '.' ? [] : relative.split('/');
}
