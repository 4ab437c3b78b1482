/** Owns where a command finds the state that all processes share, with or without a readable configuration; refuses a folder that holds none. */
import { existsSync } from 'node:fs';
import path from 'node:path';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { SHIPPED } from '../../catalogs/servers/shipped-servers.ts';
import type { AuditEntry, SetupEntry } from '../audit/audit-entry.ts';
import { openAudit } from '../audit/audit-log.ts';
import { quote } from '../config/config-problems.ts';
import { WORKSPACE } from '../config/servers/server-names.ts';
import { guessFolders } from '../config/state-folder-guess.ts';
import { DATABASE_FILE } from '../state/sqlite-state.ts';
import { STOPS_FILE } from '../state/stop-file.ts';
import { type CommonOptions, readForOwner } from './command-facade.ts';
import type { Io } from './command-io.ts';
import { printable } from './print.ts';

/** What a command works on. */
export interface CommandState {
  readonly state: string;
  readonly audit: { readonly folder: string; readonly rotateBytes: number };
  /** Absent where no configuration was read. */
  readonly servers?: readonly string[];
}

/** Of an audit log whose configuration is not read. */
export const ROTATE_BYTES = 67_108_864;

/** The word that stands where `--config` is not given. */
const CONFIG = 'tollgate.yaml';

/**
 * The state folder of a configuration, or the one that `--state` names. Without `--config` tollgate.yaml is searched upwards from here. A
 * configuration that is refused does not matter where its state folder can be known: who wants to stop an agent must not mend a file first. Throws USAGE.
 */
export function findCommandState(
  options: Pick<CommonOptions, 'config'> & { readonly state?: string },
  io: Io,
): CommandState {
  if (options.state !== undefined) {
    const state = path.resolve(io.cwd, options.state);
    // A folder made anew would stop nothing, and say that it did.
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
    return {
      state: config.state,
      audit: config.audit,
      servers: [WORKSPACE, ...SHIPPED.keys(), ...config.servers.keys()],
    };
  } catch (thrown) {
    if (!(thrown instanceof TollgateError) || !['CONFIG_INVALID', 'CONFIG_NOT_ACCEPTED'].includes(thrown.code))
      throw thrown;
    return placeWithout(file, io);
  }
}

/** A database that was lost is no reason not to stop anything. */
function holdsState(folder: string): boolean {
  return [DATABASE_FILE, STOPS_FILE].some((name) => existsSync(path.join(folder, name)));
}

const HOW_TO_FIND =
  'Name the state folder with --state FOLDER: `tollgate doctor` shows it, and by default it is a folder in ~/.local/state/tollgate named after the project.';

function findConfig(config: string, { cwd, stderr }: Io): string {
  const here = path.resolve(cwd, config);
  if (config !== CONFIG || existsSync(here)) return here;
  for (let folder = path.dirname(cwd); ; folder = path.dirname(folder)) {
    const file = path.join(folder, CONFIG);
    if (existsSync(file)) {
      stderr(`Using ${printable(file)}\n`);
      return file;
    }
    if (path.dirname(folder) === folder) return here;
  }
}

function placeWithout(file: string, { env, home, stderr }: Io): CommandState {
  const found = guessFolders(file, { env, home });
  const shown = quote(path.basename(file));
  const isGone = !existsSync(file);
  if (found === undefined || !holdsState(found.state)) {
    const detail = isGone
      ? `There is no ${shown} here or in a folder above, so the state folder is not known.`
      : `${shown} is refused, and ${found === undefined ? 'where its state folder is cannot be read from it' : 'no state lies in the folder that it would have'}: nothing was changed.`;
    throw new TollgateError('USAGE', { detail, next: HOW_TO_FIND });
  }
  stderr(
    `${isGone ? `There is no ${shown} any more` : `${shown} is refused (see: tollgate check)`}; names are not compared with it. Using the state folder ${printable(found.state)}\n`,
  );
  return { state: found.state, audit: { folder: found.auditFolder, rotateBytes: ROTATE_BYTES } };
}

/** An act with its user of the machine beside the principal: an agent can be the same principal as its owner. What nobody did has none. */
export function signed<Entry extends AuditEntry>(entry: Entry, { user }: Pick<Io, 'user'>): Entry {
  return 'by' in entry && entry.by !== undefined ? { ...entry, user } : entry;
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

/** Writes down that the user of the machine changes the set-up, before it is changed: what cannot be recorded is not done. Throws AUDIT_FAILED. */
export function recordSetup(
  entry: Omit<SetupEntry, 'type' | 'outcome' | 'by'>,
  { audit, user }: Pick<CommandState, 'audit'> & Pick<Io, 'user'>,
): Promise<void> {
  return recordActs(audit, [{ type: 'setup', outcome: 'allow', by: user, ...entry }]);
}
