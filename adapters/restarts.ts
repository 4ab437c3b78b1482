/** Owns the question whether a server that was lost may be started again now; refuses endless restarts and hasty reconnects. */
import { TollgateError } from '../catalogs/errors.ts';
import type { ServerSettings } from './settings.ts';

const MAX_BACKOFF_MS = 30_000;

/**
 * A process is started again by the next call, at most `maxRetries` times while the adapter lives (HA-08). A remote server
 * costs nothing here while it is away, so it is tried without end, with pauses that double from `reconnectBackoffMs` to 30 s.
 */
export class Restarts {
  private readonly settings: ServerSettings;
  private losses = 0;
  private lossesInRow = 0;
  private retryAt = 0;
  private restarts = 0;
  private lastReason: string | undefined;

  constructor(settings: ServerSettings) {
    this.settings = settings;
  }

  /** Successful starts after a loss. */
  get count(): number {
    return this.restarts;
  }

  /** Why the server is not there; undefined when it was never lost, or is back. */
  get reason(): string | undefined {
    return this.lastReason;
  }

  /** Why no start may be tried at this time (monotonic milliseconds), or undefined. */
  refusal(now: number): TollgateError | undefined {
    const { name, transport, maxRetries } = this.settings;
    if (transport === 'stdio') {
      if (this.losses <= maxRetries) return undefined;
      const detail = `Server "${name}" was lost ${this.losses} times and is not started again in this session.`;
      return new TollgateError('SERVER_UNAVAILABLE', { detail, next: 'Use another tool; the server\'s log shows why it ended.' });
    }
    const wait = Math.ceil((this.retryAt - now) / 1000);
    if (wait <= 0) return undefined;
    return new TollgateError('SERVER_UNAVAILABLE', { detail: `${this.lastReason ?? `Server "${name}" is away.`} It is tried again in ${wait} s.` });
  }

  noteStart(): void {
    if (this.lastReason !== undefined) this.restarts++;
    this.lossesInRow = 0;
    this.lastReason = undefined;
  }

  /** `why` is one public line. */
  noteLoss(why: string, now: number): void {
    this.losses++;
    this.lossesInRow++;
    this.lastReason = why;
    this.retryAt = now + Math.min(this.settings.reconnectBackoffMs * 2 ** (this.lossesInRow - 1), MAX_BACKOFF_MS);
  }
}
