/** Owns what a call may come to see beyond what it names: lines of a search, and whatever a command opens; refuses to guess. */
import type { UpstreamCall } from '../../adapters/port.ts';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { isBeneath } from '../../catalogs/readers/path-location.ts';
import type { CallInput, Policy } from '../../policies/port.ts';
import type { CallPreconditions, PreconditionCall } from '../consent/preconditions.ts';
import type { ExposedTool } from '../exposure/name-table.ts';
import type { CallDependencies } from './call.ts';
import type { Caller } from './identify.ts';
import { type LoweredCall, type LoweringContext, lowerCall } from './lowering/lowered-call.ts';
import type { BoundArguments } from './validate.ts';

/** A call that is allowed. */
export interface ReadScopeRequest {
  readonly policy: Policy;
  /** As it was resolved: what a search finds may be another server's. */
  readonly exposed: ExposedTool;
  readonly bound: BoundArguments;
  readonly place: Omit<LoweringContext, 'labels'>;
  readonly input: CallInput;
  readonly caller: Caller;
  readonly lowered: Pick<LoweredCall, 'exposed' | 'effect' | 'args'>;
  readonly preconditions: CallPreconditions;
}

const UNSERVED: ReadonlySet<string> = new Set(['NOT_SUPPORTED', 'DENIED']);

type Judges = Pick<CallDependencies, 'preconditions' | 'fresh'>;

/**
 * For `read action="search"`: asks the policy of each file in which something was found what it says to `read` of that file.
 * A search names only the folder it begins in, so without this a rule that closes `.env` would be passed by searching for
 * its content. For a command: what the same rules close to it, since it names no file that it opens.
 */
export function readScopeOf(
  deps: Judges,
  seeing: ReadScopeRequest,
): Pick<UpstreamCall, 'mayRead' | 'confinement' | 'outsideFolders'> {
  const {
    policy,
    exposed,
    bound,
    place,
    input,
    caller,
    lowered: {
      exposed: { server },
      effect,
      args,
    },
    preconditions: standing,
  } = seeing;
  const own = {
    ...(server.backend !== undefined && { confinement: policy.confinement(server.name, input.principal) }),
    ...(standing.beyond !== undefined && { outsideFolders: () => openNow(deps, { caller, effect, args }) }),
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
        return target.pathHandles;
    } catch (thrown) {
      target.pathHandles.close();
      throw thrown;
    }
    target.pathHandles.close();
    return undefined;
  };
  return { ...own, mayRead };
}

/** Undefined for a file that none of several servers serves, or more than one. */
async function aimAtHit(exposed: ExposedTool, path: string, place: LoweringContext): Promise<LoweredCall | undefined> {
  const value = { path };
  try {
    return await lowerCall(exposed, { doc: { text: JSON.stringify(value), value, exact: true }, notes: [] }, place);
  } catch (thrown) {
    if (exposed.routedServers !== undefined && thrown instanceof TollgateError && UNSERVED.has(thrown.code))
      return undefined;
    throw thrown;
  }
}

/** The folders outside of the workspace that are open now: an owner may have closed them since the call was judged. Throws DENIED. */
async function openNow(deps: Judges, call: PreconditionCall): Promise<readonly string[]> {
  await deps.fresh();
  return deps.preconditions.judge(call).beyond ?? [];
}

/** Whether a file that a search found may be read under all of its names, as far as these lie outside of the workspace. */
async function isOpen(
  deps: Judges,
  call: PreconditionCall,
  { pathHandles: held }: Pick<LoweredCall, 'pathHandles'>,
): Promise<boolean> {
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
