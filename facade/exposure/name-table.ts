/** The tools that one principal sees, and their names. tools/list and tools/call read the same table. */
import { isDeepStrictEqual } from 'node:util';
import { PRIMITIVES, type Primitive } from '../../adapters/port.ts';
import { definitionJson } from '../../adapters/rpc/definition-text.ts';
import { normalizeArguments } from '../../catalogs/primitives/argument-spellings.ts';
import { loadSchemaProfile } from '../../catalogs/profiles/schema-profile.ts';
import { tightenSchema } from '../../catalogs/projection/argument-bounds.ts';
import { withoutPinned } from '../../catalogs/projection/pinned-arguments.ts';
import { type Projection, projectSchema } from '../../catalogs/projection/schema-projection.ts';
import { CODE, MANAGEMENT } from '../../catalogs/servers/shipped-servers.ts';
import {
  type ExposableTool,
  exposedNames,
  findExposed,
  type NameCollision,
  shownName,
} from '../../catalogs/tools/exposed-names.ts';
import type { RawTool } from '../../catalogs/tools/tool-definition.ts';
import { clientSchema } from '../../catalogs/validation/client-schema.ts';
import { createValidator, type Validator } from '../../catalogs/validation/validator.ts';
import type { ListDecision, Reason } from '../../policies/port.ts';
import { isRouted } from '../call/lowering/primitive-routes.ts';
import type { ArgsShape } from '../call/validate.ts';
import type { ProfileConfig, Route } from '../config/config.ts';
import type { PreconditionView } from '../consent/preconditions.ts';
import { READ_SPILL, SPILL_TOOL } from '../output/spills.ts';
import type { Catalog } from './catalog.ts';
import { type ExposedTool, toolIdsOf } from './exposed-tool.ts';
import type { RegoExposureCheck } from './rego-exposures.ts';
import {
  isPending,
  joinPrimitives,
  lastExposures,
  nameParts,
  type ShownTool,
  type ToolCandidate,
  withoutOwnWords,
} from './tool-candidates.ts';
import { describeExactly, describeTool } from './tool-description.ts';
import { CALL_READ, CALL_WRITE, WRAPPER_TOOLS, WRAPPER_VALIDATOR } from './wrapped-calls.ts';

/** The tools of one principal under one policy and one state of the catalog. */
export interface NameTable {
  /** All callable tools, including those of a failed server: a call gets the reason. */
  readonly byName: ReadonlyMap<string, ExposedTool>;
  /** The tools that a list shows to each session. */
  readonly listed: readonly ExposedTool[];
  /** `listed`, and the tools that are found by search. */
  readonly visible: readonly ExposedTool[];
  /** How many tools that a session found last its list adds. */
  readonly promote: number;
  /** The result of tools/list, as JSON. */
  readonly text: string;
  /**
   * The name of the tool that reads spills: `read`, or `read_spill` if there is no `read`. Absent if no spill can be
   * read.
   */
  readonly reader: string | undefined;
  /** Names that the configuration gives to several tools. None of these tools is shown. */
  readonly collisions: readonly NameCollision[];
  /** Tools that Rego exposes but that are not shown, one line each. For the owner only. */
  readonly unshown: readonly string[];
  /** Returns the tool of this name that the policy hides, and why; undefined if it hides none. For the audit only. */
  readonly hidden: (name: string) => HiddenTool | undefined;
}

/** A tool that the policy hides: its server, and the reasons. */
export interface HiddenTool {
  readonly server: string;
  readonly reasons: readonly Reason[];
}

/** The table while Tollgate is switched off. */
export const EMPTY_TABLE: NameTable = {
  byName: new Map(),
  listed: [],
  visible: [],
  promote: 0,
  text: '{"tools":[]}',
  reader: undefined,
  collisions: [],
  unshown: [],
  hidden: () => undefined,
};

/** The definition of each primitive, with the validator of its arguments. */
export type PrimitiveDefinitions = ReadonlyMap<Primitive, { readonly tool: RawTool; readonly validator: Validator }>;

/** The inputs of a table. */
export interface NameTableParts {
  readonly catalog: Pick<Catalog, 'servers' | 'problems'>;
  readonly primitives: PrimitiveDefinitions;
  /** The policy's list decision on each candidate, in the same order. */
  readonly decisions: readonly ListDecision[];
  /** Bytes of arguments that one call may have. */
  readonly maxBytes: number;
  readonly profile: Pick<ProfileConfig, 'primitives' | 'search' | 'promote'>;
  readonly view: PreconditionView;
  readonly regoExposures: RegoExposureCheck;
}

const SPILL_VALIDATOR = createValidator(SPILL_TOOL.inputSchema);
/** The schema profile that Tollgate's own tools are written in. */
const OWN_PROFILE = 'portable';

/** Returns the definitions of the primitives by name. */
export function primitiveDefinitions(tools: readonly RawTool[]): PrimitiveDefinitions {
  return new Map(
    tools.flatMap((tool) => {
      const name = PRIMITIVES.find((primitive) => primitive === tool.name);
      return name === undefined ? [] : [[name, { tool, validator: createValidator(tool.inputSchema) }] as const];
    }),
  );
}

/** Builds the table of one principal from its candidates. */
export function buildNameTable(candidates: readonly ToolCandidate[], parts: NameTableParts): NameTable {
  const { catalog, view, regoExposures, profile } = parts;
  const { shown, hidden, behindPrimitives } = sortCandidates(candidates, parts);
  const all = [...joinPrimitives(behindPrimitives, profile.primitives), ...lastExposures(shown)];
  const approved = all.filter((one) => !isPending(one));
  // The tools of search and code keep their names, whatever another tool is called.
  const names: readonly ExposableTool[] = approved.map(nameParts);
  const kept = [READ_SPILL, CALL_READ, CALL_WRITE, ...names.filter(isOfCode).map(shownName)];
  const { nameOf, collisions } = exposedNames(
    names.filter((one) => !isOfCode(one)),
    kept,
  );
  const exposed = approved.flatMap((one, at) => {
    const named = names[at] as ExposableTool;
    const name = isOfCode(named) ? shownName(named) : nameOf.get(named);
    return name === undefined ? [] : expose(one, name, parts);
  });
  // A tool without approval never gets the name of an approved tool.
  const pending = all.filter(isPending).flatMap((one) => expose(one, shownName(nameParts(one)), parts));
  const byName = new Map([...pending, ...exposed].map((one) => [one.name, one]));
  // A primitive can call several tools. It is listed while at least one of them may be called.
  const isWithheld = ({ primitive, server, entry }: ExposedTool): boolean =>
    primitive === undefined
      ? view.withholds?.({ server: server.name, tool: entry?.tool.name ?? '' }) === true
      : behindPrimitives.every(
          ({ candidate }) => candidate.primitive !== primitive || view.withholds?.(candidate.listTool) === true,
        );
  const seen = exposed.filter(
    (one) => !isWithheld(one) && (one.entry === undefined || !catalog.problems.has(one.server.name)),
  );
  const wrappers = profile.search ? wrapperTools(seen, parts) : [];
  for (const one of wrappers) byName.set(one.name, one);
  const listed = profile.search ? [...seen.filter(isAlwaysListed), ...wrappers] : seen;
  const reader = addSpillReader(byName, listed, parts);
  return {
    byName,
    listed,
    visible: [...seen, ...wrappers],
    promote: profile.search ? profile.promote : 0,
    collisions,
    unshown: regoExposures.refused.map(({ line }) => line),
    hidden: (name) => hiddenTool(hidden, name),
    reader,
    text: `{"tools":[${listed.map((one) => one.text).join(',')}]}`,
  };
}

/** Sorts all candidates into shown tools, hidden tools, and tools behind a primitive. */
function sortCandidates(
  candidates: readonly ToolCandidate[],
  { decisions, regoExposures }: NameTableParts,
): Readonly<Record<'shown' | 'hidden' | 'behindPrimitives', readonly ShownTool[]>> {
  const all = candidates.flatMap((candidate, at): readonly ShownTool[] => {
    const decision = decisions[at];
    if (decision === undefined || regoExposures.isUnbound(candidate.listTool)) return [];
    return decision.expose.map((exposure) => ({ candidate, decision, exposure }));
  });
  const isHidden = ({ decision }: ShownTool): boolean => decision.verdict === 'never';
  return {
    shown: all.filter((one) => !isHidden(one) && one.candidate.primitive === undefined),
    hidden: all.filter(isHidden),
    behindPrimitives: all.filter(({ candidate }) => candidate.primitive !== undefined),
  };
}

function isOfCode({ server }: ExposableTool): boolean {
  return server === CODE;
}

/** Returns true for the tools that a list shows also if others are found by search. */
function isAlwaysListed({ primitive, server }: ExposedTool): boolean {
  return primitive !== undefined || server.name === CODE || server.name === MANAGEMENT;
}

/** Returns the tools with which a principal calls what it has found. */
function wrapperTools(seen: readonly ExposedTool[], { catalog, maxBytes }: NameTableParts): readonly ExposedTool[] {
  const server = catalog.servers.get(CODE);
  if (server === undefined) return [];
  const profile = schemaProfileOf(seen);
  return WRAPPER_TOOLS.map((tool) => {
    const { schema, lift } = projectOwn(tool.inputSchema, profile);
    return {
      name: tool.name,
      server,
      args: { schema: tool.inputSchema, validator: WRAPPER_VALIDATOR, lift, pins: {}, maxBytes },
      pin: tool.name,
      text: JSON.stringify({ ...tool, inputSchema: schema }),
    };
  });
}

/** The schema profile of the principal's first tool, for tools that no decision is about. */
function schemaProfileOf([first]: readonly ExposedTool[]): string {
  return first?.decision?.schemaProfile ?? OWN_PROFILE;
}

/**
 * Adds the tool that reads spills to the callable tools, and returns its name. A spill belongs to one principal and
 * run, and the policy of its source applies. So a principal that is shown a tool may read the rest of its results.
 */
function addSpillReader(
  byName: Map<string, ExposedTool>,
  listed: readonly ExposedTool[],
  { catalog, maxBytes }: NameTableParts,
): string | undefined {
  if (byName.get('read')?.primitive === 'read') return 'read';
  const server = catalog.servers.get('workspace') ?? listed[0]?.server;
  if (listed.length === 0 || server === undefined) return undefined;
  const { schema, lift } = projectOwn(SPILL_TOOL.inputSchema, schemaProfileOf(listed));
  byName.set(READ_SPILL, {
    name: READ_SPILL,
    server,
    primitive: 'read',
    args: { schema: SPILL_TOOL.inputSchema, validator: SPILL_VALIDATOR, lift, pins: {}, maxBytes },
    pin: READ_SPILL,
    text: JSON.stringify({ ...SPILL_TOOL, inputSchema: schema }),
  });
  return READ_SPILL;
}

function expose(one: ShownTool, name: string, parts: NameTableParts): readonly ExposedTool[] {
  return one.candidate.primitive === undefined
    ? exposeServerTool(one, name, parts)
    : exposePrimitive(one, one.candidate.primitive, parts);
}

function exposeServerTool(one: ShownTool, name: string, { maxBytes }: NameTableParts): readonly ExposedTool[] {
  const { candidate, exposure, decision } = one;
  const { entry } = candidate;
  const projection = entry?.projection(exposure.schemaProfile ?? decision.schemaProfile, decision.bounds);
  if (entry === undefined || projection === undefined) return [];
  const { outputSchema: output } = entry.tool;
  const shown = {
    ...withoutOwnWords(entry.tool),
    name,
    ...(projection.isExact
      ? describeExactly(one, entry.tool)
      : { description: describeTool(one, entry.tool, projection.hints) }),
    inputSchema: withoutPinned(projection.schema, Object.keys(exposure.pins)),
    ...(output !== undefined && { outputSchema: projection.isExact ? output : clientSchema(output) }),
  };
  const text = projection.isExact ? definitionJson(shown, entry.tool) : JSON.stringify(shown);
  const { pins, description = entry.tool.description } = exposure;
  const args = { schema: entry.tool.inputSchema, validator: entry.input, lift: projection.lift, pins, maxBytes };
  return [{ name, server: candidate.served, entry, args, pin: entry.pin, text, description, decision }];
}

function exposePrimitive(one: ShownTool, primitive: Primitive, parts: NameTableParts): readonly ExposedTool[] {
  const known = parts.primitives.get(primitive);
  if (known === undefined) return [];
  const { candidate, exposure, decision } = one;
  const { pins } = exposure;
  // Bounds name arguments of the backend's tool. They do not apply to a primitive with other arguments.
  const hasSameArguments = candidate.listTool.tool === primitive && (one.behind?.servers.size ?? 1) < 2;
  const bounds = hasSameArguments ? (decision.bounds ?? []) : [];
  const projection = projectOwn(
    tightenSchema(known.tool.inputSchema, bounds),
    exposure.schemaProfile ?? decision.schemaProfile,
  );
  const lift: ArgsShape['lift'] = (args) => {
    const normal = normalizeArguments(primitive, projection.lift(args).args);
    return { args: normal.args, changed: normal.args !== args, notes: normal.notes };
  };
  const exposed: ExposedTool = {
    name: primitive,
    server: candidate.served,
    primitive,
    args: { schema: known.tool.inputSchema, validator: known.validator, lift, pins, maxBytes: parts.maxBytes },
    pin: candidate.served.name,
    description: exposure.description ?? known.tool.description,
    text: JSON.stringify({
      ...known.tool,
      description: describeTool({ ...one, decision: { ...decision, bounds } }, known.tool, projection.hints),
      inputSchema: withoutPinned(projection.schema, Object.keys(pins)),
    }),
    decision,
  };
  return [withRoutes(exposed, { behind: one.behind, routes: parts.profile.primitives[primitive] })];
}

/**
 * Adds the servers of a primitive that has several. Its pin covers all routes, because other routes make another tool.
 */
function withRoutes(
  exposed: ExposedTool,
  {
    behind,
    routes,
  }: { readonly behind: ShownTool['behind'] | undefined; readonly routes: readonly Route[] | undefined },
): ExposedTool {
  if (!isRouted(routes) || behind === undefined) return exposed;
  const { servers, hidden } = behind;
  const served = new Map([...servers].map(([name, server]) => [name, { ...exposed, server, pin: name }]));
  const last = routes.findLast(({ server }) => servers.has(server))?.server ?? '';
  return {
    ...exposed,
    server: servers.get(last) ?? exposed.server,
    pin: JSON.stringify(routes),
    routedServers: { routes, served, hidden },
  };
}

/**
 * Returns the schema of one of Tollgate's own tools in another schema profile, and the function that lifts arguments
 * back.
 */
function projectOwn(schema: RawTool['inputSchema'], profile: string): Pick<Projection, 'schema' | 'hints' | 'lift'> {
  const projection =
    profile === OWN_PROFILE ? undefined : projectSchema(schema as Record<string, unknown>, loadSchemaProfile(profile));
  return projection === undefined || 'quarantined' in projection
    ? { schema: schema as Record<string, unknown>, hints: [], lift: (args) => ({ args, changed: false }) }
    : projection;
}

/**
 * Returns the tool with a shown name, or with an id (`server.tool`) that exactly one tool has. A shown name contains no
 * dot.
 */
export function findTool({ byName }: NameTable, name: string): ExposedTool | undefined {
  const named = findExposed(byName, name)?.value;
  if (named !== undefined || !name.includes('.')) return named;
  const [only, ...others] = [...byName.values()].filter(
    (one) => name.startsWith(`${one.server.name}.`) && isDeepStrictEqual(toolIdsOf(one), [name]),
  );
  return others.length === 0 ? only : undefined;
}

/** Computed on demand for an unknown name, so that a list needs no table of hidden tools. */
function hiddenTool(hidden: readonly ShownTool[], name: string): HiddenTool | undefined {
  const isMeant = (one: ShownTool): boolean =>
    findExposed(new Map([[shownName(nameParts(one)), true]]), name) !== undefined ||
    `${one.candidate.listTool.server}.${one.candidate.listTool.tool}` === name;
  const found = hidden.filter(isMeant);
  const reasons = found.flatMap(({ decision }) => decision.reasons);
  const [first] = found;
  return first === undefined || reasons.length === 0
    ? undefined
    : {
        server: first.candidate.listTool.server,
        reasons: [...new Map(reasons.map((reason) => [reason.id, reason])).values()],
      };
}
