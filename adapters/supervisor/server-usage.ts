/** Tracks which sessions use a server, and therefore how long it stays. It does not end a server that is in use. */

import { SERVER_LIFETIMES, type ServerLifetime } from './server-settings.ts';

/** The sessions of the facade that have demanded a server or called it, by their opaque names. */
export class ServerUsage {
  private readonly setting: ServerLifetime;
  private readonly idleMs: number;
  /** Ends the server if nothing runs on it. */
  private readonly endIfIdle: () => void;
  /** The lifetime that the profile of each session asks for. */
  private readonly demands = new Map<string, ServerLifetime>();
  private readonly callers = new Set<string>();
  private timer: NodeJS.Timeout | undefined;
  /** Calls, lists and starts in progress, also between their messages. */
  private uses = 0;
  /** Returns true while state of sessions is kept on the server. */
  holds: () => boolean = () => false;

  /** The longest lifetime that an open session demands. Without sessions, the server's own setting. */
  lifetime: ServerLifetime;

  constructor(setting: ServerLifetime, idleMs: number, endIfIdle: () => void) {
    [this.setting, this.lifetime] = [setting, setting];
    this.idleMs = idleMs;
    this.endIfIdle = endIfIdle;
  }

  /** True if the server must not be ended, even while nothing runs on it. */
  get isKept(): boolean {
    return this.uses > 0 || this.lifetime === 'keep-alive' || this.holds();
  }

  /** Notes that work begins. The server does not count as idle until `end`. */
  begin(): void {
    this.uses += 1;
  }

  /** Notes that work has ended. */
  end(): void {
    this.uses -= 1;
  }

  demand(session: string, lifetime: ServerLifetime = this.setting): void {
    this.demands.set(session, lifetime);
    this.updateLifetime();
  }

  noteCall(session: string): void {
    this.callers.add(session);
  }

  /** Must be called when a call has ended. */
  noteIdle(): void {
    if (this.lifetime !== 'ephemeral') return;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.endIfEphemeral(), this.idleMs).unref();
  }

  /** Ends the use by a session. An ephemeral server ends with its last caller. */
  endSession(session: string): void {
    this.demands.delete(session);
    this.updateLifetime();
    if (this.callers.delete(session) && this.callers.size === 0) this.endIfEphemeral();
  }

  close(): void {
    clearTimeout(this.timer);
  }

  private updateLifetime(): void {
    const demanded = new Set(this.demands.values());
    this.lifetime = SERVER_LIFETIMES.findLast((one) => demanded.has(one)) ?? this.setting;
  }

  private endIfEphemeral(): void {
    if (this.lifetime === 'ephemeral') this.endIfIdle();
  }
}
