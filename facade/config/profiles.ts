/** Builds the profiles: the two built-in ones, the defaults of the others, and stacked profiles as one (HA-21). */
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { CODE, CODE_TOOLS, SEARCH_TOOLS } from '../../catalogs/servers/shipped-servers.ts';
import type { BudgetConfig, Config, ExposeRule, ProfileConfig } from './config.ts';
import { quote } from './config-problems.ts';
import { backendsIn, buildPrimitives } from './servers/configured-routes.ts';
import { WORKSPACE } from './servers/server-names.ts';
import {
  DEFAULTS,
  type WrittenBudget,
  type WrittenConfig,
  type WrittenExpose,
  type WrittenProfile,
} from './written-config.ts';

/** Built-in profiles; a written one with the same name replaces it. */
const BUILT_IN: Readonly<Record<string, WrittenProfile>> = {
  default: {},
  // Harbor's limits (HB-05): 5 calls per run, 2 parallel calls per origin, 30 s per call; and its permissions by origin
  // (HB-02).
  harbor: {
    budgets: [
      { id: 'harbor-run-calls', scope: 'run', calls: 5 },
      { id: 'harbor-origin-concurrent', scope: 'origin', concurrent: 2 },
    ],
    caps: { timeoutMs: 30_000 },
    grants: 'required',
  },
};

/** The part of a profile that defines what the agent sees. */
type Exposed = Pick<ProfileConfig, 'primitives' | 'expose' | 'resources' | 'prompts' | 'search' | 'promote'>;

/** Returns the names that a principal may have: the built-in ones and those of the file. */
export function profileNames(written: Readonly<Record<string, unknown>>): ReadonlySet<string> {
  return new Set([...Object.keys(BUILT_IN), ...Object.keys(written)]);
}

/**
 * Returns all profiles, complete. A profile without `expose` uses that of the file, without the tools of servers that
 * the profile does not reach.
 */
export function buildProfiles({
  profiles = {},
  servers = {},
  expose,
  code,
}: Pick<WrittenConfig, 'profiles' | 'servers' | 'expose' | 'code'>): Map<string, ProfileConfig> {
  const joined = (profile: string): readonly string[] =>
    Object.entries(servers)
      .filter(([, server]) => server.profiles?.includes(profile))
      .map(([server]) => server);
  return new Map(
    Object.entries({ ...BUILT_IN, ...profiles }).map(([name, profile]) => [
      name,
      buildProfile(name, profile, {
        base: expose,
        joined: joined(name),
        snippets: Object.keys(code?.snippets ?? {}),
      }),
    ]),
  );
}

/** Returns the `expose` of a file or a profile with its short forms expanded. */
function buildExpose(written: WrittenExpose | undefined, snippets: readonly string[]): Exposed {
  const {
    primitives,
    tools = [],
    resources = [],
    prompts = [],
    search = false,
    code = false,
    promote = 0,
  } = written ?? {};
  const own = [...(search ? SEARCH_TOOLS : []), ...(code ? [...CODE_TOOLS, ...snippets] : [])];
  return {
    search,
    promote,
    primitives: buildPrimitives(primitives),
    expose: [
      ...tools.map((tool) => (typeof tool === 'string' ? { tool, pins: {} } : { ...tool, pins: tool.pins ?? {} })),
      ...own.map((name) => ({ tool: `${CODE}.${name}`, name, pins: {} })),
    ],
    resources,
    prompts: prompts.map((prompt) => (typeof prompt === 'string' ? { prompt } : prompt)),
  };
}

/** Returns a budget with its `when`. */
export function buildBudget(written: WrittenBudget): BudgetConfig {
  return { ...written, when: written.when ?? {} };
}

/**
 * `env` is a part of the servers (see addEnvironments). `joined`: servers that name this profile themselves. All of
 * their tools are shown, unless `expose` lists some.
 */
function buildProfile(
  name: string,
  { env: _, ...written }: WrittenProfile,
  {
    base,
    joined,
    snippets,
  }: {
    readonly base: WrittenExpose | undefined;
    readonly joined: readonly string[];
    readonly snippets: readonly string[];
  },
): ProfileConfig {
  const { host = false } = written;
  // Primitives work in a sandbox, so a host profile has none.
  const exposed = buildExpose(written.expose ?? base, snippets);
  const { expose, resources, prompts, search, promote } = exposed;
  const primitives = host ? {} : exposed.primitives;
  const backends = backendsIn(primitives).filter((backend) => backend !== WORKSPACE);
  const own = expose.some(({ tool }) => serverOf(tool) === CODE) ? [CODE] : [];
  const servers = [...new Set([...(written.servers ?? []), ...joined, ...backends, ...own])];
  const selected = expose.filter(({ tool }) => servers.includes(serverOf(tool)));
  const complete = joined
    .filter((server) => !selected.some(({ tool }) => serverOf(tool) === server))
    .map((server): ExposeRule => ({ tool: `${server}.*`, pins: {} }));
  const shown = [...selected, ...complete];
  return {
    ...{ name, caps: {}, code: {}, lifetimes: {}, starts: {}, search, promote },
    ...DEFAULTS.profile,
    ...written,
    ...{ servers, primitives, expose: shown, budgets: (written.budgets ?? []).map(buildBudget) },
    resources: resources.filter((server) => servers.includes(server)),
    prompts: prompts.filter(({ prompt }) => servers.includes(serverOf(prompt))),
  };
}

/**
 * Returns one profile from several: the union of servers, exposed tools and budgets; of two values the later one, as in
 * policies/lib/principal.rego. Without names: `default`. Throws CONFIG_INVALID for an unknown one.
 */
export function mergeProfiles(config: Pick<Config, 'profiles'>, names: readonly string[]): ProfileConfig {
  const stacked = (names.length === 0 ? ['default'] : names).map((name) => {
    const profile = config.profiles.get(name);
    if (profile === undefined)
      throw new TollgateError('CONFIG_INVALID', { detail: `There is no profile ${quote(name)}.` });
    return profile;
  });
  const merged = <Key extends keyof ProfileConfig>(key: Key): ProfileConfig[Key] =>
    Object.assign({}, ...stacked.map((profile) => profile[key])) as ProfileConfig[Key];
  const schemaProfile = stacked.findLast((profile) => profile.schemaProfile !== undefined)?.schemaProfile;
  return {
    name: stacked.map(({ name }) => name).join('+'),
    servers: [...new Set(stacked.flatMap(({ servers }) => servers))],
    primitives: merged('primitives'),
    expose: lastOf(
      stacked.flatMap(({ expose }) => expose),
      exposedName,
    ),
    resources: [...new Set(stacked.flatMap(({ resources }) => resources))],
    prompts: lastOf(
      stacked.flatMap(({ prompts }) => prompts),
      ({ prompt, name }) => name ?? prompt,
    ),
    budgets: lastOf(
      stacked.flatMap(({ budgets }) => budgets),
      ({ id }) => id,
    ),
    search: stacked.some(({ search }) => search),
    promote: Math.max(...stacked.map(({ promote }) => promote)),
    caps: merged('caps'),
    code: merged('code'),
    lifetimes: merged('lifetimes'),
    starts: merged('starts'),
    ...(schemaProfile !== undefined && { schemaProfile }),
    plan: stacked.some(({ plan }) => plan),
    host: stacked.some(({ host }) => host),
    grants: stacked.some(({ grants }) => grants === 'required') ? 'required' : 'optional',
    approvals: stacked.every(({ approvals }) => approvals === 'caller') ? 'caller' : 'owner',
  };
}

/** Returns the servers that start with Tollgate: the eager ones, unless all their profiles say `lazy`. */
export function eagerServers({ servers, profiles }: Pick<Config, 'servers' | 'profiles'>): readonly string[] {
  const wanting = (name: string): readonly ProfileConfig[] =>
    [...profiles.values()].filter((profile) => profile.servers.includes(name));
  const isWaived = (name: string): boolean =>
    wanting(name).length > 0 && wanting(name).every(({ starts }) => starts[name] === 'lazy');
  return [...servers.values()]
    .filter(({ start, name }) => start === 'eager' && !isWaived(name))
    .map(({ name }) => name);
}

function serverOf(tool: string): string {
  return tool.slice(0, tool.indexOf('.'));
}

function exposedName({ tool, name }: ExposeRule): string {
  return name ?? tool;
}

/** Returns each key once, with its last value, in the order of first appearance. */
function lastOf<T>(items: readonly T[], keyOf: (item: T) => string): readonly T[] {
  return [...new Map(items.map((item) => [keyOf(item), item])).values()];
}
