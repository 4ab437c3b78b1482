/** Owns the way from a call's budget obligations to claims on shared state, and from a refusal to its error; refuses double ids. */
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import type { BudgetObligation } from '../../policies/port.ts';
import type { BudgetClaim, BudgetDemand, BudgetUnit, Reservation, ReservationRefusal } from '../state/state-port.ts';
import type { WaitLimit } from './queue-place.ts';

/** A budget, and what it counts by where that is not the call's own run, session and so on. */
export type KeyedBudget = BudgetObligation & { readonly key?: string };

/** What a call counts by: one key for each scope; `sessions` is shared by all sessions of one principal. */
export type BudgetKeys = Readonly<Record<BudgetObligation['scope'] | 'sessions', string>>;

/** What one call may take. `deadline` (ms since 1970): until then it may wait for calls that run now. */
export interface LeaseRequest extends WaitLimit {
  readonly budgets: readonly KeyedBudget[];
  readonly keys: BudgetKeys;
  readonly argBytes: number;
  /** The worst case, which is reserved: the model cap and the time limit of this call. */
  readonly maxOutputBytes: number;
  readonly maxWallMs: number;
}

/** With less than this left, a call would be cut to nothing or killed half way: it is refused instead. */
const LEAST = { outputBytes: 1000, wallMs: 1000 };

/** One name per counter. */
export function budgetKeyOf(claim: BudgetClaim): string {
  return JSON.stringify([claim.budget, claim.scope, claim.key]);
}

/** True for what a running call may give back when it ends. */
export function isReleasable(unit: ReservationRefusal['unit']): boolean {
  return unit !== 'calls' && unit !== 'argBytes';
}

/**
 * The claims of a call. A call that is alone on a counter takes the rest where the worst case is no longer left;
 * beside running calls it asks for its worst case in full, because it may wait for theirs.
 * Throws POLICY_FAILED when a budget is named twice: the one counter would be settled twice.
 */
export function claimsOf(request: LeaseRequest, isRunning: (key: string) => boolean): BudgetClaim[] {
  const claims = request.budgets
    .flatMap((budget) => (budget.scope === 'session' ? [budget, acrossSessions(budget, request.keys)] : [budget]))
    .map((budget) => claimOf(request, budget, isRunning));
  const keys = new Set(claims.map(budgetKeyOf));
  if (keys.size < claims.length)
    throw new TollgateError('POLICY_FAILED', { detail: 'The policy names a budget twice for one call.' });
  return claims.filter((claim) => claim.demands.length > 0 || claim.concurrent !== undefined);
}

/** The window in which the sessions of one principal share a session budget that has no window of its own, seconds. */
const SESSIONS_WINDOW_S = 3600;

/**
 * The same limit over all sessions of the principal: a new session does not refresh the budget. Calls at once are not counted
 * here, because a slot is given back; `listen.maxSessionsPerPrincipal` bounds the number of sessions.
 */
function acrossSessions({ concurrent: _concurrent, ...budget }: KeyedBudget, keys: BudgetKeys): KeyedBudget {
  return { ...budget, scope: 'principal', key: keys.sessions, window: budget.window ?? SESSIONS_WINDOW_S };
}

function claimOf(request: LeaseRequest, budget: KeyedBudget, isRunning: (key: string) => boolean): BudgetClaim {
  const bare: BudgetClaim = {
    budget: budget.id,
    scope: budget.scope,
    key: budget.key ?? request.keys[budget.scope],
    demands: [],
  };
  const alone = !isRunning(budgetKeyOf(bare));
  const demands: BudgetDemand[] = [];
  const ask = (unit: BudgetUnit, most: number, least: number): void => {
    const limit = budget[unit];
    if (limit !== undefined) demands.push({ unit, limit, most, least: Math.min(least, most) });
  };
  const askRest = (unit: 'outputBytes' | 'wallMs', most: number): void =>
    ask(unit, most, alone ? Math.min(LEAST[unit], budget[unit] ?? 0) : Math.min(most, budget[unit] ?? 0));
  ask('calls', 1, 1);
  ask('argBytes', request.argBytes, request.argBytes);
  askRest('outputBytes', Math.ceil(request.maxOutputBytes));
  askRest('wallMs', Math.ceil(request.maxWallMs));
  return {
    ...bare,
    demands,
    ...(budget.window === undefined ? {} : { windowMs: Math.ceil(budget.window * 1000) }),
    ...(budget.concurrent === undefined ? {} : { concurrent: budget.concurrent }),
  };
}

/** What the call may use: the smallest of what its budgets gave. */
export function grantOf(
  request: LeaseRequest,
  held: Reservation,
): { readonly outputBytes: number; readonly wallMs: number } {
  const smallest = (unit: 'outputBytes' | 'wallMs', asked: number): number => {
    const taken = held.taken.filter(({ claim }) => claim.demands.some((demand) => demand.unit === unit));
    return Math.min(asked, ...taken.map(({ amounts }) => amounts[unit]));
  };
  return {
    outputBytes: smallest('outputBytes', request.maxOutputBytes),
    wallMs: smallest('wallMs', request.maxWallMs),
  };
}

const WORDS: Readonly<Record<ReservationRefusal['unit'], string>> = {
  calls: 'calls',
  argBytes: 'bytes of arguments',
  outputBytes: 'bytes of output',
  wallMs: 'ms of wall time',
  concurrent: 'calls at once',
};

/** The refusal of a budget that is spent. */
export function spentError(refused: ReservationRefusal): TollgateError {
  const { claim, unit, limit, left, resetsAt } = refused;
  const until = resetsAt === undefined ? undefined : new Date(resetsAt).toISOString();
  return new TollgateError('BUDGET_EXCEEDED', {
    detail: `Budget "${claim.budget}" allows ${limit} ${WORDS[unit]} per ${claim.scope}; ${left} left.`,
    ...(until === undefined ? {} : { next: `Wait until ${until}, or ask for a larger budget.` }),
    data: { ...factsOf(refused), ...(until === undefined ? {} : { resetsAt: until }) },
  });
}

/** The refusal of a call that waited for others until its deadline; `refused` is what it waited for, where that is known. */
export function busyError(refused: ReservationRefusal | undefined): TollgateError {
  if (refused === undefined) return new TollgateError('RATE_LIMITED');
  const { claim, unit, limit } = refused;
  return new TollgateError('RATE_LIMITED', {
    detail: `Budget "${claim.budget}" allows ${limit} ${WORDS[unit]} per ${claim.scope}; running calls hold them.`,
    data: factsOf(refused),
  });
}

function factsOf({ claim, unit, limit, left }: ReservationRefusal): Readonly<Record<string, unknown>> {
  return { budget: claim.budget, scope: claim.scope, unit, limit, left };
}
