/** What a call may read beyond what it names: the lines that a search finds, and the files that a command opens. */
import type { UpstreamCall } from '../../adapters/port.ts';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { isPathWithin } from '../../catalogs/readers/path-location.ts';
import type { Policy } from '../../policies/port.ts';
import type { PreconditionCall, Preconditions } from '../consent/preconditions.ts';
import type { ExposedTool } from '../exposure/exposed-tool.ts';
import type { Spills } from '../output/spills.ts';
import type { AllowedCall } from './decide.ts';
import type { Caller } from './identify.ts';
import { type LoweredCall, type LoweringContext, lowerCall } from './lowering/lowered-call.ts';
import type { WorkspaceFiles } from './lowering/workspace-files.ts';

/** What judging a read scope needs. */
export interface ReadScopeDependencies {
  /** See `State.refresh`. */
  readonly refresh: () => Promise<void> | undefined;
  readonly preconditions: Pick<Preconditions, 'judge'>;
  readonly files: WorkspaceFiles;
  readonly spills: Spills;
}

/** A call that is allowed. */
export interface ReadScopeRequest {
  readonly policy: Policy;
  readonly caller: Caller;
  /** The tool as it was resolved: a search may find files of another server. */
  readonly exposed: ExposedTool;
  readonly allowed: AllowedCall;
}

/** What a call may read beyond what it names. */
export type ReadScope = Pick<UpstreamCall, 'mayRead' | 'confinement' | 'outsideFolders'>;

/** Refusals of a found file that no server serves, or that several serve. */
const UNSERVED: ReadonlySet<string> = new Set(['NOT_SUPPORTED', 'DENIED']);
/** What a call of a tool under its own name may read beyond what it names. */
const NO_SCOPE: ReadScope = {};

/**
 * Returns what the call may read. A search names only the folder in which it begins. Without the policy's decision on
 * each file with a hit, a rule that closes `.env` could be bypassed by a search for its content. A command names no
 * file that it opens: the same rules close files to it through mounts.
 */
export function readScopeOf(
  deps: ReadScopeDependencies,
  { policy, caller, exposed, allowed }: ReadScopeRequest,
): ReadScope {
  const { lowered, preconditions, input, bound } = allowed;
  const { effect, args } = lowered;
  const { server } = lowered.exposed;
  if (exposed.primitive === undefined && server.backend === undefined && preconditions.beyond === undefined)
    return NO_SCOPE;
  const scope = {
    ...(server.backend !== undefined && { confinement: policy.confinement(server.name, input.principal) }),
    ...(preconditions.beyond !== undefined && {
      outsideFolders: () => outsideFoldersNow(deps, { caller, effect, args }),
    }),
  };
  if (exposed.primitive !== 'read' || bound.doc.value.action !== 'search') return scope;
  const owner = { principal: caller.principal.id, run: caller.run };
  const context = { files: deps.files, spills: deps.spills, owner, labels: input.labels };
  const isReadable = async (found: LoweredCall): Promise<boolean> => {
    // A file of another server is read through that server only.
    if (found.exposed.server !== server) return false;
    const decision = await policy.call({ ...input, effect: found.effect, argsText: found.argsText });
    return decision.outcome === 'allow' && (await isInOpenFolders(deps, caller, found));
  };
  const mayRead: UpstreamCall['mayRead'] = async (path) => {
    const found = await lowerRead(exposed, path, context);
    if (found === undefined) return undefined;
    let readable = false;
    try {
      readable = await isReadable(found);
      return readable ? found.pathHandles : undefined;
    } finally {
      if (!readable) found.pathHandles.close();
    }
  };
  return { ...scope, mayRead };
}

/**
 * Lowers a `read` of a found file. Returns undefined for a file that none of several servers serves, or more than one.
 */
async function lowerRead(
  exposed: ExposedTool,
  path: string,
  context: LoweringContext,
): Promise<LoweredCall | undefined> {
  const value = { path };
  try {
    return await lowerCall(exposed, { doc: { text: JSON.stringify(value), value, exact: true }, notes: [] }, context);
  } catch (thrown) {
    if (exposed.routedServers !== undefined && thrown instanceof TollgateError && UNSERVED.has(thrown.code))
      return undefined;
    throw thrown;
  }
}

/**
 * Returns the folders outside of the workspace that are open now. An owner may have closed some after the decision.
 * Throws DENIED.
 */
async function outsideFoldersNow(deps: ReadScopeDependencies, call: PreconditionCall): Promise<readonly string[]> {
  await deps.refresh();
  return deps.preconditions.judge(call).beyond ?? [];
}

/** Returns true if every name of a found file lies in the workspace or in a folder that is open now. */
async function isInOpenFolders(deps: ReadScopeDependencies, caller: Caller, found: LoweredCall): Promise<boolean> {
  const { effect, args, pathHandles } = found;
  if (effect.paths.every(({ inside }) => inside)) return true;
  try {
    const open = await outsideFoldersNow(deps, { caller, effect, args });
    return pathHandles
      .all()
      .every(({ location: { inside, absolute } }) => inside || open.some((folder) => isPathWithin(absolute, folder)));
  } catch (thrown) {
    if (thrown instanceof TollgateError && thrown.code === 'DENIED') return false;
    throw thrown;
  }
}
