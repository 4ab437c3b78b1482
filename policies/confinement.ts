/** Owns what enforced rules on paths and hosts mean to programs that act without a call; refuses to bend a rule into one that it is not, and names it. */
import type { Confinement, PathGlobs } from '../catalogs/confinement.ts';
import { portOf } from '../catalogs/urls.ts';
import type { Outcome, Trust, When } from './conditions.ts';
import type { ModeData } from './modes.ts';
import { mayBe } from './modes.ts';
import { covers, placePath } from './patterns.ts';
import type { Principal } from './port.ts';
import { formatProblem, type Problem } from './problems.ts';
import type { LocatedRule } from './rules.ts';

/** The rules that mean something to programs, and what they are read against: plain data, so that it passes between threads. */
export interface Confining {
  readonly rules: readonly ConfiningRule[];
  /** Absolute, symlinks resolved. */
  readonly workspace: string;
  /** Servers by name; one that is not there is external. */
  readonly trusts: ReadonlyMap<string, Trust>;
  /** Whether Rego of the user, or a bundle, may deny or ask too. */
  readonly foreign: boolean;
}

/** A rule on paths or hosts that is enforced for some caller. */
interface ConfiningRule {
  readonly id: string;
  readonly outcome: Outcome;
  readonly when: When;
  readonly mode: ModeData;
  readonly place: Omit<Problem, 'message'>;
}

/** Picks them. */
export function confiningRules(rules: readonly LocatedRule[]): readonly ConfiningRule[] {
  const chosen = rules.filter(({ rule: { when }, mode }) => mayBe('enforce', mode) && (when.paths ?? when.hosts ?? when.urls) !== undefined);
  return chosen.map(({ rule: { id, outcome, when }, mode, at }) => ({ id, outcome, when, mode, place: at(['id']) }));
}

/** The internal server, whose programs are the commands of `bash`, each started for one caller. */
const WORKSPACE = 'workspace';
const MAX_LINES = 4;

/** The rules that mean something to programs. An ask counts as a deny: nobody can be asked for what a program does. */
export class Confinements {
  readonly #confining: Confining;
  readonly #shared = new Map<string, Confinement>();
  readonly #own = new WeakMap<Principal, Map<string, Confinement>>();

  constructor(confining: Confining) {
    this.#confining = confining;
  }

  /** See Policy.confinement. Kept for each caller, who lives as long as a session. */
  of(server: string, principal?: Principal): Confinement {
    const known = principal === undefined ? this.#shared : (this.#own.get(principal) ?? new Map<string, Confinement>());
    if (principal !== undefined) this.#own.set(principal, known);
    const found = known.get(server) ?? this.#compile(server, principal);
    known.set(server, found);
    return found;
  }

  #compile(server: string, principal: Principal | undefined): Confinement {
    const bound = this.#confining.rules.filter((rule) => rule.outcome !== 'allow' && this.#aims(rule, server) && isAbout(rule, principal) && whyUnbound(rule) === undefined);
    const whens = bound.map(({ when }) => when);
    const [hiding, fixing] = [whens.filter(({ verbs }) => isSeen(verbs)), whens.filter(({ verbs }) => !isSeen(verbs))];
    return {
      hidden: this.#globsOf(hiding), fixed: this.#globsOf(fixing),
      closedHosts: [...new Set(whens.flatMap(({ hosts = [], urls = [] }) => [...hosts, ...urls.map(hostOf)]))],
    };
  }

  #globsOf(whens: readonly When[]): PathGlobs {
    const { workspace } = this.#confining;
    const globs = whens.flatMap(({ paths = [], insideWorkspace }) => paths.map((glob) => ({ insideWorkspace, placed: placePath(glob, { strict: true, workspace }) })));
    const joined = (all: readonly (readonly string[])[]): readonly string[] => all.map((segments) => segments.join('/'));
    const inside = new Set(globs.flatMap((one) => (one.insideWorkspace === false ? [] : joined(one.placed.inside))));
    const outside = new Set(globs.flatMap((one) => (one.insideWorkspace === true ? [] : joined(one.placed.outside))));
    return { inside: [...inside], outside: [...outside] };
  }

  /** A rule about single tools is about these tools; whoever means every way to a file names verbs, or nothing. */
  #aims({ when: { servers, trust, tools } }: ConfiningRule, server: string): boolean {
    const own = server === WORKSPACE ? 'internal' : (this.#confining.trusts.get(server) ?? 'external');
    const whole = [`${server}.*`, ...(server === WORKSPACE ? ['workspace.bash'] : [])];
    return (servers?.includes(server) ?? true) && (trust?.includes(own) ?? true) && (tools?.some((tool) => whole.some((one) => covers(tool, one))) ?? true);
  }

  /** See Policy.unbound. */
  unbound(servers: readonly string[]): readonly string[] {
    const lines = this.#confining.rules.flatMap((rule) => {
      const free = servers.flatMap((server) => {
        const why = this.#aims(rule, server) ? (whyUnbound(rule) ?? whyShared(rule, server)) : undefined;
        return why === undefined ? [] : [{ server, why }];
      });
      const [first] = free;
      return first === undefined ? [] : [formatProblem({ ...rule.place, message: `"${rule.id}" does not bind ${free.map(({ server }) => programsOf(server)).join(', ')}: ${first.why}` })];
    });
    const rego = this.#confining.foreign && servers.length > 0 ? [`Rules in Rego bind calls, not ${servers.map(programsOf).join(', ')}. Close paths and hosts to these in rules of YAML, or in filesystem and network.`] : [];
    return [...rego, ...(lines.length <= MAX_LINES ? lines : [...lines.slice(0, MAX_LINES - 1), `${lines.length - MAX_LINES + 1} more rules on paths or hosts bind calls, not programs; docs/policies.md says which can.`])];
  }
}

function programsOf(server: string): string {
  return server === WORKSPACE ? 'commands of bash' : `the program of ${server}`;
}

/** What a program may not read, it may not see; a rule about commands alone is about what they read too. */
function isSeen(verbs: When['verbs']): boolean {
  return verbs === undefined || verbs.includes('read') || verbs.includes('execute');
}

/** Whether the rule holds for this caller, or, where none is given, for all of them. */
function isAbout({ when, mode }: ConfiningRule, principal: Principal | undefined): boolean {
  if (principal === undefined) return mode === 'enforce' && !isPersonal(when);
  const { roles, groups, principals, origins, profiles, owner } = when;
  return (
    modeFor(mode, principal) === 'enforce' && (roles?.includes(principal.role) ?? true) && (groups?.some((group) => principal.groups.includes(group)) ?? true) &&
    (principals?.includes(principal.id) ?? true) && (origins?.includes(principal.origin) ?? true) && (profiles?.some((profile) => principal.profiles.includes(profile)) ?? true) &&
    (owner === undefined || owner === (principal.owner ?? false))
  );
}

/** As lib/modes.rego: the first entry that fits, else the one for all others. */
function modeFor(mode: ModeData, { profiles, origin }: Principal): string {
  if (typeof mode === 'string') return mode;
  const held = (condition: Readonly<Record<string, unknown>>): boolean => (condition['of'] === 'profile' ? profiles : [origin]).some((value) => Object.hasOwn(condition['any'] as object, value));
  return mode.first.find((entry) => entry.principal.every(held))?.mode ?? mode.otherwise;
}

function isPersonal({ roles, groups, principals, origins, profiles, owner }: When): boolean {
  return (roles ?? groups ?? principals ?? origins ?? profiles ?? owner) !== undefined;
}

/** Why a sandbox cannot hold this rule whoever calls; undefined when it can. */
function whyUnbound({ outcome, when: { paths, hosts, urls, verbs, commands, opaque, labels, time, args } }: ConfiningRule): string | undefined {
  if (outcome === 'allow') return paths === undefined ? undefined : 'it opens some paths, and closes none; deny what they must not see';
  if ((commands ?? opaque ?? labels ?? time ?? args) !== undefined) return 'it depends on more of the call than paths and hosts; deny the paths or hosts alone';
  if ([paths, hosts, urls].filter((field) => field !== undefined).length > 1) return 'it needs two facts of one call; write two rules';
  if (paths !== undefined) return undefined;
  if (!isSeen(verbs)) return 'reading from a host and writing to it look alike; leave `verbs` out';
  return urls?.some((url) => pathOf(url) !== undefined) === true ? 'what is asked of a host cannot be seen; deny the whole host' : undefined;
}

/** Why a server that many callers share is not bound where a command would be. */
function whyShared({ when, outcome, mode }: ConfiningRule, server: string): string | undefined {
  if (server === WORKSPACE || outcome === 'allow' || (mode === 'enforce' && !isPersonal(when))) return undefined;
  return 'it is about some callers, and one program serves all';
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
