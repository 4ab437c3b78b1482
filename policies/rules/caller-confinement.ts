/** Tells each program what the enforced rules on paths and hosts close to it, for the caller that it runs for. */

import { TollgateError } from '../../catalogs/errors/error-table.ts';
import type { Confinement, PathGlobs } from '../../catalogs/readers/confinement.ts';
import type { Principal } from '../port.ts';
import { type CompiledConfinement, closures, type PersonalRule, WORKSPACE_SERVER } from './confinement-rules.ts';
import { formatProblem } from './policy-problems.ts';
import type { ModeData } from './rule-modes.ts';

const MAX_LINES = 4;

/** The rules that bind programs. */
export class Confinements {
  readonly #confining: CompiledConfinement;
  readonly #byCaller = new WeakMap<Principal, Map<string, Confinement>>();

  constructor(confining: CompiledConfinement) {
    this.#confining = confining;
  }

  /** See Policy.confinement. The result is kept for each caller. */
  of(server: string, principal?: Principal): Confinement {
    const program = this.#confining.programs.get(server);
    // A program that the policy does not know would otherwise start without any limits.
    if (program === undefined)
      throw new TollgateError('INTERNAL', { detail: 'Cannot confine a server that the policy does not name.' });
    if (principal === undefined || program.some.length === 0) return program.all;
    const known = this.#byCaller.get(principal) ?? new Map<string, Confinement>();
    this.#byCaller.set(principal, known);
    const confinement = known.get(server) ?? this.#join(program, principal);
    known.set(server, confinement);
    return confinement;
  }

  #join(
    { all, some }: { readonly all: Confinement; readonly some: readonly number[] },
    principal: Principal,
  ): Confinement {
    const { personal, workspace } = this.#confining;
    const { hidden, fixed, closedHosts } = closures(
      some
        .flatMap((number) => personal[number] ?? [])
        .filter((rule) => isAbout(rule, principal))
        .map(({ when }) => when),
      workspace,
    );
    return {
      hidden: joinGlobs(all.hidden, hidden),
      fixed: joinGlobs(all.fixed, fixed),
      closedHosts: joinLists(all.closedHosts, closedHosts),
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
