/** Opens the state of a configuration: the database in its folder, or the store that machines share. */
import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { findKeyFile, readAuditKey, writeAuditKey } from '../audit/key-files.ts';
import type { Config } from '../config/config.ts';
import { Redactor } from '../output/redactor.ts';
import { openSharedState } from '../state/shared/shared-state.ts';
import type { SharedStore, StoreSettings } from '../state/shared/shared-store.ts';
import { DATABASE_FILE, openState } from '../state/sqlite-state.ts';
import { followState } from '../state/state-follower.ts';
import type { State } from '../state/state-port.ts';
import { openPlaces, openSecrets } from './secrets.ts';

/** Where a state is: a state folder, and what a configuration says of it. A folder alone has no store. */
export type StatePlace = Pick<Config, 'state'> & Partial<Pick<Config, 'store' | 'secretSources' | 'workspace'>>;

/** Returns whether there may be a state. A command that only reads makes none. */
export function hasState({ state, store }: Pick<StatePlace, 'state' | 'store'>): boolean {
  return store !== undefined || existsSync(path.join(state, DATABASE_FILE));
}

/**
 * Opens the state for a process that serves. `isWorker`: other processes of this machine serve the same sessions.
 * Rejects with STATE_TOO_NEW, STATE_FAILED, STATE_LOST, STATE_AWAY, SECRET_MISSING, VAULT_FAILED.
 */
export async function openServingState(
  place: StatePlace,
  {
    redactor,
    onFault,
    isWorker = false,
  }: { readonly redactor: Redactor; readonly onFault: () => void; readonly isWorker?: boolean },
): Promise<State> {
  if (place.store === undefined) return followState(place.state, onFault, isWorker);
  return join(place, { store: await openStore(place, place.store, redactor), onFault });
}

/** Opens the state for a command. Rejects as `openServingState`. */
export async function openOwnerState(place: StatePlace): Promise<State> {
  if (place.store === undefined) return openState(place.state);
  return join(place, { store: await openStore(place, place.store, new Redactor()) });
}

/** Opens the store of a configuration, with its password. It connects at the first request. */
export async function openStore(place: StatePlace, settings: StoreSettings, redactor: Redactor): Promise<SharedStore> {
  const { password, ca, ...address } = settings;
  const access = {
    ...address,
    ...(password !== undefined && { password: await passwordOf(place, password, redactor) }),
    ...(ca !== undefined && { ca: readCertificates(ca) }),
  };
  // The drivers are loaded only where they are used.
  if (settings.kind === 'postgres') {
    const { openPostgresStore } = await import('../state/shared/postgres-store.ts');
    return openPostgresStore(access);
  }
  const { openRedisStore } = await import('../state/shared/redis-store.ts');
  return openRedisStore(access);
}

async function join(
  { state: folder }: StatePlace,
  parts: { readonly store: SharedStore; readonly onFault?: () => void },
): Promise<State> {
  const state = await openSharedState({ folder, ...parts });
  try {
    await shareAuditKey(folder, state);
    return state;
  } catch (thrown) {
    await state.close();
    throw thrown;
  }
}

/**
 * Gives all machines one key of digests, because consents and approvals are bound to digests. The first machine brings
 * its own. Throws STATE_FAILED if this machine has another one.
 */
async function shareAuditKey(folder: string, state: State): Promise<void> {
  const [space, name] = ['keys', 'audit'];
  if (state.get(space, name) === undefined) {
    await state.swap(space, name, { to: readAuditKey(folder).toString('hex') });
    await state.refresh('exact');
  }
  const shared = state.get(space, name) ?? '';
  const own = findKeyFile(folder, 'audit.key')?.toString('hex');
  if (own === shared) return;
  if (own === undefined) return writeAuditKey(folder, Buffer.from(shared, 'hex'));
  throw new TollgateError('STATE_FAILED', {
    detail: 'The state folder has another audit.key than the store, so its log belongs to another installation.',
    next: 'Use an empty state folder (`folder` under `state` in tollgate.yaml), or another namespace of the store.',
    retryable: false,
  });
}

function passwordOf(
  { state, secretSources = new Map(), workspace = '' }: StatePlace,
  name: string,
  redactor: Redactor,
): Promise<string> {
  const places = openPlaces({ state, env: process.env });
  return openSecrets(() => ({ secretSources, workspace }), { places, redactor })(name);
}

function readCertificates(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch (cause) {
    throw new TollgateError('STATE_FAILED', {
      detail: 'The file of certificates that `ca` under `state` names cannot be read.',
      next: 'Correct `ca` in tollgate.yaml, or the rights of the file.',
      retryable: false,
      cause,
    });
  }
}
