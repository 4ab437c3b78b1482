/**
 * The calls that hosts wait for. A call ends when its host cancels it, when the host disconnects, or when its time is
 * over. A host cannot cancel the calls of another.
 */
import { Cancellation, type CancelSignal } from '../../../adapters/rpc/cancellation.ts';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import type { Principal } from '../../../policies/port.ts';

/**
 * One call of a host. `by`: the principal of its token. `timeoutMs`: for all of it, including waits. `gone` is aborted
 * when the host disconnects.
 */
export interface HostCall {
  readonly by: Principal;
  readonly correlation: string | undefined;
  readonly timeoutMs: number | undefined;
  readonly gone: AbortSignal;
}

interface Running {
  readonly by: string;
  readonly correlation: string | undefined;
  readonly cancel: Cancellation;
}

/** The running calls of one host API. */
export class HostCalls {
  readonly #running = new Set<Running>();

  /** Does the work of a call; the signal that it gets ends it. `closed`: the end of its session. */
  async within<T>(
    { by, correlation, timeoutMs, gone }: HostCall,
    closed: AbortSignal,
    work: (signal: CancelSignal) => Promise<T>,
  ): Promise<T> {
    const cancel = new Cancellation();
    const running: Running = { by: by.id, correlation, cancel };
    const hangUp = (): void =>
      cancel.abort(new TollgateError('CANCELLED', { detail: 'The host closed the connection of this call.' }));
    const endSession = (): void =>
      cancel.abort(
        closed.reason instanceof TollgateError
          ? closed.reason
          : new TollgateError('CANCELLED', { detail: 'The session ended.' }),
      );
    const endLate = (): void =>
      cancel.abort(
        new TollgateError('TOOL_TIMEOUT', {
          detail: `The call took longer than the ${timeoutMs} ms that its host allowed, and was cancelled.`,
        }),
      );
    const timer = timeoutMs === undefined ? undefined : setTimeout(endLate, timeoutMs);
    gone.addEventListener('abort', hangUp, { once: true });
    closed.addEventListener('abort', endSession, { once: true });
    if (gone.aborted) hangUp();
    if (closed.aborted) endSession();
    this.#running.add(running);
    try {
      return await work(cancel);
    } finally {
      this.#running.delete(running);
      clearTimeout(timer);
      // Both outlive the call.
      gone.removeEventListener('abort', hangUp);
      closed.removeEventListener('abort', endSession);
    }
  }

  /**
   * Cancels the calls with a correlation id: those of this principal, and for an owner those of all. Returns how many.
   */
  cancel(by: Principal, correlation: string): number {
    const found = [...this.#running].filter(
      (one) => one.correlation === correlation && (by.owner === true || one.by === by.id),
    );
    for (const { cancel } of found)
      cancel.abort(new TollgateError('CANCELLED', { detail: 'The host cancelled the call.' }));
    return found.length;
  }
}
