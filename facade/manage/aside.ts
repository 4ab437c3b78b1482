/** Owns which servers a session has put aside for itself; refuses to outlive the session, or to touch anybody else's. */
import type { Principal } from '../../policies/port.ts';
import type { OpenSession } from '../session.ts';
import { NOTHING_STANDS, OPEN, type Standing, type StandingSource, type View } from '../standing.ts';

/**
 * A model that was talked into switching servers off must not take them from its user's other sessions, or from tomorrow. So
 * nothing is written down: a session that puts something aside gets a principal object of its own, and what is aside hangs on it.
 */
export class Aside implements StandingSource {
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

  view(principal: Principal): View {
    const names = this.#of.get(principal);
    if (names === undefined) return OPEN;
    return { revision: [...names].sort().join(), hides: ({ server }) => names.has(server) };
  }

  judge(): Partial<Standing> {
    return NOTHING_STANDS;
  }
}
