/** Applies the master switch: when it is off, every list is empty and every call is refused. */

import { NO_PRECONDITIONS, type Precondition, type PreconditionView } from '../preconditions.ts';
import type { KillSwitch } from './kill-switch.ts';

const ON: PreconditionView = { revision: 'on', hides: () => false };

/** Returns the precondition for the master switch (HA-19). Every list and every call reads it. */
export function masterSwitchPrecondition(killSwitch: Pick<KillSwitch, 'offRefusal'>): Precondition {
  return {
    view: () => {
      const off = killSwitch.offRefusal();
      return off === undefined ? ON : { revision: 'off', hides: () => true, off };
    },
    // The switch may have changed after the name was resolved.
    judge: () => {
      const off = killSwitch.offRefusal();
      if (off !== undefined) throw off;
      return NO_PRECONDITIONS;
    },
  };
}
