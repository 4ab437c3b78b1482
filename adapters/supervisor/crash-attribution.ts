/** Owns for whom the losses of a process count: for the sessions whose calls it took with it; refuses a session that keeps losing it, and no other. */
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { CRASH_WINDOW_MS } from './restarts.ts';
import type { ServerSettings } from './server-settings.ts';

/** Who is meant where no session is: lists, and starts by themselves. */
export const NO_SESSION = '';

/**
 * The sessions at one server, by their opaque names. Nobody can know which of several calls ended a process, so it counts for all that ran:
 * whoever does it again and again is among them each time. Times in monotonic milliseconds.
 */
export class CrashAttribution {
  private readonly settings: Pick<ServerSettings, 'name' | 'maxRetries'>;
  /** Session → its calls that run, or wait for a start. */
  private readonly inside = new Map<string, number>();
  private readonly losses = new Map<string, readonly number[]>();
  /** Who called last since the last loss. */
  private last: string | undefined;

  constructor(settings: Pick<ServerSettings, 'name' | 'maxRetries'>) {
    this.settings = settings;
  }

  /** True while something is done for anybody. */
  get isBusy(): boolean {
    return this.inside.size > 0;
  }

  /** What is done for a session: a loss meanwhile counts for it. Throws its refusal. */
  async runFor<T>(session: string, work: () => Promise<T>): Promise<T> {
    const refusal = this.refusal(session, performance.now());
    if (refusal !== undefined) throw refusal;
    this.inside.set(session, (this.inside.get(session) ?? 0) + 1);
    this.last = session;
    try {
      return await work();
    } finally {
      const left = (this.inside.get(session) ?? 0) - 1;
      if (left > 0) this.inside.set(session, left);
      else this.inside.delete(session);
    }
  }

  /** A person lets it start anew: no loss counts for any session. */
  forget(): void {
    this.losses.clear();
    this.last = undefined;
  }

  /** The process was lost, or did not start. */
  noteLoss(now: number): void {
    for (const [session, times] of this.losses) if (!times.some((at) => isRecent(at, now))) this.losses.delete(session);
    const blamed = this.inside.size > 0 ? [...this.inside.keys()] : [this.last ?? NO_SESSION];
    this.last = undefined;
    for (const session of blamed)
      this.losses.set(session, [...(this.losses.get(session) ?? []).filter((at) => isRecent(at, now)), now]);
  }

  /** A person lets the server be used again: no loss so far counts for anyone. */
  forgive(): void {
    this.losses.clear();
    this.last = undefined;
  }

  /** Why this session gets no call through at present, or undefined: it has lost the process more than `maxRetries` times within ten minutes (HA-08). */
  refusal(session: string, now: number): TollgateError | undefined {
    const { name, maxRetries } = this.settings;
    const times = (this.losses.get(session) ?? []).filter((at) => isRecent(at, now));
    const spent = times[times.length - 1 - maxRetries];
    if (spent === undefined) return undefined;
    const wait = Math.ceil(spent + CRASH_WINDOW_MS - now);
    const count = times.length === 1 ? 'once' : `${times.length} times`;
    return new TollgateError('SERVER_UNAVAILABLE', {
      detail: `Server "${name}" was lost ${count} within ten minutes while it worked for this session, which may call it again in ${Math.ceil(wait / 1000)} s.`,
      data: { retryAfterMs: wait },
    });
  }
}

function isRecent(at: number, now: number): boolean {
  return now - at < CRASH_WINDOW_MS;
}
