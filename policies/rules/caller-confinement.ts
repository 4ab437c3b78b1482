/** Owns what enforced rules on paths and hosts mean to programs that act without a call, for each caller; refuses servers that it was not told of. */

import { TollgateError } from '../../catalogs/errors/error-table.ts';
import type { Confinement, PathGlobs } from '../../catalogs/readers/confinement.ts';
import type { Principal } from '../port.ts';
import { type CompiledConfinement, closures, type PersonalRule, WORKSPACE_SERVER } from './confinement-rules.ts';
import { formatProblem } from './policy-problems.ts';
import type { ModeData } from './rule-modes.ts';

const MAX_LINES = 4;

/** The rules that mean something to programs. */
export class Confinements {
  readonly #confining: CompiledConfinement;
  readonly #own = new WeakMap<Principal, Map<string, Confinement>>();

  constructor(confining: CompiledConfinement) {
    this.#confining = confining;
  }

  /** See Policy.confinement. Kept for each caller, who lives as long as a session. */
  of(server: string, principal?: Principal): Confinement {
    const program = this.#confining.programs.get(server);
    // To close nothing to a program that nobody thought of would open it.
    if (program === undefined)
      throw new TollgateError('INTERNAL', {
        detail: 'A program of a server that the policy does not know was to be confined.',
      });
    if (principal === undefined || program.some.length === 0) return program.all;
    const known = this.#own.get(principal) ?? new Map<string, Confinement>();
    this.#own.set(principal, known);
    const found = known.get(server) ?? this.#join(program, principal);
    known.set(server, found);
    return found;
  }

  #join(
    { all, some }: { readonly all: Confinement; readonly some: readonly number[] },
    principal: Principal,
  ): Confinement {
    const { personal, workspace } = this.#confining;
    const own = some.flatMap((number) => personal[number] ?? []).filter((rule) => isAbout(rule, principal));
    const { hidden, fixed, closedHosts } = closures(
      own.map(({ when }) => when),
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
    const told = free.filter((rule) => servers.some((server) => rule.servers.includes(server)));
    const lines = told
      .slice(0, told.length > MAX_LINES ? MAX_LINES - 1 : MAX_LINES)
      .map(({ id, place, why, servers: about }) =>
        formatProblem({
          ...place,
          message: `"${id}" does not bind ${servers
            .filter((server) => about.includes(server))
            .map(programsOf)
            .join(', ')}: ${why}`,
        }),
      );
    const rego =
      foreign && servers.length > 0
        ? [
            `Rules in Rego bind calls, not ${servers.map(programsOf).join(', ')}. Close paths and hosts to these in rules of YAML, or in filesystem and network.`,
          ]
        : [];
    return [
      ...rego,
      ...lines,
      ...(told.length > lines.length
        ? [
            `${told.length - lines.length} more rules on paths or hosts bind calls, not programs; docs/policies.md says which can.`,
          ]
        : []),
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

/** Whether the rule holds for this caller. */
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

/** As lib/modes.rego: the first entry that fits, else the one for all others. */
function modeFor(mode: ModeData, { profiles, origin }: Principal): string {
  if (typeof mode === 'string') return mode;
  const held = (condition: Readonly<Record<string, unknown>>): boolean =>
    (condition.of === 'profile' ? profiles : [origin]).some((value) => Object.hasOwn(condition.any as object, value));
  return mode.first.find((entry) => entry.principal.every(held))?.mode ?? mode.otherwise;
}
