/** Owns what a server in this process is told of its caller: who it is, whose rows it may read, what it may see; refuses to take any of it from a call. */
import { type Identity, refusedState, type SeenServer } from '../../adapters/port.ts';
import type { Catalog } from '../catalog.ts';
import { serversBehind, type Table } from '../exposure.ts';
import type { Runs } from '../runs.ts';
import type { Caller } from '../session.ts';
import type { Aside } from './aside.ts';

/** Makes the identity of one call; `table` is what the caller sees. Throws STATE_FAILED. */
export type Identify = (caller: Caller, table: Table) => Promise<Identity>;

/** What identities are made from: those of one configuration. */
export interface IdentityParts {
  readonly catalog: Catalog;
  readonly runs: Pick<Runs, 'scopeOf' | 'isOwned'>;
  readonly aside: Aside;
  readonly serversOf: (principal: Caller['principal']) => readonly string[];
  /** A session's list has become another one. */
  readonly onChange: () => void;
}

/** See Identify. */
export function createIdentify({ catalog, runs, aside, serversOf, onChange }: IdentityParts): Identify {
  const see = (name: string, { session }: Caller, { listed }: Table): SeenServer => {
    const problem = catalog.problems.get(name);
    const own = listed.filter((exposed) => serversBehind(exposed).some((server) => server.name === name));
    return {
      name,
      state:
        problem?.data.consent === undefined
          ? (catalog.servers.get(name)?.adapter.health().state ?? 'unavailable')
          : refusedState(problem),
      ...(problem === undefined ? {} : { fault: problem.code }),
      aside: aside.has(session.principal, name),
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
      putAside: (server, isAside) => {
        aside.put(caller.session, server, isAside);
        onChange();
      },
    };
  };
}
