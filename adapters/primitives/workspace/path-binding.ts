/** Checks that path arguments lie in the workspace, or in a folder of another workspace that is open to the call. */
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import type { PathHandle } from '../../../catalogs/readers/path-handles.ts';
import { isPathWithin } from '../../../catalogs/readers/path-location.ts';
import { type Awaitable, andThen } from '../../../catalogs/text/awaitable.ts';
import type { UpstreamCall } from '../../port.ts';

/**
 * Returns the path if it lies in the workspace. Throws ARGS_INVALID for an invalid path, DENIED for one that leads
 * outside.
 */
export function bindPath(pathHandle: PathHandle, argument = 'path'): PathHandle {
  const { problem, inside } = pathHandle.location;
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
  return pathHandle;
}

/**
 * As `bindPath`, but accepts open folders of other workspaces. They can be closed at any time, so call this again right
 * before each operation that depends on it.
 */
export function bindOpenPath(
  pathHandle: PathHandle,
  outsideFolders: UpstreamCall['outsideFolders'],
): Awaitable<PathHandle> {
  return andThen(outsideFolderOf(pathHandle, outsideFolders), (folder) =>
    folder === undefined ? bindPath(pathHandle) : pathHandle,
  );
}

/** Returns the open folder of another workspace that contains a path. Returns undefined for a path in the workspace. */
export function outsideFolderOf(
  { location: { problem, inside, absolute } }: PathHandle,
  outsideFolders: UpstreamCall['outsideFolders'],
): Awaitable<string | undefined> {
  if (inside || problem !== undefined || outsideFolders === undefined) return undefined;
  return outsideFolders().then((folders) => folders.find((folder) => isPathWithin(absolute, folder)));
}

/** Returns the components of a path relative to the workspace, none for the root. */
export function pathComponents(relative: string): readonly string[] {
  return relative === '.' ? [] : relative.split('/');
}
