/** Owns where a command finds the state that all processes share, with or without a readable configuration; refuses a folder that holds none. */
import { existsSync } from 'node:fs';
import path from 'node:path';
import { TollgateError } from '../../catalogs/errors.ts';
import { SHIPPED } from '../../catalogs/shipped.ts';
import type { AuditEntry } from '../audit/entry.ts';
import { openAudit } from '../audit/log.ts';
import { WORKSPACE } from '../config/names.ts';
import { quote } from '../config/problems.ts';
import { DATABASE } from '../state/sqlite.ts';
import type { Io } from './io.ts';
import { readConfig, type CommonOptions } from './open.ts';

/** What a command works on. */
export interface Place {
  readonly state: string;
  readonly audit: { readonly folder: string; readonly rotateBytes: number };
  /** Absent where no configuration was read. */
  readonly servers?: readonly string[];
}

const ROTATE_BYTES = 67_108_864;

/** The state folder of a configuration, or the one that `--state` names. Throws USAGE, CONFIG_INVALID. */
export function placeOf(options: Pick<CommonOptions, 'config'> & { readonly state?: string }, io: Io): Place {
  if (options.state !== undefined) {
    const state = path.resolve(io.cwd, options.state);
    // A folder made anew would stop nothing, and say that it did.
    if (!existsSync(path.join(state, DATABASE))) throw new TollgateError('USAGE', { detail: `There is no state of Tollgate in ${quote(options.state)}.`, next: 'Name the folder that `tollgate doctor` shows as the state folder.' });
    return { state, audit: { folder: path.join(state, 'audit'), rotateBytes: ROTATE_BYTES } };
  }
  const config = readConfig(options, io);
  return { state: config.state, audit: config.audit, servers: [WORKSPACE, ...SHIPPED.keys(), ...config.servers.keys()] };
}

/** Appends the records of what a person did at the terminal. Throws AUDIT_FAILED. */
export async function recordActs(options: Place['audit'], acts: readonly AuditEntry[]): Promise<void> {
  const audit = openAudit(options);
  try {
    for (const act of acts) audit.append(act);
  } finally {
    await audit.close();
  }
}
