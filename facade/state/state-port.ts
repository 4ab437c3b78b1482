/** Owns the port to what all processes of one user share; refuses to know which database keeps it. */
import type { Instant } from './budget-clock.ts';
import type { Stops } from './stop-file.ts';

/** An embedded database writes at once, one behind a thread or a network later. */
export type Awaitable<T> = T | Promise<T>;

/** What a budget counts. Calls and argument bytes are known before a call, output bytes and wall time only after it. */
export type BudgetUnit = 'calls' | 'argBytes' | 'outputBytes' | 'wallMs';

/** Amounts by unit, whole numbers. */
export type Amounts = Readonly<Record<BudgetUnit, number>>;

/** One limit of one budget: `most` is reserved where that much is left, and less than `least` left refuses. */
export interface BudgetDemand {
  readonly unit: BudgetUnit;
  readonly limit: number;
  readonly most: number;
  readonly least: number;
}

/** What one call asks of one budget. Its counter is found by budget, scope and key. */
export interface BudgetClaim {
  readonly budget: string;
  readonly scope: string;
  readonly key: string;
  /** Absent: the counter lives as long as the scope. */
  readonly windowMs?: number;
  readonly demands: readonly BudgetDemand[];
  /** Calls at once; each takes a slot that is given back by `settle`, or when its process is dead. */
  readonly concurrent?: number;
}

/** What was reserved of one claim. `since` names the window, so that a late settle cannot touch the next one. */
export interface ReservedClaim {
  readonly claim: BudgetClaim;
  readonly since: Instant;
  readonly amounts: Amounts;
}

/** A reservation that stands. */
export interface Reservation {
  readonly id: string;
  readonly taken: readonly ReservedClaim[];
}

/** Why a reservation was refused. `resetsAt` in ms since 1970, where the budget has a window. */
export interface ReservationRefusal {
  readonly claim: BudgetClaim;
  readonly unit: BudgetUnit | 'concurrent';
  readonly limit: number;
  readonly left: number;
  readonly resetsAt?: number;
}

/**
 * Shared state. Every method throws STATE_FAILED or STATE_LOST when the database cannot be used; nothing is half done then. What is read
 * is answered at once: each call asks a dozen times what people have decided (decision 31). A value that was put, removed, taken or
 * swapped is on the disk when the method returns.
 */
export interface State {
  /** What must not run. It needs no database. */
  readonly stops: Stops;
  /**
   * Call it before values are read for a decision: what is read from then on is what all processes had committed. Returns undefined when
   * that holds already. Throws, or rejects with, STATE_FAILED when it cannot be proved within two seconds.
   */
  fresh(): Promise<void> | undefined;
  /** One atomic operation over all claims: all are reserved or none. A spent budget is named before a busy one. */
  reserve(
    claims: readonly BudgetClaim[],
    now: Instant,
  ): Awaitable<{ readonly held: Reservation } | { readonly refused: ReservationRefusal }>;
  /** Replaces what was reserved of output bytes and wall time by what was used, and gives slots back. */
  settle(held: Reservation, used: Readonly<Pick<Amounts, 'outputBytes' | 'wallMs'>>): Awaitable<void>;
  /** Forgets what was spent in a scope that has ended. */
  endScope(scope: string, key: string): Awaitable<void>;
  /** A small value, undefined when there is none. `space` keeps the parts of Tollgate apart. */
  get(space: string, key: string): string | undefined;
  put(space: string, key: string, value: string): Awaitable<void>;
  remove(space: string, key: string): Awaitable<void>;
  /** Removes a value and answers it, in one step: of all that race for it, in all processes, one has it. `only`: when exactly this stands there. */
  take(space: string, key: string, only?: string): Awaitable<string | undefined>;
  /** Puts `to` where exactly `from` stands, or nothing when `from` is absent, in one step; false when something else stands there. */
  swap(space: string, key: string, change: { readonly from?: string; readonly to: string }): Awaitable<boolean>;
  /** All of a space whose keys begin with `prefix` (default: all), by key. */
  list(space: string, prefix?: string): ReadonlyMap<string, string>;
  /** Two that are equal: no value was changed in between, by anybody. Much cheaper than a read; others than values may change it. */
  stamp(): string;
  /** The mark of this process, for others to ask by. Throws STATE_FAILED where nothing could tell that it has ended. */
  mark(): string;
  /** True while the process with this mark runs, and when that cannot be known. */
  isAlive(mark: string): boolean;
  close(): Awaitable<void>;
}
