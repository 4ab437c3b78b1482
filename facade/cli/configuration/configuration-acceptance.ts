/** Accepts a configuration for its owner: all files on the disk, or only those that a command has written. */
import path from 'node:path';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { isPathWithin } from '../../../catalogs/readers/path-location.ts';
import {
  type Accepted,
  acceptStaged,
  type Contents,
  changedFiles,
  dropStaged,
  exposedReads,
  readAccepted,
  readPlaces,
  stageAccepted,
} from '../../config/accepted-config.ts';
import type { Config } from '../../config/config.ts';
import { type Change, compareConfigs, compareFiles } from '../../config/config-changes.ts';
import { loadConfig } from '../../config/load-config.ts';
import { captureWrites, type Replaced } from '../../config/reading/file-replacement.ts';
import type { World } from '../../config/work-folders.ts';
import { type CommonOptions, readConfig } from '../command-facade.ts';
import { EXIT, type Io } from '../command-io.ts';
import { recordSetup } from '../command-state.ts';
import { printable } from '../print.ts';

/** A copy of the files on the disk that loads, and the changes that accepting it would bring. */
export interface Candidate {
  readonly config: Config;
  readonly staged: Accepted;
  /**
   * The accepted copy that it would replace, and its configuration. Absent the first time, or if the copy no longer
   * loads.
   */
  readonly before?: { readonly accepted: Accepted; readonly config?: Config };
  readonly changes: readonly Change[];
}

const worldOf = ({ env, home }: Pick<Io, 'env' | 'home'>): World => ({ env, home });

/**
 * Copies the files on the disk and loads the copy. Returns undefined if no agent can change any file. Throws
 * CONFIG_INVALID, CONFIG_NOT_ACCEPTED.
 */
export function stageDisk(options: Pick<CommonOptions, 'config'>, io: Io): Candidate | undefined {
  const disk = readConfig(options, io);
  const places = exposedReads(disk);
  if (places.length === 0) return undefined;
  const contents = readPlaces(places);
  const [skipped] = contents.skipped;
  if (skipped !== undefined)
    throw new TollgateError('CONFIG_NOT_ACCEPTED', {
      detail:
        `${shownIn(disk.folder, skipped)} cannot be copied: it is a link to a folder, not a plain file, ` +
        'not readable, or more than 2,000 files or 64 MiB.',
      next:
        'Name a linked folder as a policy of its own, remove files that are not configuration, ' +
        'and run: tollgate reload',
    });
  return candidateOf({ file: disk.file, folder: disk.acceptedFolder, contents }, io);
}

interface Staging {
  readonly file: string;
  /** The folder of accepted copies. */
  readonly folder: string;
  readonly contents: Contents;
}

function candidateOf({ file, folder, contents }: Staging, io: Io): Candidate {
  const accepted = readBefore(folder);
  const staged = stageAccepted(folder, contents);
  try {
    const config = loadConfig(file, { ...worldOf(io), at: staged.at });
    const [unread] = exposedReads(config).filter((name) => !contents.places.includes(name));
    if (unread !== undefined)
      throw new TollgateError('CONFIG_NOT_ACCEPTED', {
        detail:
          `${shownIn(config.folder, unread)} is named by the configuration and was not read with it: ` +
          'a file changed during the read, or is outside of what can be accepted.',
        next: 'Run tollgate reload again. If this repeats, correct the entry that names the file.',
      });
    const old = accepted === undefined ? undefined : loadBefore(file, accepted, io);
    const changes =
      accepted === undefined || old === undefined
        ? []
        : [...compareConfigs(old, config), ...compareFiles(accepted, contents, config)];
    return {
      config,
      staged,
      changes,
      ...(accepted !== undefined && { before: { accepted, ...(old !== undefined && { config: old }) } }),
    };
  } catch (thrown) {
    dropStaged(folder, staged);
    throw thrown;
  }
}

/** A damaged copy counts as no copy. */
function readBefore(folder: string): Accepted | undefined {
  try {
    return readAccepted(folder);
  } catch {
    return undefined;
  }
}

/** An accepted copy may no longer load: a variable is not set here, or Tollgate has become stricter. */
function loadBefore(file: string, accepted: Accepted, io: Io): Config | undefined {
  try {
    return loadConfig(file, { ...worldOf(io), at: accepted.at });
  } catch {
    return undefined;
  }
}

/** Records the acceptance, then puts the copy in force. Throws AUDIT_FAILED. */
export async function accept(
  { config, staged, changes, before }: Candidate,
  { by, io }: { readonly by: string; readonly io: Io },
): Promise<void> {
  const widens = changes.filter((change) => change.widens).length;
  await recordSetup(
    {
      event: 'configuration-accepted',
      accepted: staged.hash,
      files: staged.files.size,
      ...(before !== undefined && { widens }),
    },
    { audit: config.audit, user: io.user },
  );
  acceptStaged(config.acceptedFolder, staged, by);
}

/**
 * Runs a command that edits the configuration, and accepts each file that it wrote if the accepted copy of that file
 * was what the command found. Other differences stay unaccepted, and the user is told. Throws what `work` throws.
 */
export async function accepting(
  options: Pick<CommonOptions, 'config'>,
  io: Io,
  work: () => Promise<number> | number,
): Promise<number> {
  const { result, writes } = await captureWrites(work);
  if (result === EXIT.ok && writes.length > 0) await acceptWritten(options, io, writes);
  return result;
}

/** Accepts the files that a command wrote (see `accepting`). Throws AUDIT_FAILED. */
export async function acceptWritten(
  options: Pick<CommonOptions, 'config'>,
  io: Io,
  writes: readonly Replaced[],
): Promise<void> {
  const disk = readDisk(options, io);
  if (disk === undefined)
    return tell(
      io,
      'Not accepted: the configuration on the disk does not load. `tollgate check` shows why. ' +
        'When it is corrected, run: tollgate reload',
    );
  const accepted = readBefore(disk.acceptedFolder);
  const exposed = exposedReads(disk);
  if (exposed.length === 0) return;
  const touched = writes.filter(({ file }) => exposed.some((place) => isPathWithin(file, place)));
  if (accepted === undefined && touched.length === 0) return;
  // Before the first acceptance, a command accepts the files that it wrote if there are no others.
  const { contents, left } = merged(accepted ?? { places: exposed, files: new Map() }, touched, exposed);
  if (accepted === undefined && (left.length > 0 || changedFiles(contents, readPlaces(exposed)).length > 0))
    return tell(
      io,
      'No owner has accepted this configuration yet, so no agent is served. Read it, then run: tollgate reload',
    );
  if (left.length > 0)
    tell(
      io,
      `Not accepted, because it was changed before: ${shownList(disk.folder, left)}. ` +
        'Read it, then run: tollgate reload',
    );
  try {
    const candidate = candidateOf({ file: disk.file, folder: disk.acceptedFolder, contents }, io);
    if (candidate.staged.hash === accepted?.hash) return;
    await accept(candidate, { by: io.user, io });
  } catch (thrown) {
    if (
      !(thrown instanceof TollgateError) ||
      (thrown.code !== 'CONFIG_INVALID' && thrown.code !== 'CONFIG_NOT_ACCEPTED')
    )
      throw thrown;
    return tell(
      io,
      'Not accepted: together with the files that were accepted before, this configuration does not load. ' +
        'Read what differs, then run: tollgate reload',
    );
  }
  const others = changedFiles(contents, readPlaces(contents.places)).filter((file) => !left.includes(file));
  if (others.length > 0)
    tell(
      io,
      `These files differ from the accepted ones, and are not accepted by this: ${shownList(disk.folder, others)}. ` +
        'Read them, then run: tollgate reload',
    );
}

function readDisk(options: Pick<CommonOptions, 'config'>, io: Io): Config | undefined {
  try {
    return readConfig(options, io);
  } catch (thrown) {
    if (!(thrown instanceof TollgateError) || thrown.code !== 'CONFIG_INVALID') throw thrown;
    return undefined;
  }
}

/**
 * Returns the accepted contents with the written files. A client file that is named for the first time is taken as it
 * is, because it grants nothing.
 */
function merged(
  accepted: Contents,
  writes: readonly Replaced[],
  exposed: readonly string[],
): { readonly contents: Contents; readonly left: readonly string[] } {
  const files = new Map(accepted.files);
  const left: string[] = [];
  for (const { file, before, after } of writes) {
    const known = files.get(file);
    if ((known?.toString('utf8') ?? undefined) !== before) left.push(file);
    else if (after === undefined) files.delete(file);
    else files.set(file, Buffer.from(after));
  }
  const fresh = exposed.filter((place) => !accepted.places.some((known) => isPathWithin(place, known)));
  const own = fresh.filter(
    (place) => /\.(?:jsonc?|toml)$/.test(place) || [...files.keys()].some((file) => isPathWithin(file, place)),
  );
  for (const [file, bytes] of readPlaces(own).files) if (!files.has(file) && own.includes(file)) files.set(file, bytes);
  return { contents: { places: [...new Set([...accepted.places, ...own])], files }, left };
}

function shownIn(folder: string, file: string): string {
  return isPathWithin(file, folder) ? path.relative(folder, file) : file;
}

function shownList(folder: string, files: readonly string[]): string {
  return files.map((file) => shownIn(folder, file)).join(', ');
}

function tell({ stderr }: Pick<Io, 'stderr'>, line: string): void {
  stderr(`${printable(line)}\n`);
}
