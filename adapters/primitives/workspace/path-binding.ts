/** Binds path arguments to the workspace; refuses what leads outside or could be read in two ways. */
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import type { PathHandle } from '../../../catalogs/readers/path-handles.ts';
import { isPathWithin } from '../../../catalogs/readers/path-location.ts';
import type { UpstreamCall } from '../../port.ts';

/** Gives `held` back if it lies in the workspace. Throws ARGS_INVALID for a path that cannot be meant, DENIED for one that leads outside. */
export function bindPath(held: PathHandle, argument = 'path'): PathHandle {
  const { problem, inside } = held.location;
  if (problem !== undefined) {
    throw new TollgateError('ARGS_INVALID', {
      detail: `${argument}: ${problem}.`,
      next: 'Give a plain path relative to the workspace.',
    });
  }
  if (!inside) {
    throw new TollgateError('DENIED', {
      detail: `${argument} leads outside the workspace.`,
      next: 'Use a path inside the workspace; `.` is its root.',
    });
  }
  return held;
}

/** As `bindPath`, for a call to which folders of other workspaces may be open. Ask again before what depends on it: they may be closed meanwhile. */
export async function bindOpenPath(held: PathHandle, beyond: UpstreamCall['outsideFolders']): Promise<PathHandle> {
  return (await outsideFolderOf(held, beyond)) === undefined ? bindPath(held) : held;
}

/** The open folder of another workspace that holds a path; undefined where none does, and for a path in the workspace. */
export async function outsideFolderOf(
  { location: { problem, inside, absolute } }: PathHandle,
  beyond: UpstreamCall['outsideFolders'],
): Promise<string | undefined> {
  if (inside || problem !== undefined || beyond === undefined) return undefined;
  return (await beyond()).find((folder) => isPathWithin(absolute, folder));
}

/** The components of a path relative to the workspace; none for the root. */
export function pathComponents(relative: string): readonly string[] {
  return relative === '.' ? [] : relative.split('/');
}
