/** Settles what was reserved; keeps what could not be settled, and tries it again until it is. */
import type { Reservation, State } from '../state/state-port.ts';

type Used = Parameters<State['settle']>[1];

/** How soon what failed is tried again, ms. */
const AGAIN_MS = 1_000;

/** Settles reservations of one process. Nothing here throws. */
export interface Settler {
  /** Resolves also when it failed: it is tried again every second, and at `retry`. */
  settle(held: Reservation, used: Used): Promise<void>;
  /** Tries again what has failed. */
  retry(): Promise<void>;
  /** How many are to be tried again. */
  readonly failed: number;
}

/** A settler over a state. `onLate` is called when something was settled by a later try: what it held is free only then. */
export function createSettler(state: Pick<State, 'settle'>, onLate: () => void = () => undefined): Settler {
  const failed: { readonly held: Reservation; readonly used: Used }[] = [];
  let timer: NodeJS.Timeout | undefined;
  const settle = async (held: Reservation, used: Used): Promise<void> => {
    try {
      await state.settle(held, used);
    } catch {
      // Not swallowed: it is counted, and tried again.
      failed.push({ held, used });
      // The end of the process is not held up: its slots end with it.
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
