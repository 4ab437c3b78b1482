/** Owns the cap on simultaneous connections; refuses a further one until a connection is idle and can be given up. */
import { setTimeout as sleep } from 'node:timers/promises';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import type { SharedConnectionSlots } from './server-settings.ts';

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
  readonly grant: (ended: Promise<void> | undefined) => void;
}

/** Between two questions for a connection that another process may have given up. */
const ASK_MS = 100;

/**
 * The slots of all servers of one process, each with a lease on one connection of all processes (HA-05). First come, first
 * served; the least recently used idle connection yields, first of this process, then of others.
 */
export class ConnectionSlots {
  private readonly limit: number;
  private readonly shared: SharedConnectionSlots | undefined;
  private readonly held = new Set<SlotHolder>();
  private readonly waiting: Waiter[] = [];
  private readonly leases = new Map<SlotHolder, () => void>();

  constructor(limit: number, shared?: SharedConnectionSlots) {
    this.limit = limit;
    this.shared = shared;
  }

  /** Waits for a slot at most this long, then throws SERVER_UNAVAILABLE. The holder gives it back by `release`. */
  async acquire(holder: SlotHolder, timeoutMs: number): Promise<void> {
    const deadline = performance.now() + timeoutMs;
    await this.acquireHere(holder, timeoutMs);
    if (this.shared === undefined) return;
    try {
      this.leases.set(holder, await this.lease(this.shared, { holder, deadline }));
    } catch (thrown) {
      this.release(holder);
      throw thrown;
    }
  }

  /** Gives up the idle connection longest unused, if there is one: another process needs it. */
  async yieldOne(): Promise<void> {
    const victim = this.leastRecentlyUsed();
    if (victim === undefined) return;
    this.held.delete(victim);
    await victim.giveUp();
  }

  private async lease(
    shared: SharedConnectionSlots,
    { holder, deadline }: { holder: SlotHolder; deadline: number },
  ): Promise<() => void> {
    for (;;) {
      const lease = await shared.take();
      if (lease !== undefined) return lease;
      const victim = this.leastRecentlyUsed();
      if (victim !== undefined && victim !== holder) {
        await this.yieldOne();
        continue;
      }
      if (performance.now() + ASK_MS > deadline) throw this.inUse(' in all processes');
      await shared.ask();
      await sleep(ASK_MS);
    }
  }

  private inUse(where: string): TollgateError {
    return new TollgateError('SERVER_UNAVAILABLE', {
      detail: `All ${this.limit} connections to servers are in use${where}.`,
      next: 'Call again later, or raise limits.connections in tollgate.yaml.',
    });
  }

  private async acquireHere(holder: SlotHolder, timeoutMs: number): Promise<void> {
    await new Promise<void>((resolve, reject) => {
      const timer = setTimeout(() => {
        this.waiting.splice(this.waiting.indexOf(waiter), 1);
        reject(this.inUse(''));
      }, timeoutMs);
      const grant: Waiter['grant'] = (ending) => {
        clearTimeout(timer);
        // Until the other connection has ended.
        resolve(ending);
      };
      const waiter: Waiter = { holder, grant };
      this.waiting.push(waiter);
      this.serve();
    });
  }

  /** Gives the slot back. Nothing happens if another has taken it over. */
  release(holder: SlotHolder): void {
    this.leases.get(holder)?.();
    this.leases.delete(holder);
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
      // The slot changes hands before the connection ends, so that no third can slip in between. It is given up in this turn: it is idle now.
      if (victim !== undefined) this.held.delete(victim);
      this.held.add(next.holder);
      // What it leaves behind is no reason to refuse the next one.
      next.grant(victim?.giveUp().catch(() => undefined));
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
