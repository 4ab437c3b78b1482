/** Builds and caches the name table of each principal. It asks servers for their tools when a table needs them. */
import { startFailure } from '../../adapters/port.ts';
import { ERRORS, OWNER_CORRECTABLE, TollgateError } from '../../catalogs/errors/error-table.ts';
import { type Awaitable, andThen } from '../../catalogs/text/awaitable.ts';
import type { RawTool } from '../../catalogs/tools/tool-definition.ts';
import { nearestName } from '../../catalogs/validation/validation-faults.ts';
import type { Policy, Principal } from '../../policies/port.ts';
import { listToolFacts } from '../call/lowering/call-effect.ts';
import type { ProfileConfig } from '../config/config.ts';
import type { Preconditions, PreconditionView, RequestSession } from '../consent/preconditions.ts';
import { pendingRefusal } from '../consent/servers/server-refusals.ts';
import type { Catalog } from './catalog.ts';
import { type ExposedTool, HiddenBy } from './exposed-tool.ts';
import {
  buildNameTable,
  EMPTY_TABLE,
  findTool,
  type NameTable,
  type PrimitiveDefinitions,
  primitiveDefinitions,
} from './name-table.ts';
import { checkRegoExposures, type UnshownExposure } from './rego-exposures.ts';
import type { ServedServer } from './served-server.ts';
import type { ToolCandidate } from './tool-candidates.ts';

/** The inputs of tables. */
export interface NameTablesParts {
  readonly catalog: Catalog;
  readonly policy: () => Policy;
  /** Definitions of the primitives. */
  readonly primitives: readonly RawTool[];
  /** Returns the names of the servers in a principal's table. */
  readonly serversOf: (principal: Principal) => readonly string[];
  readonly profileOf: (principal: Principal) => Pick<ProfileConfig, 'primitives' | 'search' | 'promote'>;
  readonly maxArgBytes: (principal: Principal) => number;
  readonly view: Preconditions['view'];
  /** Reads what other processes changed in the shared state. See `State.refresh`. */
  readonly refresh?: () => Promise<void> | undefined;
  /** Returns the names of the servers that have a tool with this alias. */
  readonly aliased?: (principal: Principal, name: string) => readonly string[];
  /** Called with the tools that Rego exposes but that are not shown. */
  readonly tell?: (refused: readonly UnshownExposure[]) => void;
}

interface CachedTable {
  readonly policy: string;
  readonly catalog: number;
  readonly view: string;
  readonly table: NameTable;
}

/** A tool, and the table that it is in. */
interface TableEntry {
  readonly table: NameTable;
  readonly exposed: ExposedTool;
}

/** A name that no table has, or whose tool must be asked for. */
interface UnresolvedName {
  readonly principal: Principal;
  readonly name: string;
  readonly view: PreconditionView;
  readonly exposed: ExposedTool | undefined;
  /** The session that asks. */
  readonly scope: string;
}

/** Builds and caches tables. */
export class NameTables {
  readonly #parts: NameTablesParts;
  readonly #primitives: PrimitiveDefinitions;
  readonly #tables = new WeakMap<Principal, CachedTable>();

  constructor(parts: NameTablesParts) {
    this.#parts = parts;
    this.#primitives = primitiveDefinitions(parts.primitives);
  }

  /**
   * Returns the table for a list. All servers of the principal are asked first, for at most `waitMs` (see
   * `Catalog.refresh`). Throws POLICY_FAILED, and the refusal of a precondition that forbids lists.
   */
  async tableFor(principal: Principal, from?: RequestSession, waitMs?: number): Promise<NameTable> {
    const { catalog, refresh, view: viewOf, serversOf } = this.#parts;
    await refresh?.();
    const view = viewOf(principal, from);
    if (view.unlisted !== undefined) throw view.unlisted;
    if (view.listsNothing === true) return EMPTY_TABLE;
    await catalog.refresh(serversOf(principal), 'let', { waitMs, ...startsOf(view) });
    return this.#currentTable(principal, view);
  }

  /**
   * Returns the exposed tool of a name, or of an id (`server.tool`) that exactly one name shows. A slow or failed
   * server does not delay the tools of others. A server is asked only if the name is unknown, or if the tool's own
   * server changed its list or does not run.
   * Throws UNKNOWN_TOOL, POLICY_FAILED, PIN_MISMATCH for a tool that changed after its approval, and the reason why the
   * tool's server cannot be reached.
   */
  resolve(principal: Principal, name: string, from?: RequestSession): Awaitable<TableEntry> {
    return andThen(this.#parts.refresh?.(), () => {
      const view = this.#parts.view(principal, from);
      if (view.refused !== undefined) throw view.refused;
      return andThen(this.#currentTable(principal, view), (table) => {
        const exposed = findTool(table, name);
        if (exposed !== undefined && this.#isCurrent(exposed)) return { table, exposed };
        return this.#askServers({ principal, name, view, exposed, scope: from?.id ?? '' });
      });
    });
  }

  /**
   * Returns the server that a name belongs to, as far as it is known without asking a server: for the record of a
   * refusal.
   */
  serverOf(principal: Principal, name: string): string | undefined {
    const table = this.#tables.get(principal)?.table;
    const shown = table === undefined ? undefined : findTool(table, name);
    if (shown !== undefined) return shown.routedServers === undefined ? shown.server.name : undefined;
    const { catalog, aliased } = this.#parts;
    const owners = aliased?.(principal, name) ?? [];
    return (
      table?.hidden(name)?.server ?? (owners.length === 1 ? owners[0] : nameOfServer(name, [...catalog.servers.keys()]))
    );
  }

  /** Asks the servers that the name may belong to, and resolves it again. */
  async #askServers({ principal, name, view, exposed, scope }: UnresolvedName): Promise<TableEntry> {
    if (exposed === undefined) await this.#askForName(principal, name, view);
    else await this.#wake(exposed.server, { view, scope });
    return this.#resolveListed(principal, name, view);
  }

  /** Returns false if the tool may have been approved, or its server disabled or changed, after it was listed. */
  #isCurrent({ entry, server }: ExposedTool): boolean {
    return entry === undefined || (entry.pending === undefined && this.#parts.catalog.isCurrent(server.name));
  }

  async #resolveListed(principal: Principal, name: string, view: PreconditionView): Promise<TableEntry> {
    const { catalog, serversOf } = this.#parts;
    const table = await this.#currentTable(principal, view);
    const exposed = findTool(table, name);
    if (exposed === undefined) {
      throw unknownToolError(name, { catalog, table }, serversOf(principal));
    }
    const problem = exposed.entry === undefined ? undefined : catalog.problems.get(exposed.server.name);
    if (problem !== undefined) throw startFailure(problem);
    const pending = exposed.entry?.pending;
    if (pending !== undefined) throw pendingRefusal(exposed.server.name, pending);
    return { table, exposed };
  }

  /**
   * Asks only the servers that could have the tool: servers that the name starts with, and servers that an alias of the
   * profile or Rego names. A failed server is asked again in the background, and its known list is used.
   */
  async #askForName(principal: Principal, name: string, view: PreconditionView): Promise<void> {
    const { catalog, policy, serversOf, aliased } = this.#parts;
    const requested = (await policy().requestedExposures?.(principal)) ?? [];
    const isRequested = (server: string): boolean =>
      requested.some(({ tool }) => tool.startsWith('*') || tool.startsWith(`${server}.`));
    const owners = aliased?.(principal, name) ?? [];
    const asked = serversOf(principal).filter(
      (server) =>
        isNamedAfterServer(name, server) ||
        owners.includes(server) ||
        (isRequested(server) && catalog.entries(server).length === 0),
    );
    const isDown = (server: string): boolean => {
      const problem = catalog.problems.get(server);
      // A problem that the owner must correct is found again at once, so its server is asked in the foreground.
      return problem !== undefined && !OWNER_CORRECTABLE.has(problem.code);
    };
    // A failure is stored as the server's problem, and the next request reports it.
    catalog.refresh(asked.filter(isDown), 'let', startsOf(view)).catch(() => undefined);
    await catalog.refresh(
      asked.filter((server) => !isDown(server)),
      'let',
      startsOf(view),
    );
  }

  /** Starts a sleeping server for one session. A session that may not start it does not affect other sessions. */
  async #wake(
    { name, adapter }: ServedServer,
    { view, scope }: { readonly view: PreconditionView; readonly scope: string },
  ): Promise<void> {
    const refusal = adapter.refuses?.(scope);
    if (refusal !== undefined) throw refusal;
    await this.#parts.catalog.refresh([name], 'wake', { scope, ...startsOf(view) });
  }

  #currentTable(principal: Principal, view: PreconditionView): Awaitable<NameTable> {
    const cached = this.#tables.get(principal);
    return cached?.policy === this.#parts.policy().revision &&
      cached.catalog === this.#parts.catalog.revision &&
      cached.view === view.revision
      ? cached.table
      : this.#makeTable(principal, view);
  }

  async #makeTable(principal: Principal, view: PreconditionView): Promise<NameTable> {
    const { catalog, policy: currentPolicy, serversOf, profileOf, maxArgBytes, tell } = this.#parts;
    const policy = currentPolicy();
    const { revision } = catalog;
    const candidates = this.#candidates(serversOf(principal)).filter(({ listTool }) => !view.hides(listTool));
    const decisions = await policy.list(
      principal,
      candidates.map((candidate) => candidate.listTool),
    );
    if (decisions.length !== candidates.length)
      throw new TollgateError('POLICY_FAILED', { detail: 'The policy did not decide every tool of the list.' });
    const requested = (await policy.requestedExposures?.(principal)) ?? [];
    const regoExposures = checkRegoExposures(requested, (server) =>
      catalog
        .entries(server)
        .filter((entry) => entry.quarantine === undefined)
        .map(({ tool }) => tool),
    );
    tell?.(regoExposures.refused);
    const table = buildNameTable(candidates, {
      catalog,
      primitives: this.#primitives,
      decisions,
      maxBytes: maxArgBytes(principal),
      profile: profileOf(principal),
      view,
      regoExposures,
    });
    this.#tables.set(principal, { policy: policy.revision, catalog: revision, view: view.revision, table });
    return table;
  }

  #candidates(names: readonly string[]): readonly ToolCandidate[] {
    return names.flatMap((name): readonly ToolCandidate[] => {
      const served = this.#parts.catalog.servers.get(name);
      if (served === undefined) return [];
      const entries = served.backend === served.adapter ? [] : this.#parts.catalog.entries(name);
      const tools = entries
        .filter((entry) => entry.quarantine === undefined)
        .map((entry) => ({
          served,
          entry,
          listTool: { server: name, tool: entry.tool.name, ...listToolFacts(entry.semantics) },
        }));
      const primitives = [...(served.backend?.serves() ?? [])].flatMap(([primitive, behind]) =>
        behind.map(({ tool, semantics }) => ({
          served,
          primitive,
          listTool: { server: name, tool, ...listToolFacts(semantics), primitive },
        })),
      );
      return [...tools, ...primitives];
    });
  }
}

function startsOf({ mayStart }: PreconditionView): Pick<PreconditionView, 'mayStart'> {
  return mayStart === undefined ? {} : { mayStart };
}

/** Returns true if a name starts with the name of a server. Then no other server has the tool. */
export function isNamedAfterServer(name: string, server: string): boolean {
  const plain = (text: string): string => text.replaceAll('-', '_');
  return plain(name).startsWith(`${plain(server)}_`) || name.startsWith(`${server}.`);
}

/** Returns the server that a name starts with. Of `notes` and `notes-old`, the longer one counts. */
export function nameOfServer(name: string, servers: readonly string[]): string | undefined {
  const named = servers.filter((server) => isNamedAfterServer(name, server));
  return named.sort((one, other) => other.length - one.length)[0];
}

/**
 * Returns the error for an unknown name. If the name belongs to a server that has never listed its tools, it says why
 * that server cannot be reached, also if an owner has not approved it yet. Otherwise it suggests a similar name of the
 * table, never of a hidden tool. `servers`: the servers that the caller may reach.
 */
function unknownToolError(
  name: string,
  { catalog, table }: { readonly catalog: Catalog; readonly table: NameTable },
  servers: readonly string[],
): TollgateError {
  const server = servers.find((one) => isNamedAfterServer(name, one) && catalog.entries(one).length === 0);
  const problem = server === undefined ? undefined : catalog.problems.get(server);
  if (problem !== undefined && problem.data.consent !== 'disabled') return startFailure(problem);
  const hidden = table.hidden(name);
  const near = nearestName(
    name,
    table.visible.map((one) => one.name),
  );
  return new TollgateError('UNKNOWN_TOOL', {
    ...(near !== undefined && { next: `Did you mean ${near}? ${ERRORS.UNKNOWN_TOOL.next}` }),
    ...(hidden !== undefined && { cause: new HiddenBy(hidden.reasons) }),
  });
}
