/** Opens the protocol of a session: message in, reply out, independent of the transport. */
import type { WireMessage, WireText } from '../../adapters/rpc/wire-message.ts';
import type { Awaitable } from '../../catalogs/text/awaitable.ts';
import type { ClientNotice, SendMessage } from './facade-port.ts';
import { type Dispatch, type DispatchOptions, LegacyDispatch } from './legacy-dispatch.ts';
import { ModernDispatch } from './modern/modern-dispatch.ts';
import { type Era, eraOfMessage } from './protocol-revisions.ts';

/**
 * The most requests of one session at once. Above it pipes wait and HTTP refuses, so that a client cannot fill the
 * memory.
 */
export const MAX_RUNNING = 1024;

/** Opens the protocol of an era for one session, or of both eras, for a connection that may carry both. */
export function openDispatch(era: Era | 'both', options: DispatchOptions): Dispatch {
  switch (era) {
    case 'legacy':
      return new LegacyDispatch(options);
    case 'modern':
      return new ModernDispatch(options);
    case 'both':
      return new DualDispatch(options);
  }
}

/** Both eras on one connection, for one session: each message says its era. */
class DualDispatch implements Dispatch {
  readonly #legacy: LegacyDispatch;
  readonly #modern: ModernDispatch;

  readonly #options: DispatchOptions;
  #closed: Promise<void> | undefined;

  constructor(options: DispatchOptions) {
    this.#options = options;
    this.#legacy = new LegacyDispatch(options);
    this.#modern = new ModernDispatch(options);
  }

  get running(): number {
    const { facade, session } = this.#options;
    // Each era counts the tasks of the session.
    return this.#legacy.running + this.#modern.running - facade.runningTasks(session);
  }

  handle(message: WireMessage, send: SendMessage): Awaitable<WireText | undefined> {
    if (message.kind === 'request' && eraOfMessage(message) === 'modern') return this.#modern.handle(message, send);
    // A cancellation does not say its era.
    if (message.kind === 'notification') this.#modern.handle(message, send);
    return this.#legacy.handle(message, send);
  }

  toolsChanged(): void {
    this.#legacy.toolsChanged();
    this.#modern.toolsChanged();
  }

  notice(notice: ClientNotice): void {
    this.#legacy.notice(notice);
    this.#modern.notice(notice);
  }

  retell(): void {
    this.#modern.retell();
  }

  async drain(): Promise<void> {
    await Promise.all([this.#legacy.drain(), this.#modern.drain()]);
  }

  close(why: string, how?: 'released'): Promise<void> {
    return (this.#closed ??= this.#close(why, how));
  }

  async #close(why: string, how?: 'released'): Promise<void> {
    await Promise.all([this.#legacy.stop(why), this.#modern.stop(why)]);
    const { facade, session, onFault } = this.#options;
    await facade.closeSession(session, how).catch(onFault);
  }
}
