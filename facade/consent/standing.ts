/** Owns what tools that wait for their owner mean in every process: they are neither shown nor called, whichever process saw them change; refuses to judge a definition itself. */
import type { ApprovedTools, PendingItem } from './approved-tools.ts';
import { pendingRefusal } from './refusals.ts';
import { NOTHING_STANDS, OPEN, type StandingSource } from '../standing.ts';
import type { Pending } from './tool-set.ts';

/**
 * What was seen of servers as one of the things that stand beforehand (HA-15): a server is started for a list by nobody, so without this an
 * agent would be shown what another was refused.
 */
export function pendingStanding(tools: Pick<ApprovedTools, 'allPending'>): StandingSource {
  return {
    view: () => {
      const { mark, of } = tools.allPending();
      if (mark === '') return OPEN;
      return { revision: mark, hides: () => false, withholds: ({ server, tool }) => whyPending(of(server), tool) !== undefined };
    },
    judge: ({ effect: { server, tool } }) => {
      const why = whyPending(tools.allPending().of(server), tool);
      if (why !== undefined) throw pendingRefusal(server, why);
      return NOTHING_STANDS;
    },
  };
}

function whyPending(item: PendingItem | undefined, tool: string): Pending | 'gone' | undefined {
  if (item === undefined) return undefined;
  if (item.changed.includes(tool)) return 'changed';
  if (item.added.includes(tool)) return 'new';
  return item.removed.includes(tool) ? 'gone' : undefined;
}
