/** Owns what tools that wait for their owner mean in every process: they are neither shown nor called, whichever process saw them change; refuses to judge a definition itself. */

import { NOTHING_STANDS, OPEN, type StandingSource, type View } from '../standing.ts';
import type { ApprovedTools } from './approved-tools.ts';
import { pendingRefusal } from './refusals.ts';
import type { Waiting } from './waiting.ts';

/**
 * What was seen of servers as one of the things that stand beforehand (HA-15): a server is started for a list by nobody, so without this an
 * agent would be shown what another was refused.
 */
export function pendingStanding(tools: Pick<ApprovedTools, 'allPending'>): StandingSource {
  const views = new WeakMap<Waiting, View>();
  return {
    view: () => {
      const waiting = tools.allPending();
      const view = views.get(waiting) ?? viewOf(waiting);
      views.set(waiting, view);
      return view;
    },
    judge: ({ effect: { server, tool } }) => {
      const why = tools.allPending().why(server, tool);
      if (why !== undefined) throw pendingRefusal(server, why);
      return NOTHING_STANDS;
    },
  };
}

function viewOf({ mark, why }: Waiting): View {
  return mark === ''
    ? OPEN
    : { revision: mark, hides: () => false, withholds: ({ server, tool }) => why(server, tool) !== undefined };
}
