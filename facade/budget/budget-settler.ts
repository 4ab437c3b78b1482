/** Settles reservations. A reservation that cannot be settled is kept and tried again. */
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { OUTCOME_UNKNOWN, type Reservation, type State } from '../state/state-port.ts';

type Used = Parameters<State['settle']>[1];

/** Milliseconds until a failed reservation is settled again. */
const AGAIN_MS = 1_000;

/** Settles the reservations of one process. No method throws. */
export interface Settler {
  /** Resolves even if settling fails. A failed reservation is settled again every second, and by `retry`. */
  settle(reservation: Reservation, used: Used): Promise<void>;
  /** Settles the failed reservations again. */
  retry(): Promise<void>;
  /** The number of failed reservations. */
  readonly failed: number;
}

/**
 * Returns a settler for a state. `onLate` is called when a later attempt succeeds, because its amounts become free only
 * then.
 */
export function createSettler(state: Pick<State, 'settle'>, onLate: () => void = () => undefined): Settler {
  const failed: { readonly reservation: Reservation; readonly used: Used }[] = [];
  let timer: NodeJS.Timeout | undefined;
  const settle = async (reservation: Reservation, used: Used): Promise<void> => {
    try {
      await state.settle(reservation, used);
    } catch (thrown) {
      // The error is not lost: the reservation is counted and settled again. If it may have been settled already, its
      // amounts stay spent, because giving them back twice would widen the budget. Its slots can be freed twice.
      const isUnknown = thrown instanceof TollgateError && thrown.cause === OUTCOME_UNKNOWN;
      failed.push({ reservation, used: isUnknown ? {} : used });
      // The timer does not keep the process alive, because the slots of a process end with it.
      timer ??= setTimeout(again, AGAIN_MS).unref();
    }
  };
  const retry = async (): Promise<void> => {
    for (const { reservation, used } of failed.splice(0)) await settle(reservation, used);
  };
  const again = (): void => {
    timer = undefined;
    const before = failed.length;
    void retry().then(() => (failed.length < before ? onLate() : undefined));
  };
  return {
    settle,
    retry,
    get failed() {
      return failed.length;
    },
  };
}
