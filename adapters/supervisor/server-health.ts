/** Computes the health of a server. A server that breaks the protocol or keeps ending is not healthy. */
import { OWNER_CORRECTABLE, type TollgateError } from '../../catalogs/errors/error-table.ts';
import { type Health, refusedState } from '../port.ts';

/** The facts about a server at one moment. */
export interface HealthFacts {
  /** Why it may not start: not approved, killed, disabled after too many crashes, or something a person must fix. */
  readonly refusal: TollgateError | undefined;
  readonly connected: boolean;
  readonly restarts: number;
  readonly badLines: number;
  /** Why it was lost or did not start, if it is not connected. */
  readonly loss: string | undefined;
  /** True for a lost remote server to which Tollgate connects again. */
  readonly reconnecting: boolean;
}

/** Skipped messages after which a server counts as degraded. A few are common: greetings on stdout do no harm. */
const TOLERATED_BAD = 10;

/** Returns the state with its reason. If several apply, the worst one. */
export function judgeHealth({ refusal, connected, restarts, badLines, loss, reconnecting }: HealthFacts): Health {
  const facts = { restarts, badLines };
  if (refusal !== undefined)
    return {
      state: OWNER_CORRECTABLE.has(refusal.code) ? 'unavailable' : refusedState(refusal),
      reason: `${refusal.message} ${refusal.next}`,
      ...facts,
    };
  if (!connected)
    return loss === undefined
      ? { state: 'idle', ...facts }
      : { state: reconnecting ? 'degraded' : 'unavailable', reason: loss, ...facts };
  if (badLines >= TOLERATED_BAD)
    return { state: 'degraded', reason: `It broke the protocol ${badLines} times.`, ...facts };
  return { state: 'healthy', ...facts };
}
