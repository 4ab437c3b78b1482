/**
 * Finds and opens the state that all processes share, with or without a readable configuration. It refuses a folder
 * that has no state.
 */
import { existsSync } from 'node:fs';
import path from 'node:path';
import { asTollgateError, TollgateError } from '../../catalogs/errors/error-table.ts';
import { SHIPPED } from '../../catalogs/servers/shipped-servers.ts';
import type { AuditEntry, SetupEntry } from '../audit/audit-entry.ts';
import { type AuditLog, type AuditOptions, openAudit, openAuditOnDemand } from '../audit/audit-log.ts';
import type { Config } from '../config/config.ts';
import { quote } from '../config/config-problems.ts';
import { WORKSPACE } from '../config/servers/server-names.ts';
import { guessFolders } from '../config/state-folder-guess.ts';
import { openOwnerState, type StatePlace } from '../secrets/opened-state.ts';
import { DATABASE_FILE } from '../state/sqlite-state.ts';
import type { State } from '../state/state-port.ts';
import { STOPS_FILE, Stops } from '../state/stop-file.ts';
import { type CommonOptions, readForOwner } from './command-facade.ts';
import type { Io } from './command-io.ts';
import { configFile, DEFAULT_CONFIG } from './config-file.ts';
import { printable } from './print.ts';

/** The state folder and audit log that a command works on. */
export interface CommandState {
  readonly state: string;
  readonly audit: Pick<AuditOptions, 'folder' | 'rotateBytes' | 'replica'>;
  /** Absent where no configuration was read. */
  readonly config?: Config;
}

/** Returns the names that a server of a configuration can be stopped by. */
export function serverNames({ servers }: Pick<Config, 'servers'>): readonly string[] {
  return [WORKSPACE, ...SHIPPED.keys(), ...servers.keys()];
}

/** The rotation of an audit log whose configuration is not read, bytes. */
export const ROTATE_BYTES = 67_108_864;

/**
 * Returns the state folder of a configuration, or the one that `--state` names. Without `--config`, the configuration
 * of the current folder or of one above is used. A configuration that is refused does no harm if its state folder can
 * be known: to stop an agent, no one must correct a file first. Throws USAGE.
 */
export function findCommandState(
  options: Pick<CommonOptions, 'config'> & { readonly state?: string },
  io: Io,
): CommandState {
  if (options.state !== undefined) {
    const state = path.resolve(io.cwd, options.state);
    // A new, empty folder would stop nothing.
    if (!holdsState(state))
      throw new TollgateError('USAGE', {
        detail: `There is no state of Tollgate in ${quote(options.state)}.`,
        next: HOW_TO_FIND,
      });
    return { state, audit: { folder: path.join(state, 'audit'), rotateBytes: ROTATE_BYTES } };
  }
  const file = findConfig(options.config, io);
  try {
    const config = readForOwner({ config: file }, io);
    return { state: config.state, audit: config.audit, config };
  } catch (thrown) {
    if (!(thrown instanceof TollgateError) || !['CONFIG_INVALID', 'CONFIG_NOT_ACCEPTED'].includes(thrown.code))
      throw thrown;
    return guessState(file, io);
  }
}

/** Without its database, a state folder can still be stopped. */
function holdsState(folder: string): boolean {
  return [DATABASE_FILE, STOPS_FILE].some((name) => existsSync(path.join(folder, name)));
}

const HOW_TO_FIND =
  'Name the state folder with --state FOLDER. `tollgate doctor` shows it; ' +
  'by default it is a folder in ~/.local/state/tollgate named after the project.';

function findConfig(config: string, io: Io): string {
  const here = configFile(config, io);
  if (config !== DEFAULT_CONFIG || existsSync(here)) return here;
  for (let folder = path.dirname(io.cwd); ; folder = path.dirname(folder)) {
    const file = configFile(config, { ...io, cwd: folder });
    if (existsSync(file)) {
      io.stderr(`Using ${printable(file)}\n`);
      return file;
    }
    if (path.dirname(folder) === folder) return here;
  }
}

function guessState(file: string, { env, home, stderr }: Io): CommandState {
  const found = guessFolders(file, { env, home });
  const shown = quote(path.basename(file));
  const isGone = !existsSync(file);
  if (found === undefined || !holdsState(found.state)) {
    const why =
      found === undefined
        ? 'it does not tell where its state folder is'
        : 'the state folder that it would have is empty';
    const detail = isGone
      ? `There is no ${shown} here or in a folder above, so the state folder is not known.`
      : `${shown} is refused, and ${why}: nothing was changed.`;
    throw new TollgateError('USAGE', { detail, next: HOW_TO_FIND });
  }
  const problem = isGone ? `There is no ${shown} any more` : `${shown} is refused (see: tollgate check)`;
  stderr(`${problem}; names are not compared with it. Using the state folder ${printable(found.state)}\n`);
  return { state: found.state, audit: { folder: found.auditFolder, rotateBytes: ROTATE_BYTES } };
}

/**
 * Adds the user of the machine to an act of a principal, because an agent can be the same principal as its owner. An
 * act of no one gets none.
 */
export function signed<Entry extends AuditEntry>(entry: Entry, { user }: Pick<Io, 'user'>): Entry {
  return 'by' in entry && entry.by !== undefined ? { ...entry, user } : entry;
}

/** Opens a state for `work`, and closes it. Throws STATE_FAILED, STATE_AWAY, and what `work` throws. */
export async function withState<T>(place: StatePlace, work: (state: State) => Promise<T> | T): Promise<T> {
  const state = await openOwnerState(place);
  try {
    return await work(state);
  } finally {
    await state.close();
  }
}

/**
 * Opens the stops of a state folder for `work`. If machines share the state, a stop is made here first, and is then
 * carried to all; `lifts` first needs the store, because a stop that stays there would come back. Throws STATE_FAILED,
 * STATE_AWAY, and what `work` throws.
 */
export async function withStops<T>(
  { state, config }: CommandState,
  work: (stops: Stops) => Promise<T> | T,
  lifts?: 'lifts',
): Promise<T> {
  const shared = config?.store === undefined ? undefined : { ...config, state };
  if (shared !== undefined && lifts !== undefined)
    return withState(shared, async (opened) => {
      const result = await work(opened.stops);
      await opened.shareStops();
      return result;
    });
  const stops = new Stops(state);
  let result: T;
  try {
    result = await work(stops);
  } finally {
    stops.close();
  }
  if (shared === undefined) return result;
  try {
    await withState(shared, (opened) => opened.shareStops());
  } catch (thrown) {
    const { code, message, next } = asTollgateError(thrown);
    throw new TollgateError(code, {
      detail: `Done on this machine. Other machines have not heard of it: ${message}`,
      next: `${next} They hear of it when the store answers and Tollgate runs here.`,
      cause: thrown,
    });
  }
  return result;
}

/** The state, and the audit log that records what a person decides at the terminal. */
export interface DecisionContext {
  readonly state: State;
  readonly audit: AuditLog;
  /** Appends a record with the user of the machine. Throws AUDIT_FAILED. */
  readonly append: (entry: AuditEntry) => void;
}

/**
 * Opens state and audit log of a configuration for `work`, and closes them. Throws STATE_FAILED, and what `work`
 * throws.
 */
export function withDecisions<T>(
  config: StatePlace & Pick<Config, 'audit'>,
  io: Pick<Io, 'user'>,
  work: (context: DecisionContext) => Promise<T> | T,
): Promise<T> {
  return withState(config, async (state) => {
    const audit = openAuditOnDemand(config.audit);
    try {
      return await work({ state, audit, append: (entry) => void audit.append(signed(entry, io)) });
    } finally {
      await audit.close();
    }
  });
}

/** Appends the records of what a person did at the terminal. Throws AUDIT_FAILED. */
export async function recordActs(options: CommandState['audit'], acts: readonly AuditEntry[]): Promise<void> {
  const audit = openAudit(options);
  try {
    for (const act of acts) audit.append(act);
  } finally {
    await audit.close();
  }
}

/**
 * Records a change of the setup by the user of the machine, before the change is made: what cannot be recorded is not
 * done. Throws AUDIT_FAILED.
 */
export function recordSetup(
  entry: Omit<SetupEntry, 'type' | 'outcome' | 'by'>,
  { audit, user }: Pick<CommandState, 'audit'> & Pick<Io, 'user'>,
): Promise<void> {
  return recordActs(audit, [{ type: 'setup', outcome: 'allow', by: user, ...entry }]);
}
