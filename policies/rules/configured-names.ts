/** Owns the names that rules may use: those of the configuration; refuses names of nothing, each with what was probably meant. */

import { type PolicyProblem, suggest } from './policy-problems.ts';
import { INTERNAL_SERVERS, type PolicySettings, type PrincipalSettings } from './policy-settings.ts';
import type { Trust } from './rule-conditions.ts';
import type { ModeData } from './rule-modes.ts';
import type { YamlRule } from './rule-schema.ts';

/** What the configuration lists. */
export interface ConfiguredNames {
  readonly servers: ReadonlyMap<string, Trust>;
  /** Profile → servers that it reaches. */
  readonly profiles: ReadonlyMap<string, ReadonlySet<string>>;
  readonly labels: ReadonlySet<string>;
  /** Absent where the configuration does not say who calls; then names of callers are not judged. */
  readonly principals?: readonly PrincipalSettings[];
  readonly origins: ReadonlySet<string>;
}

/** Labels of design §1: a rule may be on guard for them before any server carries one. */
const LABELS = ['public', 'internal', 'secret', 'untrusted'] as const;
const LOOPBACK = /^https?:\/\/(localhost|127\.0\.0\.1|\[::1\])(:\d+)?$/;

/** The names of a configuration; labels that rules give count too. */
export function readConfiguredNames(settings: PolicySettings, rules: readonly LocatedRule[]): ConfiguredNames {
  const { servers, profiles, principals, origins = [] } = settings;
  const given = [
    ...servers.flatMap(({ labels = [] }) => labels),
    ...rules.flatMap(({ rule }) => rule.obligations?.labels ?? []),
  ];
  return {
    servers: new Map([
      ...servers.map(({ name, trust = 'external' }) => [name, trust] as const),
      ...INTERNAL_SERVERS.map((name) => [name, 'internal'] as const),
    ]),
    profiles: new Map(
      profiles.map((profile) => [
        profile.name,
        new Set([
          ...profile.servers,
          ...Object.values(profile.primitives)
            .flat()
            .map(({ server }) => server),
        ]),
      ]),
    ),
    labels: new Set([...LABELS, ...given]),
    ...(principals === undefined ? {} : { principals }),
    origins: new Set([
      ...origins.map((origin) => origin.toLowerCase().replace(/\/$/, '')),
      ...(principals ?? []).map(({ client }) => client),
    ]),
  };
}

/** Problems for every name of a rule that the configuration does not have, and for callers that it has only apart from each other. */
export function findDanglingNames(rules: readonly LocatedRule[], known: ConfiguredNames): readonly PolicyProblem[] {
  return rules.flatMap((located) => {
    const names = [
      ...findNames(located, known),
      ...(known.principals === undefined ? [] : findCallers(located, { ...known, principals: known.principals })),
    ];
    return names.length > 0 || known.principals === undefined
      ? names
      : findApart(located, { ...known, principals: known.principals });
  });
}

type KnownCallers = ConfiguredNames & { readonly principals: readonly PrincipalSettings[] };

function findNames(located: LocatedRule, { servers, profiles, labels }: ConfiguredNames): readonly PolicyProblem[] {
  const { when } = located.rule;
  // A name without a server is refused as no tool: that there is no server of this name would only distract.
  const ofTools = (when.tools ?? []).map((tool) => (tool.includes('.') ? tool.split('.', 1)[0] : undefined));
  return [
    ...missing(located, 'servers', { noun: 'server', names: when.servers ?? [], known: servers.keys() }),
    ...missing(located, 'tools', {
      noun: 'server',
      names: ofTools.map((name) => (name?.includes('*') === true ? undefined : name)),
      known: servers.keys(),
    }),
    ...missing(located, 'profiles', { noun: 'profile', names: when.profiles ?? [], known: profiles.keys() }),
    ...missing(located, 'labels', { noun: 'label', names: when.labels ?? [], known: labels }),
  ];
}

function findCallers(located: LocatedRule, { principals, origins }: KnownCallers): readonly PolicyProblem[] {
  const { when } = located.rule;
  const foreign = (when.origins ?? []).map((origin) => (LOOPBACK.test(origin) ? undefined : origin));
  return [
    ...missing(located, 'roles', {
      noun: 'principal with the role',
      names: when.roles ?? [],
      known: principals.map(({ role }) => role),
    }),
    ...missing(located, 'groups', {
      noun: 'principal in the group',
      names: when.groups ?? [],
      known: principals.flatMap(({ groups }) => groups),
    }),
    ...missing(located, 'principals', {
      noun: 'principal',
      names: when.principals ?? [],
      known: principals.map(({ id }) => id),
    }),
    ...missing(located, 'origins', {
      noun: 'client of a principal, and no entry of listen.origins,',
      names: foreign,
      known: origins,
    }),
  ];
}

/** Names with their place in the list; undefined ones are not judged. */
interface Names {
  readonly noun: string;
  readonly names: readonly (string | undefined)[];
  readonly known: Iterable<string>;
}

function missing({ at }: LocatedRule, field: string, { noun, names, known }: Names): readonly PolicyProblem[] {
  const all = new Set(known);
  return names.flatMap((name, index) => {
    if (name === undefined || all.has(name)) return [];
    return [
      { ...at(['when', field, index]), message: `there is no ${noun} "${name}".${suggest(name, all) || listed(all)}` },
    ];
  });
}

function listed(all: ReadonlySet<string>): string {
  return all.size === 0 || all.size > 12 ? '' : ` Known are ${[...all].join(', ')}.`;
}

/** Each name exists, and still no caller has all of them; or none of those callers reaches the servers that the rule is about. */
function findApart({ rule, at }: LocatedRule, { principals, profiles }: KnownCallers): readonly PolicyProblem[] {
  const { roles, groups, principals: ids, profiles: held, servers } = rule.when;
  const fields = (['roles', 'groups', 'principals', 'profiles'] as const).filter(
    (field) => rule.when[field] !== undefined,
  );
  const [first] = fields;
  if (first === undefined) return [];
  const fits = (principal: PrincipalSettings): boolean =>
    (roles?.includes(principal.role) ?? true) &&
    (ids?.includes(principal.id) ?? true) &&
    (groups?.some((group) => principal.groups.includes(group)) ?? true) &&
    (held?.some((name) => principal.profiles.includes(name)) ?? true);
  const callers = principals.filter(fits);
  if (callers.length === 0 && fields.length > 1) {
    return [
      {
        ...at(['when', first], 'key'),
        message: `no principal fits ${fields.join(' and ')} together, so the rule can never match; write two rules, or correct one of them`,
      },
    ];
  }
  const named = servers ?? serversOfTools(rule.when.tools);
  if (held === undefined || named === undefined || callers.length === 0) return [];
  const reached = new Set(
    callers.flatMap((caller) => caller.profiles.flatMap((name) => [...(profiles.get(name) ?? [])])),
  );
  if (named.some((server) => reached.has(server))) return [];
  return [
    {
      ...at(['when', 'profiles'], 'key'),
      message: `no principal with ${held.join(', ')} reaches ${named.join(', ')}, so the rule can never match; add the server to the profile, or name another`,
    },
  ];
}

/** The servers of `server.tool` patterns, unless one of them leaves the server open. */
export function serversOfTools(tools: readonly string[] | undefined): readonly string[] | undefined {
  const servers = tools?.map((tool) => tool.split('.', 1)[0] ?? '');
  return servers?.some((server) => server.includes('*')) === true ? undefined : servers;
}
/** A rule whose form the schema admits, with the way to the places of its parts. */
export interface LocatedRule {
  readonly rule: YamlRule;
  readonly mode: ModeData;
  /** What is left of a rule with faults of form: it says more than its author wrote. */
  readonly isPruned?: true;
  /** The place of a part; the path begins within the rule. */
  readonly at: (path: readonly (string | number)[], part?: 'key' | 'value') => Omit<PolicyProblem, 'message'>;
}
