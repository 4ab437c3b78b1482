/** Runs `state check`, `backup`, `restore` and `repair`. A change is recorded before it is made. */
import path from 'node:path';
import { backUp, checkState, type DatabaseCondition, repair, restore } from '../../state/database-maintenance.ts';
import type { CommonOptions } from '../command-facade.ts';
import { EXIT, type Io } from '../command-io.ts';
import { findCommandState, recordSetup } from '../command-state.ts';
import { json, plural, printable } from '../print.ts';

/** Options of the state commands. */
export interface StateOptions extends Pick<CommonOptions, 'config' | 'json'> {
  /** The state folder. The configuration is then not read. */
  readonly state?: string;
}

/** Prints the result of a check. Exit code 1 if the database is damaged or lost. Throws USAGE, STATE_FAILED. */
export async function runStateCheck(options: StateOptions, io: Io): Promise<number> {
  const { state } = findCommandState(options, io);
  const found = checkState(state);
  if (options.json === true) io.stdout(json({ state, ...found }));
  else io.stderr(`${conditionLines(found).map(printable).join('\n')}\n`);
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
      `Backed up to ${printable(options.file)} (${bytes} bytes).\n` +
        'The backup contains approvals and grants. Keep it where no agent can write.\n',
    );
  return EXIT.ok;
}

/**
 * Replaces the database with a backup. Throws USAGE for a file that is not a backup, STATE_TOO_NEW, STATE_FAILED,
 * AUDIT_FAILED.
 */
export async function runStateRestore(options: StateOptions & { readonly file: string }, io: Io): Promise<number> {
  const { state, audit } = findCommandState(options, io);
  await recordSetup({ event: 'state-restored' }, { audit, user: io.user });
  const { kept } = restore(state, path.resolve(io.cwd, options.file));
  if (options.json === true) io.stdout(json({ restored: true, ...(kept !== undefined && { kept }) }));
  else
    io.stderr(
      `Restored.${oldDatabase(kept)}\n` +
        'Decisions and spending since the backup are lost, including revocations.\n' +
        'Check tollgate servers, tollgate grants list and tollgate upgrades list.\n' +
        'What is stopped stays stopped.\n',
    );
  return EXIT.ok;
}

/**
 * Makes a new database from the readable part of the old one. Throws STATE_FAILED if nothing can be read, STATE_LOST,
 * AUDIT_FAILED.
 */
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
  else {
    const result = startEmpty
      ? 'The state is empty: servers must be approved again, and budgets start again.'
      : `Kept ${plural(kept.value ?? 0, 'value')} and ${plural(kept.counter ?? 0, 'counter')}.`;
    const lost =
      'Others could not be read. Check whether a denied grant or a disabled server is missing ' +
      '(tollgate grants list, tollgate servers).\n';
    io.stderr(`${result}${oldDatabase(old)}\n${startEmpty || complete ? '' : lost}`);
  }
  return EXIT.ok;
}

function oldDatabase(name: string | undefined): string {
  return name === undefined ? '' : ` The old database is now ${printable(name)}.`;
}

function conditionLines({
  database,
  problems,
  version,
  bytes,
  values,
  counters,
  stopped,
  processes,
}: DatabaseCondition): readonly string[] {
  const size = `schema ${version ?? 0}, ${bytes ?? 0} bytes, ${plural(counters ?? 0, 'counter')}`;
  const restoring = 'Restore a backup with `tollgate state restore FILE`, or';
  const condition = {
    sound: `The state database is undamaged (${size}).`,
    damaged: `The state database is damaged. ${restoring} keep what can be read with \`tollgate state repair\`.`,
    lost: `The state database was removed. ${restoring} run \`tollgate state repair --start-empty\`.`,
    none: 'There is no state database yet. The first start creates it.',
  }[database];
  const stops = stopped.map((name) => (name === '*' ? 'everything' : name)).join(', ') || 'nothing';
  return [
    condition,
    ...problems.map((problem) => `  ${problem}`),
    ...Object.entries(values ?? {}).map(([space, count]) => `  ${space}: ${count}`),
    `Stopped: ${stops}.`,
    `Tollgate processes that have it open: ${processes}.`,
  ];
}
