/** One request that waits for its answer, with its deadline, its progress and the signal of its caller. */
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { type CancelSignal, cancelReason } from './cancellation.ts';
import type { JsonObject } from './message-parser.ts';
import type { JsonDoc } from './wire-message.ts';

/** One request to a server. */
export interface PeerRequest {
  readonly method: string;
  /** Returns the params as JSON text. The id is also the progress token. */
  readonly params: (id: number) => string;
  /** Sent with the request over HTTP. */
  readonly headers?: Readonly<Record<string, string>> | undefined;
  /** Milliseconds without an answer or progress. */
  readonly timeoutMs: number;
  /** Milliseconds that progress cannot extend. */
  readonly hardTimeoutMs: number;
  readonly signal?: CancelSignal;
  readonly onProgress?: ((params: Readonly<Record<string, unknown>>) => void) | undefined;
  /** What the request serves. The peer reports it with messages of the server that belong to this request. */
  readonly serves?: object | undefined;
}

/** How a request ends. */
interface PendingEnd {
  readonly resolve: (result: JsonDoc<JsonObject>) => void;
  readonly reject: (error: Error) => void;
}

/** What an ended request keeps of its request and its end. */
const ENDED: PeerRequest & PendingEnd = {
  method: '',
  params: () => '',
  timeoutMs: 0,
  hardTimeoutMs: 0,
  resolve: () => undefined,
  reject: () => undefined,
};

/**
 * A request in flight. Its peer ends it at `expiresAt`. An ended one refers to nothing: the map of a peer may refer to
 * it until the next complete garbage collection, and with it to all that its call has made.
 */
export class PendingCall {
  readonly method: string;
  private end!: PendingEnd;
  private request: PeerRequest;
  private readonly hardAt: number;
  /** Monotonic milliseconds. Progress moves it to later. */
  expiresAt: number;
  private lastProgress = Number.NEGATIVE_INFINITY;
  private onAbort: (() => void) | undefined;
  /** Requests of the server to the client that are not answered yet. */
  private asked = 0;

  /** `giveUp` cancels the call; the peer then informs the server. */
  constructor(request: PeerRequest, giveUp: (error: TollgateError) => void) {
    this.method = request.method;
    this.request = request;
    const now = performance.now();
    this.hardAt = now + request.hardTimeoutMs;
    this.expiresAt = Math.min(now + request.timeoutMs, this.hardAt);
    if (request.signal !== undefined) {
      const { signal } = request;
      this.onAbort = () => giveUp(cancelReason(signal));
      signal.addEventListener('abort', this.onAbort, { once: true });
    }
  }

  /** Returns the promise of the result. Called once. */
  result(): Promise<JsonDoc<JsonObject>> {
    return new Promise((resolve, reject) => (this.end = { resolve, reject }));
  }

  resolve(result: JsonDoc<JsonObject>): void {
    this.release().resolve(result);
  }

  reject(error: Error): void {
    this.release().reject(error);
  }

  /** Returns false if progress was not requested, is not a number, or does not increase (MCP 2025-11-25, progress). */
  progress(params: Readonly<Record<string, unknown>>): boolean {
    const { progress } = params;
    const { onProgress, timeoutMs } = this.request;
    if (onProgress === undefined || typeof progress !== 'number' || progress <= this.lastProgress) return false;
    this.lastProgress = progress;
    if (this.asked === 0) this.expiresAt = Math.min(performance.now() + timeoutMs, this.hardAt);
    onProgress(params);
    return true;
  }

  /** See PeerRequest. */
  get serves(): object | undefined {
    return this.request.serves;
  }

  /** Only the hard deadline counts until each request of the server during this call has its answer. */
  pauseWhileAsked(): void {
    this.asked += 1;
    this.expiresAt = this.hardAt;
  }

  /** Ends one pause. The deadline starts again when none is left. */
  resume(): void {
    this.asked -= 1;
    if (this.asked === 0) this.expiresAt = Math.min(performance.now() + this.request.timeoutMs, this.hardAt);
  }

  private release(): PendingEnd {
    const { end, onAbort, request } = this;
    if (onAbort !== undefined) request.signal?.removeEventListener('abort', onAbort);
    this.onAbort = undefined;
    [this.request, this.end] = [ENDED, ENDED];
    return end;
  }

  /** Returns the error for a call whose deadline has passed at `now`. */
  timeout(now: number): TollgateError {
    const { timeoutMs, hardTimeoutMs } = this.request;
    const why =
      now >= this.hardAt ? `took longer than ${hardTimeoutMs} ms in all` : `did not answer within ${timeoutMs} ms`;
    return new TollgateError('TOOL_TIMEOUT', { detail: `The tool ${why} and was cancelled.` });
  }
}
