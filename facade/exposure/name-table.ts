/** Owns the name table of a principal: what the last list decision lets it see, under which names; list and resolve both read it. */
import { isDeepStrictEqual } from 'node:util';
import { PRIMITIVES, type Primitive, startFailure } from '../../adapters/port.ts';
import { OWNER_CORRECTABLE, TollgateError } from '../../catalogs/errors/error-table.ts';
import { normalizeArguments } from '../../catalogs/primitives/argument-spellings.ts';
import { tightenSchema } from '../../catalogs/projection/argument-bounds.ts';
import {
  loadSchemaProfile,
  type Projection,
  projectSchema,
  withoutPinned,
} from '../../catalogs/projection/schema-projection.ts';
import {
  type ExposableTool,
  exposedNames,
  findExposed,
  type NameCollision,
  shownName,
} from '../../catalogs/tools/exposed-names.ts';
import type { RawTool } from '../../catalogs/tools/tool-definition.ts';
import { clientSchema, createValidator, type Validator } from '../../catalogs/validation/argument-validation.ts';
import type { ListDecision, Policy, Principal, Reason } from '../../policies/port.ts';
import { listToolFacts } from '../call/lowering/call-effect.ts';
import { isRouted } from '../call/lowering/primitive-routes.ts';
import type { ArgsShape } from '../call/validate.ts';
import type { ProfileConfig, Route } from '../config/config.ts';
import type { Preconditions, PreconditionView, RequestSession } from '../consent/preconditions.ts';
import { pendingRefusal } from '../consent/servers/server-refusals.ts';
import { READ_SPILL, SPILL_TOOL } from '../output/spill-tool.ts';
import type { Catalog, ServedServer } from './catalog.ts';
import { checkRegoExposures, type RegoExposureCheck, type UnshownExposure } from './rego-exposures.ts';
import {
  isPending,
  joinPrimitives,
  lastExposures,
  nameParts,
  type ShownTool,
  type ToolCandidate,
  withoutOurs,
} from './tool-candidates.ts';
import { describeTool } from './tool-description.ts';
import type { ToolEntry } from './tool-entry.ts';
import { isNamedAfterServer, unknownToolError } from './unknown-tool.ts';

/** The servers of a primitive that has several. */
export interface RoutedServers {
  readonly routes: readonly Route[];
  /** By server, without those that are hidden from the caller. */
  readonly served: ReadonlyMap<string, ExposedTool>;
  /** Why policy hides others, by server. For the audit alone. */
  readonly hidden: ReadonlyMap<string, readonly Reason[]>;
}

/** One tool as the agent sees it. */
export interface ExposedTool {
  readonly name: string;
  /** Of a primitive with several servers the last: the one that serves what no condition takes, where there is one. */
  readonly server: ServedServer;
  /** Present while it is not known which of several servers a call leads to. */
  readonly routedServers?: RoutedServers;
  readonly primitive?: Primitive;
  /** Absent for primitives. */
  readonly entry?: ToolEntry;
  readonly args: ArgsShape;
  /** Pin of the definition behind it. */
  readonly pin: string;
  /** Its JSON in a tools/list result. */
  readonly text: string;
  /** What policy said of it; absent for the tool that reads spills. */
  readonly decision?: ListDecision;
}

/** What one principal sees under one policy and one state of the catalog. */
export interface NameTable {
  /** Those included whose server is down: they can be called, to hear why. */
  readonly byName: ReadonlyMap<string, ExposedTool>;
  /** Those that a list shows. */
  readonly listed: readonly ExposedTool[];
  readonly text: string;
  /** The exposed tool that reads spills: `read`, or where there is none `read_spill`. Absent: none can. */
  readonly reader: string | undefined;
  /** Names that an owner gave to several tools, none of which is shown. */
  readonly collisions: readonly NameCollision[];
  /** What Rego wants shown and is not, a line each. For the owner alone. */
  readonly unshown: readonly string[];
  /** Why policy hides the tool of this name; undefined if it hides none. For the audit alone. */
  readonly hiddenBy: (name: string) => readonly Reason[] | undefined;
}

const SPILL_INPUT = createValidator(SPILL_TOOL.inputSchema);

/** What is shown when the facade is switched off. */
const NOTHING: NameTable = {
  byName: new Map(),
  listed: [],
  text: '{"tools":[]}',
  reader: undefined,
  collisions: [],
  unshown: [],
  hiddenBy: () => undefined,
};

/** Makes and caches tables. `serversOf` names the servers whose lists a principal's table needs, `aliased` those of which a tool has this alias; `fresh` is awaited before what people have decided is read (see State.fresh). */
export class NameTables {
  readonly #catalog: Catalog;
  readonly #policy: () => Policy;
  readonly #primitives: ReadonlyMap<Primitive, { readonly tool: RawTool; readonly validator: Validator }>;
  readonly #serversOf: (principal: Principal) => readonly string[];
  readonly #routesOf: (principal: Principal) => ProfileConfig['primitives'];
  readonly #maxArgBytes: (principal: Principal) => number;
  readonly #view: Preconditions['view'];
  readonly #fresh: () => Promise<void> | undefined;
  readonly #aliased: (principal: Principal, name: string) => readonly string[];
  readonly #tell: (refused: readonly UnshownExposure[]) => void;
  readonly #tables = new WeakMap<
    Principal,
    { readonly policy: string; readonly catalog: number; readonly view: string; readonly table: NameTable }
  >();

  constructor(parts: {
    catalog: Catalog;
    policy: () => Policy;
    primitives: readonly RawTool[];
    serversOf: (principal: Principal) => readonly string[];
    routesOf: (principal: Principal) => ProfileConfig['primitives'];
    maxArgBytes: (principal: Principal) => number;
    view: Preconditions['view'];
    fresh?: () => Promise<void> | undefined;
    aliased?: (principal: Principal, name: string) => readonly string[];
    tell?: (refused: readonly UnshownExposure[]) => void;
  }) {
    this.#catalog = parts.catalog;
    this.#policy = parts.policy;
    this.#serversOf = parts.serversOf;
    this.#routesOf = parts.routesOf;
    this.#maxArgBytes = parts.maxArgBytes;
    this.#view = parts.view;
    this.#aliased = parts.aliased ?? (() => []);
    this.#fresh = parts.fresh ?? (() => undefined);
    this.#tell = parts.tell ?? (() => undefined);
    const known = parts.primitives.flatMap((tool) =>
      PRIMITIVES.filter((name) => name === tool.name).map(
        (name) => [name, { tool, validator: createValidator(tool.inputSchema) }] as const,
      ),
    );
    this.#primitives = new Map(known);
  }

  /** The table for a list: every server of the principal is asked first, and waited for as `waitMs` says (see Catalog.refresh). Throws POLICY_FAILED, and what stands against a list. */
  async tableFor(principal: Principal, from?: RequestSession, waitMs?: number): Promise<NameTable> {
    await this.#fresh();
    const view = this.#view(principal, from);
    if (view.unlisted !== undefined) throw view.unlisted;
    if (view.off !== undefined) return NOTHING;
    await this.#catalog.refresh(this.#serversOf(principal), 'let', { waitMs, ...startsOf(view) });
    return this.#tableNow(principal, view);
  }

  /**
   * Stage 2: the exposed tool of a name, from what is known. A slow or dead server does not hold up the tools of others:
   * servers are asked only when the name is not known yet, or when the tool's own server has changed its list or is not
   * running. A tool has its id (`server.tool`) as a name too, where one name is shown for it. Throws UNKNOWN_TOOL, POLICY_FAILED, and why its server is not there for a tool that this principal knows, or could know.
   */
  async resolve(
    principal: Principal,
    name: string,
    from?: RequestSession,
  ): Promise<{ table: NameTable; exposed: ExposedTool }> {
    const renewal = this.#fresh();
    if (renewal !== undefined) await renewal;
    const view = this.#view(principal, from);
    if (view.off !== undefined) throw view.off;
    const table = await this.#tableNow(principal, view);
    const found = find(table, name);
    // A tool that waits may have been approved since, or its server disabled: that holds from the next call on.
    const current =
      found !== undefined &&
      (found.entry === undefined || (found.entry.pending === undefined && this.#catalog.isFresh(found.server.name)));
    if (current) return { table, exposed: found };
    if (found === undefined) await this.#seek(principal, name, view);
    else await this.#wake(found.server, { view, scope: from?.id ?? '' });
    const next = await this.#tableNow(principal, view);
    const exposed = find(next, name);
    if (exposed === undefined)
      throw unknownToolError(
        name,
        {
          problems: this.#catalog.problems,
          entries: (server) => this.#catalog.entries(server),
          hidden: next.hiddenBy(name),
        },
        this.#serversOf(principal),
      );
    const problem = exposed.entry === undefined ? undefined : this.#catalog.problems.get(exposed.server.name);
    if (problem !== undefined) throw startFailure(problem);
    return { table: next, exposed: approvedOnly(exposed) };
  }

  /**
   * Asks the servers that could have the tool, and no other: those that the name is made from, that an alias of the profile or Rego names. One that
   * could not be listed before is asked again in the background: what is known of it is the answer.
   */
  async #seek(principal: Principal, name: string, view: PreconditionView): Promise<void> {
    const servers = this.#serversOf(principal);
    const wanted = (await this.#policy().requestedExposures?.(principal)) ?? [];
    const isWanted = (server: string): boolean =>
      wanted.some(({ tool }) => tool.startsWith('*') || tool.startsWith(`${server}.`));
    const [own, maybe] = [
      this.#aliased(principal, name),
      servers.filter((server) => isWanted(server) && this.#catalog.entries(server).length === 0),
    ];
    const asked = servers.filter(
      (server) => isNamedAfterServer(name, server) || own.includes(server) || maybe.includes(server),
    );
    const isDown = (server: string): boolean => {
      const problem = this.#catalog.problems.get(server);
      // What a person must mend fails at once again, if it is not mended.
      return problem !== undefined && !OWNER_CORRECTABLE.has(problem.code);
    };
    const [down, open] = [asked.filter(isDown), asked.filter((server) => !isDown(server))];
    // Its failure is kept as the server's problem, which the next question hears of.
    this.#catalog.refresh(down, 'let', startsOf(view)).catch(() => undefined);
    await this.#catalog.refresh(open, 'let', startsOf(view));
  }

  /** A session that may not have the server back keeps it from nobody. */
  async #wake(
    { name, adapter }: ServedServer,
    { view, scope }: { readonly view: PreconditionView; readonly scope: string },
  ): Promise<void> {
    const refusal = adapter.refuses?.(scope);
    if (refusal !== undefined) throw refusal;
    await this.#catalog.refresh([name], 'wake', { scope, ...startsOf(view) });
  }

  async #tableNow(principal: Principal, view: PreconditionView): Promise<NameTable> {
    const policy = this.#policy();
    const catalog = this.#catalog.revision;
    const known = this.#tables.get(principal);
    if (known?.policy === policy.revision && known.catalog === catalog && known.view === view.revision)
      return known.table;
    const candidates = this.#candidates(this.#serversOf(principal)).filter(({ listTool: asked }) => !view.hides(asked));
    const decisions = await policy.list(
      principal,
      candidates.map((candidate) => candidate.listTool),
    );
    if (decisions.length !== candidates.length)
      throw new TollgateError('POLICY_FAILED', { detail: 'The policy did not decide every tool of the list.' });
    const wanted = checkRegoExposures((await policy.requestedExposures?.(principal)) ?? [], (server) =>
      this.#catalog
        .entries(server)
        .filter((entry) => entry.quarantine === undefined)
        .map(({ tool }) => tool),
    );
    this.#tell(wanted.refused);
    const table = this.#build(candidates, {
      decisions,
      maxBytes: this.#maxArgBytes(principal),
      routes: this.#routesOf(principal),
      view,
      wanted,
    });
    this.#tables.set(principal, { policy: policy.revision, catalog, view: view.revision, table });
    return table;
  }

  #candidates(names: readonly string[]): readonly ToolCandidate[] {
    return names.flatMap((name) => {
      const served = this.#catalog.servers.get(name);
      if (served === undefined) return [];
      const own =
        served.backend === served.adapter
          ? []
          : this.#catalog.entries(name).filter((entry) => entry.quarantine === undefined);
      const tools = own.map((entry) => ({
        served,
        entry,
        listTool: { server: name, tool: entry.tool.name, ...listToolFacts(entry.semantics) },
      }));
      const primitives = [...(served.backend?.serves() ?? [])].flatMap(([primitive, lowered]) =>
        lowered.map(({ tool, semantics }) => ({
          served,
          primitive,
          listTool: { server: name, tool, ...listToolFacts(semantics), primitive },
        })),
      );
      return [...tools, ...primitives];
    });
  }

  #build(
    candidates: readonly ToolCandidate[],
    {
      decisions,
      maxBytes,
      routes,
      view,
      wanted,
    }: {
      decisions: readonly ListDecision[];
      maxBytes: number;
      routes: ProfileConfig['primitives'];
      view: PreconditionView;
      wanted: RegoExposureCheck;
    },
  ): NameTable {
    const shown: ShownTool[] = [];
    const hidden: ShownTool[] = [];
    const behind: ShownTool[] = [];
    for (const [index, candidate] of candidates.entries()) {
      const decision = decisions[index];
      if (decision === undefined || wanted.isUnbound(candidate.listTool)) continue;
      for (const exposure of decision.expose) {
        const one: ShownTool = { candidate, decision, exposure };
        if (candidate.primitive !== undefined) behind.push(one);
        if (decision.verdict === 'never') hidden.push(one);
        else if (candidate.primitive === undefined) shown.push(one);
      }
    }
    const all = [...joinPrimitives(behind, routes), ...lastExposures(shown)];
    const settled = all.filter((one) => !isPending(one));
    const asked = settled.map(nameParts);
    const { nameOf, collisions } = exposedNames(asked, [READ_SPILL]);
    const expose = (one: ShownTool, name: string | undefined): readonly ExposedTool[] =>
      name === undefined ? [] : this.#expose(one, { name, maxBytes, routes });
    const exposed = settled.flatMap((one, at) => expose(one, nameOf.get(asked[at] as ExposableTool)));
    // What nobody approved takes no name from what somebody did.
    const byName = new Map(
      [...all.filter(isPending).flatMap((one) => expose(one, shownName(nameParts(one)))), ...exposed].map((one) => [
        one.name,
        one,
      ]),
    );
    // A primitive stands for several tools: it is shown while one of them may be called.
    const isOpen = ({ primitive, server, entry }: ExposedTool): boolean =>
      primitive === undefined
        ? view.withholds?.({ server: server.name, tool: entry?.tool.name ?? '' }) !== true
        : behind.some(
            ({ candidate }) => candidate.primitive === primitive && view.withholds?.(candidate.listTool) !== true,
          );
    const listed = exposed.filter(
      (one) => isOpen(one) && (one.entry === undefined || !this.#catalog.problems.has(one.server.name)),
    );
    const reader = this.#addSpillReader(byName, listed, maxBytes);
    return {
      byName,
      listed,
      collisions,
      unshown: wanted.refused.map(({ line }) => line),
      hiddenBy: (name) => reasonsOf(hidden, name),
      reader,
      text: `{"tools":[${listed.map((one) => one.text).join(',')}]}`,
    };
  }

  /** Spills are bound to principal and run, and their policy is that of their source: whoever is shown a tool may read on in its results. */
  #addSpillReader(
    byName: Map<string, ExposedTool>,
    listed: readonly ExposedTool[],
    maxBytes: number,
  ): string | undefined {
    if (byName.get('read')?.primitive === 'read') return 'read';
    const server = this.#catalog.servers.get('workspace') ?? listed[0]?.server;
    if (listed.length === 0 || server === undefined) return undefined;
    const { schema, lift } = projectOwn(SPILL_TOOL.inputSchema, listed[0]?.decision?.schemaProfile ?? OWN_PROFILE);
    const args: ArgsShape = { schema: SPILL_TOOL.inputSchema, validator: SPILL_INPUT, lift, pins: {}, maxBytes };
    byName.set(READ_SPILL, {
      name: READ_SPILL,
      server,
      primitive: 'read',
      args,
      pin: READ_SPILL,
      text: JSON.stringify({ ...SPILL_TOOL, inputSchema: schema }),
    });
    return READ_SPILL;
  }

  #expose(
    one: ShownTool,
    { name, maxBytes, routes }: { name: string; maxBytes: number; routes: ProfileConfig['primitives'] },
  ): readonly ExposedTool[] {
    const { candidate, exposure } = one;
    if (candidate.primitive !== undefined)
      return this.#exposePrimitive(one, candidate.primitive, maxBytes).map((exposed) => withWays(exposed, one, routes));
    const entry = candidate.entry;
    const projection = entry?.projection(exposure.schemaProfile ?? one.decision.schemaProfile, one.decision.bounds);
    if (entry === undefined || projection === undefined) return [];
    const schema = withoutPinned(projection.schema, Object.keys(exposure.pins));
    const args: ArgsShape = {
      schema: entry.tool.inputSchema,
      validator: entry.input,
      lift: projection.lift,
      pins: exposure.pins,
      maxBytes,
    };
    const { outputSchema: output } = entry.tool;
    const text = JSON.stringify({
      ...withoutOurs(entry.tool),
      name,
      description: describeTool(one, entry.tool, projection.hints),
      inputSchema: schema,
      ...(output !== undefined && { outputSchema: clientSchema(output) }),
    });
    return [{ name, server: candidate.served, entry, args, pin: entry.pin, text, decision: one.decision }];
  }

  #exposePrimitive(one: ShownTool, primitive: Primitive, maxBytes: number): readonly ExposedTool[] {
    const known = this.#primitives.get(primitive);
    if (known === undefined) return [];
    const pins = one.exposure.pins;
    // Bounds speak of the tool behind: where that has arguments of its own, they are no bounds of the primitive's.
    const bounds =
      one.candidate.listTool.tool === primitive && (one.behind?.servers.size ?? 1) < 2
        ? (one.decision.bounds ?? [])
        : [];
    const projection = projectOwn(
      tightenSchema(known.tool.inputSchema, bounds),
      one.exposure.schemaProfile ?? one.decision.schemaProfile,
    );
    const lift: ArgsShape['lift'] = (args) => {
      const normal = normalizeArguments(primitive, projection.lift(args).args);
      return { args: normal.args, changed: normal.args !== args, notes: normal.notes };
    };
    const args: ArgsShape = { schema: known.tool.inputSchema, validator: known.validator, lift, pins, maxBytes };
    const description = describeTool({ ...one, decision: { ...one.decision, bounds } }, known.tool, projection.hints);
    const text = JSON.stringify({
      ...known.tool,
      description,
      inputSchema: withoutPinned(projection.schema, Object.keys(pins)),
    });
    return [
      {
        name: primitive,
        server: one.candidate.served,
        primitive,
        args,
        pin: one.candidate.served.name,
        text,
        decision: one.decision,
      },
    ];
  }
}

/** With what each of its servers is called by, where it has several. The pin of it is that of all: other routes are another tool. */
function withWays(exposed: ExposedTool, { behind }: ShownTool, primitives: ProfileConfig['primitives']): ExposedTool {
  const routes = primitives[exposed.primitive as Primitive];
  if (!isRouted(routes) || behind === undefined) return exposed;
  const { servers, hidden } = behind;
  const served = new Map([...servers].map(([name, server]) => [name, { ...exposed, server, pin: name }]));
  const usual = routes.findLast(({ server }) => servers.has(server))?.server ?? '';
  return {
    ...exposed,
    server: servers.get(usual) ?? exposed.server,
    pin: JSON.stringify(routes),
    routedServers: { routes, served, hidden },
  };
}

/** The servers of which a call of this tool reaches one. */
export function serversBehind({ server, routedServers: ways }: ExposedTool): readonly ServedServer[] {
  return ways === undefined ? [server] : [...ways.served.values()].map((one) => one.server);
}

/** Schemas of Tollgate's own tools are written for it. */
const OWN_PROFILE = 'portable';

/** The schema of one of Tollgate's own tools in another profile, and the way back. */
function projectOwn(schema: RawTool['inputSchema'], profile: string): Pick<Projection, 'schema' | 'hints' | 'lift'> {
  const made =
    profile === OWN_PROFILE ? undefined : projectSchema(schema as Record<string, unknown>, loadSchemaProfile(profile));
  return made === undefined || 'quarantined' in made
    ? { schema: schema as Record<string, unknown>, hints: [], lift: (args) => ({ args, changed: false }) }
    : made;
}

/** The ids (`server.tool`) of what a call of this tool may come to, as a grant names them: one, and of a primitive those of its backend. */
export function toolIdsOf({ server, entry, primitive, routedServers: ways }: ExposedTool): readonly string[] {
  if (ways !== undefined) return [...ways.served.values()].flatMap(toolIdsOf);
  const tools =
    entry !== undefined
      ? [entry.tool.name]
      : (server.backend?.serves().get(primitive as Primitive) ?? []).map(({ tool }) => tool);
  return [...new Set(tools)].map((tool) => `${server.name}.${tool}`);
}

/** By its shown name, else by its id: names that are shown hold no dot. An id that is shown under several names stands for none of them. */
function find({ byName }: NameTable, name: string): ExposedTool | undefined {
  const named = findExposed(byName, name)?.value;
  if (named !== undefined || !name.includes('.')) return named;
  const [only, ...others] = [...byName.values()].filter(
    (one) => name.startsWith(`${one.server.name}.`) && isDeepStrictEqual(toolIdsOf(one), [name]),
  );
  return others.length === 0 ? only : undefined;
}

function startsOf({ mayStart }: PreconditionView): Pick<PreconditionView, 'mayStart'> {
  return mayStart === undefined ? {} : { mayStart };
}

/** Looked up when a name is not known: a list needs no table of what it hides. */
function reasonsOf(hidden: readonly ShownTool[], name: string): readonly Reason[] | undefined {
  const isMeant = (one: ShownTool): boolean =>
    findExposed(new Map([[shownName(nameParts(one)), true]]), name) !== undefined ||
    `${one.candidate.listTool.server}.${one.candidate.listTool.tool}` === name;
  const found = hidden.filter(isMeant).flatMap(({ decision }) => decision.reasons);
  return found.length === 0 ? undefined : [...new Map(found.map((reason) => [reason.id, reason])).values()];
}

/** Throws PIN_MISMATCH for a tool that is not as it was approved. */
function approvedOnly(exposed: ExposedTool): ExposedTool {
  const pending = exposed.entry?.pending;
  if (pending !== undefined) throw pendingRefusal(exposed.server.name, pending);
  return exposed;
}
