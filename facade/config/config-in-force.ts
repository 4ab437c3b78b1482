/** Loads the configuration in force. If an agent could change its files, this is the copy that an owner accepted. */
import path from 'node:path';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { isPathWithin } from '../../catalogs/readers/path-location.ts';
import {
  type Accepted,
  acceptedFolder,
  changedFiles,
  exposedReads,
  readAccepted,
  readPlaces,
} from './accepted-config.ts';
import type { Config } from './config.ts';
import { loadConfig } from './load-config.ts';
import type { World } from './work-folders.ts';

/** The configuration in force, and how the disk differs from it. */
export interface InForce {
  readonly config: Config;
  /** Absent if no agent can change any file of the configuration. */
  readonly accepted?: Accepted;
  /** Files that differ from the accepted copy and are not in force, as people write them. */
  readonly differing: readonly string[];
}

/**
 * Loads the accepted copy; files that no agent can change are read from the disk. Throws CONFIG_NOT_ACCEPTED if an
 * agent can change a file that no owner has accepted, and CONFIG_INVALID.
 */
export function loadInForce(file: string, world: World): InForce {
  const accepted = readAccepted(acceptedFolder(file, world));
  if (accepted === undefined) return { config: refuseUnaccepted(loadConfig(file, world), new Set()), differing: [] };
  const differing = differingFiles(accepted, path.dirname(path.resolve(file)));
  try {
    return {
      config: refuseUnaccepted(loadConfig(file, { ...world, at: accepted.at }), new Set(accepted.places)),
      accepted,
      differing,
    };
  } catch (thrown) {
    throw withHint(thrown, differing);
  }
}

/**
 * Returns files on the disk that differ from the accepted copy, relative to the folder of the configuration if they are
 * in it.
 */
export function differingFiles(accepted: Accepted, folder: string): readonly string[] {
  return changedFiles(accepted, readPlaces(accepted.places)).map((file) =>
    isPathWithin(file, folder) ? path.relative(folder, file) : file,
  );
}

/** Returns one line about files that are not in force, at most eight by name; undefined if there are none. */
export function differenceNote(differing: readonly string[]): string | undefined {
  if (differing.length === 0) return undefined;
  const more = differing.length > 8 ? ` and ${differing.length - 8} more` : '';
  return (
    `Not in force: ${differing.slice(0, 8).join(', ')}${more} ${differing.length === 1 ? 'differs' : 'differ'} ` +
    'from what an owner accepted. Read the changes, then accept them with: tollgate reload'
  );
}

function refuseUnaccepted(config: Config, accepted: ReadonlySet<string>): Config {
  const unaccepted = exposedReads(config)
    .filter((file) => !accepted.has(file))
    .map((file) => (isPathWithin(file, config.folder) ? path.relative(config.folder, file) : file));
  if (unaccepted.length === 0) return config;
  const names =
    unaccepted.length > 4
      ? `${unaccepted.slice(0, 4).join(', ')} and ${unaccepted.length - 4} more`
      : unaccepted.join(', ');
  throw new TollgateError('CONFIG_NOT_ACCEPTED', {
    detail:
      `No owner has accepted ${names}, which an agent could have written: ` +
      `${unaccepted.length === 1 ? 'it is' : 'they are'} in the workspace or in a folder that a sandbox may write.`,
  });
}

/** Adds a hint to the error of an accepted copy, because the file on the disk may be corrected already. */
function withHint(thrown: unknown, differing: readonly string[]): unknown {
  if (!(thrown instanceof TollgateError) || thrown.code !== 'CONFIG_INVALID' || differing.length === 0) return thrown;
  return new TollgateError('CONFIG_INVALID', {
    detail: `${thrown.message} This is the accepted configuration. The disk differs: ${differing.join(', ')}.`,
    next: 'Correct the named problems, then accept the files on the disk with: tollgate reload',
    data: thrown.data,
    cause: thrown,
  });
}
