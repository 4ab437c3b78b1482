/** Owns how what is closed is laid over what is given, and kept in its place; refuses to let a program move it away to uncover it. */
import path from 'node:path';
import { type Confinement, NO_CONFINEMENT } from '../../catalogs/confinement.ts';
import { TollgateError } from '../../catalogs/errors.ts';
import { type Mount, type Plan, unite } from './bubblewrap.ts';
import { type Closed, findClosed, type Given, isWithin } from './closed.ts';
import { asJudged } from './given.ts';
import type { Jail } from './jail.ts';
import { HOME } from './jail.ts';
import { holdNames } from './placeholders.ts';
import { closesGit, type Grounds, settingsIn } from './repositories.ts';

/** What `closeFiles` found and holds. */
export interface Closing {
  readonly closed: Closed;
  /** Frees the names that were missing: for the end of the program. */
  readonly release: () => void;
  /** For watchRepositories; undefined where rules leave the settings of git open. */
  readonly grounds: Grounds | undefined;
  /** Filled while the program runs: places whose mounts are gone. */
  readonly lost: Set<string>;
}

/** The plan with what rules and settings close of it. Throws SANDBOX_UNAVAILABLE as closeFiles and asJudged. */
export async function coverPlan(
  plan: Plan,
  { workspace, confinement = NO_CONFINEMENT, fixed = [] }: Pick<Jail, 'workspace' | 'confinement' | 'fixed'>,
): Promise<{ readonly plan: Plan } & Omit<Closing, 'closed'>> {
  const kept = asJudged(fixed, workspace);
  const writable = plan.mounts.filter((mount) => mount.writable).map(({ to }) => to);
  const { closed, ...closing } = await closeFiles(
    confinement,
    { workspace, roots: outermost(plan.given), writable: outermost(writable), fixed: kept },
    (at) =>
      plan.mounts.findLast(({ to }) => isWithin(at, to))?.writable === true &&
      !plan.masks.some((mask) => isWithin(at, mask)),
  );
  const layers = layOver(plan, withFixed(closed, kept, plan.mounts));
  return {
    plan: { ...plan, ...layers, cwd: layers.masks.some((mask) => isWithin(plan.cwd, mask)) ? HOME : plan.cwd },
    ...closing,
  };
}

/**
 * Finds what rules close, and holds the missing names of it that the program could create: they are read-only too. Throws
 * SANDBOX_UNAVAILABLE as findClosed, and when a name cannot be held.
 */
export async function closeFiles(
  confinement: Confinement,
  given: Given & { readonly writable: readonly string[] },
  isWritable: (at: string) => boolean,
): Promise<Closing> {
  const since = Date.now();
  const { closed: found, names, repositories: known } = await findClosed(confinement, given);
  try {
    const { places, release } = holdNames(names.filter(isWritable));
    const closed = new Map([...found, ...places.map((at) => [at, 'fixed'] as const)]);
    const lost = new Set<string>();
    return {
      closed,
      release,
      lost,
      grounds: closesGit(confinement)
        ? { writable: given.writable, closed, known, since, lost, before: settingsIn(closed.keys(), since) }
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
export type Layers = Pick<Plan, 'mounts' | 'masks'>;

/** Adds what settings keep from being written: a place in a mount, and the mounts in a place that is none. What is hidden stays so. */
export function withFixed(closed: Closed, fixed: readonly string[], mounts: readonly Mount[]): Closed {
  const places = fixed.flatMap((at) => [
    ...mounts.filter(({ to }) => isWithin(to, at)).map(({ to }) => to),
    ...(mounts.some(({ to }) => isWithin(at, to)) ? [at] : []),
  ]);
  return new Map([...places.map((at) => [at, 'fixed'] as const), ...closed]);
}

/** Lays what is closed over what is given. */
export function layOver(given: Layers, closed: Closed): Layers {
  const [hidden, fixed] = (['hidden', 'fixed'] as const).map((one) =>
    [...closed].filter(([, closure]) => closure === one).map(([at]) => at),
  ) as [string[], string[]];
  const masks = outermost([...given.masks, ...hidden]);
  const mounts = unite([
    ...given.mounts.map((mount) =>
      fixed.some((folder) => isWithin(mount.to, folder)) ? { ...mount, writable: false } : mount,
    ),
    ...fixed.map((at) => ({ from: at, to: at, writable: false })),
  ]);
  const kept = [...mounts.map(({ to }) => to), ...masks].flatMap((at) => keepersOf(at, mounts));
  return { masks, mounts: unite([...kept, ...mounts]) };
}

/**
 * The folders between a covered place and the writable mount that it lies in, each mounted on itself: a folder that is no mount
 * could be renamed with the covered place in it, and for the next program no rule would know it by its new name.
 */
function keepersOf(at: string, mounts: readonly Mount[]): readonly Mount[] {
  const holder = mounts.findLast(({ to }) => to !== at && isWithin(at, to));
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
export function outermost(files: readonly string[]): readonly string[] {
  const all = [...new Set(files)].sort((one, other) => one.length - other.length);
  return all.filter((file, index) => !all.slice(0, index).some((folder) => isWithin(file, folder)));
}
