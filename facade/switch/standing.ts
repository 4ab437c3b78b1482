/** Owns what the master switch means for lists and calls: off, every list is empty and every call is refused; refuses to guess when the state cannot be read. */
import type { KillSwitch } from '../servers/kill-switch.ts';
import { NOTHING_STANDS, type StandingSource, type View } from '../standing.ts';

const ON: View = { revision: 'on', hides: () => false };

/** The master switch as one of the things that people decide beforehand (HA-19). It is read at every list and call. */
export function switchStanding(killSwitch: Pick<KillSwitch, 'offRefusal'>): StandingSource {
  return {
    view: () => {
      const off = killSwitch.offRefusal();
      return off === undefined ? ON : { revision: 'off', hides: () => true, off };
    },
    // It may have been thrown since the name was looked up.
    judge: () => {
      const off = killSwitch.offRefusal();
      if (off !== undefined) throw off;
      return NOTHING_STANDS;
    },
  };
}
