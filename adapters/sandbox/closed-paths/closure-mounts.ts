/** Mounts closed paths over the files that a program gets, and keeps the program from moving a closed path away. */
import path from 'node:path';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { type Confinement, NO_CONFINEMENT } from '../../../catalogs/readers/confinement.ts';
import { isPathWithin } from '../../../catalogs/readers/path-location.ts';
import { mergeMounts, type SandboxMount, type SandboxPlan } from '../bubblewrap/bubblewrap-arguments.ts';
import { SANDBOX_HOME, type SandboxSpec } from '../sandbox-spec.ts';
import { unmovedPaths } from '../visible-paths.ts';
import { type ClosedPaths, findClosedPaths, type SearchedPaths } from './closed-paths.ts';
import type { RepositoryScope } from './git-repositories.ts';
import { closesGitSettings, gitSettingsIn } from './git-settings.ts';
import { reserveNames } from './placeholders.ts';

/** The closed paths of a running program. */
export interface ClosedFiles {
  readonly closed: ClosedPaths;
  /** Removes the placeholders. Call it when the program has ended. */
  readonly release: () => void;
  /** For `watchRepositories`. Undefined if rules leave the settings of git open. */
  readonly repositoryScope: RepositoryScope | undefined;
  /** Closed paths whose mounts are gone. Filled while the program runs. */
  readonly lost: Set<string>;
}

/** Closes paths of a plan by rules and settings. Throws SANDBOX_UNAVAILABLE as `closePaths` and `unmovedPaths` do. */
export async function closePlan(
  plan: SandboxPlan,
  { workspace, confinement = NO_CONFINEMENT, fixed = [] }: Pick<SandboxSpec, 'workspace' | 'confinement' | 'fixed'>,
): Promise<{ readonly plan: SandboxPlan } & Omit<ClosedFiles, 'closed'>> {
  const kept = unmovedPaths(fixed, workspace);
  const writable = plan.mounts.filter((mount) => mount.writable).map(({ to }) => to);
  const { closed, ...closing } = await closePaths(
    confinement,
    { workspace, roots: outermostPaths(plan.visible), writable: outermostPaths(writable), fixed: kept },
    (at) =>
      plan.mounts.findLast(({ to }) => isPathWithin(at, to))?.writable === true &&
      !plan.masks.some((mask) => isPathWithin(at, mask)),
  );
  const layers = overlayClosedPaths(plan, withReadOnlyPaths(closed, kept, plan.mounts));
  return {
    plan: {
      ...plan,
      ...layers,
      cwd: layers.masks.some((mask) => isPathWithin(plan.cwd, mask)) ? SANDBOX_HOME : plan.cwd,
    },
    ...closing,
  };
}

/**
 * Finds the paths that rules close. Makes placeholders for missing names that the program could create; they are
 * read-only too. Throws SANDBOX_UNAVAILABLE as `findClosedPaths` does, and if a placeholder cannot be made.
 */
export async function closePaths(
  confinement: Confinement,
  given: SearchedPaths & { readonly writable: readonly string[] },
  isWritable: (at: string) => boolean,
): Promise<ClosedFiles> {
  const since = Date.now();
  const { closed: found, names, repositories: known } = await findClosedPaths(confinement, given);
  try {
    const { places, release } = reserveNames(names.filter(isWritable));
    const closed = new Map([...found, ...places.map((at) => [at, 'fixed'] as const)]);
    const lost = new Set<string>();
    return {
      closed,
      release,
      lost,
      repositoryScope: closesGitSettings(confinement)
        ? { writable: given.writable, closed, known, since, lost, before: gitSettingsIn(closed.keys(), since) }
        : undefined,
    };
  } catch (cause) {
    const { code = 'unknown', path: at = '' } = cause as NodeJS.ErrnoException;
    throw new TollgateError('SANDBOX_UNAVAILABLE', {
      detail: `A rule closes the name "${path.basename(at)}", but Tollgate could not make its placeholder (${code}).`,
      next: 'Run it again. If it fails again, make the folder around it writable for Tollgate, or create the file.',
      cause,
    });
  }
}

/** Mounts, outermost first, and the paths to mask after them. */
export type MountLayers = Pick<SandboxPlan, 'mounts' | 'masks'>;

/**
 * Adds the paths that settings make read-only: a path in a mount, and mounts below a path. Hidden paths stay hidden.
 */
export function withReadOnlyPaths(
  closed: ClosedPaths,
  fixed: readonly string[],
  mounts: readonly SandboxMount[],
): ClosedPaths {
  const places = fixed.flatMap((at) => [
    ...mounts.filter(({ to }) => isPathWithin(to, at)).map(({ to }) => to),
    ...(mounts.some(({ to }) => isPathWithin(at, to)) ? [at] : []),
  ]);
  const others = [...closed].filter(
    ([at, closure]) => closure !== 'open' || !places.some((place) => isPathWithin(at, place)),
  );
  return new Map([...places.map((at) => [at, 'fixed'] as const), ...others]);
}

/** Adds mounts and masks for the closed paths. An open path in a read-only one is as writable as it was given. */
export function overlayClosedPaths(given: MountLayers, closed: ClosedPaths): MountLayers {
  const [hidden, fixed, open] = (['hidden', 'fixed', 'open'] as const).map((one) =>
    [...closed].filter(([, closure]) => closure === one).map(([at]) => at),
  ) as [string[], string[], string[]];
  const isGivenWritable = (at: string): boolean =>
    mergeMounts(given.mounts).findLast(({ to }) => isPathWithin(at, to))?.writable === true;
  const masks = outermostPaths([...given.masks, ...hidden]);
  const mounts = mergeMounts([
    ...given.mounts.map((mount) =>
      fixed.some((folder) => isPathWithin(mount.to, folder)) ? { ...mount, writable: false } : mount,
    ),
    ...fixed.map((at) => ({ from: at, to: at, writable: false })),
    ...open.filter(isGivenWritable).map((at) => ({ from: at, to: at, writable: true })),
  ]);
  const kept = [...mounts.map(({ to }) => to), ...masks].flatMap((at) => anchorsOf(at, mounts));
  return { masks, mounts: mergeMounts([...kept, ...mounts]) };
}

/**
 * Mounts each folder between a closed path and its writable mount on itself. A program could rename a folder that is
 * not a mount, with the closed path in it. No rule would match the new name for the next program.
 */
function anchorsOf(at: string, mounts: readonly SandboxMount[]): readonly SandboxMount[] {
  const around = mounts.findLast(({ to }) => to !== at && isPathWithin(at, to));
  if (around?.writable !== true) return [];
  const names = path
    .relative(around.to, path.dirname(at))
    .split('/')
    .filter((name) => name !== '');
  return names
    .map((_, index) => path.join(around.to, ...names.slice(0, index + 1)))
    .map((folder) => ({ from: folder, to: folder, writable: true }));
}

/** Returns the paths that do not lie in another one of them. */
export function outermostPaths(files: readonly string[]): readonly string[] {
  const all = [...new Set(files)].sort((one, other) => one.length - other.length);
  return all.filter((file, index) => !all.slice(0, index).some((folder) => isPathWithin(file, folder)));
}
