/** Counts the losses of a server process per session, and refuses a session that keeps crashing it. */
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { CRASH_WINDOW_MS, countText } from './restarts.ts';
import type { ServerSettings } from './server-settings.ts';

/** The session name for work without a session: lists, and starts that no call asked for. */
export const NO_SESSION = '';

/**
 * The sessions at one server, by their opaque names. No one can tell which of several calls crashed a process, so the
 * loss counts for every session with a running call. A session that crashes it repeatedly is among them every time.
 * Times are in monotonic milliseconds.
 */
export class CrashAttribution {
  private readonly settings: Pick<ServerSettings, 'name' | 'maxRetries'>;
  /** The number of calls per session that run or wait for a start. */
  private readonly running = new Map<string, number>();
  private readonly losses = new Map<string, readonly number[]>();
  /** The session that called last since the last loss. */
  private lastCaller: string | undefined;

  constructor(settings: Pick<ServerSettings, 'name' | 'maxRetries'>) {
    this.settings = settings;
  }

  /** True while work runs for any session. */
  get isBusy(): boolean {
    return this.running.size > 0;
  }

  /** Notes that work begins for a session. A loss before `end` counts for it. Throws what `refusal` returns. */
  begin(session: string): void {
    const refusal = this.losses.size === 0 ? undefined : this.refusal(session, performance.now());
    if (refusal !== undefined) throw refusal;
    this.running.set(session, (this.running.get(session) ?? 0) + 1);
    this.lastCaller = session;
  }

  /** Notes that work of a session has ended. */
  end(session: string): void {
    const left = (this.running.get(session) ?? 0) - 1;
    if (left > 0) this.running.set(session, left);
    else this.running.delete(session);
  }

  /** Runs work for a session, between `begin` and `end`. */
  async runFor<T>(session: string, work: () => Promise<T>): Promise<T> {
    this.begin(session);
    try {
      return await work();
    } finally {
      this.end(session);
    }
  }

  /** Forgets all losses, because a person allowed the server to be used again. */
  forget(): void {
    this.losses.clear();
    this.lastCaller = undefined;
  }

  /** Notes that the process ended by itself, or did not start. */
  noteLoss(now: number): void {
    for (const [session, times] of this.losses) if (!times.some((at) => isRecent(at, now))) this.losses.delete(session);
    const sessions = this.running.size > 0 ? [...this.running.keys()] : [this.lastCaller ?? NO_SESSION];
    this.lastCaller = undefined;
    for (const session of sessions)
      this.losses.set(session, [...(this.losses.get(session) ?? []).filter((at) => isRecent(at, now)), now]);
  }

  /**
   * Returns why this session may not call now, or undefined. A session is refused after more than `maxRetries` losses
   * within ten minutes (HA-08).
   */
  refusal(session: string, now: number): TollgateError | undefined {
    const { name, maxRetries } = this.settings;
    const times = (this.losses.get(session) ?? []).filter((at) => isRecent(at, now));
    const oldest = times[times.length - 1 - maxRetries];
    if (oldest === undefined) return undefined;
    const wait = Math.ceil(oldest + CRASH_WINDOW_MS - now);
    return new TollgateError('SERVER_UNAVAILABLE', {
      detail:
        `Server "${name}" was lost ${countText(times.length)} within ten minutes during calls of this session, ` +
        `which may call it again in ${Math.ceil(wait / 1000)} s.`,
      data: { retryAfterMs: wait },
    });
  }
}

function isRecent(at: number, now: number): boolean {
  return now - at < CRASH_WINDOW_MS;
}
