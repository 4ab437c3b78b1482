/**
 * Guards the progress that a server reports during one call: three fields, redacted, escaped, short, increasing and
 * limited in rate.
 */
import { escapeHostile } from '../../catalogs/text/hostile-text.ts';
import type { Redactor } from './redactor.ts';

type Params = Readonly<Record<string, unknown>>;

/** Bytes of a message that reach the client. */
export const MESSAGE_BYTES = 512;
/**
 * UTF-16 units of a message that are still read. A longer one is left out, because searching it for secrets would cost
 * too much.
 */
const READ_CHARS = 65_536;
/** Notifications that pass at once; then one in each interval. */
const BURST = 20;
const INTERVAL_MS = 100;
const CUT = '…';

/**
 * What was done to the progress of one call, for its outcome record. `coalesced`: a newer one replaced it. `refused`:
 * it broke the protocol.
 */
export interface ProgressCounts {
  sent: number;
  coalesced: number;
  refused: number;
  redactions: number;
  escaped: number;
  cut: number;
}

/** The progress of one call. `end` must be called before the reply is sent. */
export class ServerProgress {
  readonly counts: ProgressCounts = { sent: 0, coalesced: 0, refused: 0, redactions: 0, escaped: 0, cut: 0 };
  readonly #send: (params: Params) => void;
  readonly #redactor: Redactor;
  #last = Number.NEGATIVE_INFINITY;
  #room = BURST;
  #filledAt = performance.now();
  #held: Params | undefined;
  #timer: NodeJS.Timeout | undefined;
  #ended = false;

  constructor(send: (params: Params) => void, redactor: Redactor) {
    this.#send = send;
    this.#redactor = redactor;
  }

  /**
   * Takes the params of one notification. A value that is not an increasing finite number is refused (MCP 2025-11-25,
   * progress).
   */
  readonly take = (params: Params): void => {
    const { progress } = params;
    if (this.#ended || typeof progress !== 'number' || !Number.isFinite(progress) || progress <= this.#last) {
      this.counts.refused += 1;
      return;
    }
    this.#last = progress;
    if (this.#held !== undefined) this.counts.coalesced += 1;
    this.#held = params;
    const wait = this.#waitMs();
    if (wait <= 0) this.#release();
    else this.#timer ??= setTimeout(() => this.#release(), wait);
  };

  /** Sends the newest notification that still waits, and accepts no more. Can be called again. */
  end(): void {
    this.#release();
    this.#ended = true;
  }

  /** Milliseconds until the next one may pass. */
  #waitMs(): number {
    const now = performance.now();
    const gained = Math.floor((now - this.#filledAt) / INTERVAL_MS);
    if (gained > 0) {
      this.#room = Math.min(BURST, this.#room + gained);
      this.#filledAt += gained * INTERVAL_MS;
    }
    return this.#room > 0 ? 0 : this.#filledAt + INTERVAL_MS - now;
  }

  #release(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    const params = this.#held;
    if (params === undefined) return;
    this.#held = undefined;
    this.#room = Math.max(0, this.#room - 1);
    this.counts.sent += 1;
    this.#send(this.#clean(params));
  }

  #clean({ progress, total, message }: Params): Params {
    return {
      progress,
      ...(typeof total === 'number' && Number.isFinite(total) && { total }),
      ...(typeof message === 'string' && { message: this.#cleanMessage(message) }),
    };
  }

  #cleanMessage(message: string): string {
    if (message.length > READ_CHARS) {
      this.counts.cut += 1;
      return `[tollgate: a message of ${message.length} characters was left out]`;
    }
    const redacted = this.#redactor.redact(message);
    const escaped = escapeHostile(redacted.value);
    this.counts.redactions += redacted.count;
    this.counts.escaped += escaped.count;
    if (Buffer.byteLength(escaped.text) <= MESSAGE_BYTES) return escaped.text;
    this.counts.cut += 1;
    // A character that the cut divides ends as U+FFFD, so it is removed too.
    const head = Buffer.from(escaped.text.slice(0, MESSAGE_BYTES))
      .subarray(0, MESSAGE_BYTES - Buffer.byteLength(CUT))
      .toString('utf8');
    return head.replace(/\ufffd$/, '') + CUT;
  }
}
