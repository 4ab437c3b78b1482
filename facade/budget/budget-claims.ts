/** Turns the budget obligations of a call into claims on shared state, and a refusal into its error. */

import { LRUCache } from 'lru-cache';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { definedFields, memoize } from '../../catalogs/text/collections.ts';
import type { BudgetObligation } from '../../policies/port.ts';
import { counterKey } from '../state/budget-counter.ts';
import type { BudgetClaim, BudgetDemand, BudgetUnit, ReservationRefusal, ReservedClaim } from '../state/state-port.ts';
import type { WaitLimit } from './queue-place.ts';

/** A budget. `key` is present if the counter is not that of the call's own run, session and so on. */
export type KeyedBudget = BudgetObligation & { readonly key?: string };

/** The keys of a call, one for each scope. All sessions of one principal share `sessions`. */
export type BudgetKeys = Readonly<Record<BudgetObligation['scope'] | 'sessions', string>>;

/** What one call may take. It may wait for running calls until `deadline` (ms since 1970). */
export interface LeaseRequest extends WaitLimit {
  readonly budgets: readonly KeyedBudget[];
  readonly keys: BudgetKeys;
  readonly argBytes: number;
  /** The worst case, which is reserved: the output limit and the time limit of this call. */
  readonly maxOutputBytes: number;
  readonly maxWallMs: number;
}

/** A call that is left with less is refused, because its output would be empty or it would time out. */
const LEAST = { outputBytes: 1000, wallMs: 1000 };

/** The claims of a call. Counters of its session are in this process; processes share the others. */
export interface CallClaims {
  readonly own: readonly BudgetClaim[];
  readonly shared: readonly BudgetClaim[];
}

/** Returns true for a unit that a running call may give back when it ends. */
export function isReleasable(unit: ReservationRefusal['unit']): boolean {
  return unit !== 'calls' && unit !== 'argBytes';
}

/** Returns true if a call with this claim may give some of it back when it ends. */
export function mayGiveBack({ demands, concurrent }: BudgetClaim): boolean {
  if (concurrent !== undefined) return true;
  for (const { unit } of demands) if (isReleasable(unit)) return true;
  return false;
}

/**
 * Returns the claims of a call. A call that is alone on a counter claims what is left, if that is less than its worst
 * case. Next to running calls it claims its whole worst case, because it can wait for them. Throws POLICY_FAILED if a
 * budget is named twice, because its one counter would be settled twice.
 */
export function claimsOf(request: LeaseRequest, isRunning: (key: string) => boolean): CallClaims {
  const { budgets, keys } = request;
  const own: BudgetClaim[] = [];
  const shared: BudgetClaim[] = [];
  const add = (claims: BudgetClaim[], budget: CountedBudget, key: string): void => {
    const claim = constantClaimOf(budget, key) ?? claimOf(request, { budget, key }, isRunning);
    if (claim.demands.length > 0 || claim.concurrent !== undefined) claims.push(claim);
  };
  for (const budget of budgets) {
    add(isOfSession(budget, keys) ? own : shared, budget, budget.key ?? keys[budget.scope]);
    if (budget.scope === 'session') add(shared, acrossSessions(budget), keys.sessions);
  }
  if (budgets.length > 1 && new Set([...own, ...shared].map(counterKey)).size < own.length + shared.length)
    throw new TollgateError('POLICY_FAILED', { detail: 'The policy names a budget twice for one call.' });
  return { own, shared };
}

/** Returns true if a budget counts the calls of one session. A session is in one process, and ends with it. */
function isOfSession({ scope, key }: KeyedBudget, keys: BudgetKeys): boolean {
  return key === undefined && (scope === 'session' || (scope === 'run' && keys.run === keys.session));
}

/** The window, in seconds, of a session budget without a window, over all sessions of one principal. */
export const SESSIONS_WINDOW_S = 3600;

/** A budget as it is counted, whatever its key. */
type CountedBudget = Omit<KeyedBudget, 'key'>;

/**
 * Returns the same limit over all sessions of the principal, so that a new session does not renew the budget.
 * `concurrent` is left out, because slots are given back; `listen.maxSessionsPerPrincipal` limits the sessions.
 */
const acrossSessions = memoize(({ id, window, calls, argBytes, outputBytes, wallMs }: KeyedBudget): CountedBudget => {
  const limits = definedFields({ calls, argBytes, outputBytes, wallMs });
  return { id, scope: 'principal', window: window ?? SESSIONS_WINDOW_S, ...limits };
});

/** The most claims of one budget that are kept. */
const MAX_CLAIMS = 1000;
/** The claims of a budget by their key. All calls have the same if it counts only calls. */
const claimsByKey = memoize((_budget: CountedBudget) => new LRUCache<string, BudgetClaim>({ max: MAX_CLAIMS }));

function constantClaimOf(budget: CountedBudget, key: string): BudgetClaim | undefined {
  const { id, argBytes, outputBytes, wallMs } = budget;
  if (argBytes !== undefined || outputBytes !== undefined || wallMs !== undefined) return undefined;
  const claims = claimsByKey(budget);
  let claim = claims.get(key);
  if (claim === undefined) {
    const demands =
      budget.calls === undefined ? [] : [{ unit: 'calls' as const, limit: budget.calls, most: 1, least: 1 }];
    const name = { budget: id, scope: budget.scope, key };
    claim = { ...name, counter: counterKey(name), ...slotsAndWindow(budget), demands };
    claims.set(key, claim);
  }
  return claim;
}

function slotsAndWindow({ window, concurrent }: CountedBudget): Pick<BudgetClaim, 'windowMs' | 'concurrent'> {
  return definedFields({ windowMs: window === undefined ? undefined : Math.ceil(window * 1000), concurrent });
}

function claimOf(
  request: LeaseRequest,
  { budget, key }: { readonly budget: CountedBudget; readonly key: string },
  isRunning: (key: string) => boolean,
): BudgetClaim {
  const { id, scope, outputBytes, wallMs } = budget;
  const demands: BudgetDemand[] = [];
  const claim = { budget: id, scope, key, ...slotsAndWindow(budget), demands };
  const ask = (unit: BudgetUnit, most: number, least: number): void => {
    const limit = budget[unit];
    if (limit !== undefined) demands.push({ unit, limit, most, least: Math.min(least, most) });
  };
  ask('calls', 1, 1);
  ask('argBytes', request.argBytes, request.argBytes);
  if (outputBytes === undefined && wallMs === undefined) return claim;
  const alone = !isRunning(counterKey(claim));
  const askRest = (unit: 'outputBytes' | 'wallMs', most: number): void =>
    ask(unit, most, Math.min(alone ? LEAST[unit] : most, budget[unit] ?? 0));
  askRest('outputBytes', Math.ceil(request.maxOutputBytes));
  askRest('wallMs', Math.ceil(request.maxWallMs));
  return claim;
}

/** Returns what the call may use: the smallest amount of its budgets. */
export function grantOf(
  { maxOutputBytes, maxWallMs }: LeaseRequest,
  reserved: readonly ReservedClaim[],
): { readonly outputBytes: number; readonly wallMs: number } {
  const granted = { outputBytes: maxOutputBytes, wallMs: maxWallMs };
  for (const { claim, amounts } of reserved)
    for (const { unit } of claim.demands)
      if (unit === 'outputBytes' || unit === 'wallMs') granted[unit] = Math.min(granted[unit], amounts[unit]);
  return granted;
}

const WORDS: Readonly<Record<ReservationRefusal['unit'], string>> = {
  calls: 'calls',
  argBytes: 'bytes of arguments',
  outputBytes: 'bytes of output',
  wallMs: 'ms of wall time',
  concurrent: 'calls at once',
};

/** Returns the error for a spent budget. `now`: ms since 1970. */
export function spentError(refused: ReservationRefusal, now: number): TollgateError {
  const { left, resetsAt } = refused;
  const until = resetsAt === undefined ? undefined : new Date(resetsAt).toISOString();
  return new TollgateError('BUDGET_EXCEEDED', {
    detail: `${limitText(refused)}; ${left} left.`,
    ...(resetsAt === undefined
      ? {}
      : { next: `The next is possible in ${waitText(resetsAt - now)} (${until}). Wait, or ask for a larger budget.` }),
    data: { ...factsOf(refused), ...(until === undefined ? {} : { resetsAt: until }) },
  });
}

function limitText({ claim, unit, limit }: ReservationRefusal): string {
  const window = claim.windowMs === undefined ? '' : ` per ${windowText(claim.windowMs / SECOND_MS)}`;
  return `Budget "${claim.budget}" allows ${limit} ${WORDS[unit]}${window} per ${claim.scope}`;
}

const SECOND_MS = 1000;
/** Seconds of each unit, largest first. */
const UNITS = [
  [86_400, 'day'],
  [3600, 'hour'],
  [60, 'minute'],
  [1, 'second'],
] as const;

/** Returns `minute` or `90 seconds`, in the largest unit that fits exactly. */
function windowText(seconds: number): string {
  const [size, unit] = UNITS.find(([one]) => seconds % one === 0) ?? [1, 'second'];
  return seconds === size ? unit : `${seconds / size} ${unit}s`;
}

/** Returns `34 s`, `12 min` or `5 h`, rounded up, so that a caller that waits so long finds the budget full. */
function waitText(ms: number): string {
  const seconds = Math.max(1, Math.ceil(ms / SECOND_MS));
  if (seconds <= 120) return `${seconds} s`;
  return seconds <= 7200 ? `${Math.ceil(seconds / 60)} min` : `${Math.ceil(seconds / 3600)} h`;
}

/** Returns the error for a call that waited until its deadline. `refused`: the amount that it waited for, if known. */
export function busyError(refused: ReservationRefusal | undefined): TollgateError {
  if (refused === undefined) return new TollgateError('RATE_LIMITED');
  return new TollgateError('RATE_LIMITED', {
    detail: `${limitText(refused)}; running calls use all of it.`,
    data: factsOf(refused),
  });
}

/** `window` is in seconds, as in a budget. */
function factsOf({ claim, unit, limit, left }: ReservationRefusal): Readonly<Record<string, unknown>> {
  const window = claim.windowMs === undefined ? {} : { window: claim.windowMs / SECOND_MS };
  return { budget: claim.budget, scope: claim.scope, unit, limit, left, ...window };
}
