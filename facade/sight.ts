/** Owns what a call may come to see beyond what it names: lines of a search, and whatever a command opens; refuses to guess. */
import type { UpstreamCall } from '../adapters/port.ts';
import { TollgateError } from '../catalogs/errors.ts';
import { isBeneath } from '../catalogs/paths.ts';
import type { CallInput, Policy } from '../policies/port.ts';
import type { Bound } from './args.ts';
import type { Deps } from './call.ts';
import type { Exposed } from './exposure.ts';
import type { Caller } from './session.ts';
import type { Standee, Standing } from './standing.ts';
import { aim, type Place, type Target } from './target.ts';

/** A call that is allowed. */
export interface Seeing {
  readonly policy: Policy;
  /** As it was resolved: what a search finds may be another server's. */
  readonly exposed: Exposed;
  readonly bound: Bound;
  readonly place: Omit<Place, 'labels'>;
  readonly input: CallInput;
  readonly caller: Caller;
  readonly target: Pick<Target, 'exposed' | 'effect' | 'args'>;
  readonly standing: Standing;
}

const UNSERVED: ReadonlySet<string> = new Set(['NOT_SUPPORTED', 'DENIED']);

type Judges = Pick<Deps, 'standing' | 'fresh'>;

/**
 * For `read action="search"`: asks the policy of each file in which something was found what it says to `read` of that file.
 * A search names only the folder it begins in, so without this a rule that closes `.env` would be passed by searching for
 * its content. For a command: what the same rules close to it, since it names no file that it opens.
 */
export function sightOf(deps: Judges, seeing: Seeing): Pick<UpstreamCall, 'mayRead' | 'confinement' | 'beyond'> {
  const {
    policy,
    exposed,
    bound,
    place,
    input,
    caller,
    target: {
      exposed: { server },
      effect,
      args,
    },
    standing,
  } = seeing;
  const own = {
    ...(server.backend !== undefined && { confinement: policy.confinement(server.name, input.principal) }),
    ...(standing.beyond !== undefined && { beyond: () => openNow(deps, { caller, effect, args }) }),
  };
  if (exposed.primitive !== 'read' || bound.doc.value.action !== 'search') return own;
  const mayRead: UpstreamCall['mayRead'] = async (path) => {
    const target = await aimAtHit(exposed, path, { ...place, labels: input.labels });
    if (target === undefined) return undefined;
    try {
      // A file of another server is read through that server only.
      const decision =
        target.exposed.server === server
          ? await policy.call({ ...input, effect: target.effect, argsText: target.argsText })
          : undefined;
      if (
        decision?.outcome === 'allow' &&
        (await isOpen(deps, { caller, effect: target.effect, args: target.args }, target))
      )
        return target.held;
    } catch (thrown) {
      target.held.close();
      throw thrown;
    }
    target.held.close();
    return undefined;
  };
  return { ...own, mayRead };
}

/** Undefined for a file that none of several servers serves, or more than one. */
async function aimAtHit(exposed: Exposed, path: string, place: Place): Promise<Target | undefined> {
  const value = { path };
  try {
    return await aim(exposed, { doc: { text: JSON.stringify(value), value, exact: true }, notes: [] }, place);
  } catch (thrown) {
    if (exposed.ways !== undefined && thrown instanceof TollgateError && UNSERVED.has(thrown.code)) return undefined;
    throw thrown;
  }
}

/** The folders outside of the workspace that are open now: an owner may have closed them since the call was judged. Throws DENIED. */
async function openNow(deps: Judges, call: Standee): Promise<readonly string[]> {
  await deps.fresh();
  return deps.standing.judge(call).beyond ?? [];
}

/** Whether a file that a search found may be read under all of its names, as far as these lie outside of the workspace. */
async function isOpen(deps: Judges, call: Standee, { held }: Pick<Target, 'held'>): Promise<boolean> {
  if (call.effect.paths.every(({ inside }) => inside)) return true;
  try {
    const open = await openNow(deps, call);
    return held
      .all()
      .every(({ location: { inside, absolute } }) => inside || open.some((folder) => isBeneath(folder, absolute)));
  } catch (thrown) {
    if (thrown instanceof TollgateError && thrown.code === 'DENIED') return false;
    throw thrown;
  }
}
