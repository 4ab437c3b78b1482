/**
 * The sessions in which a host calls: one for each principal, origin and tab, ended when unused. There are never more
 * than the listener allows.
 */
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import type { Principal } from '../../../policies/port.ts';
import type { ListenConfig } from '../../config/config.ts';
import type { Gateway } from '../../runtime/gateway.ts';
import type { Session } from '../facade-port.ts';
import { overQuota } from '../http/http-sessions.ts';
import type { SharedId, SharedSessions } from '../http/shared-sessions.ts';
import { MAX_RUNNING } from '../session-dispatch.ts';

/** Who calls in a session. `onBehalf`: an owner's host speaks for the origin of the principal. */
export interface HostCaller {
  readonly principal: Principal;
  readonly tab?: string;
  readonly onBehalf?: boolean;
}

interface Held {
  readonly key: string;
  readonly session: Session;
  running: number;
  lastUsed: number;
  /** When its id was renewed in the state, by the same clock. */
  renewed: number;
}

/** What sessions of hosts work with. `now` in ms, of any beginning. */
export interface HostSessionParts {
  readonly gateway: Pick<Gateway, 'openSession' | 'closeSession'>;
  readonly listen: Pick<ListenConfig, 'maxSessions' | 'maxSessionsPerPrincipal' | 'idleMs'>;
  readonly now: () => number;
  /** The ids that other replicas use too. Absent: there are no others. */
  readonly shared?: SharedSessions | undefined;
}

/** The sessions of one host API. */
export class HostSessions {
  readonly #parts: HostSessionParts;
  readonly #held = new Map<string, Held>();

  constructor(parts: HostSessionParts) {
    this.#parts = parts;
  }

  /** Returns a session. Throws HTTP_SESSIONS_FULL, HTTP_SESSIONS_QUOTA, RATE_LIMITED, IDENTITY. */
  async within<T>(caller: HostCaller, work: (session: Session) => Promise<T>): Promise<T> {
    await this.tick();
    const { shared } = this.#parts;
    await shared?.refresh();
    const { tab, principal } = caller;
    const id = await shared?.idOf(keyOf(caller), tab === undefined ? {} : { tab, origin: principal.origin });
    const ended = this.#makeRoom(caller);
    const held = this.#find(caller, id);
    if (held.running >= MAX_RUNNING) throw new TollgateError('RATE_LIMITED');
    held.running += 1;
    try {
      await this.#close(ended);
      return await work(held.session);
    } finally {
      held.running -= 1;
      held.lastUsed = this.#parts.now();
    }
  }

  /** Ends the sessions of a tab, on all replicas. */
  async endTab(tab: string, origin: string | undefined): Promise<void> {
    await this.#parts.shared?.endTab(tab, origin);
    await this.#end(
      ({ session }) => session.tab === tab && (origin ?? session.principal.origin) === session.principal.origin,
    );
  }

  /** Ends sessions that are unused for too long, or that a new configuration has ended. */
  async tick(): Promise<void> {
    const { listen, now, shared } = this.#parts;
    await shared?.refresh();
    await this.#end(
      (held, key) =>
        held.session.closed.aborted ||
        (held.running === 0 &&
          (now() - held.lastUsed > listen.idleMs || shared?.isIdOf(key, held.session.id) === false)),
    );
    if (shared === undefined) return;
    for (const [key, held] of this.#held) {
      if (now() - held.renewed < shared.renewMs || held.lastUsed <= held.renewed) continue;
      held.renewed = now();
      await shared.renewId(key);
    }
  }

  async close(): Promise<void> {
    const all = [...this.#held.values()];
    this.#held.clear();
    const how = this.#parts.shared === undefined ? undefined : 'released';
    await Promise.all(all.map(({ session }) => this.#parts.gateway.closeSession(session, how)));
  }

  /**
   * If there are too many, ends the idle session that was unused longest. Throws HTTP_SESSIONS_QUOTA, or
   * HTTP_SESSIONS_FULL, if none is idle.
   */
  #makeRoom(caller: HostCaller): readonly Held[] {
    const { maxSessions, maxSessionsPerPrincipal } = this.#parts.listen;
    if (this.#held.has(keyOf(caller))) return [];
    const isOwn = ({ session }: Held): boolean =>
      session.principal.id === caller.principal.id && session.onBehalf !== true;
    // An owner's host opens one session for each page that it speaks for, and must end them.
    const isOver = caller.onBehalf !== true && [...this.#held.values()].filter(isOwn).length >= maxSessionsPerPrincipal;
    if (!isOver && this.#held.size < maxSessions) return [];
    const [victim] = [...this.#held]
      .filter(([, held]) => held.running === 0 && (!isOver || isOwn(held)))
      .sort(([, one], [, other]) => one.lastUsed - other.lastUsed);
    if (victim === undefined)
      throw isOver ? overQuota(maxSessionsPerPrincipal) : new TollgateError('HTTP_SESSIONS_FULL');
    this.#held.delete(victim[0]);
    return [victim[1]];
  }

  #find(caller: HostCaller, id?: SharedId): Held {
    const { gateway, now } = this.#parts;
    const { principal, tab, onBehalf = false } = caller;
    const key = keyOf(caller);
    const known = this.#held.get(key);
    if (known !== undefined && (id === undefined || known.session.id === id.id)) return known;
    const held: Held = {
      key,
      session: gateway.openSession(principal, 'http', { onBehalf, ...id, ...(tab !== undefined && { tab }) }),
      running: 0,
      lastUsed: now(),
      renewed: now(),
    };
    this.#held.set(key, held);
    return held;
  }

  async #end(which: (held: Held, key: string) => boolean): Promise<void> {
    const ended = [...this.#held].filter(([key, held]) => which(held, key));
    for (const [key] of ended) this.#held.delete(key);
    await this.#close(ended.map(([, held]) => held));
  }

  /** Another replica may still use the session. */
  async #close(ended: readonly Held[]): Promise<void> {
    const { gateway, shared } = this.#parts;
    for (const { session, key } of ended) {
      const isOver = shared === undefined || !shared.isIdOf(key, session.id) || (await shared.endId(key));
      await gateway.closeSession(session, isOver ? undefined : 'released');
    }
  }
}

function keyOf({ principal, tab, onBehalf = false }: HostCaller): string {
  return JSON.stringify([principal.id, principal.origin, principal.owner === true, tab ?? null, onBehalf]);
}
