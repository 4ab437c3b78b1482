/**
 * Reserves budgets that processes share. One transaction reserves amounts for further calls too, so that most calls
 * need none (decision 67). What is reserved ahead counts as spent for all processes until it is given back.
 */
import type { Instant } from '../state/budget-clock.ts';
import {
  AHEAD_SHARE,
  addAmounts,
  BUDGET_UNITS,
  changeOf,
  counterKey,
  EMPTY_COUNTER,
  emptyAmounts,
  isChange,
  isWindowOver,
  needsSettle,
} from '../state/budget-counter.ts';
import type {
  Amounts,
  BudgetClaim,
  BudgetUnit,
  Reservation,
  ReservationRefusal,
  ReservedClaim,
  State,
} from '../state/state-port.ts';
import type { Settler } from './budget-settler.ts';

/** The most calls for which one transaction reserves ahead; with the call itself 256. */
const MOST_AHEAD = 255;
/** Amounts are given back if nothing was added to them for one to two of these intervals, ms. */
const GIVE_BACK_MS = 500;
/** More is reserved when less than this part of the last addition is left, if the part is at least one call. */
const LOW = 1 / 4;

/** What a call holds of shared budgets. */
export interface SharedHolding {
  readonly taken: readonly ReservedClaim[];
  /** Replaces the reserved amounts by those used. Returns undefined if this needs no transaction. Never throws. */
  settle(used: Pick<Amounts, 'outputBytes' | 'wallMs'>): Promise<void> | undefined;
}

/** Amounts that are reserved ahead in one window of a counter. `claim` has the limits that were observed. */
interface Advance {
  readonly claim: BudgetClaim;
  readonly since: Instant;
  amounts: Amounts;
}

/** How this process uses one counter. */
interface Account {
  advance?: Advance;
  /** The number of further calls for which the next transaction reserves. */
  next: number;
  /** The number for which the last one did. */
  last: number;
  /** A transaction was made since the last check. */
  isFresh: boolean;
  /** A request that reserves ahead is on its way. There is only one at a time. */
  isAsking: boolean;
  /** Settles when a request that is for no call has been answered. */
  arriving?: Promise<void>;
}

/** What a call takes from an advance. */
interface Draw extends ReservedClaim {
  readonly account: Account;
  readonly advance: Advance;
}

const NO_HOLDING: SharedHolding = { taken: [], settle: () => undefined };

/** A request to the state, and the calls that are reserved ahead already. */
interface Question {
  readonly claims: readonly BudgetClaim[];
  readonly accounts: readonly Account[];
  readonly held: number;
}

type ReserveAnswer = Awaited<ReturnType<State['reserve']>>;

/** The shared budgets of one process. */
export class SharedBudgets {
  readonly #state: Pick<State, 'reserve'>;
  readonly #settler: Pick<Settler, 'settle'>;
  readonly #accounts = new Map<string, Account>();
  readonly #working = new Set<Promise<unknown>>();
  #timer: NodeJS.Timeout | undefined;
  #isClosed = false;

  /** `settler` gives amounts back. */
  constructor(state: Pick<State, 'reserve'>, settler: Pick<Settler, 'settle'>) {
    this.#state = state;
    this.#settler = settler;
  }

  /** Takes claims from what is reserved ahead. Returns undefined if that does not have all of them. */
  take(claims: readonly BudgetClaim[], now: Instant): SharedHolding | undefined {
    if (claims.length === 0) return NO_HOLDING;
    const draws: Draw[] = [];
    for (const claim of claims) {
      const account = this.#accounts.get(counterKey(claim));
      if (account?.advance === undefined || !covers(account.advance, claim, now)) return undefined;
      const { advance } = account;
      draws.push({ account, advance, claim, since: advance.since, amounts: amountsOf(claim) });
    }
    for (const { advance, amounts } of draws) advance.amounts = addAmounts(advance.amounts, amounts, -1);
    if (draws.some(isLow) && !this.#isClosed) this.#reserveAhead(draws.filter(isLow), now);
    return {
      taken: draws,
      settle: (used) => {
        const taken: ReservedClaim[] = [];
        for (const draw of draws)
          if (!putBack(draw, used)) taken.push({ claim: draw.claim, since: draw.since, amounts: draw.amounts });
        return taken.length === 0 ? undefined : this.#settle({ id: '', taken }, used);
      },
    };
  }

  /** Returns a promise while more is being reserved ahead. After it, `take` may succeed. */
  arriving(claims: readonly BudgetClaim[]): Promise<void> | undefined {
    const accounts = claims.map((claim) => this.#accounts.get(counterKey(claim)));
    return accounts.find((account) => account?.arriving !== undefined)?.arriving;
  }

  /** Reserves claims in the shared state, and amounts for further calls. Throws STATE_FAILED. */
  reserve(
    claims: readonly BudgetClaim[],
    now: Instant,
  ): Promise<{ readonly holding: SharedHolding } | { readonly refused: ReservationRefusal }> {
    return this.#track(async () => {
      const accounts = claims.map((claim) => this.#open(claim));
      // Before the request, so that the state counts what is ahead as free, and a refusal says what is left.
      void this.#giveBack(accounts);
      const answer = await this.#ask({ claims, accounts, held: 0 }, now);
      if ('refused' in answer) return answer;
      const parts = answer.reservation.taken.map(splitReserved);
      for (const [index, account] of accounts.entries()) this.#add(account, parts[index]!.rest);
      const reservation = { ...answer.reservation, taken: parts.map(({ call }) => call) };
      return { holding: { taken: reservation.taken, settle: (used) => this.#settle(reservation, used) } };
    });
  }

  /** Returns the refusal of the first claim that is spent, and reserves nothing. Throws STATE_FAILED. */
  async findSpent(claims: readonly BudgetClaim[], now: Instant): Promise<ReservationRefusal | undefined> {
    const ahead = ({ claim, unit }: { claim: BudgetClaim; unit: BudgetUnit }): number =>
      this.#accounts.get(counterKey(claim))?.advance?.amounts[unit] ?? 0;
    const asked = claims.map(({ concurrent: _concurrent, ...claim }) => ({
      ...claim,
      demands: claim.demands.map((demand) => ({
        ...demand,
        most: 0,
        least: demand.least - ahead({ claim, unit: demand.unit }),
      })),
    }));
    const answer = await this.#state.reserve(asked, now);
    if (!('refused' in answer)) return undefined;
    const { claim, unit, left } = answer.refused;
    return { ...answer.refused, left: left + (unit === 'concurrent' ? 0 : ahead({ claim, unit })) };
  }

  /** Drops what is reserved ahead in a scope whose counters were deleted. */
  forget(scope: string, key: string): void {
    for (const account of this.#accounts.values()) {
      const { claim } = account.advance ?? {};
      if (claim?.scope === scope && claim.key === key) delete account.advance;
    }
  }

  /** Gives back what is reserved ahead, and reserves nothing ahead from then on. Never throws. */
  async close(): Promise<void> {
    this.#isClosed = true;
    clearInterval(this.#timer);
    await Promise.allSettled(this.#working);
    await this.#giveBack([...this.#accounts.values()]);
  }

  /** Reserves for further calls while a call is served from what is left. */
  #reserveAhead(low: readonly Draw[], now: Instant): void {
    const accounts = low.map(({ account }) => account);
    // The request itself reserves one of these calls.
    const held = 1 + Math.ceil(Math.max(...low.flatMap(({ advance, claim }) => callsIn(claim, advance.amounts))));
    const claims = low.map(({ claim }) => ({
      ...claim,
      demands: claim.demands.map((demand) => ({ ...demand, least: (demand.most * held) / AHEAD_SHARE })),
    }));
    const arriving = this.#track(async () => {
      const answer = await this.#ask({ claims, accounts, held }, now);
      if ('refused' in answer) return;
      for (const [index, account] of accounts.entries()) this.#add(account, answer.reservation.taken[index]!);
    })
      // The next call that needs the state reports the error.
      .catch(() => undefined)
      .finally(() => {
        for (const account of accounts) delete account.arriving;
      });
    for (const account of accounts) {
      account.last = 0;
      account.arriving = arriving;
    }
  }

  async #ask({ claims, accounts, held }: Question, now: Instant): Promise<ReserveAnswer> {
    const mayAhead =
      !this.#isClosed &&
      accounts.every(({ isAsking }) => !isAsking) &&
      claims.every(({ concurrent }) => concurrent === undefined);
    const most = mayAhead ? Math.min(...accounts.map(({ next }) => next)) : 0;
    if (most === 0) return this.#state.reserve(claims, now);
    for (const account of accounts) account.isAsking = true;
    try {
      return await this.#state.reserve(claims, now, { most, held });
    } finally {
      for (const account of accounts) account.isAsking = false;
    }
  }

  #open(claim: BudgetClaim): Account {
    const key = counterKey(claim);
    const known = this.#accounts.get(key);
    if (known !== undefined) return known;
    const account: Account = { next: 0, last: 0, isFresh: true, isAsking: false };
    this.#accounts.set(key, account);
    this.#timer ??= setInterval(() => this.#giveBackOld(), GIVE_BACK_MS).unref();
    return account;
  }

  #add(account: Account, added: ReservedClaim): void {
    account.isFresh = true;
    account.next = Math.min(MOST_AHEAD, 2 * account.next + 1);
    const { claim, since, amounts } = added;
    account.last = Math.min(...callsIn(claim, amounts));
    if (!isChange(amounts)) return;
    const { advance } = account;
    if (advance !== undefined && isSameWindow(advance.since, since) && hasSameLimits(advance.claim, claim))
      advance.amounts = addAmounts(advance.amounts, amounts);
    else {
      void this.#giveBack([account]);
      account.advance = { claim, since, amounts };
    }
  }

  async #giveBack(accounts: readonly Account[]): Promise<void> {
    const taken: ReservedClaim[] = [];
    for (const account of accounts) {
      if (account.advance !== undefined) taken.push(account.advance);
      delete account.advance;
    }
    await this.#settle({ id: '', taken }, EMPTY_COUNTER);
  }

  #giveBackOld(): void {
    const old = [...this.#accounts].filter(([, { isFresh, isAsking }]) => !isFresh && !isAsking);
    for (const [key] of old) this.#accounts.delete(key);
    void this.#giveBack(old.map(([, account]) => account));
    for (const account of this.#accounts.values()) account.isFresh = false;
    if (this.#accounts.size > 0) return;
    clearInterval(this.#timer);
    this.#timer = undefined;
  }

  #settle(reservation: Reservation, used: Partial<Amounts>): Promise<void> | undefined {
    return needsSettle(reservation, used) ? this.#settler.settle(reservation, used) : undefined;
  }

  async #track<T>(work: () => Promise<T>): Promise<T> {
    const working = work();
    this.#working.add(working);
    try {
      return await working;
    } finally {
      this.#working.delete(working);
    }
  }
}

/** Returns the demands of one call. */
function amountsOf({ demands }: BudgetClaim): Amounts {
  const amounts = emptyAmounts();
  for (const { unit, most } of demands) amounts[unit] = most;
  return amounts;
}

function covers({ claim: observed, since, amounts }: Advance, claim: BudgetClaim, now: Instant): boolean {
  return (
    claim.concurrent === undefined &&
    hasSameLimits(observed, claim) &&
    claim.demands.every(({ unit, most }) => amounts[unit] >= most) &&
    !isWindowOver(claim, since, now)
  );
}

/** After a reload of the policy, what was reserved under another limit must not be used. */
function hasSameLimits(one: BudgetClaim, other: BudgetClaim): boolean {
  return (
    one.windowMs === other.windowMs &&
    one.demands.length === other.demands.length &&
    one.demands.every(({ unit, limit }, index) => {
      const demand = other.demands[index];
      return demand?.unit === unit && demand.limit === limit;
    })
  );
}

function isSameWindow(one: Instant, other: Instant): boolean {
  return one.wall === other.wall && one.monotonic === other.monotonic;
}

/** Returns for how many calls with these demands each amount is enough. */
function callsIn({ demands }: BudgetClaim, amounts: Amounts): readonly number[] {
  return demands.flatMap(({ unit, most }) => (most > 0 ? amounts[unit] / most : []));
}

function isLow({ account, advance, claim }: Draw): boolean {
  const low = account.last * LOW;
  if (low < 1 || account.isAsking) return false;
  return claim.demands.some(({ unit, most }) => advance.amounts[unit] < most * low);
}

/** Splits a reservation for a call and further calls. */
function splitReserved({ claim, since, amounts }: ReservedClaim): { call: ReservedClaim; rest: ReservedClaim } {
  const call = emptyAmounts();
  for (const { unit, most } of claim.demands) call[unit] = Math.min(most, amounts[unit]);
  return {
    call: { claim, since, amounts: call },
    rest: { claim, since, amounts: addAmounts(amounts, call, -1) },
  };
}

/** Puts back what a call did not use. Returns false if its amounts are no longer ahead, or if it used more. */
function putBack({ account, advance, amounts }: Draw, used: Partial<Amounts>): boolean {
  const change = changeOf(amounts, used);
  if (!isChange(change)) return true;
  if (account.advance !== advance || BUDGET_UNITS.some((unit) => change[unit] > 0)) return false;
  advance.amounts = addAmounts(advance.amounts, change, -1);
  return true;
}
