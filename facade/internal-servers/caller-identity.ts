/**
 * Tells an internal server about its caller: its principal, the scope of its data, and the servers that it may see. No
 * part of it comes from the arguments of the call.
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

/** Returns the identity of the caller of one call. `table`: the tools that the caller sees. Throws STATE_FAILED. */
export type Identify = (caller: Caller, table: NameTable) => Promise<CallerIdentity>;

/** The objects that identities are made from, for one configuration. */
export interface IdentityParts {
  readonly catalog: Catalog;
  readonly runs: Pick<Runs, 'scopeOf' | 'isOwned'>;
  readonly hiddenServers: HiddenServers;
  readonly serversOf: (principal: Caller['principal']) => readonly string[];
  /** Called when the list of a session has changed. */
  readonly onChange: () => void;
}

/** Returns the function that identifies callers. */
export function createIdentify({ catalog, runs, hiddenServers, serversOf, onChange }: IdentityParts): Identify {
  const visible = (name: string, { session }: Caller, { visible: seen }: NameTable): VisibleServer => {
    const problem = catalog.problems.get(name);
    const tools = seen.filter((exposed) => serversBehind(exposed).some((server) => server.name === name));
    return {
      name,
      state:
        problem?.data.consent === undefined
          ? (catalog.servers.get(name)?.adapter.health().state ?? 'unavailable')
          : refusedState(problem),
      ...(problem !== undefined && { fault: problem.code }),
      hidden: hiddenServers.has(session.principal, name),
      tools: tools.map((exposed) => ({
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
      servers: () => serversOf(caller.principal).map((name) => visible(name, caller, table)),
      setHidden: (server, isHidden) => {
        hiddenServers.set(caller.session, server, isHidden);
        onChange();
      },
    };
  };
}

/**
 * The servers that models hide in their own sessions. Nothing is stored, because the user's other sessions must not
 * change. The session gets its own principal object, and the hidden servers are attached to this object.
 */
export class HiddenServers implements Precondition {
  readonly #of = new WeakMap<Principal, ReadonlySet<string>>();

  /** Hides or shows a server, from the next list and call on. */
  set(session: OpenSession, server: string, isHidden: boolean): void {
    const names = new Set(this.#of.get(session.principal));
    if (isHidden) names.add(server);
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
