/** Owns how what is closed is laid over what is given, and kept in its place; refuses to let a program move it away to uncover it. */
import path from 'node:path';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { type Confinement, NO_CONFINEMENT } from '../../../catalogs/readers/confinement.ts';
import { mergeMounts, type SandboxMount, type SandboxPlan } from '../bubblewrap/bubblewrap-arguments.ts';
import { SANDBOX_HOME, type SandboxSpec } from '../sandbox-spec.ts';
import { unmovedPaths } from '../visible-paths.ts';
import { type ClosedPaths, findClosedPaths, isPathWithin, type SearchedPaths } from './closed-paths.ts';
import { closesGitSettings, gitSettingsIn, type RepositoryScope } from './git-repositories.ts';
import { reserveNames } from './placeholders.ts';

/** What `closeFiles` found and holds. */
export interface ClosedFiles {
  readonly closed: ClosedPaths;
  /** Frees the names that were missing: for the end of the program. */
  readonly release: () => void;
  /** For watchRepositories; undefined where rules leave the settings of git open. */
  readonly repositoryScope: RepositoryScope | undefined;
  /** Filled while the program runs: places whose mounts are gone. */
  readonly lost: Set<string>;
}

/** The plan with what rules and settings close of it. Throws SANDBOX_UNAVAILABLE as closeFiles and asJudged. */
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
 * Finds what rules close, and holds the missing names of it that the program could create: they are read-only too. Throws
 * SANDBOX_UNAVAILABLE as findClosed, and when a name cannot be held.
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
      detail: `The name "${path.basename(at)}", which a rule closes, could not be kept from being created (${code}).`,
      next: 'Run it again. If it fails again, make the folder around it writable for Tollgate, or create the file.',
      cause,
    });
  }
}

/** Mounts, outermost first, and what is masked after them. */
export type MountLayers = Pick<SandboxPlan, 'mounts' | 'masks'>;

/** Adds what settings keep from being written: a place in a mount, and the mounts in a place that is none. What is hidden stays so. */
export function withReadOnlyPaths(
  closed: ClosedPaths,
  fixed: readonly string[],
  mounts: readonly SandboxMount[],
): ClosedPaths {
  const places = fixed.flatMap((at) => [
    ...mounts.filter(({ to }) => isPathWithin(to, at)).map(({ to }) => to),
    ...(mounts.some(({ to }) => isPathWithin(at, to)) ? [at] : []),
  ]);
  return new Map([...places.map((at) => [at, 'fixed'] as const), ...closed]);
}

/** Lays what is closed over what is given. */
export function overlayClosedPaths(given: MountLayers, closed: ClosedPaths): MountLayers {
  const [hidden, fixed] = (['hidden', 'fixed'] as const).map((one) =>
    [...closed].filter(([, closure]) => closure === one).map(([at]) => at),
  ) as [string[], string[]];
  const masks = outermostPaths([...given.masks, ...hidden]);
  const mounts = mergeMounts([
    ...given.mounts.map((mount) =>
      fixed.some((folder) => isPathWithin(mount.to, folder)) ? { ...mount, writable: false } : mount,
    ),
    ...fixed.map((at) => ({ from: at, to: at, writable: false })),
  ]);
  const kept = [...mounts.map(({ to }) => to), ...masks].flatMap((at) => keepersOf(at, mounts));
  return { masks, mounts: mergeMounts([...kept, ...mounts]) };
}

/**
 * The folders between a covered place and the writable mount that it lies in, each mounted on itself: a folder that is no mount
 * could be renamed with the covered place in it, and for the next program no rule would know it by its new name.
 */
function keepersOf(at: string, mounts: readonly SandboxMount[]): readonly SandboxMount[] {
  const holder = mounts.findLast(({ to }) => to !== at && isPathWithin(at, to));
  if (holder?.writable !== true) return [];
  const names = path
    .relative(holder.to, path.dirname(at))
    .split('/')
    .filter((name) => name !== '');
  return names
    .map((_, index) => path.join(holder.to, ...names.slice(0, index + 1)))
    .map((folder) => ({ from: folder, to: folder, writable: true }));
}

/** Without those that lie in another. */
export function outermostPaths(files: readonly string[]): readonly string[] {
  const all = [...new Set(files)].sort((one, other) => one.length - other.length);
  return all.filter((file, index) => !all.slice(0, index).some((folder) => isPathWithin(file, folder)));
}
