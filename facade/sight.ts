/** Owns which files a search may show lines of: those that the same caller could read by name; refuses to guess. */
import type { CallInput, Policy } from '../policies/port.ts';
import type { Bound } from './args.ts';
import type { Exposed } from './exposure.ts';
import { aim } from './target.ts';

/** The search whose hits are judged. */
export interface Search {
  readonly policy: Policy;
  readonly exposed: Exposed;
  readonly bound: Bound;
  readonly place: Parameters<typeof aim>[2];
  readonly input: Omit<CallInput, 'effect' | 'argsText'>;
}

/**
 * For `read action="search"`: asks the policy of each file in which something was found what it says to `read` of that file.
 * A search names only the folder it begins in, so without this a rule that closes `.env` would be passed by searching for
 * its content. Undefined for every other call.
 */
export function sightOf({ policy, exposed, bound, place, input }: Search): ((path: string) => Promise<boolean>) | undefined {
  if (exposed.primitive !== 'read' || bound.doc.value['action'] !== 'search') return undefined;
  return async (path) => {
    const value = { path };
    const target = aim(exposed, { doc: { text: JSON.stringify(value), value, exact: true }, notes: [] }, place);
    const decision = await policy.call({ ...input, effect: target.effect, argsText: target.argsText });
    return decision.outcome === 'allow';
  };
}
