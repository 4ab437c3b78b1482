/** The port to the state that all processes of one user share, independent of the database behind it. */
import type { Instant } from './budget-clock.ts';
import type { Stops } from './stop-file.ts';

/** An embedded database answers at once, a database behind a thread or a network later. */
export type Awaitable<T> = T | Promise<T>;

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

/** The claim of one call on one budget. Budget, scope and key identify its counter. */
export interface BudgetClaim {
  readonly budget: string;
  readonly scope: string;
  readonly key: string;
  /** Absent: the counter lives as long as the scope. */
  readonly windowMs?: number;
  readonly demands: readonly BudgetDemand[];
  /** Calls at once. Each takes a slot, which is given back by `settle`, or when its process has ended. */
  readonly concurrent?: number;
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

/**
 * Shared state. Every method throws STATE_FAILED or STATE_LOST if the database cannot be used; then nothing is half
 * done. Reads are answered at once, because each call makes about a dozen (decision 31). A value that was put, removed,
 * taken or swapped is on the disk when the method returns.
 */
export interface State {
  /** The stops: what must not run. They need no database. */
  readonly stops: Stops;
  /**
   * Call it before values are read for a decision. What is read afterwards is what all processes had committed. Returns
   * undefined if that is true already. Throws, or rejects with, STATE_FAILED if it cannot be proved within two seconds.
   */
  refresh(): Promise<void> | undefined;
  /** Reserves all claims in one atomic operation, or none. A spent budget is named before a busy one. */
  reserve(
    claims: readonly BudgetClaim[],
    now: Instant,
  ): Awaitable<{ readonly reservation: Reservation } | { readonly refused: ReservationRefusal }>;
  /** Replaces the reserved output bytes and wall time by those used, and gives slots back. */
  settle(reservation: Reservation, used: Readonly<Pick<Amounts, 'outputBytes' | 'wallMs'>>): Awaitable<void>;
  /** Deletes what was spent in a scope that has ended. */
  endScope(scope: string, key: string): Awaitable<void>;
  /** Returns a small value, undefined if there is none. `space` separates the parts of Tollgate. */
  get(space: string, key: string): string | undefined;
  put(space: string, key: string, value: string): Awaitable<void>;
  remove(space: string, key: string): Awaitable<void>;
  /**
   * Removes a value and returns it, in one step: of all callers in all processes, one gets it. `only`: if exactly this
   * value is there.
   */
  take(space: string, key: string, only?: string): Awaitable<string | undefined>;
  /**
   * Replaces exactly `from` by `to` in one step; without `from`, writes only if there is no value. False if another
   * value is there.
   */
  swap(space: string, key: string, change: { readonly from?: string; readonly to: string }): Awaitable<boolean>;
  /** Returns all values of a space whose keys begin with `prefix` (default: all), by key. */
  list(space: string, prefix?: string): ReadonlyMap<string, string>;
  /**
   * If two stamps are equal, no process changed a value in between. Much cheaper than a read. Other events than changes
   * may change it too.
   */
  stamp(): string;
  /** Returns the mark of this process for other processes. Throws STATE_FAILED if none could tell that it has ended. */
  mark(): string;
  /** Returns true while the process with this mark runs, and when that cannot be known. */
  isAlive(mark: string): boolean;
  close(): Awaitable<void>;
}
