/** Settles reservations. One that could not be settled is kept and tried again. */
import type { Reservation, State } from '../state/state-port.ts';

type Used = Parameters<State['settle']>[1];

/** When a failed settle is tried again, ms. */
const AGAIN_MS = 1_000;

/** Settles the reservations of one process. No method throws. */
export interface Settler {
  /** Resolves even if it failed: it is tried again every second, and at `retry`. */
  settle(held: Reservation, used: Used): Promise<void>;
  /** Tries again what has failed. */
  retry(): Promise<void>;
  /** How many are waiting to be tried again. */
  readonly failed: number;
}

/**
 * Returns a settler for a state. `onLate` is called when a later try succeeded, because only then its amounts are free.
 */
export function createSettler(state: Pick<State, 'settle'>, onLate: () => void = () => undefined): Settler {
  const failed: { readonly held: Reservation; readonly used: Used }[] = [];
  let timer: NodeJS.Timeout | undefined;
  const settle = async (held: Reservation, used: Used): Promise<void> => {
    try {
      await state.settle(held, used);
    } catch {
      // Not ignored: it is counted, and tried again.
      failed.push({ held, used });
      // Does not delay the end of the process, because its slots end with it.
      timer ??= setTimeout(again, AGAIN_MS).unref();
    }
  };
  const retry = async (): Promise<void> => {
    for (const { held, used } of failed.splice(0)) await settle(held, used);
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
