/**
 * Reserves and settles budgets. The counters that processes share are in the database. Those of a session are in the
 * memory of its process.
 */
import type { Instant } from './budget-clock.ts';
import {
  addAmounts,
  type BudgetCounter,
  callsAhead,
  changeOf,
  currentCounter,
  drawFromCounter,
  isChange,
} from './budget-counter.ts';
import type {
  Amounts,
  BudgetClaim,
  CounterName,
  Reservation,
  ReservationRefusal,
  ReservedClaim,
  State,
} from './state-port.ts';

/** The budgets of a state, answered at once. */
export interface Ledger {
  reserve(
    ...asked: Parameters<State['reserve']>
  ): { readonly reservation: Reservation } | { readonly refused: ReservationRefusal };
  settle(...settled: Parameters<State['settle']>): void;
  endScope(scope: string, key: string): void;
}

/** Where a ledger has its counters and slots. */
export interface LedgerStore {
  /** Runs `work`: all its changes are made, or none. */
  transact<T>(work: () => T): T;
  read(name: CounterName): BudgetCounter | undefined;
  /** `now`: ms since 1970. */
  write(name: CounterName, counter: BudgetCounter, now: number): void;
  /** Adds to the amounts of a counter if its window is still that of `since`. */
  add(name: CounterName, since: Instant, change: Amounts): void;
  endScope(scope: string, key: string): void;
  /** Returns the refusal if all slots are taken. */
  checkSlots(claim: BudgetClaim): ReservationRefusal | undefined;
  takeSlot(name: CounterName, reservation: string): void;
  freeSlot(name: CounterName, reservation: string): void;
}

/** What one claim reserves, and its counter before that. */
interface Draw {
  readonly taken: ReservedClaim;
  readonly before: BudgetCounter;
}

const NONE_AHEAD = { most: 0, held: 0 };

/** Returns the ledger of a store. `prefix` makes the ids of its reservations unique in the store. */
export function createLedger(store: LedgerStore, prefix = ''): Ledger {
  let reservations = 0;
  const draw = (claim: BudgetClaim, now: Instant): Draw | { readonly refused: ReservationRefusal } => {
    const last = store.read(claim);
    const before = currentCounter(claim, last, now);
    const answer = drawFromCounter(claim, before, now);
    if (!('refused' in answer)) return { taken: answer.taken, before };
    // Stores the new window, so that it does not begin again at each refusal.
    if (last !== undefined && before.since !== last.since) store.write(claim, before, now.wall);
    return answer;
  };
  return {
    reserve: (claims, now, ahead = NONE_AHEAD) =>
      store.transact(() => {
        const draws: Draw[] = [];
        for (const claim of claims) {
          const answer = draw(claim, now);
          if ('refused' in answer) return answer;
          draws.push(answer);
        }
        for (const claim of claims) {
          const refused = claim.concurrent === undefined ? undefined : store.checkSlots(claim);
          if (refused !== undefined) return { refused };
        }
        reservations += 1;
        const id = `${prefix}${reservations}`;
        const further =
          ahead.most === 0
            ? 0
            : draws.reduce(
                (most, { taken, before }) => callsAhead(taken.claim, before.amounts, { ...ahead, most }),
                ahead.most,
              );
        const taken = draws.map(({ taken: { claim, since, amounts }, before }) => {
          const all = further === 0 ? amounts : addAmounts(amounts, amounts, further);
          if (isChange(all)) store.write(claim, { since, amounts: addAmounts(before.amounts, all) }, now.wall);
          if (claim.concurrent !== undefined) store.takeSlot(claim, id);
          return { claim, since, amounts: all };
        });
        return { reservation: { id, taken } };
      }),
    settle: ({ id, taken }, used) =>
      store.transact(() => {
        for (const { claim, since, amounts } of taken) {
          const change = changeOf(amounts, used);
          if (isChange(change)) store.add(claim, since, change);
          if (claim.concurrent !== undefined) store.freeSlot(claim, id);
        }
      }),
    endScope: (scope, key) => store.transact(() => store.endScope(scope, key)),
  };
}

interface MemoryCounter {
  counter?: BudgetCounter;
  readonly slots: Set<string>;
}

/** A ledger in memory. */
export interface MemoryLedger extends Ledger {
  /** Deletes the counters of a budget whose key is reset. Slots stay. */
  reset(budget: string, isReset: (key: string) => boolean): void;
}

/** Returns a ledger in memory. It keeps the counters of a scope until `endScope`. */
export function createMemoryLedger(): MemoryLedger {
  /** Scope → key → budget → counter. */
  const scopes = new Map<string, Map<string, Map<string, MemoryCounter>>>();
  const find = ({ budget, scope, key }: CounterName): MemoryCounter | undefined =>
    scopes.get(scope)?.get(key)?.get(budget);
  const open = (name: CounterName): MemoryCounter => {
    const known = find(name);
    if (known !== undefined) return known;
    const opened: MemoryCounter = { slots: new Set() };
    getOrAdd(getOrAdd(scopes, name.scope), name.key).set(name.budget, opened);
    return opened;
  };
  const reset: MemoryLedger['reset'] = (budget, isReset) => {
    for (const keys of scopes.values())
      for (const [key, budgets] of keys) if (isReset(key)) delete budgets.get(budget)?.counter;
  };
  const ledger = createLedger({
    transact: (work) => work(),
    read: (name) => find(name)?.counter,
    write: (name, counter) => void (open(name).counter = counter),
    add: (name, since, change) => {
      const entry = find(name);
      if (entry?.counter?.since !== since) return;
      entry.counter = { since, amounts: addAmounts(entry.counter.amounts, change) };
    },
    endScope: (scope, key) => void scopes.get(scope)?.delete(key),
    checkSlots: (claim) => {
      const { concurrent: limit } = claim;
      const isFree = limit === undefined || (find(claim)?.slots.size ?? 0) < limit;
      return isFree ? undefined : { claim, unit: 'concurrent', limit, left: 0 };
    },
    takeSlot: (name, reservation) => void open(name).slots.add(reservation),
    freeSlot: (name, reservation) => void find(name)?.slots.delete(reservation),
  });
  return { ...ledger, reset };
}

function getOrAdd<V>(maps: Map<string, Map<string, V>>, key: string): Map<string, V> {
  const known = maps.get(key);
  if (known !== undefined) return known;
  const added = new Map<string, V>();
  maps.set(key, added);
  return added;
}
