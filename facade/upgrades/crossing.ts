/** Judges calls whose paths lie in folders of other workspaces. Without the upgrade these folders are closed; with it, `otherWorkspaces` says what is open. */
import { CAPABILITIES } from '../../catalogs/capabilities.ts';
import { TollgateError } from '../../catalogs/errors.ts';
import type { Effect } from '../../policies/port.ts';
import type { Config, OtherWorkspaces } from '../config/config.ts';
import { isWithin } from '../config/files.ts';

/** The capability that opens them. */
export const CROSSING = [...CAPABILITIES.values()].filter((capability) => capability.crosses);

/** True for a call that names a path in one of these folders, or a folder around one. The paths of a call are real, see catalogs/held.ts. */
export function crosses({ read, write }: OtherWorkspaces, { paths }: Pick<Effect, 'paths'>): boolean {
  if (read.length + write.length === 0) return false;
  return paths.some(
    ({ inside, path }) =>
      !inside &&
      path.startsWith('/') &&
      [...read, ...write].some((folder) => isWithin(path, folder) || isWithin(folder, path)),
  );
}

/** The folders that are open to a call of this verb. Throws DENIED for a change in one that is open for reading only. */
export function openFolders(
  { otherWorkspaces: { read, write } }: Pick<Config, 'otherWorkspaces'>,
  { verb, paths }: Pick<Effect, 'verb' | 'paths'>,
  id: string,
): readonly string[] {
  if (verb === 'read') return [...read, ...write];
  if (
    !paths.some(
      ({ inside, path }) => !inside && read.some((folder) => isWithin(path, folder) || isWithin(folder, path)),
    )
  )
    return write;
  const message = 'This folder of another workspace is open for reading only.';
  throw new TollgateError('DENIED', {
    detail: `Refused by rule ${id}: ${message}`,
    next: 'Read it, or tell the user: an owner changes `otherWorkspaces` in tollgate.yaml.',
    data: { reasons: [{ id, message }] },
  });
}
