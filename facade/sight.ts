/** Owns what a call may come to see beyond what it names: lines of a search, and whatever a command opens; refuses to guess. */
import type { UpstreamCall } from '../adapters/port.ts';
import type { CallInput, Policy } from '../policies/port.ts';
import type { Bound } from './args.ts';
import type { Exposed } from './exposure.ts';
import { aim, type Place } from './target.ts';

/** A call that is allowed. */
export interface Seeing {
  readonly policy: Policy;
  readonly exposed: Exposed;
  readonly bound: Bound;
  readonly place: Place;
  readonly input: CallInput;
}

/**
 * For `read action="search"`: asks the policy of each file in which something was found what it says to `read` of that file.
 * A search names only the folder it begins in, so without this a rule that closes `.env` would be passed by searching for
 * its content. For a command: what the same rules close to it, since it names no file that it opens.
 */
export function sightOf({ policy, exposed, bound, place, input }: Seeing): Pick<UpstreamCall, 'mayRead' | 'confinement'> {
  const confinement = exposed.server.backend === undefined ? {} : { confinement: policy.confinement(exposed.server.name, input.principal) };
  if (exposed.primitive !== 'read' || bound.doc.value['action'] !== 'search') return confinement;
  const mayRead: UpstreamCall['mayRead'] = async (path) => {
    const value = { path };
    const target = await aim(exposed, { doc: { text: JSON.stringify(value), value, exact: true }, notes: [] }, place);
    try {
      const decision = await policy.call({ ...input, effect: target.effect, argsText: target.argsText });
      if (decision.outcome === 'allow') return target.held;
    } catch (thrown) {
      target.held.close();
      throw thrown;
    }
    target.held.close();
    return undefined;
  };
  return { ...confinement, mayRead };
}
