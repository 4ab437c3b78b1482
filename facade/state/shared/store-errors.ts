/** The errors of a shared store. Their texts name neither its address nor its user. */
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { OUTCOME_UNKNOWN } from '../state-port.ts';
import { STORE_VERSION } from './shared-store.ts';

/** Returns the error for a store that does not answer. `why`: a code such as ECONNREFUSED. */
export function storeAway(why: string, isUnknown = false): TollgateError {
  return new TollgateError('STATE_AWAY', {
    detail: `The store of the shared state does not answer (${why}), so nothing runs.`,
    ...(isUnknown && { cause: OUTCOME_UNKNOWN }),
  });
}

/** Returns the error for a store that refuses: a wrong password, a missing right, a full disk. */
export function storeRefused(why: string, next: string): TollgateError {
  return new TollgateError('STATE_FAILED', {
    detail: `The store of the shared state refuses: ${why}.`,
    next,
    retryable: false,
  });
}

/** Throws for another version than this program's. 0: the store is empty. `isKnown`: it was not empty before. */
export function checkStoreVersion(version: number, isKnown: boolean): void {
  if (version === STORE_VERSION) return;
  if (version > STORE_VERSION)
    throw new TollgateError('STATE_TOO_NEW', {
      detail: `A newer Tollgate has made the store of the state (version ${version}; this one: ${STORE_VERSION}).`,
      next: 'Use that version of Tollgate, or a newer one.',
    });
  if (version === 0 && isKnown)
    throw new TollgateError('STATE_LOST', {
      detail: 'The store of the shared state was emptied: it has no tables or keys of Tollgate any more.',
      next: 'Restore the store from its backup, or begin with an empty one: tollgate state migrate',
    });
  throw new TollgateError('STATE_FAILED', {
    detail:
      version === 0
        ? 'The store of the shared state is empty: nothing of Tollgate is in it.'
        : `The store of the shared state has version ${version}, and this Tollgate needs ${STORE_VERSION}.`,
    next: 'Run: tollgate state migrate',
    retryable: false,
  });
}
