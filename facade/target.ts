/** Owns what an exposed call really is: which server and tool are reached, with which bytes, and the effect that the policy judges. */
import type { Answer, Primitive, UpstreamCall } from '../adapters/port.ts';
import { TollgateError } from '../catalogs/errors.ts';
import { HeldPaths, whileInPlace } from '../catalogs/held.ts';
import { PRIMITIVE_SEMANTICS } from '../catalogs/primitives/semantics.ts';
import type { Effect } from '../policies/port.ts';
import type { Bound } from './args.ts';
import type { Exposed, Ways } from './exposure.ts';
import type { Cap } from './output/cut.ts';
import { type SpillOwner, Spills } from './output/spills.ts';
import { serverFor, unserved } from './routes.ts';
import type { Resolved, WorkspaceFiles } from './workspace-files.ts';

/** Milliseconds that a shell command may take by default, and at most (schema-primitives B5). */
const BASH_DEFAULT_MS = 120_000;
const BASH_MAX_MS = 600_000;
/** What the backend needs beyond the command's own time to say how it ended. */
const BASH_GRACE_MS = 5_000;

/** Stage 3's other half: a call ready to be judged and sent. */
export interface Target {
  /** What serves the call: the tool as it was resolved, or of several servers of a primitive the one that the call leads to. */
  readonly exposed: Exposed;
  readonly effect: Effect;
  /** The arguments that the policy parses: those of the tool that is really called. */
  readonly argsText: string;
  readonly args: Readonly<Record<string, unknown>>;
  readonly labels: readonly string[];
  readonly timeoutMs: number;
  readonly hardTimeoutMs: number;
  readonly headShare: number;
  /** Descriptors of its paths. Close them when the call has ended, or when it is aimed again. */
  readonly held: HeldPaths;
  readonly send: (call: Omit<UpstreamCall, 'tool' | 'args'>, cap: Cap) => Promise<Answer>;
}

/** Where calls find their files and spills, and the labels of their run. */
export interface Place {
  readonly labels: readonly string[];
  readonly files: WorkspaceFiles;
  readonly spills: Spills;
  readonly owner: SpillOwner;
}

/** How often a path may lead elsewhere between two looks at it. */
const MOST_LOOKS = 3;

/**
 * Aims a bound call. Throws ARGS_INVALID for a spill that is not this caller's, NOT_SUPPORTED from a backend and for a call that none of
 * several serves, DENIED for a path that keeps changing and for a file that several of them serve.
 */
export function aim(exposed: Exposed, bound: Bound, place: Place): Target | Promise<Target> {
  const args = bound.doc.value;
  if (exposed.primitive === 'read' && Spills.names(args.path)) return aimAtSpill(exposed, bound, place);
  if (exposed.primitive !== undefined && exposed.ways !== undefined)
    return aimByRoute(exposed.primitive, { ways: exposed.ways, bound, place });
  return aimAt(exposed, bound, place);
}

/**
 * Aims at the server of the route that the real path and the labels choose. The path is looked at twice, because what a backend is sent
 * is made after the choice: the call goes on only if the paths that it holds open lead to the very server that it is sent to.
 */
async function aimByRoute(
  primitive: Primitive,
  { ways, bound, place }: { readonly ways: Ways; readonly bound: Bound; readonly place: Place },
): Promise<Target> {
  const semantics = PRIMITIVE_SEMANTICS.get(primitive) ?? { verb: 'destructive' };
  for (let looks = 0; looks < MOST_LOOKS; looks += 1) {
    const { effect, held } = await place.files.resolve({
      server: '',
      tool: primitive,
      semantics,
      args: bound.doc.value,
    });
    held.close();
    const server = serverFor(ways.routes, { paths: effect.paths, labels: place.labels }) ?? '';
    const exposed = ways.served.get(server);
    if (exposed === undefined) throw unserved(primitive, ways.hidden.get(server));
    const target = await aimAt(exposed, bound, place);
    if (leadsTo(target, ways, place)) return target;
    target.held.close();
  }
  throw new TollgateError('DENIED', {
    detail: 'The path leads to another server at each look.',
    next: 'Call again; if it stays so, another process keeps changing this folder.',
  });
}

function leadsTo({ effect, exposed, held }: Target, { routes }: Ways, { labels }: Place): boolean {
  try {
    return serverFor(routes, { paths: effect.paths, labels }) === exposed.server.name;
  } catch (thrown) {
    held.close();
    throw thrown;
  }
}

function aimAt(exposed: Exposed, bound: Bound, place: Place): Target | Promise<Target> {
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
      ({ effect, held }) => ({
        exposed,
        effect,
        held,
        argsText,
        args: lowered.args,
        labels,
        timeoutMs,
        hardTimeoutMs,
        headShare: primitive === 'bash' ? 0.3 : 1,
        send: (call) => backend.call({ tool: primitive, args: bound.doc, held, ...call }),
      }),
    );
  }
  const name = exposed.entry?.tool.name ?? exposed.name;
  const semantics = exposed.entry?.semantics ?? { verb: 'destructive' };
  return whenResolved(
    place.files.resolve({ server: server.name, tool: name, semantics, args }),
    ({ effect, held }) => ({
      exposed,
      effect,
      held,
      argsText: bound.doc.text,
      args,
      labels,
      timeoutMs,
      hardTimeoutMs,
      headShare: 1,
      send: (call) =>
        whileInPlace(held, effect.verb, () => server.adapter.call({ tool: name, args: bound.doc, ...call })),
    }),
  );
}

/** At once for a call that names no path: each promise costs every call. */
function whenResolved(
  resolved: Resolved | Promise<Resolved>,
  targetOf: (resolved: Resolved) => Target,
): Target | Promise<Target> {
  return resolved instanceof Promise ? resolved.then(targetOf) : targetOf(resolved);
}

function aimAtSpill(exposed: Exposed, bound: Bound, place: Place): Target {
  const args = bound.doc.value;
  const { effect, labels } = place.spills.source(String(args.path), place.owner);
  return {
    exposed,
    effect,
    held: new HeldPaths([]),
    argsText: bound.doc.text,
    args,
    labels,
    timeoutMs: exposed.server.timeoutMs,
    hardTimeoutMs: exposed.server.hardTimeoutMs,
    headShare: 1,
    send: (_call, cap) => place.spills.read(args, place.owner, { ...cap, tool: exposed.name }),
  };
}

function bashTimes(args: Readonly<Record<string, unknown>>): { timeoutMs: number; hardTimeoutMs: number } {
  const asked = typeof args.timeout_ms === 'number' ? args.timeout_ms : BASH_DEFAULT_MS;
  const timeoutMs = Math.min(BASH_MAX_MS, Math.max(0, asked)) + BASH_GRACE_MS;
  return { timeoutMs, hardTimeoutMs: timeoutMs };
}
