/**
 * The candidates for a table, and the choice between several. A text of a server cannot pass for a text of Tollgate.
 */
import { isDeepStrictEqual } from 'node:util';
import type { Primitive } from '../../adapters/port.ts';
import { withoutOwnKeys } from '../../catalogs/tools/own-meta-keys.ts';
import { type RawTool, taskSupportOf } from '../../catalogs/tools/tool-definition.ts';
import type { Exposure, ListDecision, ListTool, Reason } from '../../policies/port.ts';
import type { ProfileConfig, Route } from '../config/config.ts';
import { isOpen } from '../config/servers/configured-routes.ts';
import type { ServedServer } from './served-server.ts';
import type { ToolEntry } from './tool-entry.ts';

/** One possible exposure of a tool. */
export interface ToolCandidate {
  readonly served: ServedServer;
  readonly entry?: ToolEntry;
  readonly primitive?: Primitive;
  readonly listTool: ListTool;
}

/** A candidate that the policy shows. */
export interface ShownTool {
  readonly candidate: ToolCandidate;
  /** For a primitive: its servers, and those that the policy hides, with the reasons. */
  readonly behind?: {
    readonly servers: ReadonlyMap<string, ServedServer>;
    readonly hidden: ReadonlyMap<string, readonly Reason[]>;
  };
  readonly decision: ListDecision;
  readonly exposure: Exposure;
}

/** The parts of its name. */
export function nameParts(one: ShownTool): { server: string; tool: string; alias?: string } {
  const { server, tool } = one.candidate.listTool;
  const alias = one.candidate.primitive ?? one.exposure.name;
  return { server, tool, ...(alias === undefined ? {} : { alias }) };
}

/** One tool may have several names. For each name its last exposure counts. */
export function lastExposures(shown: readonly ShownTool[]): readonly ShownTool[] {
  return [...new Map(shown.map((one) => [JSON.stringify(nameParts(one)), one])).values()];
}

/**
 * Returns each primitive once, joined from all its tools. It gets the least certain verdict of its tools. The verdict
 * is at most `maybe` if one tool is hidden, or if a call may have no server. A primitive whose tools are all hidden is
 * left out.
 */
export function joinPrimitives(
  tools: readonly ShownTool[],
  primitives: ProfileConfig['primitives'],
): readonly ShownTool[] {
  const byName = new Map<Primitive, ShownTool[]>();
  for (const one of tools) {
    const { primitive } = one.candidate;
    if (primitive !== undefined) byName.set(primitive, [...(byName.get(primitive) ?? []), one]);
  }
  return [...byName].flatMap(([primitive, all]) => joinTools(all, primitives[primitive] ?? []));
}

function joinTools(all: readonly ShownTool[], routes: readonly Route[]): readonly ShownTool[] {
  const seen = all.filter(({ decision }) => decision.verdict !== 'never');
  const first = seen.find(({ decision }) => decision.verdict !== 'always') ?? seen.at(-1);
  if (first === undefined) return [];
  const behind = new Map(seen.map(({ candidate }) => [candidate.served.name, candidate.served]));
  const reasons = new Map(
    all
      .filter(({ candidate }) => !behind.has(candidate.served.name))
      .map(({ candidate, decision }) => [candidate.served.name, decision.reasons]),
  );
  const isWhole = seen.length === all.length && routes.some(isOpen) && routes.every(({ server }) => behind.has(server));
  const decision =
    behind.size < 2 ? first.decision : { ...first.decision, ...sharedPhrases(seen), reasons: reasonsOf(seen) };
  return [
    {
      ...first,
      behind: { servers: behind, hidden: reasons },
      decision: isWhole ? decision : { ...decision, verdict: 'maybe' },
    },
  ];
}

/**
 * Returns the phrases that apply to all tools, because a phrase about one server's tool is wrong for another's. Bounds
 * are left out, because they name arguments of one backend's tool.
 */
function sharedPhrases(seen: readonly ShownTool[]): Pick<ListDecision, 'says' | 'bounds'> {
  const [says = [], ...others] = seen.map(({ decision }) => decision.says ?? []);
  return { says: others.every((other) => isDeepStrictEqual(other, says)) ? says : [], bounds: [] };
}

function reasonsOf(seen: readonly ShownTool[]): readonly Reason[] {
  return [...new Map(seen.flatMap(({ decision }) => decision.reasons).map((reason) => [reason.id, reason])).values()];
}

/** Returns true if an owner must review the tool first. Until then it gets no name and is not shown. */
export function isPending({ candidate }: ShownTool): boolean {
  return candidate.entry?.pending !== undefined;
}

/**
 * Removes what could speak for Tollgate, and the icons. A client would open the addresses of icons without a decision
 * of the policy. A tool that its server runs only as a task is no longer required to be called as one: Tollgate follows
 * the task for clients that do not.
 */
export function withoutOwnWords(tool: RawTool): RawTool {
  const { icons: _, ...rest } = withoutOwnKeys(tool);
  if (taskSupportOf(tool) !== 'required') return rest;
  return { ...rest, execution: { ...(tool.execution as object), taskSupport: 'optional' } };
}
