/** Says what is spent and left of each budget, and resets budgets, for owners. */
import { randomUUID } from 'node:crypto';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import type { Awaitable } from '../../catalogs/text/awaitable.ts';
import type { SetupEntry } from '../audit/audit-entry.ts';
import type { BudgetConfig, Config } from '../config/config.ts';
import { didYouMean, quote } from '../config/config-problems.ts';
import { elapsed, type Instant, instant } from '../state/budget-clock.ts';
import { BUDGET_UNITS, isWindowOver } from '../state/budget-counter.ts';
import type { BudgetUnit, State, StoredCounter } from '../state/state-port.ts';
import { SESSIONS_WINDOW_S } from './budget-claims.ts';

/** What one counter of a budget says about one unit. Amounts that running calls and processes reserved are spent. */
export interface BudgetState {
  readonly budget: string;
  /** What shares the counter. All sessions of a principal share one with the scope `principal`. */
  readonly scope: string;
  /** Whose counter: the id of a principal, the name of a server or tool, an origin, a run. */
  readonly key: string;
  readonly unit: BudgetUnit;
  readonly spent: number;
  /** Absent for a budget that tollgate.yaml does not have: of Rego, a grant or a capability. */
  readonly limit?: number;
  readonly left?: number;
  /** When it is full again, ISO 8601; absent if it has no window. */
  readonly returns?: string;
}

type BudgetNames = Pick<Config, 'budgets' | 'profiles'>;

function budgetsOf({ budgets, profiles }: BudgetNames): readonly BudgetConfig[] {
  return [...budgets, ...[...profiles.values()].flatMap((profile) => profile.budgets)];
}

/** The most counters that are read, the last used first. */
const MOST = 10_000;

/** Returns the budgets that were used, the nearest to its end first. Throws STATE_FAILED. */
export async function readBudgetStates(
  { config, state }: { readonly config: BudgetNames; readonly state: Pick<State, 'counters'> },
  now: Instant = instant(),
): Promise<readonly BudgetState[]> {
  const configured = new Map(budgetsOf(config).map((budget) => [budget.id, budget]));
  const states = (await state.counters(MOST)).flatMap((counter) =>
    statesOf(counter, configured.get(counter.budget), now),
  );
  return states.sort(
    (one, other) => shareOf(other) - shareOf(one) || (one.budget + one.key < other.budget + other.key ? -1 : 1),
  );
}

/** Returns which part of a budget is spent; 0 if it has no known limit. */
export function shareOf({ spent, limit }: Pick<BudgetState, 'spent' | 'limit'>): number {
  if (limit === undefined) return 0;
  return limit === 0 ? 1 : spent / limit;
}

function statesOf(
  { budget, scope, key, since, amounts }: StoredCounter,
  configured: BudgetConfig | undefined,
  now: Instant,
): readonly BudgetState[] {
  const seconds = configured?.window ?? (configured?.scope === 'session' ? SESSIONS_WINDOW_S : undefined);
  const windowMs = seconds === undefined ? undefined : Math.ceil(seconds * 1000);
  const isOver = isWindowOver({ ...(windowMs !== undefined && { windowMs }) }, since, now);
  const returns =
    windowMs === undefined || isOver ? undefined : new Date(now.wall + windowMs - elapsed(since, now)).toISOString();
  return BUDGET_UNITS.flatMap((unit) => {
    const limit = configured?.[unit];
    const spent = isOver ? 0 : amounts[unit];
    if (spent === 0) return [];
    const known = limit !== undefined && { limit, left: Math.max(0, limit - spent) };
    return [{ budget, scope, key, unit, spent, ...known, ...(returns !== undefined && { returns }) }];
  });
}

/** A reset by an owner. `key`: whose counter; absent: those of all. */
export interface BudgetReset {
  readonly budget: string;
  readonly key?: string | undefined;
  readonly by: string;
}

/**
 * Makes a budget full again, and records it first. Sessions that run have counters of their own, which their processes
 * reset within a second. A process may have reserved up to 256 calls ahead; they stay allowed. Returns the number of
 * counters. Throws USAGE for an unknown budget or key, STATE_FAILED, AUDIT_FAILED.
 */
export async function resetBudget(
  {
    config,
    state,
    append,
  }: {
    readonly config: BudgetNames;
    readonly state: Pick<State, 'counters' | 'resetCounters' | 'put'>;
    readonly append: (entry: SetupEntry) => Awaitable<unknown>;
  },
  { budget, key, by }: BudgetReset,
): Promise<number> {
  const counters = await state.counters(MOST);
  const ids = new Set([...budgetsOf(config).map(({ id }) => id), ...counters.map((one) => one.budget)]);
  if (!ids.has(budget))
    throw new TollgateError('USAGE', { detail: `There is no budget ${quote(budget)}; ${didYouMean(budget, ids)}` });
  const own = counters.filter((one) => one.budget === budget);
  if (key !== undefined && !own.some((one) => one.key === key))
    throw new TollgateError('USAGE', {
      detail: `Budget ${quote(budget)} has no counter of ${quote(key)}.`,
      next: own.length === 0 ? 'Nothing of it is spent.' : didYouMean(key, new Set(own.map((one) => one.key))),
    });
  const count = own.filter((one) => key === undefined || one.key === key).length;
  if (count === 0) return 0;
  const whose = key !== undefined && { whose: key };
  await append({ type: 'setup', event: 'budget-reset', outcome: 'allow', by, budget, ...whose, count });
  const reset = await state.resetCounters(budget, key);
  await state.put(SPACE, budget, JSON.stringify({ key, mark: randomUUID() }));
  return reset;
}

/** The space of the last reset of each budget. */
const SPACE = 'budget-reset';

/** The resets as one process reads them. It ignores those from before its start. */
export class BudgetResets {
  readonly #state: Pick<State, 'list'>;
  #known: ReadonlyMap<string, string>;

  constructor(state: Pick<State, 'list'>) {
    this.#state = state;
    this.#known = state.list(SPACE);
  }

  /** Returns the resets since the last call. Throws STATE_FAILED. */
  takeNew(): readonly Pick<BudgetReset, 'budget' | 'key'>[] {
    const before = this.#known;
    this.#known = this.#state.list(SPACE);
    return [...this.#known]
      .filter(([budget, text]) => before.get(budget) !== text)
      .map(([budget, text]) => ({ budget, key: (JSON.parse(text) as { readonly key?: string }).key }));
  }
}
