/**
 * The effect of the master switch on lists and calls: when it is off, every list is empty and every call is refused.
 */

import { NO_PRECONDITIONS, type Precondition, type PreconditionView } from '../preconditions.ts';
import type { KillSwitch } from './kill-switch.ts';

const ON: PreconditionView = { revision: 'on', hides: () => false };

/** Returns the master switch as a source of decisions made beforehand (HA-19). It is read at every list and call. */
export function masterSwitchPrecondition(killSwitch: Pick<KillSwitch, 'offRefusal'>): Precondition {
  return {
    view: () => {
      const off = killSwitch.offRefusal();
      return off === undefined ? ON : { revision: 'off', hides: () => true, off };
    },
    // It may have been switched since the name was resolved.
    judge: () => {
      const off = killSwitch.offRefusal();
      if (off !== undefined) throw off;
      return NO_PRECONDITIONS;
    },
  };
}
