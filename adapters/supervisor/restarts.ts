/** Decides whether and when a lost server is started again. It limits the number and the rate of restarts. */

import { TollgateError } from '../../catalogs/errors/error-table.ts';
import type { RestartAttempts, ServerEventDetails } from './server-events.ts';
import { type ServerSettings, serverUnavailable } from './server-settings.ts';

/** Pauses before Tollgate restarts a keep-alive process (PF-14). */
const PAUSES_MS = [1000, 5000, 30_000];
/** Losses within this time count together. For keep-alive processes only healthy time counts. */
export const CRASH_WINDOW_MS = 600_000;
/** The number of sessions that may use up their restarts of a process. After that, all sessions are refused. */
const SESSIONS = 10;
const MAX_BACKOFF_MS = 30_000;

/** What restarts a lost server: the next call (`on-call`), or Tollgate itself. */
export type RestartMode = 'on-call' | 'keep-alive' | 'remote';

/**
 * What follows a loss: a start after this number of milliseconds; a start by the next call (`exhausted`: from now on,
 * because all attempts failed); or no start, for some time or for good (`never`).
 */
export type RestartDecision = number | 'on-call' | 'exhausted' | 'never';

/** One loss. `now` is in monotonic milliseconds. `why` is one public line. */
export interface ServerLoss {
  readonly why: string;
  readonly mode: RestartMode;
  readonly now: number;
}

/**
 * The losses of one server.
 * - `on-call`: CrashAttribution limits the restarts of a process per session. For all sessions together, ten times as
 *   many are allowed, so that it is not restarted endlessly (HA-08).
 * - `keep-alive`: restarts after 1, 5 and 30 s. The fourth crash within ten minutes of healthy time is the last.
 * - `remote`: `maxRetries` attempts, with pauses that double from `reconnectBackoffMs` to 30 s (HE-08). After that, one
 *   call in 30 s may try.
 */
export class Restarts {
  private readonly settings: ServerSettings;
  /** Times of recent losses of an on-call process. */
  private losses: number[] = [];
  /** The number of failed starts since the loss. */
  failedTries = 0;
  /** The healthy time at each recent crash. */
  private crashes: number[] = [];
  private healthyMs = 0;
  private healthySince: number | undefined;
  private retryAt = Number.NEGATIVE_INFINITY;
  /** Set if the server will not be started again. */
  end: TollgateError | undefined;
  /** The number of successful starts after a loss. */
  count = 0;
  /** Why the server is not connected. Undefined if it was never lost, or is connected again. */
  reason: string | undefined;
  /** The attempts at the last loss. */
  attempts: RestartAttempts = { attempt: 0 };

  constructor(settings: ServerSettings) {
    this.settings = settings;
  }

  /** Returns why no start may be tried at this time, or undefined. */
  refusal(now: number): TollgateError | undefined {
    if (this.end !== undefined) return this.end;
    const wait = Math.ceil(this.retryAt - now);
    if (wait <= 0) return undefined;
    const reason = this.reason ?? `Server "${this.settings.name}" is not connected.`;
    return new TollgateError('SERVER_UNAVAILABLE', {
      detail: `${reason} The next attempt is possible in ${Math.ceil(wait / 1000)} s.`,
      data: { retryAfterMs: wait },
    });
  }

  /** Notes a successful start. Returns false for the first start, and for one after an orderly stop. */
  noteStart(now: number): boolean {
    const isRestart = this.reason !== undefined;
    if (isRestart) this.count++;
    this.failedTries = 0;
    this.healthySince = now;
    this.reason = undefined;
    return isRestart;
  }

  /** Forgets all losses, because a person allowed the server to be started again. */
  forget(): void {
    [this.losses, this.crashes, this.failedTries, this.retryAt] = [[], [], 0, Number.NEGATIVE_INFINITY];
    [this.end, this.reason] = [undefined, undefined];
  }

  /** Notes an orderly stop: the healthy time stops counting. */
  noteStop(now: number): void {
    if (this.healthySince !== undefined) this.healthyMs += now - this.healthySince;
    this.healthySince = undefined;
  }

  /** Notes a loss, or a failed start, and decides what follows. */
  noteLoss({ why, mode, now }: ServerLoss): RestartDecision {
    this.noteStop(now);
    this.failedTries++;
    this.reason = why;
    if (mode === 'keep-alive') return this.decideKeepAlive(now);
    return mode === 'on-call' && this.settings.transport === 'stdio'
      ? this.decideOnCall(now)
      : this.decideRemote(now, mode === 'remote');
  }

  private decideOnCall(now: number): RestartDecision {
    this.losses = [...this.losses.filter((at) => now - at < CRASH_WINDOW_MS), now];
    const count = this.losses.length;
    const maxAttempts = this.settings.maxRetries * SESSIONS;
    const oldest = this.losses[count - 1 - maxAttempts];
    this.attempts = { attempt: count, maxAttempts };
    if (oldest === undefined) return 'on-call';
    this.retryAt = oldest + CRASH_WINDOW_MS;
    this.reason = `${this.reason ?? ''} It was lost ${countText(count)} within ten minutes.`.trimStart();
    return 'never';
  }

  private decideKeepAlive(now: number): RestartDecision {
    this.crashes = [...this.crashes.filter((at) => this.healthyMs - at < CRASH_WINDOW_MS), this.healthyMs];
    const pause = PAUSES_MS[this.crashes.length - 1];
    this.attempts = { attempt: this.crashes.length, maxAttempts: PAUSES_MS.length };
    if (pause !== undefined) {
      this.retryAt = now + pause;
      return pause;
    }
    const { name } = this.settings;
    const times = countText(this.crashes.length);
    this.end = serverUnavailable(name, `crashed ${times} within ten minutes of healthy time and is disabled`, {
      next: `Use another tool. The owner can fix it and start it again with \`tollgate servers enable ${name}\`.`,
      retryable: false,
    });
    return 'never';
  }

  private decideRemote(now: number, background: boolean): RestartDecision {
    const { maxRetries, reconnectBackoffMs } = this.settings;
    const isExhausted = this.failedTries > maxRetries;
    const pause = isExhausted
      ? MAX_BACKOFF_MS
      : Math.min(reconnectBackoffMs * 2 ** (this.failedTries - 1), MAX_BACKOFF_MS);
    this.retryAt = now + pause;
    this.attempts = { attempt: this.failedTries, ...(background && { maxAttempts: maxRetries }) };
    if (!background) return 'on-call';
    if (!isExhausted) return pause;
    return this.failedTries === maxRetries + 1 ? 'exhausted' : 'on-call';
  }
}

/** Returns `once` or `N times`. */
export function countText(count: number): string {
  return count === 1 ? 'once' : `${count} times`;
}

/** How a connection ended. `error`: of a start. `exit`: the code or signal of a process, `memory` or `processes`. */
export interface LossCause {
  readonly error?: TollgateError;
  readonly exit?: number | string;
}

/** Further facts about a loss. */
export interface LossFacts extends LossCause {
  readonly isProcess: boolean;
  readonly wasReady: boolean;
}

/** Returns the events of the loss that `restarts` noted last, in order. */
export function lossEvents(
  { attempts, failedTries }: Restarts,
  decision: RestartDecision,
  { isProcess, wasReady, error, exit }: LossFacts,
): readonly ServerEventDetails[] {
  const next = { ...attempts, ...(typeof decision === 'number' && { inMs: decision }) };
  const lost: ServerEventDetails = isProcess
    ? { event: 'crashed', ...(exit === undefined ? {} : { exit }), ...next }
    : { event: 'disconnected', ...next };
  const first: ServerEventDetails = wasReady
    ? lost
    : { event: 'start.failed', code: error?.code ?? 'INIT_FAILED', ...next };
  if (decision === 'never') return [first, { event: 'failed', tries: failedTries }];
  return decision === 'exhausted' ? [first, { event: 'reconnect.exhausted', tries: failedTries - 1 }] : [first];
}
