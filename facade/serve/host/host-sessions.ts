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
import { MAX_RUNNING } from '../session-dispatch.ts';

/** Who calls in a session. `onBehalf`: an owner's host speaks for the origin of the principal. */
export interface HostCaller {
  readonly principal: Principal;
  readonly tab?: string;
  readonly onBehalf?: boolean;
}

interface Held {
  readonly session: Session;
  running: number;
  lastUsed: number;
}

/** What sessions of hosts work with. `now` in ms, of any beginning. */
export interface HostSessionParts {
  readonly gateway: Pick<Gateway, 'openSession' | 'closeSession'>;
  readonly listen: Pick<ListenConfig, 'maxSessions' | 'maxSessionsPerPrincipal' | 'idleMs'>;
  readonly now: () => number;
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
    const ended = this.#makeRoom(caller);
    const held = this.#find(caller);
    if (held.running >= MAX_RUNNING) throw new TollgateError('RATE_LIMITED');
    held.running += 1;
    try {
      await Promise.all(ended.map(({ session }) => this.#parts.gateway.closeSession(session)));
      return await work(held.session);
    } finally {
      held.running -= 1;
      held.lastUsed = this.#parts.now();
    }
  }

  /** Ends the sessions of a tab. */
  async endTab(tab: string, origin: string | undefined): Promise<void> {
    await this.#end(
      ({ session }) => session.tab === tab && (origin ?? session.principal.origin) === session.principal.origin,
    );
  }

  /** Ends sessions that are unused for too long, or that a new configuration has ended. */
  async tick(): Promise<void> {
    const { listen, now } = this.#parts;
    await this.#end(
      (held) => held.session.closed.aborted || (held.running === 0 && now() - held.lastUsed > listen.idleMs),
    );
  }

  async close(): Promise<void> {
    await this.#end(() => true);
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

  #find(caller: HostCaller): Held {
    const { gateway, now } = this.#parts;
    const { principal, tab, onBehalf = false } = caller;
    const key = keyOf(caller);
    const known = this.#held.get(key);
    if (known !== undefined) return known;
    const held: Held = {
      session: gateway.openSession(principal, 'http', { onBehalf, ...(tab !== undefined && { tab }) }),
      running: 0,
      lastUsed: now(),
    };
    this.#held.set(key, held);
    return held;
  }

  async #end(which: (held: Held) => boolean): Promise<void> {
    const ended = [...this.#held].filter(([, held]) => which(held));
    for (const [key] of ended) this.#held.delete(key);
    await Promise.all(ended.map(([, { session }]) => this.#parts.gateway.closeSession(session)));
  }
}

function keyOf({ principal, tab, onBehalf = false }: HostCaller): string {
  return JSON.stringify([principal.id, principal.origin, principal.owner === true, tab ?? null, onBehalf]);
}
