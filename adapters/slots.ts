/** Owns the cap on simultaneous connections; refuses a further one until a connection is idle and can be given up. */
import { TollgateError } from '../catalogs/errors.ts';

/** One who holds a slot while it is connected or connecting. */
export interface SlotHolder {
  /** True while a call is in flight or a start under way: it cannot be given up. */
  busy(): boolean;
  /** Monotonic milliseconds of the last use. */
  lastUsed(): number;
  /** Ends the connection, so that another server can have the slot; the next use connects again. */
  giveUp(): Promise<void>;
}

interface Waiter {
  readonly holder: SlotHolder;
  readonly grant: (victim: SlotHolder | undefined) => void;
}

/** The slots of all servers of one process (HA-05). First come, first served; the least recently used idle connection yields. */
export class ConnectionSlots {
  private readonly limit: number;
  private readonly held = new Set<SlotHolder>();
  private readonly waiting: Waiter[] = [];

  constructor(limit: number) {
    this.limit = limit;
  }

  /** Waits for a slot at most this long, then throws SERVER_UNAVAILABLE. The holder gives it back by `release`. */
  async acquire(holder: SlotHolder, timeoutMs: number): Promise<void> {
    const victim = await new Promise<SlotHolder | undefined>((resolve, reject) => {
      const timer = setTimeout(() => {
        this.waiting.splice(this.waiting.indexOf(waiter), 1);
        reject(new TollgateError('SERVER_UNAVAILABLE', { detail: `All ${this.limit} connections to servers are in use.`, next: 'Call again later, or raise limits.connections in tollgate.yaml.' }));
      }, timeoutMs);
      const grant: Waiter['grant'] = (yielding) => {
        clearTimeout(timer);
        resolve(yielding);
      };
      const waiter: Waiter = { holder, grant };
      this.waiting.push(waiter);
      this.serve();
    });
    await victim?.giveUp();
  }

  /** Gives the slot back. Nothing happens if another has taken it over. */
  release(holder: SlotHolder): void {
    if (this.held.delete(holder)) this.serve();
  }

  /** To be called when a holder may have become idle. */
  noteIdle(): void {
    if (this.waiting.length > 0) this.serve();
  }

  private serve(): void {
    for (let next = this.waiting[0]; next !== undefined; next = this.waiting[0]) {
      const victim = this.held.size < this.limit ? undefined : this.leastRecentlyUsed();
      if (this.held.size >= this.limit && victim === undefined) return;
      this.waiting.shift();
      // The slot changes hands before the connection ends, so that no third can slip in between.
      if (victim !== undefined) this.held.delete(victim);
      this.held.add(next.holder);
      next.grant(victim);
    }
  }

  private leastRecentlyUsed(): SlotHolder | undefined {
    let found: SlotHolder | undefined;
    for (const holder of this.held) {
      if (!holder.busy() && (found === undefined || holder.lastUsed() < found.lastUsed())) found = holder;
    }
    return found;
  }
}
