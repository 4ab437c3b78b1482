/** One tool as an agent sees it. */
import type { Primitive } from '../../adapters/port.ts';
import { type MirroredArgument, mirroredArguments } from '../../catalogs/schemas/mirrored-arguments.ts';
import { memoize } from '../../catalogs/text/collections.ts';
import type { Semantics, Verb } from '../../catalogs/tools/tool-definition.ts';
import type { ListDecision, Reason } from '../../policies/port.ts';
import type { ArgsShape } from '../call/validate.ts';
import type { Route } from '../config/config.ts';
import type { ServedServer } from './served-server.ts';
import type { ToolEntry } from './tool-entry.ts';

/** The servers of a primitive that has several. */
export interface RoutedServers {
  readonly routes: readonly Route[];
  /** By server name, without servers that are hidden from the caller. */
  readonly served: ReadonlyMap<string, ExposedTool>;
  /** Server → the policy's reasons for hiding it. For the audit only. */
  readonly hidden: ReadonlyMap<string, readonly Reason[]>;
}

/** One tool as the agent sees it. */
export interface ExposedTool {
  readonly name: string;
  /**
   * For a primitive with several servers, the last one: it serves the calls that no condition routes to another, if
   * there is such a server.
   */
  readonly server: ServedServer;
  /** Present until one of several servers is chosen for a call. */
  readonly routedServers?: RoutedServers;
  readonly primitive?: Primitive;
  /** Absent for primitives. */
  readonly entry?: ToolEntry;
  readonly args: ArgsShape;
  /** The pin of its definition. */
  readonly pin: string;
  /** Its JSON in a tools/list result. */
  readonly text: string;
  /** What it does, in the words of the owner or of the server. Absent for Tollgate's own tools. */
  readonly description?: string | undefined;
  /** The policy's list decision. Absent for the tool that reads spills. */
  readonly decision?: ListDecision;
}

/** Returns the servers that a call of this tool may reach. */
export function serversBehind({ server, routedServers }: ExposedTool): readonly ServedServer[] {
  return routedServers === undefined ? [server] : [...routedServers.served.values()].map((one) => one.server);
}

/**
 * Returns the ids (`server.tool`) that a call of this tool may reach, as grants name them. A primitive has one id for
 * each of its backends.
 */
export function toolIdsOf({ server, entry, primitive, routedServers }: ExposedTool): readonly string[] {
  if (routedServers !== undefined) return [...routedServers.served.values()].flatMap(toolIdsOf);
  const tools =
    entry !== undefined
      ? [entry.tool.name]
      : (server.backend?.serves().get(primitive as Primitive) ?? []).map(({ tool }) => tool);
  return [...new Set(tools)].map((tool) => `${server.name}.${tool}`);
}

/** Returns the semantics of the tools that a call of this tool may reach. */
export function semanticsOf({ entry, primitive, server, routedServers }: ExposedTool): readonly Semantics[] {
  if (entry !== undefined) return [entry.semantics];
  if (primitive === undefined) return [];
  if (routedServers !== undefined) return [...routedServers.served.values()].flatMap(semanticsOf);
  return (server.backend?.serves().get(primitive) ?? []).map(({ semantics }) => semantics);
}

/** Returns every verb that a call of this tool may have. Empty for tools of Tollgate that are served by no server. */
export function verbsOf(exposed: ExposedTool): ReadonlySet<Verb> {
  return new Set(
    semanticsOf(exposed).flatMap(({ verb, byArgument }) => [verb, ...Object.values(byArgument?.verbs ?? {})]),
  );
}

/** Returns true if each call of this tool only reads, whatever its arguments are. */
export function onlyReads(exposed: ExposedTool): boolean {
  const isKnown = exposed.entry !== undefined || exposed.primitive === 'read';
  return isKnown && [...verbsOf(exposed)].every((verb) => verb === 'read');
}

/**
 * Returns the arguments that clients repeat in HTTP headers, as the schema says that the client sees. Clients must not
 * use a tool whose marks break the rules of the revision, so none is expected of it. Takes linear time, once for each
 * definition.
 */
export const headerArgumentsOf = memoize(({ text }: ExposedTool): readonly MirroredArgument[] => {
  if (!text.includes('x-mcp-header')) return [];
  const { inputSchema } = JSON.parse(text) as { readonly inputSchema?: unknown };
  const found = mirroredArguments(inputSchema);
  return typeof found === 'string' ? [] : found;
});

/** Carries the policy's reasons for hiding a tool, as the cause of an error. Only the audit shows them. */
export class HiddenBy extends Error {
  readonly reasons: readonly Reason[];

  constructor(reasons: readonly Reason[]) {
    super('Policy hides this tool.');
    this.reasons = reasons;
  }
}
