/** Checks the names in rules against the configuration: servers, profiles, labels and callers. */

import { type PolicyProblem, problemAt, suggest } from './policy-problems.ts';
import {
  INTERNAL_SERVERS,
  type PolicySettings,
  type PrincipalSettings,
  type SubjectSettings,
} from './policy-settings.ts';
import type { Trust } from './rule-conditions.ts';
import type { ModeData } from './rule-modes.ts';
import type { YamlRule } from './rule-schema.ts';

/** The names in the configuration. */
export interface ConfiguredNames {
  readonly servers: ReadonlyMap<string, Trust>;
  /** Profile → the servers that it reaches. */
  readonly profiles: ReadonlyMap<string, ReadonlySet<string>>;
  readonly labels: ReadonlySet<string>;
  /** Absent if the configuration does not list callers. Then rules may name any caller. */
  readonly principals?: readonly PrincipalSettings[];
  readonly subjects?: SubjectSettings;
  readonly origins: ReadonlySet<string>;
}

/** Labels that a rule may name before any server has one. */
const LABELS = ['public', 'internal', 'secret', 'untrusted'] as const;
const LOOPBACK = /^https?:\/\/(localhost|127\.0\.0\.1|\[::1\])(:\d+)?$/;

/** Collects the names of a configuration, and the labels that rules add to results. */
export function readConfiguredNames(settings: PolicySettings, rules: readonly LocatedRule[]): ConfiguredNames {
  const { servers, profiles, principals, subjects, origins = [] } = settings;
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
    ...(subjects === undefined ? {} : { subjects }),
    origins: new Set([
      ...origins.map((origin) => origin.toLowerCase().replace(/\/$/, '')),
      ...(principals ?? []).map(({ client }) => client),
    ]),
  };
}

/**
 * Returns a problem for every name in a rule that does not exist, and for callers that no rule condition can combine.
 */
export function findDanglingNames(rules: readonly LocatedRule[], known: ConfiguredNames): readonly PolicyProblem[] {
  return rules.flatMap((located) => {
    const names = [
      ...findNames(located, known),
      ...(known.principals === undefined
        ? []
        : findUnknownCallers(located, { ...known, principals: known.principals })),
    ];
    return names.length > 0 || known.principals === undefined
      ? names
      : findImpossibleCallers(located, { ...known, principals: known.principals });
  });
}

type KnownCallers = ConfiguredNames & { readonly principals: readonly PrincipalSettings[] };

function findNames({ rule: { when }, at }: LocatedRule, known: ConfiguredNames): readonly PolicyProblem[] {
  const servers = [...known.servers.keys()];
  // A tool without a server is refused elsewhere. A second message about the server would only confuse.
  const ofTools = (tools: readonly string[] = []) => tools.map((tool) => (/^[^.*]*(?=\.)/.exec(tool) ?? [])[0]);
  return [
    ...missing('servers', { at, noun: 'server', names: when.servers, known: servers }),
    ...missing('tools', { at, noun: 'server', names: ofTools(when.tools), known: servers }),
    ...missing('exceptTools', { at, noun: 'server', names: ofTools(when.exceptTools), known: servers }),
    ...missing('profiles', { at, noun: 'profile', names: when.profiles, known: known.profiles.keys() }),
    ...missing('labels', { at, noun: 'label', names: when.labels, known: known.labels }),
  ];
}

function findUnknownCallers(
  { rule: { when }, at }: LocatedRule,
  { principals, subjects, origins }: KnownCallers,
): readonly PolicyProblem[] {
  const roles = [...principals.map(({ role }) => role), ...(subjects?.roles ?? [])];
  const groups = [...principals.flatMap((principal) => principal.groups), ...(subjects?.groups ?? [])];
  const foreign = when.origins?.map((origin) =>
    LOOPBACK.test(origin) || isSubjectId(origin, subjects) ? undefined : origin,
  );
  const listedIds = when.principals?.map((id) => (isSubjectId(id, subjects) ? undefined : id));
  const client = 'client of a principal, and no entry in listen.origins,';
  return [
    ...missing('roles', { at, noun: 'principal with the role', names: when.roles, known: roles }),
    ...missing('groups', { at, noun: 'principal in the group', names: when.groups, known: groups }),
    ...missing('principals', { at, noun: 'principal', names: listedIds, known: principals.map(({ id }) => id) }),
    ...missing('origins', { at, noun: client, names: foreign, known: origins }),
  ];
}

/** The origin of a subject without a page is its id. */
function isSubjectId(name: string, subjects: SubjectSettings | undefined): boolean {
  return subjects !== undefined && name.startsWith(subjects.idPrefix);
}

/** Names with their index in the list. Undefined names are not checked. */
interface Names {
  readonly at: LocatedRule['at'];
  readonly noun: string;
  readonly names: readonly (string | undefined)[] | undefined;
  readonly known: Iterable<string>;
}

function missing(field: string, { at, noun, names = [], known }: Names): readonly PolicyProblem[] {
  const all = new Set(known);
  return names.flatMap((name, index) => {
    if (name === undefined || all.has(name)) return [];
    const message = `there is no ${noun} "${name}".${suggest(name, all) || listed(all)}`;
    return problemAt(at(['when', field, index]), message);
  });
}

function listed(all: ReadonlySet<string>): string {
  return all.size === 0 || all.size > 12 ? '' : ` Known names: ${[...all].join(', ')}.`;
}

/**
 * Finds rules whose names all exist, but no caller has all of them, or no such caller reaches the servers of the rule.
 */
function findImpossibleCallers(
  { rule, at }: LocatedRule,
  { principals, subjects, profiles }: KnownCallers,
): readonly PolicyProblem[] {
  const { roles, groups, principals: ids, profiles: profileNames, servers } = rule.when;
  const fields = (['roles', 'groups', 'principals', 'profiles'] as const).filter(
    (field) => rule.when[field] !== undefined,
  );
  const [first] = fields;
  if (first === undefined) return [];
  const fits = (principal: PrincipalSettings): boolean =>
    (roles?.includes(principal.role) ?? true) &&
    (ids?.includes(principal.id) ?? true) &&
    (groups?.some((group) => principal.groups.includes(group)) ?? true) &&
    (profileNames?.some((name) => principal.profiles.includes(name)) ?? true);
  const isSubject =
    subjects !== undefined &&
    (roles?.some((role) => subjects.roles.includes(role)) ?? true) &&
    (ids?.some((id) => isSubjectId(id, subjects)) ?? true) &&
    (groups?.some((group) => subjects.groups.includes(group)) ?? true) &&
    (profileNames?.some((name) => subjects.profiles.includes(name)) ?? true);
  const callers: readonly Pick<PrincipalSettings, 'profiles'>[] = [
    ...principals.filter(fits),
    ...(isSubject ? [subjects] : []),
  ];
  if (callers.length === 0 && fields.length > 1) {
    return problemAt(
      at(['when', first], 'key'),
      `no principal fits ${fields.join(' and ')} together, so the rule can never match; write two ` +
        'rules, or correct one of the names',
    );
  }
  const named = servers ?? serversOfTools(rule.when.tools);
  if (profileNames === undefined || named === undefined || callers.length === 0) return [];
  const reached = new Set(
    callers.flatMap((caller) => caller.profiles.flatMap((name) => [...(profiles.get(name) ?? [])])),
  );
  if (named.some((server) => reached.has(server))) return [];
  return problemAt(
    at(['when', 'profiles'], 'key'),
    `no principal with ${profileNames.join(', ')} reaches ${named.join(', ')}, so the rule can ` +
      'never match; add the server to the profile, or name another profile',
  );
}

/** Returns the servers of `server.tool` patterns; undefined if one of the patterns fits any server. */
export function serversOfTools(tools: readonly string[] | undefined): readonly string[] | undefined {
  const servers = tools?.map((tool) => tool.split('.', 1)[0] ?? '');
  return servers?.some((server) => server.includes('*')) === true ? undefined : servers;
}
/** A rule that fits the schema, with the places of its parts. */
export interface LocatedRule {
  readonly rule: YamlRule;
  readonly mode: ModeData;
  /** Set if faulty parts were removed. The rest matches more calls than the author wrote. */
  readonly isPruned?: true;
  /** Returns the place of a part. `path` begins within the rule. */
  readonly at: (path: readonly (string | number)[], part?: 'key' | 'value') => Omit<PolicyProblem, 'message'>;
}
