/** Owns the reports of blocked attempts; refuses to let a server that knocks a thousand times write a thousand records. */

/** Why an attempt to get out was refused. */
export type BlockReason = 'malformed' | 'not-allowed' | 'private-address' | 'other-name' | 'budget' | 'connections';

/** One kind of attempt of a server, once or more often. `host` is a host in its one spelling; absent where none could be read. */
export interface BlockedAttempt {
  readonly server: string;
  readonly reason: BlockReason;
  readonly host?: string;
  readonly port?: number;
  /** How often since the last report of the same. */
  readonly count: number;
}

/** Equal attempts within this time are one report. */
const WINDOW_MS = 10_000;
/** Different attempts that are reported within one window; more are counted together, without their hosts. */
const MAX_KINDS = 32;

/** Reports the first attempt of each kind at once, and how many more there were at the end of the window. */
export class BlockedAttempts {
  readonly #server: string;
  readonly #onBlocked: (blocked: BlockedAttempt) => void;
  readonly #windowMs: number;
  readonly #kinds = new Map<string, { readonly what: Omit<BlockedAttempt, 'count'>; more: number }>();
  #timer: NodeJS.Timeout | undefined;

  constructor(server: string, onBlocked: (blocked: BlockedAttempt) => void, windowMs = WINDOW_MS) {
    this.#server = server;
    this.#onBlocked = onBlocked;
    this.#windowMs = windowMs;
  }

  note(reason: BlockReason, target?: { readonly host: string; readonly port: number }): void {
    const key = target === undefined ? reason : `${reason} ${target.host} ${target.port}`;
    const known = this.#kinds.get(key) ?? (this.#kinds.size >= MAX_KINDS ? this.#kinds.get(reason) : undefined);
    if (known !== undefined) {
      known.more += 1;
      return;
    }
    const isFull = this.#kinds.size >= MAX_KINDS;
    const what = {
      server: this.#server,
      reason,
      ...(target !== undefined && !isFull && { host: target.host, port: target.port }),
    };
    this.#kinds.set(isFull ? reason : key, { what, more: 0 });
    this.#timer ??= setTimeout(() => this.flush(), this.#windowMs).unref();
    this.#onBlocked({ ...what, count: 1 });
  }

  /** Reports what was only counted, and begins a new window. */
  flush(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    const kinds = [...this.#kinds.values()];
    this.#kinds.clear();
    for (const { what, more } of kinds) if (more > 0) this.#onBlocked({ ...what, count: more });
  }
}
