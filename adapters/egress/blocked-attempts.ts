/** Reports blocked attempts. Repeated attempts of a server become one report. */

/** Why a connection attempt was refused. */
export type BlockReason = 'malformed' | 'not-allowed' | 'private-address' | 'other-name' | 'budget' | 'connections';

/** Equal attempts of a server. `host` is in canonical form, and absent if the request named none that can be read. */
export interface BlockedAttempt {
  readonly server: string;
  readonly reason: BlockReason;
  readonly host?: string;
  readonly port?: number;
  /** The number of equal attempts since the last report of them. */
  readonly count: number;
}

/** Milliseconds in which equal attempts become one report. */
const WINDOW_MS = 10_000;
/** Different attempts with their own report in one window. Further ones are counted together, without their hosts. */
const MAX_KINDS = 32;

/** Reports the first attempt of each kind immediately, and the number of further ones at the end of the window. */
export class BlockedAttempts {
  readonly #server: string;
  readonly #onBlocked: (blocked: BlockedAttempt) => void;
  readonly #windowMs: number;
  readonly #kinds = new Map<string, { readonly attempt: Omit<BlockedAttempt, 'count'>; more: number }>();
  #timer: NodeJS.Timeout | undefined;

  constructor(server: string, onBlocked: (blocked: BlockedAttempt) => void, windowMs = WINDOW_MS) {
    this.#server = server;
    this.#onBlocked = onBlocked;
    this.#windowMs = windowMs;
  }

  /** Counts one attempt. */
  note(reason: BlockReason, target?: { readonly host: string; readonly port: number }): void {
    const key = target === undefined ? reason : `${reason} ${target.host} ${target.port}`;
    const known = this.#kinds.get(key) ?? (this.#kinds.size >= MAX_KINDS ? this.#kinds.get(reason) : undefined);
    if (known !== undefined) {
      known.more += 1;
      return;
    }
    const isFull = this.#kinds.size >= MAX_KINDS;
    const attempt = {
      server: this.#server,
      reason,
      ...(target !== undefined && !isFull && { host: target.host, port: target.port }),
    };
    this.#kinds.set(isFull ? reason : key, { attempt, more: 0 });
    this.#timer ??= setTimeout(() => this.flush(), this.#windowMs).unref();
    this.#onBlocked({ ...attempt, count: 1 });
  }

  /** Reports the counted attempts, and begins a new window. */
  flush(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    const kinds = [...this.#kinds.values()];
    this.#kinds.clear();
    for (const { attempt, more } of kinds) if (more > 0) this.#onBlocked({ ...attempt, count: more });
  }
}
