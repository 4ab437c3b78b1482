/** Checks the names by which parts of tollgate.yaml refer to each other, and refuses names that do not exist. */
import { readdirSync } from 'node:fs';
import { CODE, SHIPPED } from '../../catalogs/servers/shipped-servers.ts';
import { toolMatcher } from '../exposure/served-server.ts';
import { marksOf } from '../operations/prompt-template.ts';
import type { PrincipalConfig } from './config.ts';
import { didYouMean, type Path, type ProblemReport, quote } from './config-problems.ts';
import { profileNames } from './profiles.ts';
import { backendsOf, checkRoutes } from './servers/configured-routes.ts';
import { splitToolId, WORKSPACE } from './servers/server-names.ts';
import { subjectPrefix } from './settings/jwt-settings.ts';
import type { WrittenBudget, WrittenConfig, WrittenExpose } from './written-config.ts';

/** The names that exist, and where to report errors. */
export interface ReferenceContext {
  readonly report: ProblemReport;
  /** Names under `servers`, including refused entries. */
  readonly serverNames: ReadonlySet<string>;
  /** Servers that only included files define → the file. */
  readonly included: ReadonlyMap<string, string>;
  readonly principals: readonly PrincipalConfig[];
  /** Names under `profiles`, including refused entries. */
  readonly profileKeys: Readonly<Record<string, unknown>>;
}

/** A page of this machine, on any port. */
const LOOPBACK_ORIGIN = /^https?:\/\/(localhost|127\.0\.0\.1|\[::1\])(:\d+)?$/;

const SCHEMA_PROFILES = new URL('../../catalogs/profiles/', import.meta.url);

/** Labels that always exist. Keep them equal to those of policies/rules/configured-names.ts. */
const LABELS = ['public', 'internal', 'secret', 'untrusted'] as const;

const PRIMITIVE_NAMES: ReadonlySet<string> = new Set(['read', 'write', 'edit', 'bash']);

/** Why a server of one profile either serves primitives or shows its tools (CY-07). */
const TWO_WAYS = 'one effect could then be reached in two ways, and only one of them has a second check';

/** Reports every name that does not exist, every collision, and every pattern that is too broad. */
export function checkReferences(written: WrittenConfig, context: ReferenceContext): void {
  const checker = new ReferenceChecker(written, context);
  checker.principals();
  checker.subjects();
  checker.policies();
  checker.profiles();
  checker.joining();
  checker.budgets(written.budgets, ['budgets']);
  if (written.expose !== undefined) checker.expose(written.expose, ['expose']);
  checker.prompts();
  checker.sharedExpose();
  checker.schemaProfile(written.schemaProfile, ['schemaProfile']);
  checker.stickyLabels();
}

class ReferenceChecker {
  readonly #written: WrittenConfig;
  readonly #context: ReferenceContext;
  readonly #report: ProblemReport;
  readonly #profiles: ReadonlySet<string>;

  constructor(written: WrittenConfig, context: ReferenceContext) {
    this.#written = written;
    this.#context = context;
    this.#report = context.report;
    this.#profiles = profileNames(context.profileKeys);
  }

  principals(): void {
    this.#written.principals?.forEach(({ profiles = [], registers = [] }, index) => {
      profiles.forEach((name, at) => this.#profile(name, ['principals', index, 'profiles', at]));
      registers.forEach((name, at) => {
        const path = ['principals', index, 'registers', at];
        this.#profile(name, path);
        if (this.#written.profiles?.[name]?.host === true)
          this.#report.refuse(
            path,
            `profile ${quote(name)} is a host profile, and what a host registers runs in a sandbox; name another`,
          );
      });
      this.#stack(profiles, ['principals', index, 'profiles']);
    });
  }

  /** A token may give a subject any of the profiles that its claim is mapped to. */
  subjects(): void {
    const path = ['listen', 'jwt', 'claims', 'profiles', 'values'];
    const values = this.#written.listen?.jwt?.claims?.profiles?.values ?? {};
    for (const [value, name] of Object.entries(values)) this.#profile(name, [...path, value]);
    this.#stack([...new Set(Object.values(values))], path);
  }

  #stack(profiles: readonly string[], path: Path): void {
    const stacked = profiles.map((name) => this.#written.profiles?.[name]?.expose ?? this.#written.expose ?? {});
    const backends = new Set(stacked.flatMap(backendsOf));
    const doubled = stacked.flatMap(shownServers).find((server) => backends.has(server));
    if (profiles.length > 1 && doubled !== undefined)
      this.#report.refuse(
        path,
        `one of these profiles serves primitives by server ${quote(doubled)}, and one shows its tools: ` +
          `${TWO_WAYS}; remove one of them`,
      );
  }

  policies(): void {
    this.#written.policies?.forEach((policy, index) => {
      (typeof policy === 'string' ? [] : (policy.modes ?? [])).forEach(({ profile, origin }, at) => {
        if (profile !== undefined) this.#profile(profile, ['policies', index, 'modes', at, 'profile']);
        if (origin !== undefined) this.#origin(origin, ['policies', index, 'modes', at, 'origin']);
      });
    });
  }

  profiles(): void {
    for (const [name, profile] of Object.entries(this.#written.profiles ?? {})) {
      const path = ['profiles', name];
      if (!/^[a-z][a-z0-9-]{0,63}$/.test(name))
        this.#report.refuseKey(
          path,
          `profile ${quote(name)}: ` +
            'names are lower-case letters, digits and hyphens, and begin with a letter; rename it',
        );
      (profile.servers ?? []).forEach((server, at) => this.#server(server, [...path, 'servers', at]));
      for (const key of ['lifetimes', 'starts', 'env'] as const)
        for (const server of Object.keys(profile[key] ?? {})) this.#server(server, [...path, key, server]);
      this.budgets(profile.budgets, [...path, 'budgets']);
      this.schemaProfile(profile.schemaProfile, [...path, 'schemaProfile']);
      if (profile.expose !== undefined)
        this.expose(
          profile.expose,
          [...path, 'expose'],
          new Set([...(profile.servers ?? []), ...backendsOf(profile.expose)]),
        );
    }
  }

  stickyLabels(): void {
    const known = this.#labels();
    this.#written.labels?.sticky.forEach((label, at) => {
      if (known?.has(label) === false)
        this.#report.refuse(
          ['labels', 'sticky', at],
          `label ${quote(label)}: no server and no rule adds it, so it would have no effect; ` +
            `${didYouMean(label, known)}`,
        );
    });
  }

  /** All labels that a result can get. Undefined if policies are in separate files, because these may add labels. */
  #labels(): ReadonlySet<string> | undefined {
    const { policies, rules = [], servers = {} } = this.#written;
    if (policies !== undefined) return undefined;
    const addedByRules = rules.flatMap(
      (rule) =>
        (rule as { readonly obligations?: { readonly labels?: readonly string[] } } | null)?.obligations?.labels ?? [],
    );
    return new Set([...LABELS, ...Object.values(servers).flatMap((server) => server.labels ?? []), ...addedByRules]);
  }

  joining(): void {
    for (const [server, profiles] of this.#profilesByServer()) {
      profiles.forEach((name, at) => {
        this.#profile(name, ['servers', server, 'profiles', at]);
        const { expose = this.#written.expose ?? {} } = this.#written.profiles?.[name] ?? {};
        if (backendsOf(expose).includes(server))
          this.#report.refuse(
            ['servers', server, 'profiles', at],
            `server ${quote(server)} serves the primitives of profile ${quote(name)}, so its tools cannot be ` +
              `shown too: ${TWO_WAYS}; remove the line`,
          );
      });
    }
  }

  #profilesByServer(): readonly (readonly [string, readonly string[]])[] {
    return Object.entries(this.#written.servers ?? {}).flatMap(([name, { profiles = [] }]) =>
      profiles.length === 0 ? [] : [[name, profiles] as const],
    );
  }

  budgets(budgets: readonly WrittenBudget[] | undefined, path: Path): void {
    const ids = new Set<string>();
    budgets?.forEach((budget, index) => {
      const { id, calls, argBytes, outputBytes, wallMs, concurrent, when = {} } = budget;
      const at = [...path, index];
      if (ids.has(id)) this.#report.refuse([...at, 'id'], `budget ${quote(id)} appears twice; rename one`);
      ids.add(id);
      if ([calls, argBytes, outputBytes, wallMs, concurrent].every((limit) => limit === undefined)) {
        this.#report.refuse(
          at,
          `budget ${quote(id)} limits nothing; add calls, argBytes, outputBytes, wallMs or concurrent`,
        );
      }
      if (when.server !== undefined && when.server !== WORKSPACE) this.#server(when.server, [...at, 'when', 'server']);
      if (when.profile !== undefined) this.#profile(when.profile, [...at, 'when', 'profile']);
      if (when.role !== undefined) this.#role(when.role, [...at, 'when', 'role']);
      const target = splitToolId(when.tool ?? '');
      if (target !== undefined && target.server !== WORKSPACE) this.#server(target.server, [...at, 'when', 'tool']);
      this.#internalTool(target ?? { server: when.server, tool: when.tool ?? '*' }, [...at, 'when', 'tool']);
      if (/^[*.]+$/.test(when.tool ?? ''))
        this.#report.refuse([...at, 'when', 'tool'], 'a pattern for every tool has no effect; omit tool');
    });
  }

  /** `reachable`: the servers of the profile; absent for the `expose` of the file (see sharedExpose). */
  expose(expose: WrittenExpose, path: Path, reachable?: ReadonlySet<string>): void {
    const { primitives, tools = [] } = expose;
    if (primitives !== undefined)
      checkRoutes(primitives, [...path, 'primitives'], {
        report: this.#report,
        servers: this.#written.servers ?? {},
        labels: this.#labels(),
        server: (name, at) => this.#server(name, at),
      });
    this.#resources(expose, path, reachable);
    this.#exposedPrompts(expose, path, reachable);
    const names = new Set<string>();
    tools.forEach((entry, index) => {
      const at = [...path, 'tools', index];
      const { tool, name } = typeof entry === 'string' ? { tool: entry, name: undefined } : entry;
      this.#tool(tool, typeof entry === 'string' ? at : [...at, 'tool'], reachable);
      const mappedServer = backendsOf(expose).find((backend) => backend === splitToolId(tool)?.server);
      if (mappedServer !== undefined)
        this.#report.refuse(
          typeof entry === 'string' ? at : [...at, 'tool'],
          `server ${quote(mappedServer)} serves primitives here, and shows its tools: ${TWO_WAYS}; write the line in ` +
            'another profile, or choose other primitives',
        );
      if (typeof entry !== 'string') this.schemaProfile(entry.schemaProfile, [...at, 'schemaProfile']);
      if (name === undefined) return;
      if (tool.includes('*'))
        this.#report.refuse(
          [...at, 'name'],
          `name ${quote(name)} for the pattern ${quote(tool)}: several tools would have one name; name one tool`,
        );
      if (PRIMITIVE_NAMES.has(name))
        this.#report.refuse([...at, 'name'], `name ${quote(name)} belongs to a primitive; choose another`);
      if (names.has(name))
        this.#report.refuse([...at, 'name'], `name ${quote(name)} appears twice: a call could mean either; rename one`);
      names.add(name);
    });
  }

  #resources({ resources = [] }: WrittenExpose, path: Path, reachable: ReadonlySet<string> | undefined): void {
    resources.forEach((server, index) => this.#reached(server, [...path, 'resources', index], reachable));
    const own = resources.filter((server) => this.#written.servers?.[server]?.uri === 'own');
    if (own.length > 1)
      this.#report.refuse(
        [...path, 'resources'],
        `servers ${own.map(quote).join(' and ')} both show their own URIs, so a URI could mean either; remove ` +
          '`uri: own` from all but one',
      );
  }

  #exposedPrompts({ prompts = [] }: WrittenExpose, path: Path, reachable: ReadonlySet<string> | undefined): void {
    const names = new Set<string>();
    prompts.forEach((entry, index) => {
      const at = [...path, 'prompts', index];
      const { prompt, name } = typeof entry === 'string' ? { prompt: entry, name: undefined } : entry;
      this.#reached(splitToolId(prompt)?.server ?? '', typeof entry === 'string' ? at : [...at, 'prompt'], reachable);
      if (name === undefined) return;
      if (prompt.includes('*') || names.has(name))
        this.#report.refuse([...at, 'name'], `name ${quote(name)} would be that of several prompts; name one`);
      names.add(name);
    });
  }

  #reached(server: string, path: Path, reachable: ReadonlySet<string> | undefined): void {
    this.#server(server, path);
    if (reachable?.has(server) === false)
      this.#report.refuse(
        path,
        `the profile does not reach server ${quote(server)}, so the line shows nothing; ` +
          'add it to the servers of the profile',
      );
  }

  /** Checks the servers of templates, and the marks of fallbacks. */
  prompts(): void {
    for (const [id, { template, fallback, arguments: given = [] }] of Object.entries(this.#written.prompts ?? {})) {
      const server = splitToolId(id)?.server ?? '';
      this.#server(server, ['prompts', id]);
      const known = new Set([...marksOf(template), ...given.map(({ name }) => name)]);
      const unknown = marksOf(fallback ?? '').find((name) => !known.has(name));
      if (unknown !== undefined)
        this.#report.refuse(
          ['prompts', id, 'fallback'],
          `the template has no {{${unknown}}}, so the fallback would leave it empty; ${didYouMean(unknown, known)}`,
        );
    }
  }

  /** Tools of the file's own `expose` are shown only in profiles that have no `expose` and reach the server. */
  sharedExpose(): void {
    const { expose = {}, profiles = {} } = this.#written;
    const inheriting = Object.values(profiles).filter((profile) => profile.expose === undefined);
    const reachable = new Set([
      ...backendsOf(expose),
      ...inheriting.flatMap(({ servers = [] }) => servers),
      ...this.#profilesByServer().map(([server]) => server),
    ]);
    (expose.tools ?? []).forEach((entry, index) => {
      const server = splitToolId(typeof entry === 'string' ? entry : entry.tool)?.server;
      if (
        server === undefined ||
        reachable.has(server) ||
        Object.keys(profiles).length < Object.keys(this.#context.profileKeys).length
      )
        return;
      this.#report.refuse(
        ['expose', 'tools', index],
        `no profile that uses this expose reaches server ${quote(server)}, so the line shows nothing; write ` +
          `profiles: {default: {servers: [${server}]}}`,
      );
    });
  }

  /** Checks a schema profile now, because otherwise the error would appear when an agent lists its tools. */
  schemaProfile(name: string | undefined, path: Path): void {
    const known = readdirSync(SCHEMA_PROFILES)
      .filter((file) => file.endsWith('.json'))
      .map((file) => file.slice(0, -'.json'.length));
    if (name !== undefined && !known.includes(name))
      this.#report.refuse(path, `schema profile ${quote(name)} does not exist; ${didYouMean(name, known)}`);
  }

  #tool(tool: string, path: Path, reachable: ReadonlySet<string> | undefined): void {
    const id = splitToolId(tool);
    if (id === undefined)
      return this.#report.refuse(
        path,
        `${quote(tool)} does not name a tool of one server, so it could show unintended tools; write ` +
          'server.tool, or server.* for all tools of a server',
      );
    if (id.server === WORKSPACE)
      return this.#report.refuse(
        path,
        'the workspace offers only the primitives; write expose: {primitives: workspace}',
      );
    this.#server(id.server, path);
    this.#internalTool(id, path);
    if (reachable?.has(id.server) === false)
      this.#report.refuse(
        path,
        `the profile does not reach server ${quote(id.server)}, so the line shows nothing; ` +
          'add it to the servers of the profile',
      );
  }

  /** Checks a tool name that must belong to an internal server. If no other server exists, every tool name must. */
  #internalTool({ server, tool }: { readonly server: string | undefined; readonly tool: string }, path: Path): void {
    const hasNoOtherServer = this.#context.serverNames.size === 0 && this.#context.included.size === 0;
    const servers =
      server === undefined
        ? hasNoOtherServer
          ? [WORKSPACE, ...SHIPPED.keys()]
          : []
        : server === WORKSPACE || SHIPPED.has(server)
          ? [server]
          : [];
    const known = servers.flatMap((name) =>
      name === WORKSPACE
        ? [...PRIMITIVE_NAMES]
        : [
            ...(SHIPPED.get(name)?.tools ?? []).map((one) => one.name),
            ...(name === CODE ? Object.keys(this.#written.code?.snippets ?? {}) : []),
          ],
    );
    if (known.length === 0 || tool.includes('.') || known.some(toolMatcher(tool))) return;
    this.#report.refuse(
      path,
      `${server === undefined ? 'there is' : `server ${quote(server)} has`} no tool ${quote(tool)}; ` +
        `${didYouMean(tool, known)}`,
    );
  }

  #server(name: string, path: Path): void {
    const { serverNames, included } = this.#context;
    if (serverNames.has(name) || SHIPPED.has(name)) return;
    const file = included.get(name);
    // A client file must not decide whether this one loads, so its servers must be named here before they are used.
    const advice =
      file === undefined
        ? didYouMean(name, serverNames)
        : `only ${file} defines it, which grants nothing; add servers: {${name}: {}}`;
    this.#report.refuse(path, `server ${quote(name)} is not under servers; ${advice}`);
  }

  #profile(name: string, path: Path): void {
    if (!this.#profiles.has(name))
      this.#report.refuse(path, `profile ${quote(name)} is not under profiles; ${didYouMean(name, this.#profiles)}`);
  }

  /** Origins are those of `listen.origins`, clients of principals, and pages of this machine. */
  #origin(origin: string, path: Path): void {
    const known = new Set([
      ...(this.#written.listen?.origins ?? []).map((listed) => listed.toLowerCase().replace(/\/$/, '')),
      ...this.#context.principals.map(({ client }) => client),
    ]);
    const issuer = this.#written.listen?.jwt?.issuer;
    // Without a page, the origin of a subject is its id.
    if (issuer !== undefined && origin.startsWith(subjectPrefix(issuer))) return;
    if (!known.has(origin) && !LOOPBACK_ORIGIN.test(origin))
      this.#report.refuse(
        path,
        `no caller has origin ${quote(origin)}: it is neither in listen.origins nor a client of a principal; ` +
          didYouMean(origin, known),
      );
  }

  #role(role: string, path: Path): void {
    const ofSubjects = Object.values(this.#written.listen?.jwt?.claims?.role?.values ?? {});
    const ofPrincipals = this.#context.principals.map((principal) => principal.role);
    const roles = new Set([...ofPrincipals, ...ofSubjects]);
    if (!roles.has(role))
      this.#report.refuse(
        path,
        `no principal has role ${quote(role)}, so the budget never applies; ${didYouMean(role, roles)}`,
      );
  }
}

function shownServers({ tools = [] }: WrittenExpose): readonly string[] {
  return tools.flatMap((entry) => splitToolId(typeof entry === 'string' ? entry : entry.tool)?.server ?? []);
}
