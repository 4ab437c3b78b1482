/** Owns who uses a server and how long it therefore stays; refuses to end one that somebody uses. */

import { SERVER_LIFETIMES, type ServerLifetime } from './server-settings.ts';

/** What a usage is told and may do. */
export interface ServerUsageParts {
  readonly lifetime: ServerLifetime;
  readonly idleMs: number;
  /** Ends the server if nothing runs on it. */
  readonly endIfIdle: () => void;
}

/** The sessions of the facade that have asked for a server or called it, by their opaque names. */
export class ServerUsage {
  private readonly parts: ServerUsageParts;
  /** Session → the lifetime that its profile asks for. */
  private readonly demands = new Map<string, ServerLifetime>();
  /** Sessions that have called. */
  private readonly callers = new Set<string>();
  private timer: NodeJS.Timeout | undefined;
  /** Calls, lists and starts that somebody waits for, also between the messages that they send. */
  private uses = 0;
  /** Something kept on the server belongs to sessions. */
  holds: () => boolean = () => false;

  /** The longest that an open session asks for; without sessions that of the server's own settings. Each call asks for it. */
  lifetime: ServerLifetime;

  constructor(parts: ServerUsageParts) {
    this.parts = parts;
    this.lifetime = parts.lifetime;
  }

  /** True when it must not be ended although nothing runs on it. */
  get isKept(): boolean {
    return this.uses > 0 || this.lifetime === 'keep-alive' || this.holds();
  }

  /** Does what somebody waits for; the server is not idle meanwhile. */
  async during<T>(work: () => Promise<T>): Promise<T> {
    this.uses += 1;
    try {
      return await work();
    } finally {
      this.uses -= 1;
    }
  }

  demand(session: string, lifetime: ServerLifetime = this.parts.lifetime): void {
    this.demands.set(session, lifetime);
    this.weigh();
  }

  noteCall(session: string): void {
    this.callers.add(session);
  }

  /** To be called when a call has ended. */
  noteIdle(): void {
    if (this.lifetime !== 'ephemeral') return;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.endIfEphemeral(), this.parts.idleMs).unref();
  }

  /** The last caller takes an ephemeral server with it. */
  endSession(session: string): void {
    this.demands.delete(session);
    this.weigh();
    if (this.callers.delete(session) && this.callers.size === 0) this.endIfEphemeral();
  }

  close(): void {
    clearTimeout(this.timer);
  }

  private weigh(): void {
    const asked = new Set(this.demands.values());
    this.lifetime = SERVER_LIFETIMES.findLast((one) => asked.has(one)) ?? this.parts.lifetime;
  }

  private endIfEphemeral(): void {
    if (this.lifetime === 'ephemeral') this.parts.endIfIdle();
  }
}
