/**
 * Checks again, directly before a start, that the paths for a program are the ones the configuration named, and not too
 * broad.
 */
import { existsSync, realpathSync } from 'node:fs';
import { homedir } from 'node:os';
import path from 'node:path';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { broadFolderProblem } from '../../catalogs/readers/broad-folders.ts';
import { unlessUnreadable } from '../../catalogs/readers/missing-files.ts';
import { isPathWithin } from '../../catalogs/readers/path-location.ts';
import type { SandboxSettings } from './sandbox-spec.ts';

/**
 * Returns the paths that exist. Throws SANDBOX_UNAVAILABLE if one leads through a link: a program with write access to
 * the workspace can replace a checked folder by a link to any other place.
 */
export function unmovedPaths(files: readonly string[], workspace: string): readonly string[] {
  const existing = files.filter((file) => existsSync(file));
  const moved = existing.find((file) => realpathSync(file) !== file);
  if (moved === undefined) return existing;
  const shown = isPathWithin(moved, workspace) ? path.relative(workspace, moved) : path.basename(moved);
  throw new TollgateError('SANDBOX_UNAVAILABLE', {
    detail: `The path "${shown}" leads through a link that did not exist when the configuration was loaded.`,
    next: 'Restore the folder. If the link is yours, load the configuration again, so that Tollgate checks its target.',
  });
}

/**
 * Checks all paths of a server's settings. Throws SANDBOX_UNAVAILABLE, or INIT_FAILED if the working folder is missing.
 */
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
  // In a container, the working folder is a folder of the image.
  const cwdOnHost = isolation === 'container' || cwd === undefined ? [] : [cwd];
  if (cwdOnHost.some((folder) => !existsSync(folder)))
    throw new TollgateError('INIT_FAILED', {
      detail: `Server "${name}" did not start: its folder (cwd) was not found.`,
    });
  unmovedPaths([...cwdOnHost, ...allowRead, ...allowWrite, ...denyRead, ...denyWrite], workspace);
  for (const [setting, files, writable] of [
    ['cwd', cwdOnHost, false],
    ['allowRead', allowRead, false],
    ['allowWrite', allowWrite, true],
  ] as const) {
    const problem = files.map((file) => problemOf(file, writable)).find((one) => one !== undefined);
    if (problem !== undefined)
      throw new TollgateError('SANDBOX_UNAVAILABLE', {
        detail: `Server "${name}" would see too many files because of its ${setting}: ${problem}.`,
      });
  }
}

/** Returns true for a folder that is too broad to be made visible only because a program lies in it. */
export function isTooBroadFolder(folder: string): boolean {
  return problemOf(folder, false) !== undefined;
}

/** Needs no list of hidden paths: every sandbox hides Tollgate's own state. */
function problemOf(file: string, writable: boolean): string | undefined {
  const home = unlessUnreadable(() => realpathSync(homedir())) ?? '/nonexistent';
  return broadFolderProblem(file, writable, { home, hidden: [] });
}
