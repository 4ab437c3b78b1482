/** Owns which rules on paths and hosts bind which programs, worked out once for every server; refuses to bend a rule into one that it is not, and names it. */
import type { Confinement, PathGlobs } from '../../catalogs/readers/confinement.ts';
import { portOf } from '../../catalogs/readers/urls.ts';
import { SHIPPED } from '../../catalogs/servers/shipped-servers.ts';
import type { LocatedRule } from './configured-names.ts';
import type { PolicyProblem } from './policy-problems.ts';
import type { Trust, When } from './rule-conditions.ts';
import { type ModeData, mayHaveMode } from './rule-modes.ts';
import { patternCovers, placePath } from './rule-patterns.ts';

/** What the rules mean to programs: plain data, so that it passes between threads. */
export interface CompiledConfinement {
  /** By server: what is closed to its programs whoever calls, and the numbers of those in `personal` that may close more. */
  readonly programs: ReadonlyMap<string, { readonly all: Confinement; readonly some: readonly number[] }>;
  /** Rules that are enforced for some callers only. */
  readonly personal: readonly PersonalRule[];
  /** Rules on paths or hosts that leave programs of these servers free. */
  readonly free: readonly UnboundRule[];
  /** Absolute, symlinks resolved. */
  readonly workspace: string;
  /** Whether Rego of the user, or a bundle, may deny or ask too. */
  readonly foreign: boolean;
}

/** A rule that binds programs of some callers. */
export interface PersonalRule {
  readonly when: When;
  readonly mode: ModeData;
}

/** A rule that does not bind the programs of some servers that it is about. */
export interface UnboundRule {
  readonly id: string;
  readonly place: Omit<PolicyProblem, 'message'>;
  readonly why: string;
  readonly servers: readonly string[];
}

/** What rules are read against. */
export interface ConfinementContext {
  readonly workspace: string;
  /** Servers by name; one that is not there is external. */
  readonly trusts: ReadonlyMap<string, Trust>;
  readonly foreign: boolean;
}

/** The internal server, whose programs are the commands of `bash`, each started for one caller. */
export const WORKSPACE_SERVER = 'workspace';

/** Works it out for the servers of `trusts` and for those of Tollgate itself. An ask counts as a deny: nobody can be asked for what a program does. */
export function compileConfinement(
  located: readonly LocatedRule[],
  { workspace, trusts, foreign }: ConfinementContext,
): CompiledConfinement {
  const servers = [...new Set([WORKSPACE_SERVER, ...SHIPPED.keys(), ...trusts.keys()])];
  const programs = new Map(servers.map((server) => [server, { bound: [] as When[], some: [] as number[] }] as const));
  const personal: PersonalRule[] = [];
  const free: UnboundRule[] = [];
  for (const {
    rule: { id, outcome, when },
    mode,
    at,
  } of located) {
    if (!mayHaveMode('enforce', mode) || (when.paths ?? when.hosts ?? when.schemes ?? when.urls) === undefined)
      continue;
    const aimed = servers.filter((server) => isAimed(when, server, trusts));
    const unbound = whyUnbound(outcome, when);
    const isForAll = mode === 'enforce' && !isPersonal(when);
    const left =
      unbound === undefined && isForAll
        ? []
        : aimed.filter((server) => unbound !== undefined || server !== WORKSPACE_SERVER);
    if (left.length > 0 && (unbound !== undefined || outcome !== 'allow'))
      free.push({ id, place: at(['id']), why: unbound ?? SHARED, servers: left });
    if (unbound !== undefined || outcome === 'allow' || aimed.length === 0) continue;
    const number = isForAll ? -1 : personal.push({ when, mode }) - 1;
    for (const server of aimed) {
      if (isForAll) programs.get(server)?.bound.push(when);
      else programs.get(server)?.some.push(number);
    }
  }
  return {
    programs: new Map(
      [...programs].map(([server, { bound, some }]) => [server, { all: closures(bound, workspace), some }]),
    ),
    personal,
    free,
    workspace,
    foreign,
  };
}

/** What these conditions close. */
export function closures(whens: readonly When[], workspace: string): Confinement {
  const [hiding, fixing] = [whens.filter(({ verbs }) => isSeen(verbs)), whens.filter(({ verbs }) => !isSeen(verbs))];
  return {
    hidden: globsOf(hiding, workspace),
    fixed: globsOf(fixing, workspace),
    closedHosts: [...new Set(whens.flatMap(({ hosts = [], urls = [] }) => [...hosts, ...urls.map(hostOf)]))],
  };
}

function globsOf(whens: readonly When[], workspace: string): PathGlobs {
  const globs = whens.flatMap(({ paths = [], insideWorkspace }) =>
    paths.map((glob) => ({ insideWorkspace, placed: placePath(glob, { strict: true, workspace }) })),
  );
  const joined = (all: readonly (readonly string[])[]): readonly string[] => all.map((segments) => segments.join('/'));
  const inside = new Set(globs.flatMap((one) => (one.insideWorkspace === false ? [] : joined(one.placed.inside))));
  const outside = new Set(globs.flatMap((one) => (one.insideWorkspace === true ? [] : joined(one.placed.outside))));
  return { inside: [...inside], outside: [...outside] };
}

/** A rule about single tools is about these tools; whoever means every way to a file names verbs, or nothing. */
function isAimed({ servers, trust, tools }: When, server: string, trusts: ConfinementContext['trusts']): boolean {
  const own = server === WORKSPACE_SERVER ? 'internal' : (trusts.get(server) ?? 'external');
  const whole = [`${server}.*`, ...(server === WORKSPACE_SERVER ? ['workspace.bash'] : [])];
  const isWhole = (tool: string): boolean =>
    tool.includes('*') ? whole.some((one) => patternCovers(tool, one)) : whole.includes(tool);
  return (servers?.includes(server) ?? true) && (trust?.includes(own) ?? true) && (tools?.some(isWhole) ?? true);
}

/** What a program may not read, it may not see; a rule about commands alone is about what they read too. */
function isSeen(verbs: When['verbs']): boolean {
  return verbs === undefined || verbs.includes('read') || verbs.includes('execute');
}

function isPersonal({ roles, groups, principals, origins, profiles, owner }: When): boolean {
  return (roles ?? groups ?? principals ?? origins ?? profiles ?? owner) !== undefined;
}

/** Why a server that many callers share is not bound where a command would be. */
const SHARED = 'it is about some callers, and one program serves all';

/** Why a sandbox cannot hold this rule whoever calls; undefined when it can. */
function whyUnbound(
  outcome: LocatedRule['rule']['outcome'],
  { paths, hosts, schemes, urls, verbs, commands, exceptCommands, opaque, readable, labels, time, args }: When,
): string | undefined {
  if (outcome === 'allow')
    return paths === undefined ? undefined : 'it opens some paths, and closes none; deny what they must not see';
  if ((schemes ?? commands ?? exceptCommands ?? opaque ?? readable ?? labels ?? time ?? args) !== undefined)
    return 'it depends on more of the call than paths and hosts; deny the paths or hosts alone';
  if ([paths, hosts, urls].filter((field) => field !== undefined).length > 1)
    return 'it needs two facts of one call; write two rules';
  if (paths !== undefined) return undefined;
  if (!isSeen(verbs)) return 'reading from a host and writing to it look alike; leave `verbs` out';
  return urls?.some((url) => pathOf(url) !== undefined) === true
    ? 'what is asked of a host cannot be seen; deny the whole host'
    : undefined;
}

const URL_PARTS = /^([a-z][a-z0-9+.-]*):\/\/(\[[0-9a-f:.]+\]|[^/:]+)(?::(\d+|\*))?(\/.*)?$/;

/** The path that a pattern asks for; undefined when it means any. */
function pathOf(url: string): string | undefined {
  const path = URL_PARTS.exec(url)?.[4];
  return path === '/**' ? undefined : path;
}

function hostOf(url: string): string {
  const [, scheme = '', host = '', port] = URL_PARTS.exec(url) ?? [];
  return port === '*' ? host : `${host}:${port ?? portOf(scheme)}`;
}
