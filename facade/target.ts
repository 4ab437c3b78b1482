/** Owns what an exposed call really is: which server and tool are reached, with which bytes, and the effect that the policy judges. */
import type { Answer, UpstreamCall } from '../adapters/port.ts';
import { HeldPaths, whileInPlace } from '../catalogs/held.ts';
import type { Effect } from '../policies/port.ts';
import type { Bound } from './args.ts';
import type { Exposed } from './exposure.ts';
import { Spills, type SpillOwner } from './output/spills.ts';
import type { Cap } from './output/cut.ts';
import type { Resolved, WorkspaceFiles } from './workspace-files.ts';

/** Milliseconds that a shell command may take by default, and at most (schema-primitives B5). */
const BASH_DEFAULT_MS = 120_000;
const BASH_MAX_MS = 600_000;
/** What the backend needs beyond the command's own time to say how it ended. */
const BASH_GRACE_MS = 5_000;

/** Stage 3's other half: a call ready to be judged and sent. */
export interface Target {
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

/** Where calls find their files and spills. */
export interface Place {
  readonly files: WorkspaceFiles;
  readonly spills: Spills;
  readonly owner: SpillOwner;
}

/**
 * Aims a bound call. Throws ARGS_INVALID for a spill that is not this caller's, NOT_SUPPORTED from a backend, DENIED for a path that
 * keeps changing.
 */
export function aim(exposed: Exposed, bound: Bound, place: Place): Target | Promise<Target> {
  const args = bound.doc.value;
  if (exposed.primitive === 'read' && Spills.names(args['path'])) return aimAtSpill(exposed, bound, place);
  const { server, primitive } = exposed;
  const times = primitive === 'bash' ? bashTimes(args) : { timeoutMs: server.timeoutMs, hardTimeoutMs: server.hardTimeoutMs };
  const { labels } = server;
  const { timeoutMs, hardTimeoutMs } = times;
  if (primitive !== undefined && server.backend !== undefined) {
    const backend = server.backend;
    const lowered = backend.lower(primitive, args);
    const argsText = lowered.args === args ? bound.doc.text : JSON.stringify(lowered.args);
    return whenResolved(place.files.resolve({ server: server.name, tool: lowered.tool, semantics: lowered.semantics, args: lowered.args }), ({ effect, held }) => (
      { effect, held, argsText, args: lowered.args, labels, timeoutMs, hardTimeoutMs, headShare: primitive === 'bash' ? 0.3 : 1, send: (call) => backend.call({ tool: primitive, args: bound.doc, held, ...call }) }));
  }
  const name = exposed.entry?.tool.name ?? exposed.name;
  const semantics = exposed.entry?.semantics ?? { verb: 'destructive' };
  return whenResolved(place.files.resolve({ server: server.name, tool: name, semantics, args }), ({ effect, held }) => (
    { effect, held, argsText: bound.doc.text, args, labels, timeoutMs, hardTimeoutMs, headShare: 1, send: (call) => whileInPlace(held, effect.verb, () => server.adapter.call({ tool: name, args: bound.doc, ...call })) }));
}

/** At once for a call that names no path: each promise costs every call. */
function whenResolved(resolved: Resolved | Promise<Resolved>, targetOf: (resolved: Resolved) => Target): Target | Promise<Target> {
  return resolved instanceof Promise ? resolved.then(targetOf) : targetOf(resolved);
}

function aimAtSpill(exposed: Exposed, bound: Bound, place: Place): Target {
  const args = bound.doc.value;
  const { effect, labels } = place.spills.source(String(args['path']), place.owner);
  return {
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
  const asked = typeof args['timeout_ms'] === 'number' ? args['timeout_ms'] : BASH_DEFAULT_MS;
  const timeoutMs = Math.min(BASH_MAX_MS, Math.max(0, asked)) + BASH_GRACE_MS;
  return { timeoutMs, hardTimeoutMs: timeoutMs };
}
