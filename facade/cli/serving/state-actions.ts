/** Runs `state check`, `backup`, `restore` and `repair`. A change of the state is recorded before it is made. */
import path from 'node:path';
import { backUp, checkState, type DatabaseCondition, repair, restore } from '../../state/database-maintenance.ts';
import type { CommonOptions } from '../command-facade.ts';
import { EXIT, type Io } from '../command-io.ts';
import { findCommandState, recordSetup } from '../command-state.ts';
import { json, plural, printable } from '../print.ts';

/** Prints the result of a check. Exit code 1 if the database is damaged or lost. Throws USAGE, STATE_FAILED. */
export async function runStateCheck(options: StateOptions, io: Io): Promise<number> {
  const { state } = findCommandState(options, io);
  const found = checkState(state);
  if (options.json === true) io.stdout(json({ state, ...found }));
  else io.stderr(`${wordsOf(found).map(printable).join('\n')}\n`);
  return found.database === 'damaged' || found.database === 'lost' ? EXIT.unexpected : EXIT.ok;
}

/** Copies the database. Throws USAGE if the file exists, STATE_FAILED, STATE_LOST. */
export async function runStateBackup(options: StateOptions & { readonly file: string }, io: Io): Promise<number> {
  const { state } = findCommandState(options, io);
  const file = path.resolve(io.cwd, options.file);
  const { bytes } = backUp(state, file);
  if (options.json === true) io.stdout(json({ file, bytes }));
  else
    io.stderr(
      `Backed up to ${printable(options.file)} (${bytes} bytes). It contains approvals and grants: keep it where no agent can write.\n`,
    );
  return EXIT.ok;
}

/**
 * Replaces the database by a backup. Throws USAGE for a file that is no backup, STATE_TOO_NEW, STATE_FAILED,
 * AUDIT_FAILED.
 */
export async function runStateRestore(options: StateOptions & { readonly file: string }, io: Io): Promise<number> {
  const { state, audit } = findCommandState(options, io);
  await recordSetup({ event: 'state-restored' }, { audit, user: io.user });
  const { kept } = restore(state, path.resolve(io.cwd, options.file));
  if (options.json === true) io.stdout(json({ restored: true, ...(kept !== undefined && { kept }) }));
  else
    io.stderr(
      `Restored.${kept === undefined ? '' : ` The old database is now ${printable(kept)}.`} Decisions and spending since the backup are lost, including revocations: check tollgate servers, tollgate grants list and tollgate upgrades list. What is stopped stays stopped.\n`,
    );
  return EXIT.ok;
}

/** Keeps what can be read. Throws STATE_FAILED if nothing can be read, STATE_LOST, AUDIT_FAILED. */
export async function runStateRepair(options: StateOptions & { readonly startEmpty?: true }, io: Io): Promise<number> {
  const { state, audit } = findCommandState(options, io);
  const startEmpty = options.startEmpty === true;
  if (!startEmpty && checkState(state).database === 'sound') {
    if (options.json === true) io.stdout(json({ repaired: false }));
    else io.stderr('The database is undamaged. Nothing was changed.\n');
    return EXIT.ok;
  }
  await recordSetup({ event: 'state-repaired' }, { audit, user: io.user });
  const { kept, complete, old } = repair(state, { startEmpty });
  if (options.json === true) io.stdout(json({ repaired: true, kept, complete, ...(old !== undefined && { old }) }));
  else
    io.stderr(
      `${startEmpty ? 'The state is empty: servers must be approved again, and budgets begin again.' : `Kept ${plural(kept.value ?? 0, 'value')} and ${plural(kept.counter ?? 0, 'counter')}.${complete ? '' : ' Others could not be read: check whether a denied grant or a disabled server is missing (tollgate grants list, tollgate servers).'}`}${old === undefined ? '' : ` The old database is now ${printable(old)}.`}\n`,
    );
  return EXIT.ok;
}

function wordsOf({
  database,
  problems,
  version,
  bytes,
  values,
  counters,
  stopped,
  processes,
}: DatabaseCondition): readonly string[] {
  const words = {
    sound: `The state database is undamaged (schema ${version ?? 0}, ${bytes ?? 0} bytes, ${plural(counters ?? 0, 'counter')}).`,
    damaged:
      'The state database is damaged. Restore a backup with `tollgate state restore FILE`, or keep what can be read with `tollgate state repair`.',
    lost: 'The state database was removed. Restore a backup with `tollgate state restore FILE`, or begin with an empty one: `tollgate state repair --start-empty`.',
    none: 'There is no state database yet. The first start makes it.',
  }[database];
  return [
    words,
    ...problems.map((problem) => `  ${problem}`),
    ...Object.entries(values ?? {}).map(([space, count]) => `  ${space}: ${count}`),
    `Stopped: ${stopped.length === 0 ? 'nothing' : stopped.map((name) => (name === '*' ? 'everything' : name)).join(', ')}.`,
    `Tollgate processes that have it open: ${processes}.`,
  ];
}
/** Options of the state commands. `state`: the state folder, for when the configuration cannot be read. */
export interface StateOptions extends Pick<CommonOptions, 'config' | 'json'> {
  readonly state?: string;
}
