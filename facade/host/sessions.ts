/** Owns the sessions in which a host calls: one for each principal, origin and tab, ended when unused; refuses more than the listener allows. */
import { TollgateError } from '../../catalogs/errors.ts';
import type { Principal } from '../../policies/port.ts';
import type { ListenConfig } from '../config/config.ts';
import type { Session } from '../facade.ts';
import type { Gateway } from '../gateway.ts';
import { MAX_RUNNING } from '../wire/dispatch.ts';
import { overQuota } from '../wire/sessions.ts';

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

/** What sessions of hosts stand on. `now` in ms, of any beginning. */
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

  /** Throws HTTP_SESSIONS_FULL, HTTP_SESSIONS_QUOTA, RATE_LIMITED, IDENTITY. */
  async within<T>(caller: HostCaller, work: (session: Session) => Promise<T>): Promise<T> {
    await this.tick();
    const held = this.#find(caller);
    if (held.running >= MAX_RUNNING) throw new TollgateError('RATE_LIMITED');
    held.running += 1;
    try {
      return await work(held.session);
    } finally {
      held.running -= 1;
      held.lastUsed = this.#parts.now();
    }
  }

  /** Ends the sessions of a tab. */
  async endTab(tab: string, origin: string | undefined): Promise<void> {
    await this.#end(({ session }) => session.tab === tab && (origin ?? session.principal.origin) === session.principal.origin);
  }

  /** Ends those that are unused for too long, or that a new configuration has ended. */
  async tick(): Promise<void> {
    const { listen, now } = this.#parts;
    await this.#end((held) => held.session.closed.aborted || (held.running === 0 && now() - held.lastUsed > listen.idleMs));
  }

  async close(): Promise<void> {
    await this.#end(() => true);
  }

  #find({ principal, tab, onBehalf = false }: HostCaller): Held {
    const { gateway, listen, now } = this.#parts;
    const key = JSON.stringify([principal.id, principal.origin, principal.owner === true, tab ?? null, onBehalf]);
    const known = this.#held.get(key);
    if (known !== undefined) return known;
    if (this.#held.size >= listen.maxSessions) throw new TollgateError('HTTP_SESSIONS_FULL');
    // An owner's host opens one session for each page that it speaks for: it is trusted to end them.
    const own = onBehalf ? [] : [...this.#held.values()].filter(({ session }) => session.principal.id === principal.id && session.onBehalf !== true);
    if (!onBehalf && own.length >= listen.maxSessionsPerPrincipal) throw overQuota(listen.maxSessionsPerPrincipal);
    const held: Held = { session: gateway.openSession(principal, 'http', { onBehalf, ...(tab !== undefined && { tab }) }), running: 0, lastUsed: now() };
    this.#held.set(key, held);
    return held;
  }

  async #end(which: (held: Held) => boolean): Promise<void> {
    const ended = [...this.#held].filter(([, held]) => which(held));
    for (const [key] of ended) this.#held.delete(key);
    await Promise.all(ended.map(([, { session }]) => this.#parts.gateway.closeSession(session)));
  }
}
