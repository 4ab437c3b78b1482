/** Runs `state migrate`, and `state check` for a store that machines share. */
import type { Config } from '../../config/config.ts';
import { Redactor } from '../../output/redactor.ts';
import { hasState, openOwnerState, openStore } from '../../secrets/opened-state.ts';
import type { SharedStore } from '../../state/shared/shared-store.ts';
import { openState } from '../../state/sqlite-state.ts';
import { type CommonOptions, readForOwner } from '../command-facade.ts';
import { EXIT, type Io } from '../command-io.ts';
import { recordSetup } from '../command-state.ts';
import { plural, printResult } from '../print.ts';

/** Options of the commands for a store. */
type StoreOptions = Pick<CommonOptions, 'config' | 'json'>;

/**
 * Creates or upgrades what the store holds. A new one gets the decisions of the state folder. It is recorded first.
 * Throws CONFIG_INVALID, STATE_AWAY, STATE_FAILED, STATE_TOO_NEW, AUDIT_FAILED.
 */
export async function runStateMigrate(options: StoreOptions, io: Io): Promise<number> {
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
    const kept = from === 0 ? await takeOver(config, store) : 0;
    const moved = kept === 0 ? '' : `\nTook over ${plural(kept, 'value')} of the state folder. Budgets start again.`;
    const text = from === to ? 'The store is up to date.' : `The store has version ${to} now (before: ${from}).`;
    printResult({ io, options }, { store: config.store.kind, from, to, kept }, `${text}${moved}`);
    return EXIT.ok;
  } finally {
    await store.close();
  }
}

/** Copies the values of the state folder that the store does not have. Returns how many. */
async function takeOver({ state: folder }: Config, store: SharedStore): Promise<number> {
  if (!hasState({ state: folder })) return 0;
  const own = openState(folder);
  try {
    let kept = 0;
    for (const { space, key, value: to } of own.changesAfter(undefined).changes) {
      if (to === undefined) continue;
      const { result } = await store.write({ op: 'swap', space, key, to }, 0);
      if (result !== undefined) kept += 1;
    }
    return kept;
  } finally {
    own.close();
  }
}

/** Prints whether the store can be used, and by whom. Throws what `openOwnerState` throws. */
export async function checkStore(config: Config, options: StoreOptions, io: Io): Promise<number> {
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
