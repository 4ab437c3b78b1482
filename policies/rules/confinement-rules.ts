/**
 * Decides which rules on paths and hosts bind which programs, and reports the rules that cannot. They are compiled once
 * for every server, and joined for the caller that a program runs for.
 */

import { TollgateError } from '../../catalogs/errors/error-table.ts';
import type { Confinement, PathClosing, PathGlobs } from '../../catalogs/readers/confinement.ts';
import { portOf } from '../../catalogs/readers/urls.ts';
import { SHIPPED } from '../../catalogs/servers/shipped-servers.ts';
import type { Principal } from '../port.ts';
import type { LocatedRule } from './configured-names.ts';
import { formatProblem, type PolicyProblem } from './policy-problems.ts';
import { kindPartsOf, type Trust, type When } from './rule-conditions.ts';
import { type ModeData, mayHaveMode } from './rule-modes.ts';
import { patternCovers, placePath } from './rule-patterns.ts';

/** What the rules close to programs. Plain data, because it is passed between threads. */
export interface CompiledConfinement {
  /**
   * By server: what rules that deny or ask close for every caller, the rules that allow for every caller, and the
   * indexes in `personal` of the other rules.
   */
  readonly programs: ReadonlyMap<string, ProgramRules>;
  /** Rules that are enforced for some callers only. */
  readonly personal: readonly PersonalRule[];
  /** Rules on paths or hosts that do not bind programs of these servers. */
  readonly free: readonly UnboundRule[];
  /** Absolute, symlinks resolved. */
  readonly workspace: string;
  /** Whether the user's Rego, or a bundle, may also deny or ask. */
  readonly foreign: boolean;
}

interface ProgramRules {
  readonly all: Confinement;
  readonly allowing: readonly When[];
  readonly some: readonly number[];
}

/** A rule that binds programs of some callers. */
interface PersonalRule {
  readonly when: When;
  readonly isAllow: boolean;
  readonly mode: ModeData;
}

/** A rule that does not bind the programs of some of its servers. */
interface UnboundRule {
  readonly id: string;
  readonly place: Omit<PolicyProblem, 'message'>;
  readonly why: string;
  readonly servers: readonly string[];
}

/** The workspace and servers that rules are compiled for. */
interface ConfinementContext {
  readonly workspace: string;
  /** Trust by server name. Other servers are external. */
  readonly trusts: ReadonlyMap<string, Trust>;
  readonly foreign: boolean;
}

/** The internal server whose programs are the commands of `bash`. Each command is started for one caller. */
export const WORKSPACE_SERVER = 'workspace';

/**
 * Compiles the rules for the servers in `trusts` and for Tollgate's own servers. A rule that asks counts as a rule that
 * denies, because no one can approve what a running program does.
 */
export function compileConfinement(
  located: readonly LocatedRule[],
  { workspace, trusts, foreign }: ConfinementContext,
): CompiledConfinement {
  const servers = [...new Set([WORKSPACE_SERVER, ...SHIPPED.keys(), ...trusts.keys()])];
  const compiled: Compiled = {
    programs: new Map(servers.map((server) => [server, { bound: [], allowing: [], some: [] }])),
    personal: [],
    free: [],
  };
  for (const rule of located) {
    if (mayHaveMode('enforce', rule.mode) && (rule.rule.outcome === 'allow' || readsPathsOrHosts(rule.rule.when)))
      addRule(compiled, rule, trusts);
  }
  return {
    ...compiled,
    programs: new Map(
      [...compiled.programs].map(([server, { bound, ...others }]) => [
        server,
        { all: closures(bound, workspace), ...others },
      ]),
    ),
    workspace,
    foreign,
  };
}

interface Compiled {
  readonly programs: ReadonlyMap<
    string,
    { readonly bound: When[]; readonly allowing: When[]; readonly some: number[] }
  >;
  readonly personal: PersonalRule[];
  readonly free: UnboundRule[];
}

function readsPathsOrHosts({ paths, except, hosts, schemes, urls }: When): boolean {
  return (paths ?? except ?? hosts ?? schemes ?? urls) !== undefined;
}

function addRule(
  { programs, personal, free }: Compiled,
  { rule: { id, outcome, when }, mode, at }: LocatedRule,
  trusts: ConfinementContext['trusts'],
): void {
  const targets = [...programs.keys()].filter((server) => concerns(when, server, trusts));
  const isForAll = mode === 'enforce' && !isPersonal(when);
  const why = whyUnbound(outcome, when);
  const mayClose = outcome !== 'allow' || when.except !== undefined;
  const unbound = why === undefined ? sharedServers(targets, isForAll || !mayClose) : targets;
  if (unbound.length > 0) free.push({ id, place: at(['id']), why: why ?? SHARED, servers: unbound });
  const isAllow = outcome === 'allow';
  const binds = isAllow ? readsOnlyPaths(when) && kindPartsOf(when, outcome).tools : why === undefined;
  if (!binds || targets.length === 0) return;
  const number = isForAll ? -1 : personal.push({ when, mode, isAllow }) - 1;
  for (const server of targets) {
    const program = programs.get(server);
    if (isForAll) (isAllow ? program?.allowing : program?.bound)?.push(when);
    else program?.some.push(number);
  }
}

/**
 * Returns the servers that a rule about some callers does not bind: one process of such a server serves every caller.
 */
function sharedServers(targets: readonly string[], isForAll: boolean): readonly string[] {
  return isForAll ? [] : targets.filter((server) => server !== WORKSPACE_SERVER);
}

/** Returns what these conditions of rules that deny or ask close. */
function closures(whens: readonly When[], workspace: string): Confinement {
  const plain = whens.filter(({ paths, except }) => paths !== undefined && except === undefined);
  const [hiding, fixing] = [plain.filter(({ verbs }) => isSeen(verbs)), plain.filter(({ verbs }) => !isSeen(verbs))];
  const excepting = whens
    .filter(({ except }) => except !== undefined)
    .map((when): PathClosing => {
      const paths = globsOf([exceptionsOf(when)], { workspace, strict: false });
      return {
        closure: isSeen(when.verbs) ? 'hidden' : 'fixed',
        close: globsOf([when], { workspace, strict: true }),
        open: [{ paths, except: NOWHERE }],
      };
    });
  return {
    hidden: globsOf(hiding, { workspace, strict: true }),
    fixed: globsOf(fixing, { workspace, strict: true }),
    closedHosts: [...new Set(whens.flatMap(({ hosts = [], urls = [] }) => [...hosts, ...urls.map(hostOf)]))],
    ...(excepting.length === 0 ? {} : { excepting }),
  };
}

const NOWHERE: PathGlobs = { inside: [], outside: [] };

/** What each closure of an exception is about, by the verbs of the rules that allow. */
const CLOSURE_VERBS = [
  ['hidden', ['read', 'execute'], ['read']],
  ['fixed', ['write', 'destructive'], ['write', 'destructive']],
] as const;

/** Returns what exceptions of rules that allow close. A path stays open if one of these rules allows it. */
function allowClosures(whens: readonly When[], workspace: string): readonly PathClosing[] {
  return CLOSURE_VERBS.flatMap(([closure, closing, opening]) => {
    const about = (verbs: When['verbs'], some: readonly string[]): boolean =>
      verbs?.some((verb) => some.includes(verb)) ?? true;
    const closers = whens.filter(({ verbs, except }) => except !== undefined && about(verbs, closing));
    if (closers.length === 0) return [];
    const open = whens
      .filter(({ verbs }) => about(verbs, opening))
      .map((when) => ({
        paths: globsOf([when], { workspace, strict: false }),
        except: globsOf([exceptionsOf(when)], { workspace, strict: true }),
      }));
    return [{ closure, close: globsOf(closers.map(exceptionsOf), { workspace, strict: true }), open }];
  });
}

/** Returns conditions whose paths are the exceptions of a rule. */
function exceptionsOf({ except = [], insideWorkspace }: When): When {
  return { paths: except, ...(insideWorkspace === undefined ? {} : { insideWorkspace }) };
}

/** Without `paths`, these are all paths of a side, or all paths. */
function globsOf(whens: readonly When[], placing: { readonly workspace: string; readonly strict: boolean }): PathGlobs {
  const globs = whens.flatMap(({ paths = ['**', '/**'], insideWorkspace }) =>
    paths.map((glob) => ({ insideWorkspace, placed: placePath(glob, placing) })),
  );
  const joined = (all: readonly (readonly string[])[]): readonly string[] => all.map((segments) => segments.join('/'));
  const inside = new Set(globs.flatMap((one) => (one.insideWorkspace === false ? [] : joined(one.placed.inside))));
  const outside = new Set(globs.flatMap((one) => (one.insideWorkspace === true ? [] : joined(one.placed.outside))));
  return { inside: [...inside], outside: [...outside] };
}

/** A rule on single tools concerns those tools only. A rule on every way to a file names verbs, or no tools. */
function concerns(
  { servers, trust, tools, exceptTools }: When,
  server: string,
  trusts: ConfinementContext['trusts'],
): boolean {
  const own = server === WORKSPACE_SERVER ? 'internal' : (trusts.get(server) ?? 'external');
  const whole = [`${server}.*`, ...(server === WORKSPACE_SERVER ? ['workspace.bash'] : [])];
  const isWhole = (tool: string): boolean =>
    tool.includes('*') ? whole.some((one) => patternCovers(tool, one)) : whole.includes(tool);
  return (
    (servers?.includes(server) ?? true) &&
    (trust?.includes(own) ?? true) &&
    (tools?.some(isWhole) ?? true) &&
    exceptTools?.some(isWhole) !== true
  );
}

/** A program must not see what it may not read. A rule on `execute` also closes what the commands read. */
function isSeen(verbs: When['verbs']): boolean {
  return verbs === undefined || verbs.includes('read') || verbs.includes('execute');
}

function isPersonal({ roles, groups, principals, origins, profiles, owner }: When): boolean {
  return (roles ?? groups ?? principals ?? origins ?? profiles ?? owner) !== undefined;
}

/** Why a server that many callers share is not bound where a command of bash is. */
const SHARED = 'it is about some callers, and one program serves all';

/** Whether a rule reads facts of a call that no sandbox sees. */
function readsMore({ schemes, commands, exceptCommands, opaque, readable, labels, time, args }: When): boolean {
  return (schemes ?? commands ?? exceptCommands ?? opaque ?? readable ?? labels ?? time ?? args) !== undefined;
}

function readsOnlyPaths(when: When): boolean {
  return !readsMore(when) && (when.hosts ?? when.urls ?? when.uri ?? when.asks) === undefined;
}

/** Returns why a sandbox cannot enforce this rule for any caller; undefined if it can. */
function whyUnbound(outcome: LocatedRule['rule']['outcome'], when: When): string | undefined {
  if (!kindPartsOf(when, outcome).tools)
    return outcome === 'allow' ? undefined : 'it is about other requests than calls of tools; leave out `kind`';
  const { paths, except, hosts, urls, verbs } = when;
  if (outcome === 'allow') {
    if (except !== undefined && !readsOnlyPaths(when))
      return 'its exceptions depend on more than paths; write a rule that denies them';
    if (paths === undefined) return undefined;
    return except === undefined
      ? 'it allows some paths and closes none; write a rule that denies the others'
      : 'it closes its exceptions, but not the paths that it does not name; write a rule that denies those';
  }
  if (readsMore(when))
    return 'it depends on more than paths and hosts; write a rule that reads only paths or only hosts';
  if ([paths ?? except, hosts, urls].filter((field) => field !== undefined).length > 1)
    return 'it needs two facts of the same call; write two rules';
  if ((paths ?? except) !== undefined) return undefined;
  if (!isSeen(verbs)) return 'a sandbox cannot tell reading from a host and writing to it apart; leave out `verbs`';
  return urls?.some((url) => pathOf(url) !== undefined) === true
    ? 'a sandbox cannot see which path of a host is requested; deny the whole host'
    : undefined;
}

const URL_PARTS = /^([a-z][a-z0-9+.-]*):\/\/(\[[0-9a-f:.]+\]|[^/:]+)(?::(\d+|\*))?(\/.*)?$/;

/** The path in a URL pattern; undefined if the pattern fits every path. */
function pathOf(url: string): string | undefined {
  const path = URL_PARTS.exec(url)?.[4];
  return path === '/**' ? undefined : path;
}

function hostOf(url: string): string {
  const [, scheme = '', host = '', port] = URL_PARTS.exec(url) ?? [];
  return port === '*' ? host : `${host}:${port ?? portOf(scheme)}`;
}

const MAX_LINES = 4;

/** The rules that bind programs. */
export class Confinements {
  readonly #confining: CompiledConfinement;
  /** Without a caller, by the rules of the program. */
  readonly #byCaller = new WeakMap<Principal | ProgramRules, Map<string, Confinement>>();

  constructor(confining: CompiledConfinement) {
    this.#confining = confining;
  }

  /** See Policy.confinement. The result is kept for each caller. */
  of(server: string, principal?: Principal): Confinement {
    const program = this.#confining.programs.get(server);
    // A program that the policy does not know would otherwise start without any limits.
    if (program === undefined)
      throw new TollgateError('INTERNAL', { detail: 'Cannot confine a server that the policy does not name.' });
    const known = this.#byCaller.get(principal ?? program) ?? new Map<string, Confinement>();
    this.#byCaller.set(principal ?? program, known);
    const confinement = known.get(server) ?? this.#join(program, principal);
    known.set(server, confinement);
    return confinement;
  }

  #join({ all, allowing, some }: ProgramRules, principal: Principal | undefined): Confinement {
    const { personal, workspace } = this.#confining;
    const own =
      principal === undefined
        ? []
        : some.flatMap((number) => personal[number] ?? []).filter((rule) => isAbout(rule, principal));
    const whensOf = (isAllow: boolean): readonly When[] =>
      own.filter((rule) => rule.isAllow === isAllow).map(({ when }) => when);
    const mine = closures(whensOf(false), workspace);
    const excepting = [
      ...(all.excepting ?? []),
      ...(mine.excepting ?? []),
      ...allowClosures([...allowing, ...whensOf(true)], workspace),
    ];
    return {
      hidden: joinGlobs(all.hidden, mine.hidden),
      fixed: joinGlobs(all.fixed, mine.fixed),
      closedHosts: joinLists(all.closedHosts, mine.closedHosts),
      ...(excepting.length === 0 ? {} : { excepting }),
    };
  }

  /** See Policy.unbound. */
  unbound(servers: readonly string[]): readonly string[] {
    const { free, foreign } = this.#confining;
    const relevant = free.filter((rule) => servers.some((server) => rule.servers.includes(server)));
    const lines = relevant
      .slice(0, relevant.length > MAX_LINES ? MAX_LINES - 1 : MAX_LINES)
      .map(({ id, place, why, servers: about }) =>
        formatProblem({
          ...place,
          message: `"${id}" does not bind ${servers
            .filter((server) => about.includes(server))
            .map(programsOf)
            .join(', ')}: ${why}`,
        }),
      );
    const more = relevant.length - lines.length;
    return [
      ...(foreign && servers.length > 0
        ? [
            `Rules in Rego bind calls, not ${servers.map(programsOf).join(', ')}. To close paths and ` +
              'hosts to them, write YAML rules, or set filesystem and network.',
          ]
        : []),
      ...lines,
      ...(more > 0 ? [`${more} more rules on paths or hosts bind calls, not programs; see docs/policies.md.`] : []),
    ];
  }
}

function programsOf(server: string): string {
  return server === WORKSPACE_SERVER ? 'commands of bash' : `the program of ${server}`;
}

function joinGlobs(a: PathGlobs, b: PathGlobs): PathGlobs {
  return { inside: joinLists(a.inside, b.inside), outside: joinLists(a.outside, b.outside) };
}

function joinLists(a: readonly string[], b: readonly string[]): readonly string[] {
  return [...new Set([...a, ...b])];
}

/** Whether the rule is enforced for this caller. */
function isAbout({ when, mode }: PersonalRule, principal: Principal): boolean {
  const { roles, groups, principals, origins, profiles, owner } = when;
  return (
    modeFor(mode, principal) === 'enforce' &&
    (roles?.includes(principal.role) ?? true) &&
    (groups?.some((group) => principal.groups.includes(group)) ?? true) &&
    (principals?.includes(principal.id) ?? true) &&
    (origins?.includes(principal.origin) ?? true) &&
    (profiles?.some((profile) => principal.profiles.includes(profile)) ?? true) &&
    (owner === undefined || owner === (principal.owner ?? false))
  );
}

/** Does the same as lib/modes.rego: the first entry that fits counts, otherwise the mode for all others. */
function modeFor(mode: ModeData, { profiles, origin }: Principal): string {
  if (typeof mode === 'string') return mode;
  const fits = (condition: Readonly<Record<string, unknown>>): boolean =>
    (condition.of === 'profile' ? profiles : [origin]).some((value) => Object.hasOwn(condition.any as object, value));
  return mode.first.find((entry) => entry.principal.every(fits))?.mode ?? mode.otherwise;
}
