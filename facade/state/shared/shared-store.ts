/** The port to a store that the replicas of a fleet share. Postgres and Redis implement it. */
import type { Amounts, BudgetClaim, CallsAhead, ReservedClaim, StoredCounter } from '../state-port.ts';
import type { ValueChanges } from '../state-values.ts';

/** The version of what a store holds. `tollgate state migrate` makes it. */
export const STORE_VERSION = 1;
/** A process is dead if it has not been heard for this long, ms. Its slots are then given to others. */
export const LEASE_MS = 20_000;
/** After no process was heard for half of that time, each has this time to be heard again, ms. */
export const RETURN_MS = 5_000;
/** Counters of runs and sessions, and labels of runs, are removed after this time without use, ms. */
export const STALE_MS = 30 * 86_400_000;
/** The most changes that a store keeps for copies. A copy that is further behind reads all values. */
export const KEPT_CHANGES = 10_000;

/** How a store is reached. */
export interface StoreSettings {
  readonly kind: 'postgres' | 'redis';
  /** Without a password. */
  readonly url: string;
  /** A name of a secret. */
  readonly password?: string;
  /** Certificates that are trusted, PEM: an absolute path. Default: those of Node.js. */
  readonly ca?: string;
  /** Separates installations in one store: the schema of Postgres, the prefix of Redis. */
  readonly namespace: string;
  /** The most connections of a process. */
  readonly connections: number;
  /** How long a connection or an answer may take, ms. */
  readonly timeoutMs: number;
}

/** How a store is opened. The files and secrets of the settings were read. */
export interface StoreAccess extends Omit<StoreSettings, 'password' | 'ca'> {
  readonly password?: string;
  /** PEM. */
  readonly ca?: string;
}

/** A window by the store's clock, ms since 1970, which also identifies it. */
type StoreTime = number;

/** Amounts of one window of a counter. */
export interface StoreShare {
  readonly since: StoreTime;
  readonly amounts: Amounts;
}

/** An answer to `reserve`. `now`: the clock of the store. `index`: of the claim that was refused. */
export type StoreAnswer = { readonly now: StoreTime } & (
  | { readonly taken: readonly StoreShare[] }
  | {
      readonly refused: {
        readonly index: number;
        readonly unit: keyof Amounts | 'concurrent';
        readonly left: number;
        readonly since: StoreTime;
      };
    }
);

/** What `settle` changes of one claim: its counter, if the window is still that of `since`, and its slot. */
export interface StoreChange extends StoreShare {
  readonly claim: ReservedClaim['claim'];
}

/** One change of a value (see `State`). */
export type StoreWrite = { readonly space: string; readonly key: string } & (
  | { readonly op: 'put'; readonly to: string }
  | { readonly op: 'remove' }
  | { readonly op: 'take'; readonly only?: string }
  | { readonly op: 'swap'; readonly from?: string; readonly to: string }
);

/** The answer to a write: what it returned (a value, or '1' if it swapped), and all changes since `from`. */
export interface StoreWritten {
  readonly result: string | undefined;
  readonly news: ValueChanges;
}

/** The news of a store: its clock, changes of values, and the marks of the processes that live. */
export interface StoreNews extends ValueChanges {
  readonly now: StoreTime;
  /** When a process was heard again after none had been. Soon after it, `alive` may lack living processes. */
  readonly resumed: StoreTime;
  readonly alive: readonly string[];
}

/** A stored counter with a window by the store's clock. */
export type StoreCounter = Omit<StoredCounter, 'since'> & StoreShare;

/** What is reserved, and for whom. `lease` and `mark` identify the slots. */
export interface StoreReservation {
  readonly claims: readonly BudgetClaim[];
  readonly ahead: CallsAhead;
  readonly lease: string;
  readonly mark: string;
}

/**
 * A store. Each method is one atomic request and rejects with STATE_AWAY after `timeoutMs`, with STATE_LOST if the
 * store has been emptied, and with STATE_TOO_NEW or STATE_FAILED for another version. The cause is OUTCOME_UNKNOWN if
 * the work may have been done.
 */
export interface SharedStore {
  readonly timeoutMs: number;
  reserve(asked: StoreReservation): Promise<StoreAnswer>;
  settle(lease: string, changes: readonly StoreChange[]): Promise<void>;
  endScope(scope: string, key: string): Promise<void>;
  counters(most: number): Promise<readonly StoreCounter[]>;
  resetCounters(budget: string, key?: string): Promise<number>;
  write(change: StoreWrite, from: number): Promise<StoreWritten>;
  /** Returns the news after change `from` (undefined: all values), and notes that the process with `mark` lives. */
  news(from: number | undefined, mark: string): Promise<StoreNews>;
  /** Calls `onNews` soon after each change of a value, and `onLost` when the connection for this has ended. */
  listen(on: { readonly onNews: () => void; readonly onLost: () => void }): void;
  /** Forgets the process, and its slots. */
  leave(mark: string): Promise<void>;
  /** Creates or upgrades what the store holds. Returns the versions before (0: nothing) and after. */
  migrate(): Promise<{ readonly from: number; readonly to: number }>;
  close(): Promise<void>;
}

/** Returns the value that a write expects to find; undefined if it expects none, or any. */
export function expectedOf(change: StoreWrite): string | undefined {
  if (change.op === 'take') return change.only;
  return change.op === 'swap' ? change.from : undefined;
}
