/**
 * What an internal server is told of its caller: who it is, whose data it may read, and which servers it may see.
 * Nothing of it comes from the call.
 */
import { type CallerIdentity, refusedState, type VisibleServer } from '../../adapters/port.ts';
import type { Principal } from '../../policies/port.ts';
import type { Caller, OpenSession } from '../call/identify.ts';
import {
  type CallPreconditions,
  NO_PRECONDITIONS,
  OPEN_VIEW,
  type Precondition,
  type PreconditionView,
} from '../consent/preconditions.ts';
import type { Catalog } from '../exposure/catalog.ts';
import { serversBehind } from '../exposure/exposed-tool.ts';
import type { NameTable } from '../exposure/name-table.ts';
import type { Runs } from '../serve/host/host-runs.ts';

/** Returns the identity of one call; `table` is what the caller sees. Throws STATE_FAILED. */
export type Identify = (caller: Caller, table: NameTable) => Promise<CallerIdentity>;

/** What identities are made from, for one configuration. */
export interface IdentityParts {
  readonly catalog: Catalog;
  readonly runs: Pick<Runs, 'scopeOf' | 'isOwned'>;
  readonly hiddenServers: HiddenServers;
  readonly serversOf: (principal: Caller['principal']) => readonly string[];
  /** The list of a session has changed. */
  readonly onChange: () => void;
}

/** See Identify. */
export function createIdentify({ catalog, runs, hiddenServers: aside, serversOf, onChange }: IdentityParts): Identify {
  const see = (name: string, { session }: Caller, { listed }: NameTable): VisibleServer => {
    const problem = catalog.problems.get(name);
    const own = listed.filter((exposed) => serversBehind(exposed).some((server) => server.name === name));
    return {
      name,
      state:
        problem?.data.consent === undefined
          ? (catalog.servers.get(name)?.adapter.health().state ?? 'unavailable')
          : refusedState(problem),
      ...(problem === undefined ? {} : { fault: problem.code }),
      hidden: aside.has(session.principal, name),
      tools: own.map((exposed) => ({
        name: exposed.name,
        description: String((JSON.parse(exposed.text) as { description?: unknown }).description ?? ''),
      })),
    };
  };
  return async (caller, table) => {
    const { id, role, profiles, origin } = caller.principal;
    const scope = runs.scopeOf(caller.principal, caller.run);
    const { id: session } = caller.session;
    return {
      principal: { id, role, profiles, origin },
      run: caller.run,
      scope,
      counted: runs.isOwned(caller.principal, caller.run) ? scope : { ...scope, conversation: session, turn: session },
      servers: () => serversOf(caller.principal).map((name) => see(name, caller, table)),
      setHidden: (server, isAside) => {
        aside.put(caller.session, server, isAside);
        onChange();
      },
    };
  };
}

/**
 * A server that a model sets aside must stay available for the user's other sessions, and for later ones. So nothing is
 * stored: the session gets its own principal object, to which the set-aside servers are attached.
 */
export class HiddenServers implements Precondition {
  readonly #of = new WeakMap<Principal, ReadonlySet<string>>();

  /** From the next list and call on. */
  put(session: OpenSession, server: string, aside: boolean): void {
    const names = new Set(this.#of.get(session.principal));
    if (aside) names.add(server);
    else names.delete(server);
    const own = Object.freeze({ ...session.principal });
    this.#of.set(own, names);
    session.principal = own;
  }

  has(principal: Principal, server: string): boolean {
    return this.#of.get(principal)?.has(server) === true;
  }

  view(principal: Principal): PreconditionView {
    const names = this.#of.get(principal);
    if (names === undefined) return OPEN_VIEW;
    return { revision: [...names].sort().join(), hides: ({ server }) => names.has(server) };
  }

  judge(): Partial<CallPreconditions> {
    return NO_PRECONDITIONS;
  }
}
