/** Owns what the master switch means for lists and calls: off, every list is empty and every call is refused; refuses to guess when the state cannot be read. */

import { NO_PRECONDITIONS, type Precondition, type PreconditionView } from '../preconditions.ts';
import type { KillSwitch } from './kill-switch.ts';

const ON: PreconditionView = { revision: 'on', hides: () => false };

/** The master switch as one of the things that people decide beforehand (HA-19). It is read at every list and call. */
export function masterSwitchPrecondition(killSwitch: Pick<KillSwitch, 'offRefusal'>): Precondition {
  return {
    view: () => {
      const off = killSwitch.offRefusal();
      return off === undefined ? ON : { revision: 'off', hides: () => true, off };
    },
    // It may have been thrown since the name was looked up.
    judge: () => {
      const off = killSwitch.offRefusal();
      if (off !== undefined) throw off;
      return NO_PRECONDITIONS;
    },
  };
}
