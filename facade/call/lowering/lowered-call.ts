/**
 * Owns what an exposed call really is: which server and tool are reached, with which bytes, and the effect that the
 * policy judges.
 */
import type { Primitive, ServerAdapter, ServerAnswer } from '../../../adapters/port.ts';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { PRIMITIVE_SEMANTICS } from '../../../catalogs/primitives/primitive-semantics.ts';
import { CallPathHandles } from '../../../catalogs/readers/path-handles.ts';
import type { Effect } from '../../../policies/port.ts';
import type { ExposedTool, RoutedServers } from '../../exposure/exposed-tool.ts';
import { type SpillOwner, Spills } from '../../output/spills.ts';
import type { Cap } from '../../output/text-cut.ts';
import type { BoundArguments } from '../validate.ts';
import { routedServer, unservedError } from './primitive-routes.ts';
import type { ResolvedPaths, WorkspaceFiles } from './workspace-files.ts';

/** Milliseconds that a shell command may take by default, and at most (schema-primitives B5). */
const BASH_DEFAULT_MS = 120_000;
const BASH_MAX_MS = 600_000;
/** What the backend needs beyond the command's own time to say how it ended. */
const BASH_GRACE_MS = 5_000;

/** Stage 3's other half: a call ready to be judged and sent. */
export interface LoweredCall {
  /**
   * What serves the call: the tool as it was resolved, or of several servers of a primitive the one that the call leads
   * to.
   */
  readonly exposed: ExposedTool;
  readonly effect: Effect;
  /** The arguments that the policy parses: those of the tool that is really called. */
  readonly argsText: string;
  readonly args: Readonly<Record<string, unknown>>;
  readonly labels: readonly string[];
  readonly timeoutMs: number;
  readonly hardTimeoutMs: number;
  readonly headShare: number;
  /** Descriptors of its paths. Close them when the call has ended, or when it is aimed again. */
  readonly pathHandles: CallPathHandles;
  readonly destination: Destination;
}

/**
 * Where a lowered call goes, with the exact arguments. A backend takes the call of the primitive itself, and acts on
 * the path handles.
 */
export type Destination =
  | {
      readonly kind: 'server' | 'backend';
      readonly server: ServerAdapter;
      readonly tool: string;
      readonly args: BoundArguments['doc'];
    }
  | { readonly kind: 'spill'; readonly read: (cap: Cap) => Promise<ServerAnswer> };

/** Where calls find their files and spills, and the labels of their run. */
export interface LoweringContext {
  readonly labels: readonly string[];
  readonly files: WorkspaceFiles;
  readonly spills: Spills;
  readonly owner: SpillOwner;
}

/** How often a path may lead elsewhere between two looks at it. */
const MOST_LOOKS = 3;

/**
 * Aims a bound call. Throws ARGS_INVALID for a spill that is not this caller's, NOT_SUPPORTED from a backend and for a
 * call that none of several serves, DENIED for a path that keeps changing and for a file that several of them serve.
 */
export function lowerCall(
  exposed: ExposedTool,
  bound: BoundArguments,
  place: LoweringContext,
): LoweredCall | Promise<LoweredCall> {
  const args = bound.doc.value;
  if (exposed.primitive === 'read' && Spills.names(args.path)) return aimAtSpill(exposed, bound, place);
  if (exposed.primitive !== undefined && exposed.routedServers !== undefined)
    return aimByRoute(exposed.primitive, { ways: exposed.routedServers, bound, place });
  return aimAt(exposed, bound, place);
}

/**
 * Aims at the server of the route that the real path and the labels choose. The path is looked at twice, because what a
 * backend is sent is made after the choice: the call goes on only if the paths that it holds open lead to the very
 * server that it is sent to.
 */
async function aimByRoute(
  primitive: Primitive,
  {
    ways,
    bound,
    place,
  }: { readonly ways: RoutedServers; readonly bound: BoundArguments; readonly place: LoweringContext },
): Promise<LoweredCall> {
  const semantics = PRIMITIVE_SEMANTICS.get(primitive) ?? { verb: 'destructive' };
  for (let looks = 0; looks < MOST_LOOKS; looks += 1) {
    const { effect, pathHandles: held } = await place.files.resolve({
      server: '',
      tool: primitive,
      semantics,
      args: bound.doc.value,
    });
    held.close();
    const server = routedServer(ways.routes, { paths: effect.paths, labels: place.labels }) ?? '';
    const exposed = ways.served.get(server);
    if (exposed === undefined) throw unservedError(primitive, ways.hidden.get(server));
    const target = await aimAt(exposed, bound, place);
    if (leadsTo(target, ways, place)) return target;
    target.pathHandles.close();
  }
  throw new TollgateError('DENIED', {
    detail: 'The path leads to another server at each look.',
    next: 'Call again; if it stays so, another process keeps changing this folder.',
  });
}

function leadsTo(
  { effect, exposed, pathHandles: held }: LoweredCall,
  { routes }: RoutedServers,
  { labels }: LoweringContext,
): boolean {
  try {
    return routedServer(routes, { paths: effect.paths, labels }) === exposed.server.name;
  } catch (thrown) {
    held.close();
    throw thrown;
  }
}

function aimAt(
  exposed: ExposedTool,
  bound: BoundArguments,
  place: LoweringContext,
): LoweredCall | Promise<LoweredCall> {
  const args = bound.doc.value;
  const { server, primitive } = exposed;
  const times =
    primitive === 'bash' ? bashTimes(args) : { timeoutMs: server.timeoutMs, hardTimeoutMs: server.hardTimeoutMs };
  const { labels } = server;
  const { timeoutMs, hardTimeoutMs } = times;
  if (primitive !== undefined && server.backend !== undefined) {
    const backend = server.backend;
    const lowered = backend.lower(primitive, args);
    const argsText = lowered.args === args ? bound.doc.text : JSON.stringify(lowered.args);
    return whenResolved(
      place.files.resolve({
        server: server.name,
        tool: lowered.tool,
        semantics: lowered.semantics,
        args: lowered.args,
      }),
      ({ effect, pathHandles: held }) => ({
        exposed,
        effect,
        pathHandles: held,
        argsText,
        args: lowered.args,
        labels,
        timeoutMs,
        hardTimeoutMs,
        headShare: primitive === 'bash' ? 0.3 : 1,
        destination: { kind: 'backend', server: backend, tool: primitive, args: bound.doc },
      }),
    );
  }
  const name = exposed.entry?.tool.name ?? exposed.name;
  const semantics = exposed.entry?.semantics ?? { verb: 'destructive' };
  return whenResolved(
    place.files.resolve({ server: server.name, tool: name, semantics, args }),
    ({ effect, pathHandles: held }) => ({
      exposed,
      effect,
      pathHandles: held,
      argsText: bound.doc.text,
      args,
      labels,
      timeoutMs,
      hardTimeoutMs,
      headShare: 1,
      destination: { kind: 'server', server: server.adapter, tool: name, args: bound.doc },
    }),
  );
}

/** At once for a call that names no path: each promise costs every call. */
function whenResolved(
  resolved: ResolvedPaths | Promise<ResolvedPaths>,
  targetOf: (resolved: ResolvedPaths) => LoweredCall,
): LoweredCall | Promise<LoweredCall> {
  return resolved instanceof Promise ? resolved.then(targetOf) : targetOf(resolved);
}

function aimAtSpill(exposed: ExposedTool, bound: BoundArguments, place: LoweringContext): LoweredCall {
  const args = bound.doc.value;
  const { effect, labels } = place.spills.source(String(args.path), place.owner);
  return {
    exposed,
    effect,
    pathHandles: new CallPathHandles([]),
    argsText: bound.doc.text,
    args,
    labels,
    timeoutMs: exposed.server.timeoutMs,
    hardTimeoutMs: exposed.server.hardTimeoutMs,
    headShare: 1,
    destination: {
      kind: 'spill',
      read: (cap) => place.spills.read(args, place.owner, { ...cap, tool: exposed.name }),
    },
  };
}

function bashTimes(args: Readonly<Record<string, unknown>>): { timeoutMs: number; hardTimeoutMs: number } {
  const asked = typeof args.timeout_ms === 'number' ? args.timeout_ms : BASH_DEFAULT_MS;
  const timeoutMs = Math.min(BASH_MAX_MS, Math.max(0, asked)) + BASH_GRACE_MS;
  return { timeoutMs, hardTimeoutMs: timeoutMs };
}
