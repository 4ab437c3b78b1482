/** Owns the question whether and when a server that was lost is started again; refuses endless restarts and hasty reconnects. */

import { TollgateError } from '../../catalogs/errors/error-table.ts';
import type { RestartAttempts, ServerEventDetails } from './server-events.ts';
import type { ServerSettings } from './server-settings.ts';

/** Pauses before a kept process is started again by itself (PF-14). */
const PAUSES_MS = [1000, 5000, 30_000];
/** Losses count together when less time than this lies between them: of kept processes healthy time, of those on call any. */
export const CRASH_WINDOW_MS = 600_000;
/** How many sessions may use up their restarts of a process on call before it is taken from all. */
const SESSIONS = 10;
const MAX_BACKOFF_MS = 30_000;

/** Who starts a lost server again: a kept process and a remote server come back by themselves, any other waits for a call. */
export type RestartMode = 'on-call' | 'keep-alive' | 'remote';

/** What follows a loss: a start after this number of milliseconds, a start by the next call (`exhausted`: from now on), or no start, for now or for good (`never`). */
export type RestartDecision = number | 'on-call' | 'exhausted' | 'never';

/** One loss. Monotonic milliseconds; `why` is one public line. */
export interface ServerLoss {
  readonly why: string;
  readonly regime: RestartMode;
  readonly now: number;
}

/**
 * The losses of one server. A process on call is started again as often as its sessions may bring it back (see Blame), and for all of
 * them together at most ten times as often as for one, so that it is not started without end (HA-08). A kept one after 1, 5 and 30 s; its fourth crash within ten minutes of healthy time is its last. A remote one after pauses that double
 * from `reconnectBackoffMs` to 30 s, `maxRetries` times (HE-08); after that a call may try it once in 30 s.
 */
export class Restarts {
  private readonly settings: ServerSettings;
  /** When a process on call was lost, as far as it still counts. */
  private losses: number[] = [];
  private tries = 0;
  /** Healthy time at each crash that still counts. */
  private crashes: number[] = [];
  private healthyMs = 0;
  private healthySince: number | undefined;
  private retryAt = Number.NEGATIVE_INFINITY;
  private over: TollgateError | undefined;
  private restarts = 0;
  private lastReason: string | undefined;
  /** Of the last loss. */
  attempts: RestartAttempts = { attempt: 0 };

  constructor(settings: ServerSettings) {
    this.settings = settings;
  }

  /** Successful starts after a loss. */
  get count(): number {
    return this.restarts;
  }

  /** Failed tries since it was lost. */
  get failedTries(): number {
    return this.tries;
  }

  /** Why the server is not there; undefined when it was never lost, or is back. */
  get reason(): string | undefined {
    return this.lastReason;
  }

  /** Set when no start will be tried any more. */
  get end(): TollgateError | undefined {
    return this.over;
  }

  /** A person lets it be started again: no loss so far counts. */
  forgive(): void {
    [this.losses, this.crashes, this.tries] = [[], [], 0];
    this.retryAt = Number.NEGATIVE_INFINITY;
    this.over = undefined;
    this.lastReason = undefined;
  }

  /** Why no start may be tried at this time, or undefined. */
  refusal(now: number): TollgateError | undefined {
    if (this.over !== undefined) return this.over;
    const wait = Math.ceil(this.retryAt - now);
    if (wait <= 0) return undefined;
    const seconds = Math.ceil(wait / 1000);
    return new TollgateError('SERVER_UNAVAILABLE', {
      detail: `${this.lastReason ?? `Server "${this.settings.name}" is away.`} It is tried again in ${seconds} s.`,
      data: { retryAfterMs: wait },
    });
  }

  /** It is there; `false` when this was the first start, or one after an end in order. */
  noteStart(now: number): boolean {
    const again = this.lastReason !== undefined;
    if (again) this.restarts++;
    this.tries = 0;
    this.healthySince = now;
    this.lastReason = undefined;
    return again;
  }

  /** A person lets it start anew: no loss counts any more. */
  forget(): void {
    [this.losses, this.crashes, this.tries, this.retryAt] = [[], [], 0, Number.NEGATIVE_INFINITY];
    [this.over, this.lastReason] = [undefined, undefined];
  }

  /** It was ended in order: its healthy time stands still. */
  noteStop(now: number): void {
    this.addHealth(now);
  }

  noteLoss(loss: ServerLoss): RestartDecision {
    this.addHealth(loss.now);
    this.tries++;
    this.lastReason = loss.why;
    if (loss.regime === 'on-call')
      return this.settings.transport === 'stdio' ? this.judgeOnCall(loss.now) : this.judgeRemote(loss.now, false);
    return loss.regime === 'remote' ? this.judgeRemote(loss.now, true) : this.judgeKept(loss.now);
  }

  private addHealth(now: number): void {
    if (this.healthySince !== undefined) this.healthyMs += now - this.healthySince;
    this.healthySince = undefined;
  }

  private judgeOnCall(now: number): RestartDecision {
    this.losses = [...this.losses.filter((at) => now - at < CRASH_WINDOW_MS), now];
    const count = this.losses.length;
    const maxAttempts = this.settings.maxRetries * SESSIONS;
    const spent = this.losses[count - 1 - maxAttempts];
    this.attempts = { attempt: count, maxAttempts };
    if (spent === undefined) return 'on-call';
    this.retryAt = spent + CRASH_WINDOW_MS;
    this.lastReason =
      `${this.lastReason ?? ''} It was lost ${count === 1 ? 'once' : `${count} times`} within ten minutes.`.trimStart();
    return 'never';
  }

  private judgeKept(now: number): RestartDecision {
    this.crashes = [...this.crashes.filter((at) => this.healthyMs - at < CRASH_WINDOW_MS), this.healthyMs];
    const pause = PAUSES_MS[this.crashes.length - 1];
    this.attempts = { attempt: this.crashes.length, maxAttempts: PAUSES_MS.length };
    if (pause === undefined)
      return this.giveUp(`crashed ${this.crashes.length} times within ten minutes of work and is disabled.`);
    this.retryAt = now + pause;
    return pause;
  }

  private judgeRemote(now: number, background: boolean): RestartDecision {
    const { maxRetries } = this.settings;
    const isExhausted = this.tries > maxRetries;
    const pause = isExhausted
      ? MAX_BACKOFF_MS
      : Math.min(this.settings.reconnectBackoffMs * 2 ** (this.tries - 1), MAX_BACKOFF_MS);
    this.retryAt = now + pause;
    this.attempts = { attempt: this.tries, ...(background && { maxAttempts: maxRetries }) };
    if (!background) return 'on-call';
    if (!isExhausted) return pause;
    return this.tries === maxRetries + 1 ? 'exhausted' : 'on-call';
  }

  private giveUp(what: string): RestartDecision {
    const { name } = this.settings;
    const next = `Use another tool. The owner mends it and starts it again with \`tollgate servers enable ${name}\`.`;
    this.over = new TollgateError('SERVER_UNAVAILABLE', { detail: `Server "${name}" ${what}`, next, retryable: false });
    return 'never';
  }
}

/** How a connection ended: `error` is that of a start, `exit` the code or signal of a process, or `memory`. */
export interface LossCause {
  readonly error?: TollgateError;
  readonly exit?: number | string;
}

/** What else is known of the loss. `tries` counts the failed ones since it was last there, this one included. */
export interface LossFacts extends LossCause {
  readonly isProcess: boolean;
  readonly wasReady: boolean;
  readonly tries: number;
  readonly attempts: RestartAttempts;
}

/** The events of one loss, in order. */
export function lossEvents(
  outlook: RestartDecision,
  { isProcess, wasReady, tries, attempts, error, exit }: LossFacts,
): readonly ServerEventDetails[] {
  const next = { ...attempts, ...(typeof outlook === 'number' && { inMs: outlook }) };
  const lost: ServerEventDetails = isProcess
    ? { event: 'crashed', ...(exit === undefined ? {} : { exit }), ...next }
    : { event: 'disconnected', ...next };
  const first: ServerEventDetails = wasReady
    ? lost
    : { event: 'start.failed', code: error?.code ?? 'INIT_FAILED', ...next };
  if (outlook === 'never') return [first, { event: 'failed', tries }];
  return outlook === 'exhausted' ? [first, { event: 'reconnect.exhausted', tries: tries - 1 }] : [first];
}
