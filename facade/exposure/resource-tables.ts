/**
 * The resources that a principal may read, by server. Lists and reads use the same table: a URI tells its server, and
 * the policy decides about the server.
 */
import { isDeepStrictEqual } from 'node:util';
import type { ServerLists } from '../../adapters/port.ts';
import type { CancelSignal } from '../../adapters/rpc/cancellation.ts';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { type Awaitable, andThen } from '../../catalogs/text/awaitable.ts';
import type { RawResourceTemplate } from '../../catalogs/tools/definition-schema.ts';
import { createValidator } from '../../catalogs/validation/validator.ts';
import type { ListDecision, ListTool, Policy, Principal, Reason } from '../../policies/port.ts';
import { WORKSPACE } from '../config/servers/server-names.ts';
import type { Preconditions, PreconditionView, RequestSession } from '../consent/preconditions.ts';
import type { Redactor } from '../output/redactor.ts';
import { Spills } from '../output/spills.ts';
import type { Catalog } from './catalog.ts';
import { type ExposedTool, HiddenBy } from './exposed-tool.ts';
import type { ServedServer } from './served-server.ts';
import { type DefinitionRequest, listDecisions, listedText, readDefinitions } from './server-definitions.ts';

/** The lists of resources, by the method without `/list`. */
export type ResourceList = 'resources' | 'resources/templates';

/** What the tables are made of. */
export interface ResourceTablesParts {
  readonly catalog: Pick<Catalog, 'servers'>;
  readonly policy: () => Policy;
  /** Returns the names of the servers whose resources the profiles of a principal show. */
  readonly serversOf: (principal: Principal) => readonly string[];
  readonly maxArgBytes: (principal: Principal) => number;
  readonly view: Preconditions['view'];
  /** Returns the approved templates of a server; undefined if any template is approved. */
  readonly approved: (server: string) => readonly RawResourceTemplate[] | undefined;
  readonly redactor: Redactor;
  /** Reads what other processes changed in the shared state. See `State.refresh`. */
  readonly refresh: () => Promise<void> | undefined;
}

interface ResourceTable {
  readonly policy: string;
  readonly view: string;
  /** By server, without those that the policy hides. */
  readonly exposed: ReadonlyMap<string, ExposedTool>;
  /** Server → the policy's reasons for hiding it. For the audit only. */
  readonly hidden: ReadonlyMap<string, readonly Reason[]>;
}

/** The method of the protocol, by which records and messages name a read. */
export const READ_RESOURCE = 'resources/read';
/** The longest URI that is read. */
const MAX_URI = 8192;
const URI_ARGUMENTS = {
  type: 'object',
  properties: { uri: { type: 'string', minLength: 1, maxLength: MAX_URI } },
  required: ['uri'],
  additionalProperties: false,
} as const;
const URI_VALIDATOR = createValidator(URI_ARGUMENTS);
/** A URI, or a template, that begins with the name of a server. */
const PREFIXED = /^([a-z][a-z0-9-]{0,63})\+(?=[^:/]*:|\{)/;

/** What a list decision knows about the resources of one server. */
export function resourceListTool(server: string): ListTool {
  return { kind: 'resource', server, tool: READ_RESOURCE, verb: 'read', facts: ['paths', 'urls'] };
}

/** Builds and caches the tables. */
export class ResourceTables {
  readonly #parts: ResourceTablesParts;
  readonly #tables = new WeakMap<Principal, ResourceTable>();

  constructor(parts: ResourceTablesParts) {
    this.#parts = parts;
  }

  /** Returns a URI of a server as a principal sees it: the same if the principal may not read its resources. */
  shownUri(principal: Principal, server: ServedServer, uri: string): string {
    return this.#parts.serversOf(principal).includes(server.name) ? shownUri(server, uri) : uri;
  }

  /**
   * Finds the resource of a URI. Throws UNKNOWN_RESOURCE for a URI of no server that the principal may read,
   * POLICY_FAILED, and the refusal of a precondition.
   */
  resolve(principal: Principal, uri: string, from: RequestSession): Awaitable<ExposedTool> {
    return andThen(this.#parts.refresh(), () => {
      const view = this.#parts.view(principal, from);
      if (view.refused !== undefined) throw view.refused;
      return andThen(this.#tableOf(principal, view), (table) => this.#find(principal, uri, table));
    });
  }

  #find(principal: Principal, uri: string, { exposed, hidden }: ResourceTable): ExposedTool {
    const name = PREFIXED.exec(uri)?.[1] ?? '';
    const found = exposed.get(name);
    if (found?.server.uri === 'prefixed') return found;
    if (Spills.names(uri)) return this.#spills(principal);
    // A URI with the prefix of any server never belongs to a server with its own URIs.
    const own = this.#parts.catalog.servers.has(name)
      ? undefined
      : [...exposed.values()].find(({ server }) => server.uri === 'own');
    if (own !== undefined) return own;
    const { servers } = this.#parts.catalog;
    const hiddenOwn = servers.has(name) ? undefined : [...hidden].find(([one]) => servers.get(one)?.uri === 'own');
    const reasons = hidden.get(name) ?? hiddenOwn?.[1];
    throw new TollgateError('UNKNOWN_RESOURCE', reasons === undefined ? {} : { cause: new HiddenBy(reasons) });
  }

  /** Returns the server that a URI belongs to, as far as it is known: for the record of a refusal. */
  serverOf(principal: Principal, uri: string): string | undefined {
    const name = PREFIXED.exec(uri)?.[1] ?? '';
    const { servers } = this.#parts.catalog;
    if (servers.has(name)) return name;
    const { exposed, hidden } = this.#tables.get(principal) ?? { exposed: new Map(), hidden: new Map() };
    return [...exposed.keys(), ...hidden.keys()].find((one) => servers.get(one)?.uri === 'own');
  }

  /** Returns the JSON of a list. Throws POLICY_FAILED, CANCELLED, and the refusal of a precondition. */
  async list(kind: ResourceList, principal: Principal, from: RequestSession & { readonly signal: CancelSignal }) {
    await this.#parts.refresh();
    const view = this.#parts.view(principal, from);
    if (view.unlisted !== undefined) throw view.unlisted;
    const { exposed } = view.listsNothing === true ? { exposed: new Map() } : await this.#tableOf(principal, view);
    const servers = [...(exposed as ResourceTable['exposed']).values()].map(({ server }) => server);
    const asking = { profiles: principal.profiles, signal: from.signal };
    const texts =
      kind === 'resources'
        ? (await this.#read('resources', servers, asking))
            .filter(({ served, definition }) => !this.#isForeign(served, definition.uri))
            .map(({ served, definition, source }) => {
              const verdict = exposed.get(served.name)?.decision?.verdict ?? 'maybe';
              return listedText({ ...definition, uri: shownUri(served, definition.uri) }, { verdict, source });
            })
        : (await this.#read('resources/templates', servers, asking))
            .filter(({ served, definition }) => !this.#isForeign(served, definition.uriTemplate))
            .map(({ served, definition, source }) => {
              const shown = { ...definition, uriTemplate: shownUri(served, definition.uriTemplate) };
              return listedText(shown, { verdict: 'maybe', source });
            });
    return `{"${kind === 'resources' ? 'resources' : 'resourceTemplates'}":[${texts.join(',')}]}`;
  }

  /** A spill belongs to one principal and run, and the policy of its source applies to a read of it. */
  #spills(principal: Principal): ExposedTool {
    const server = this.#parts.catalog.servers.get(WORKSPACE);
    if (server === undefined) throw new TollgateError('UNKNOWN_RESOURCE');
    return exposedResources(server, { maxBytes: this.#parts.maxArgBytes(principal) });
  }

  #read<Kind extends ResourceList>(
    kind: Kind,
    servers: readonly ServedServer[],
    asking: Pick<DefinitionRequest<Kind>, 'profiles' | 'signal'>,
  ) {
    const { redactor, approved } = this.#parts;
    const admits = ({ name }: ServedServer, definition: ServerLists[Kind][number]): boolean =>
      kind === 'resources' || (approved(name)?.some((one) => isDeepStrictEqual(one, definition)) ?? true);
    return readDefinitions({ servers, kind, redactor, admits, ...asking });
  }

  /** A server with its own URIs could list one that looks like a URI of another server, or like a spill. */
  #isForeign({ uri: form }: ServedServer, uri: string): boolean {
    const name = PREFIXED.exec(uri)?.[1];
    return form === 'own' && ((name !== undefined && this.#parts.catalog.servers.has(name)) || /^spill:/i.test(uri));
  }

  #tableOf(principal: Principal, view: PreconditionView): Awaitable<ResourceTable> {
    const policy = this.#parts.policy();
    const cached = this.#tables.get(principal);
    return cached?.policy === policy.revision && cached.view === view.revision
      ? cached
      : this.#makeTable(principal, { policy, view });
  }

  async #makeTable(
    principal: Principal,
    { policy, view }: { readonly policy: Policy; readonly view: PreconditionView },
  ): Promise<ResourceTable> {
    const { catalog, serversOf, maxArgBytes } = this.#parts;
    const tools = serversOf(principal)
      .filter((name) => catalog.servers.get(name)?.adapter.list !== undefined)
      .map(resourceListTool)
      .filter((tool) => !view.hides(tool));
    const decisions = await listDecisions(policy, principal, tools);
    const isHidden = ({ verdict }: ListDecision): boolean => verdict === 'never';
    const decided = tools.map(({ server }, at) => [server, decisions[at] as ListDecision] as const);
    const table = {
      policy: policy.revision,
      view: view.revision,
      exposed: new Map(
        decided.flatMap(([name, decision]) => {
          const server = catalog.servers.get(name);
          return server === undefined || isHidden(decision)
            ? []
            : [[name, exposedResources(server, { decision, maxBytes: maxArgBytes(principal) })] as const];
        }),
      ),
      hidden: new Map(decided.filter(([, one]) => isHidden(one)).map(([name, { reasons }]) => [name, reasons])),
    };
    this.#tables.set(principal, table);
    return table;
  }
}

/** Returns a URI, or a template of URIs, as clients see it. */
export function shownUri({ name, uri }: Pick<ServedServer, 'name' | 'uri'>, own: string): string {
  return uri === 'own' ? own : `${name}+${own}`;
}

/** Returns the resources of one server as one item: a read of any of them has the same arguments. */
export function exposedResources(
  server: ServedServer,
  { decision, maxBytes }: { readonly decision?: ListDecision; readonly maxBytes: number },
): ExposedTool {
  const prefix = shownUri({ ...server, uri: 'prefixed' }, '');
  return {
    name: READ_RESOURCE,
    server,
    args: {
      schema: URI_ARGUMENTS,
      validator: URI_VALIDATOR,
      lift: (args) =>
        server.uri === 'prefixed' && String(args.uri).startsWith(prefix)
          ? { args: { uri: String(args.uri).slice(prefix.length) }, changed: true }
          : { args, changed: false },
      pins: {},
      maxBytes,
    },
    pin: server.name,
    text: '',
    ...(decision !== undefined && { decision }),
  };
}
