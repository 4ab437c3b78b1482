/** Runs `state check`, `migrate`, `backup`, `restore` and `repair`. A change is recorded before it is made. */
import path from 'node:path';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import type { Config } from '../../config/config.ts';
import { Redactor } from '../../output/redactor.ts';
import { hasState, openOwnerState, openStore } from '../../secrets/opened-state.ts';
import { backUp, checkState, type DatabaseCondition, repair, restore } from '../../state/database-maintenance.ts';
import type { SharedStore, StoreWrite } from '../../state/shared/shared-store.ts';
import { openState, STOPS_NOTED } from '../../state/sqlite-state.ts';
import type { ValueChange } from '../../state/state-values.ts';
import { type CommonOptions, readForOwner } from '../command-facade.ts';
import { EXIT, type Io } from '../command-io.ts';
import { type CommandState, findCommandState, recordSetup } from '../command-state.ts';
import { plural, printable, printResult } from '../print.ts';

/** Options of the state commands. */
export interface StateOptions extends Pick<CommonOptions, 'config' | 'json'> {
  /** The state folder. The configuration is then not read. */
  readonly state?: string;
}

/** Prints the result of a check. Exit code 1 if the database is damaged or lost. Throws USAGE, STATE_FAILED. */
export async function runStateCheck(options: StateOptions, io: Io): Promise<number> {
  const { state, config } = findCommandState(options, io);
  if (config?.store !== undefined) return checkStore(config, options, io);
  const found = checkState(state);
  printResult({ io, options }, { state, ...found }, conditionLines(found).map(printable).join('\n'));
  return found.database === 'damaged' || found.database === 'lost' ? EXIT.unexpected : EXIT.ok;
}

/** Copies the database. Throws USAGE if the file exists, STATE_FAILED, STATE_LOST. */
export async function runStateBackup(options: StateOptions & { readonly file: string }, io: Io): Promise<number> {
  const { state } = findOwnDatabase(options, io);
  const file = path.resolve(io.cwd, options.file);
  const { bytes } = backUp(state, file);
  printResult(
    { io, options },
    { file, bytes },
    `Backed up to ${printable(options.file)} (${bytes} bytes).\n` +
      'The backup contains approvals and grants. Keep it where no agent can write.',
  );
  return EXIT.ok;
}

/**
 * Replaces the database with a backup. Throws USAGE for a file that is not a backup, STATE_TOO_NEW, STATE_FAILED,
 * AUDIT_FAILED.
 */
export async function runStateRestore(options: StateOptions & { readonly file: string }, io: Io): Promise<number> {
  const { state, audit } = findOwnDatabase(options, io);
  await recordSetup({ event: 'state-restored' }, { audit, user: io.user });
  const { kept } = restore(state, path.resolve(io.cwd, options.file));
  printResult(
    { io, options },
    { restored: true, ...(kept !== undefined && { kept }) },
    `Restored.${oldDatabase(kept)}\n` +
      'Decisions and spending since the backup are lost, including revocations.\n' +
      'Check tollgate servers, tollgate grants list and tollgate upgrades list.\n' +
      'What is stopped stays stopped.',
  );
  return EXIT.ok;
}

/**
 * Makes a new database from the readable part of the old one. Throws STATE_FAILED if nothing can be read, STATE_LOST,
 * AUDIT_FAILED.
 */
export async function runStateRepair(options: StateOptions & { readonly startEmpty?: true }, io: Io): Promise<number> {
  const { state, audit } = findOwnDatabase(options, io);
  const startEmpty = options.startEmpty === true;
  if (!startEmpty && checkState(state).database === 'sound') {
    printResult({ io, options }, { repaired: false }, 'The database is undamaged. Nothing was changed.');
    return EXIT.ok;
  }
  await recordSetup({ event: 'state-repaired' }, { audit, user: io.user });
  const { kept, complete, old } = repair(state, { startEmpty });
  const result = startEmpty
    ? 'The state is empty: servers must be approved again, and budgets start again.'
    : `Kept ${plural(kept.value ?? 0, 'value')} and ${plural(kept.counter ?? 0, 'counter')}.`;
  const lost =
    '\nOthers could not be read. Check whether a denied grant or a disabled server is missing ' +
    '(tollgate grants list, tollgate servers).';
  printResult(
    { io, options },
    { repaired: true, kept, complete, ...(old !== undefined && { old }) },
    `${result}${oldDatabase(old)}${startEmpty || complete ? '' : lost}`,
  );
  return EXIT.ok;
}

/** Returns the state of a folder. Throws USAGE if it is in a store, which has its own tools for this. */
function findOwnDatabase(options: StateOptions, io: Io): CommandState {
  const place = findCommandState(options, io);
  if (place.config?.store === undefined) return place;
  const tool = place.config.store.kind === 'postgres' ? 'pg_dump and pg_restore' : 'the append-only files of Redis';
  throw new TollgateError('USAGE', {
    detail: 'The state is in a store that machines share, and has no database in its folder.',
    next: `Back it up and restore it with ${tool}.`,
  });
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

/**
 * Creates or upgrades what the store holds. A new one gets the decisions of the state folder. It is recorded first.
 * Throws CONFIG_INVALID, STATE_AWAY, STATE_FAILED, STATE_TOO_NEW, AUDIT_FAILED.
 */
export async function runStateMigrate(options: StateOptions, io: Io): Promise<number> {
  const config = readForOwner(options, io);
  if (config.store === undefined) {
    // The database of a folder is upgraded when it is opened.
    await (await openOwnerState(config)).close();
    printResult({ io, options }, { store: null }, 'The state is in its folder, and is up to date.');
    return EXIT.ok;
  }
  await recordSetup({ event: 'state-migrated' }, { audit: config.audit, user: io.user });
  const store = await openStore(config, config.store, new Redactor());
  try {
    const { from, to } = await store.migrate();
    const kept = await takeOver(config, store);
    const moved = kept === 0 ? '' : `\nTook over ${plural(kept, 'value')} of the state folder. Budgets start again.`;
    const text = from === to ? 'The store is up to date.' : `The store has version ${to} now (before: ${from}).`;
    printResult({ io, options }, { store: config.store.kind, from, to, kept }, `${text}${moved}`);
    return EXIT.ok;
  } finally {
    await store.close();
  }
}

/** The space of the store that has one row when the values of a state folder have been copied. */
const TAKEN_OVER = 'taken-over';

/**
 * Copies the values of the state folder into a new store. One that was interrupted goes on, and never replaces a value.
 * Returns how many it copied.
 */
async function takeOver({ state: folder }: Config, store: SharedStore): Promise<number> {
  let kept = 0;
  let seen = 0;
  const write = async (change: StoreWrite): Promise<boolean> => {
    const { result, news } = await store.write(change, seen);
    seen = news.to;
    return result !== undefined;
  };
  if (await write({ op: 'swap', space: TAKEN_OVER, key: '', from: 'all', to: 'all' })) return 0;
  // Stops are in the stop file, from which each machine carries them to the store.
  for (const { space, key, value: to } of valuesOf(folder))
    if (to !== undefined && space !== STOPS_NOTED && (await write({ op: 'swap', space, key, to }))) kept += 1;
  await write({ op: 'put', space: TAKEN_OVER, key: '', to: 'all' });
  return kept;
}

function valuesOf(folder: string): readonly ValueChange[] {
  if (!hasState({ state: folder })) return [];
  const own = openState(folder);
  try {
    return own.changesAfter(undefined).changes;
  } finally {
    own.close();
  }
}

/** Prints whether the store can be used, and by whom. Throws what `openOwnerState` throws. */
async function checkStore(config: Config, options: StateOptions, io: Io): Promise<number> {
  const began = performance.now();
  const state = await openOwnerState(config);
  try {
    const ms = Math.round(performance.now() - began);
    const stops = state.stops.list().size;
    const kind = config.store?.kind;
    printResult(
      { io, options },
      { store: kind, sound: true, ms, stops },
      `The store (${kind}) can be used. Opening it took ${ms} ms. ${plural(stops, 'stop')} in force.`,
    );
    return EXIT.ok;
  } finally {
    await state.close();
  }
}
