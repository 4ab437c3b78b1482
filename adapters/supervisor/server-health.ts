/** Owns the judgement of how a server is; refuses to call one healthy that breaks the protocol or keeps ending. */
import { OWNER_CORRECTABLE, type TollgateError } from '../../catalogs/errors/error-table.ts';
import { type Health, refusedState } from '../port.ts';
import { type ServerLifetime, type ServerSettings, startRefusal } from './server-settings.ts';
import type { Supervisor } from './supervisor.ts';

/** What is known of a server at one moment. */
export interface HealthFacts {
  /** Why it may not start at all: not approved, killed, disabled after too many crashes, or something that a person must mend. */
  readonly refusal: TollgateError | undefined;
  readonly connected: boolean;
  readonly restarts: number;
  readonly badLines: number;
  /** Why it was lost, or did not start, if it is not there. */
  readonly loss: string | undefined;
  /** A remote server that was lost and is tried again. */
  readonly reconnecting: boolean;
}

/** Skipped messages after which a server counts as degraded: a greeting on stdout is common and harmless. */
const TOLERATED_BAD = 10;

/** The state with its reason, the graver first. */
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

/** How a server is that is kept so. `halted`: by people, with this. */
export function healthOf(
  { restarts, connector, refusal, isRecovering: isComing, denied }: Supervisor,
  {
    settings,
    halted,
    lifetime,
  }: {
    readonly settings: ServerSettings;
    readonly halted: TollgateError | undefined;
    readonly lifetime: ServerLifetime;
  },
): Health {
  const { count, reason, end } = restarts;
  return judgeHealth({
    refusal: startRefusal(settings) ?? halted ?? denied ?? (lifetime === 'keep-alive' ? end : undefined),
    connected: connector.current !== undefined,
    restarts: count,
    badLines: connector.badLines,
    loss: refusal === undefined ? (end?.message ?? reason) : undefined,
    reconnecting: settings.transport !== 'stdio' && isComing,
  });
}
