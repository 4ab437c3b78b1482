/** The port to the state that all processes of one user share, independent of the database behind it. */
import type { Awaitable } from '../../catalogs/text/awaitable.ts';
import type { Instant } from './budget-clock.ts';
import type { Stops } from './stop-file.ts';

/**
 * The units of a budget. Calls and argument bytes are known before a call, output bytes and wall time only after it.
 */
export type BudgetUnit = 'calls' | 'argBytes' | 'outputBytes' | 'wallMs';

/** Amounts by unit, whole numbers. */
export type Amounts = Readonly<Record<BudgetUnit, number>>;

/** One limit of one budget. `most` is reserved if that much is left; less than `least` left refuses the call. */
export interface BudgetDemand {
  readonly unit: BudgetUnit;
  readonly limit: number;
  readonly most: number;
  readonly least: number;
}

/** What identifies a counter. */
export interface CounterName {
  readonly budget: string;
  readonly scope: string;
  readonly key: string;
  /** What `counterKey` returns, for a claim that many calls share. */
  readonly counter?: string;
}

/** The claim of one call on one budget. */
export interface BudgetClaim extends CounterName {
  /** Absent: the counter lives as long as the scope. */
  readonly windowMs?: number;
  readonly demands: readonly BudgetDemand[];
  /** Calls at once. Each takes a slot, which is given back by `settle`, or when its process has ended. */
  readonly concurrent?: number;
}

/**
 * Further calls with the same demands: up to `most`, if they and the calls that are `held` ahead are a small share of
 * what is left.
 */
export interface CallsAhead {
  readonly most: number;
  readonly held: number;
}

/** A counter as it is stored: what was spent and reserved since `since`. The budget may have begun another window. */
export interface StoredCounter extends Pick<CounterName, 'budget' | 'scope' | 'key'> {
  readonly since: Instant;
  readonly amounts: Amounts;
}

/** What was reserved of one claim. `since` identifies the window, so that a late settle cannot change the next one. */
export interface ReservedClaim {
  readonly claim: BudgetClaim;
  readonly since: Instant;
  readonly amounts: Amounts;
}

/** A reservation. */
export interface Reservation {
  readonly id: string;
  readonly taken: readonly ReservedClaim[];
}

/** Why a reservation was refused. `resetsAt` in ms since 1970, if the budget has a window. */
export interface ReservationRefusal {
  readonly claim: BudgetClaim;
  readonly unit: BudgetUnit | 'concurrent';
  readonly limit: number;
  readonly left: number;
  readonly resetsAt?: number;
}

/** The cause of STATE_FAILED or STATE_AWAY if the work may have been done, because no answer came. */
export const OUTCOME_UNKNOWN = Symbol('outcome unknown');

/**
 * Shared state. Every method throws STATE_FAILED or STATE_LOST if the database cannot be used. Then nothing is done,
 * except with the cause OUTCOME_UNKNOWN. Reads are answered at once, because each call makes about a dozen (decision
 * 31). A value that was put, removed, taken or swapped is on the disk when the method returns.
 */
export interface State {
  /** True if other processes serve the same sessions: replicas over one store, or workers of one machine. */
  readonly isShared: boolean;
  /** The stops. They need no database. */
  readonly stops: Stops;
  /** Carries changed stops to all machines. They hear of them anyway, but a command waits until they do. */
  shareStops(): Awaitable<void>;
  /**
   * Makes the following reads see what all processes have committed. Call it before values are read for a decision.
   * Returns undefined if they see it already. In a store that machines share, that is what was committed up to a second
   * ago; with `exact`, up to now. Throws or rejects with STATE_FAILED or STATE_AWAY if this takes longer than two
   * seconds.
   */
  refresh(exact?: 'exact'): Promise<void> | undefined;
  /**
   * Reserves all claims or none, atomically. A refusal names spent budgets before busy ones. With `ahead`, the amounts
   * of the reservation are those of the call and of further calls.
   */
  reserve(
    claims: readonly BudgetClaim[],
    now: Instant,
    ahead?: CallsAhead,
  ): Awaitable<{ readonly reservation: Reservation } | { readonly refused: ReservationRefusal }>;
  /** Replaces the reserved amounts by those used, and gives slots back. A unit that is not in `used` stays. */
  settle(reservation: Reservation, used: Partial<Amounts>): Awaitable<void>;
  /** Deletes what was spent in a scope that has ended. */
  endScope(scope: string, key: string): Awaitable<void>;
  /** Returns the counters that all processes share, at most `most` of them, the last used first. */
  counters(most: number): Awaitable<readonly StoredCounter[]>;
  /** Deletes the counters of a budget, or those with one key. Returns how many. */
  resetCounters(budget: string, key?: string): Awaitable<number>;
  /** Returns a small value, undefined if there is none. `space` separates the parts of Tollgate. */
  get(space: string, key: string): string | undefined;
  put(space: string, key: string, value: string): Awaitable<void>;
  remove(space: string, key: string): Awaitable<void>;
  /**
   * Removes a value and returns it, atomically, so only one caller gets it. `only`: removes it only if it is this one.
   */
  take(space: string, key: string, only?: string): Awaitable<string | undefined>;
  /**
   * Replaces `from` by `to`, atomically; without `from`, only if there is no value. Returns false for another value.
   */
  swap(space: string, key: string, change: { readonly from?: string; readonly to: string }): Awaitable<boolean>;
  /** Returns all values of a space whose keys begin with `prefix` (default: all), by key. */
  list(space: string, prefix?: string): ReadonlyMap<string, string>;
  /** Returns a stamp that differs after each change of a value by any process. Cheaper than a read. */
  stamp(): string;
  /** Identifies the machine in a store that machines share; '' if the state is of one machine. */
  readonly machine: string;
  /** Returns the mark of this process (see process-mark.ts). Throws STATE_FAILED if it has none. */
  mark(): string;
  /** Returns true while the process with this mark runs, and if that cannot be known. */
  isAlive(mark: string): boolean;
  close(): Awaitable<void>;
}
