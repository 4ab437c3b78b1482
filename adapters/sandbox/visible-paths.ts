/** Owns the last look at the places that a program is given, right before it starts; refuses one that leads elsewhere than where it was judged, or holds too much. */
import { existsSync, realpathSync } from 'node:fs';
import { homedir } from 'node:os';
import path from 'node:path';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { broadFolderProblem } from '../../catalogs/readers/broad-folders.ts';
import { isPathWithin } from './closed-paths/closed-paths.ts';
import type { SandboxSettings } from './sandbox-spec.ts';

/**
 * Those that exist, each where it was when the configuration was loaded. What works in a workspace may put a link in the place of
 * a folder that was judged there, and the link leads anywhere. Throws SANDBOX_UNAVAILABLE.
 */
export function unmovedPaths(files: readonly string[], workspace: string): readonly string[] {
  const there = files.filter((file) => existsSync(file));
  const moved = there.find((file) => realpathSync(file) !== file);
  if (moved === undefined) return there;
  const shown = isPathWithin(moved, workspace) ? path.relative(workspace, moved) : path.basename(moved);
  throw new TollgateError('SANDBOX_UNAVAILABLE', {
    detail: `The path "${shown}" leads elsewhere than when the configuration was loaded: a link stands in its way.`,
    next: 'Put the folder back; or, if the link is yours, load the configuration again, so that what it leads to is judged.',
  });
}

/** Judges once more all that settings name. Throws SANDBOX_UNAVAILABLE, and INIT_FAILED when the folder to start in is missing. */
export function checkVisiblePaths(
  {
    name,
    isolation,
    cwd,
    sandbox,
  }: {
    readonly name: string;
    readonly isolation?: 'direct' | 'sandbox' | 'container';
    readonly cwd?: string;
    readonly sandbox?: SandboxSettings;
  },
  workspace: string,
): void {
  const { allowRead = [], allowWrite = [], denyRead = [], denyWrite = [] } = sandbox?.filesystem ?? {};
  // In a container it is a folder of the image.
  const place = isolation === 'container' || cwd === undefined ? [] : [cwd];
  if (place.some((folder) => !existsSync(folder)))
    throw new TollgateError('INIT_FAILED', {
      detail: `Server "${name}" did not start: its folder (cwd) was not found.`,
    });
  unmovedPaths([...place, ...allowRead, ...allowWrite, ...denyRead, ...denyWrite], workspace);
  for (const [what, files, writable] of [
    ['cwd', place, false],
    ['allowRead', allowRead, false],
    ['allowWrite', allowWrite, true],
  ] as const) {
    const fault = files.map((file) => faultOf(file, writable)).find((one) => one !== undefined);
    if (fault !== undefined)
      throw new TollgateError('SANDBOX_UNAVAILABLE', {
        detail: `Server "${name}" would be given too much by its ${what}: ${fault}.`,
      });
  }
}

/** True for a folder that nobody named, and that is too broad to be given because a program lies in it. */
export function isTooBroadFolder(folder: string): boolean {
  return faultOf(folder, false) !== undefined;
}

/** Tollgate's own state is covered wherever it lies, so it need not be looked for here. */
function faultOf(file: string, writable: boolean): string | undefined {
  return broadFolderProblem(file, writable, { home: realHome(), hidden: [] });
}

function realHome(): string {
  try {
    return realpathSync(homedir());
  } catch {
    return '/nonexistent';
  }
}
