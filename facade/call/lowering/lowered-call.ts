/**
 * Lowers an exposed call: to the server and tool that it reaches, the bytes that are sent, and the effect that the
 * policy judges.
 */
import type { Primitive, ServerAdapter, ServerAnswer } from '../../../adapters/port.ts';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { PRIMITIVE_SEMANTICS } from '../../../catalogs/primitives/primitive-semantics.ts';
import { CallPathHandles } from '../../../catalogs/readers/path-handles.ts';
import { andThen } from '../../../catalogs/text/awaitable.ts';
import { memoize } from '../../../catalogs/text/collections.ts';
import { type Semantics, type TaskSupport, taskSupportOf } from '../../../catalogs/tools/tool-definition.ts';
import type { Effect } from '../../../policies/port.ts';
import type { ExposedTool, RoutedServers } from '../../exposure/exposed-tool.ts';
import type { SpillOwner } from '../../output/spill-index.ts';
import { Spills } from '../../output/spills.ts';
import type { Cap } from '../../output/text-cut.ts';
import type { BoundArguments } from '../validate.ts';
import { routedServer, unservedError } from './primitive-routes.ts';
import type { ResolvedPaths, WorkspaceFiles } from './workspace-files.ts';

/** Milliseconds that a shell command may run: by default, and at most. */
const BASH_DEFAULT_MS = 120_000;
const BASH_MAX_MS = 600_000;
/** Milliseconds that the backend needs after the command's own time to report how it ended. */
const BASH_GRACE_MS = 5_000;
/** The share of the cap that goes to the start of a command's output. Its end usually says more. */
const BASH_HEAD_SHARE = 0.3;

/** What a tool does that no one has classified. */
const UNKNOWN_SEMANTICS: Semantics = { verb: 'destructive' };

/** A call that is ready to be judged and sent. */
export interface LoweredCall {
  /** The tool that serves the call. For a primitive with several servers, the one that was chosen. */
  readonly exposed: ExposedTool;
  readonly effect: Effect;
  /** The arguments of the tool that is called, as the policy parses them. */
  readonly argsText: string;
  readonly args: Readonly<Record<string, unknown>>;
  readonly labels: readonly string[];
  readonly timeoutMs: number;
  readonly hardTimeoutMs: number;
  /** The share of the cap that goes to the start of a cut text: 1, or less for command output. */
  readonly headShare: number;
  /** Descriptors of its paths. Close them when the call has ended, or before it is lowered again. */
  readonly pathHandles: CallPathHandles;
  readonly destination: Destination;
}

/** Where a call goes. A backend gets the call of the primitive itself and acts on the path handles. */
export type Destination =
  | {
      readonly kind: 'server' | 'backend';
      readonly server: ServerAdapter;
      /** See `UpstreamCall`. */
      readonly method?: string;
      readonly tool: string;
      readonly args: BoundArguments['doc'];
      /** Whether the tool can, or must, run as a task of its server. Absent: it cannot. */
      readonly taskSupport?: TaskSupport | undefined;
    }
  /** Tollgate answers itself, or the client does. */
  | { readonly kind: 'own'; readonly answer: (limits: OwnLimits) => Promise<ServerAnswer> };

/** What an answer without a server may use. Times in milliseconds. */
export interface OwnLimits {
  readonly cap: Cap;
  readonly timeoutMs: number;
  readonly hardTimeoutMs: number;
}

/** What lowering reads: files, spills, and the labels of the run. */
export interface LoweringContext {
  readonly labels: readonly string[];
  readonly files: WorkspaceFiles;
  readonly spills: Spills;
  readonly owner: SpillOwner;
}

/** How often a route is chosen again because the path changed meanwhile. */
const MAX_ATTEMPTS = 3;

/**
 * Lowers a call with bound arguments. Throws ARGS_INVALID for a spill of another caller; NOT_SUPPORTED if no server
 * serves the call; DENIED for a path that keeps changing, and for a file whose names lead to different servers.
 */
export function lowerCall(
  exposed: ExposedTool,
  bound: BoundArguments,
  context: LoweringContext,
): LoweredCall | Promise<LoweredCall> {
  const { primitive, routedServers } = exposed;
  if (primitive === 'read' && Spills.names(bound.doc.value.path)) return lowerSpillRead(exposed, bound, context);
  if (primitive !== undefined && routedServers !== undefined)
    return lowerByRoute(primitive, routedServers, { bound, context });
  return lowerToServer(exposed, bound, context);
}

/**
 * Lowers to the server that the real path and the labels choose. The route is checked again with the descriptors that
 * the call keeps open, because the path may change after the choice.
 */
async function lowerByRoute(
  primitive: Primitive,
  { routes, served, hidden }: RoutedServers,
  { bound, context }: { readonly bound: BoundArguments; readonly context: LoweringContext },
): Promise<LoweredCall> {
  const { files, labels } = context;
  const semantics = PRIMITIVE_SEMANTICS.get(primitive) ?? UNKNOWN_SEMANTICS;
  const source = { server: '', tool: primitive, semantics, args: bound.doc.value };
  for (let attempt = 0; attempt < MAX_ATTEMPTS; attempt += 1) {
    const { effect, pathHandles } = await files.resolve(source);
    pathHandles.close();
    const server = routedServer(routes, { paths: effect.paths, labels }) ?? '';
    const exposed = served.get(server);
    if (exposed === undefined) throw unservedError(primitive, hidden.get(server));
    const lowered = await lowerToServer(exposed, bound, context);
    let isSameRoute = false;
    try {
      isSameRoute = routedServer(routes, { paths: lowered.effect.paths, labels }) === server;
    } finally {
      if (!isSameRoute) lowered.pathHandles.close();
    }
    if (isSameRoute) return lowered;
  }
  throw new TollgateError('DENIED', {
    detail: 'The path leads to another server each time that it is resolved.',
    next: 'Call again. If this happens again, another process keeps changing this folder.',
    retryable: true,
  });
}

function lowerToServer(
  exposed: ExposedTool,
  bound: BoundArguments,
  { files }: LoweringContext,
): LoweredCall | Promise<LoweredCall> {
  const { server, primitive, entry } = exposed;
  const { backend, name } = server;
  const given = bound.doc.value;
  const isPrimitive = primitive !== undefined && backend !== undefined;
  const { tool, args, semantics } = isPrimitive
    ? backend.lower(primitive, given)
    : { tool: entry?.tool.name ?? exposed.name, args: given, semantics: entry?.semantics ?? UNKNOWN_SEMANTICS };
  const { timeoutMs, hardTimeoutMs } = primitive === 'bash' ? bashTimeouts(given) : server;
  const known = isPrimitive ? undefined : constantEffect(exposed);
  const resolved = known ?? files.resolve({ server: name, tool, semantics, args });
  return andThen(resolved, ({ effect, pathHandles }) => ({
    exposed,
    effect,
    argsText: args === given ? bound.doc.text : JSON.stringify(args),
    args,
    labels: server.labels,
    timeoutMs,
    hardTimeoutMs,
    headShare: primitive === 'bash' ? BASH_HEAD_SHARE : 1,
    pathHandles,
    destination: isPrimitive
      ? { kind: 'backend', server: backend, tool: primitive, args: bound.doc }
      : { kind: 'server', server: server.adapter, tool, args: bound.doc, taskSupport: taskSupportOf(entry?.tool) },
  }));
}

/** Returns the effect of a tool whose calls all have the same one, because no argument is a fact of it. */
const constantEffect = memoize(({ server, entry, name }: ExposedTool): ResolvedPaths | undefined => {
  const { verb, paths, urls, command, byArgument } = entry?.semantics ?? UNKNOWN_SEMANTICS;
  if ([paths, urls, command, byArgument].some((fact) => fact !== undefined)) return undefined;
  const tool = entry?.tool.name ?? name;
  return { effect: { verb, server: server.name, tool, paths: [], urls: [] }, pathHandles: new CallPathHandles([]) };
});

function lowerSpillRead(exposed: ExposedTool, bound: BoundArguments, { spills, owner }: LoweringContext): LoweredCall {
  const args = bound.doc.value;
  const { effect, labels } = spills.source(String(args.path), owner);
  const { timeoutMs, hardTimeoutMs } = exposed.server;
  return {
    exposed,
    effect,
    pathHandles: new CallPathHandles([]),
    argsText: bound.doc.text,
    args,
    labels,
    timeoutMs,
    hardTimeoutMs,
    headShare: 1,
    destination: { kind: 'own', answer: ({ cap }) => spills.read(args, owner, { ...cap, tool: exposed.name }) },
  };
}

function bashTimeouts({ timeout_ms: asked }: Readonly<Record<string, unknown>>): {
  timeoutMs: number;
  hardTimeoutMs: number;
} {
  const commandMs = Math.min(BASH_MAX_MS, Math.max(0, typeof asked === 'number' ? asked : BASH_DEFAULT_MS));
  const timeoutMs = commandMs + BASH_GRACE_MS;
  return { timeoutMs, hardTimeoutMs: timeoutMs };
}
