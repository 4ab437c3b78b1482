/** Limits the number of simultaneous connections to servers. Idle connections make room for new ones. */
import { setTimeout as sleep } from 'node:timers/promises';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import type { SharedConnectionSlots } from './server-settings.ts';

/** The owner of a slot, while it is connected or connecting. */
export interface SlotHolder {
  /** Returns true if a call is in flight or a start is in progress. The connection must not be closed then. */
  busy(): boolean;
  /** Returns the time of the last use, in monotonic milliseconds. */
  lastUsed(): number;
  /** Closes the connection, so that another server can have the slot. The next use connects again. */
  giveUp(): Promise<void>;
}

interface Waiter {
  readonly holder: SlotHolder;
  readonly grant: (ended: Promise<void> | undefined) => void;
}

/** Milliseconds between two attempts to get a connection that another process may have given up. */
const SHARED_POLL_MS = 100;

/**
 * The slots of all servers of this process. Each slot holds a lease on one of the connections that all processes share
 * (HA-05). Waiters are served in order. The least recently used idle connection is closed for them, first one of this
 * process, then one of another process.
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

  /** Waits for a slot. Throws SERVER_UNAVAILABLE after `timeoutMs`. The holder returns the slot with `release`. */
  async acquire(holder: SlotHolder, timeoutMs: number): Promise<void> {
    const deadline = performance.now() + timeoutMs;
    await this.acquireHere(holder, timeoutMs);
    if (this.shared === undefined) return;
    try {
      this.leases.set(holder, await this.lease(this.shared, holder, deadline));
    } catch (thrown) {
      this.release(holder);
      throw thrown;
    }
  }

  /** Closes the least recently used idle connection, if there is one, because another process needs it. */
  async yieldOne(): Promise<void> {
    const victim = this.leastRecentlyUsed();
    if (victim === undefined) return;
    this.held.delete(victim);
    await victim.giveUp();
  }

  private async lease(shared: SharedConnectionSlots, holder: SlotHolder, deadline: number): Promise<() => void> {
    for (;;) {
      const lease = await shared.take();
      if (lease !== undefined) return lease;
      const victim = this.leastRecentlyUsed();
      if (victim !== undefined && victim !== holder) {
        await this.yieldOne();
        continue;
      }
      if (performance.now() + SHARED_POLL_MS > deadline) throw this.allInUse(' in all processes');
      await shared.ask();
      await sleep(SHARED_POLL_MS);
    }
  }

  private allInUse(where: string): TollgateError {
    return new TollgateError('SERVER_UNAVAILABLE', {
      detail: `All ${this.limit} connections to servers are in use${where}.`,
      next: 'Call again later, or raise limits.connections in tollgate.yaml.',
    });
  }

  private async acquireHere(holder: SlotHolder, timeoutMs: number): Promise<void> {
    await new Promise<void>((resolve, reject) => {
      const timer = setTimeout(() => {
        this.waiting.splice(this.waiting.indexOf(waiter), 1);
        reject(this.allInUse(''));
      }, timeoutMs);
      const grant: Waiter['grant'] = (ended) => {
        clearTimeout(timer);
        // Waits until the connection that made room has ended.
        resolve(ended);
      };
      const waiter = { holder, grant };
      this.waiting.push(waiter);
      this.serve();
    });
  }

  /** Returns the slot. Does nothing if another holder has taken the slot over. */
  release(holder: SlotHolder): void {
    this.leases.get(holder)?.();
    this.leases.delete(holder);
    if (this.held.delete(holder)) this.serve();
  }

  /** Must be called when a holder may have become idle. */
  noteIdle(): void {
    if (this.waiting.length > 0) this.serve();
  }

  private serve(): void {
    for (let next = this.waiting[0]; next !== undefined; next = this.waiting[0]) {
      const victim = this.held.size < this.limit ? undefined : this.leastRecentlyUsed();
      if (this.held.size >= this.limit && victim === undefined) return;
      this.waiting.shift();
      // The slot changes its holder before the old connection ends, so that no third server can take it. The old
      // connection is closed in the same turn of the event loop, because it is idle only now.
      if (victim !== undefined) this.held.delete(victim);
      this.held.add(next.holder);
      // A failed end of the old connection is no reason to refuse the next one.
      next.grant(victim?.giveUp().catch(() => undefined));
    }
  }

  private leastRecentlyUsed(): SlotHolder | undefined {
    const idle = [...this.held].filter((holder) => !holder.busy());
    return idle.sort((left, right) => left.lastUsed() - right.lastUsed())[0];
  }
}
