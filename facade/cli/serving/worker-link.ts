/**
 * The side of one worker of `tollgate serve --workers`: signals come as messages of the first process, because a signal
 * to the process group would arrive twice.
 */
import cluster from 'node:cluster';
import { randomUUID } from 'node:crypto';
import type { Principal } from '../../../policies/port.ts';
import type { EventFeed, FeedEvent } from '../../serve/host/event-feed.ts';

/** What a worker tells the first process. */
export type FromWorker =
  | { readonly kind: 'linked' }
  | { readonly kind: 'ready'; readonly announcement: Announcement }
  | { readonly kind: 'listening'; readonly isListening: boolean }
  | { readonly kind: 'event'; readonly event: FeedEvent }
  | { readonly kind: 'ask-metrics'; readonly id: string; readonly principal: Principal }
  | { readonly kind: 'metrics'; readonly id: string; readonly text: string };

/** What the first process tells a worker. */
export type ToWorker =
  | { readonly kind: 'signal'; readonly signal: NodeJS.Signals }
  | { readonly kind: 'listening'; readonly isListening: boolean }
  | { readonly kind: 'event'; readonly event: FeedEvent }
  | { readonly kind: 'ask-metrics'; readonly id: string; readonly principal: Principal }
  | { readonly kind: 'metrics'; readonly id: string; readonly slot: number; readonly text: string }
  | { readonly kind: 'no-more-metrics'; readonly id: string };

/** What is printed once, when the first worker listens: to stdout, and to stderr. */
export interface Announcement {
  readonly out: string;
  readonly err: string;
}

/** What workers share while they serve. */
export interface SharedByWorkers {
  readonly feed: EventFeed;
  /** Returns the metrics of this worker for a principal. */
  readonly metrics: (principal: Principal) => string;
}

/** One worker among several. */
export interface WorkerLink {
  /** Its number, from 0. One that takes the place of a dead worker has the same. */
  readonly slot: number;
  /** Called when the worker listens. */
  ready(announcement: Announcement): void;
  share(shared: SharedByWorkers): void;
  /** Returns the metrics of the other workers, by slot. One that does not answer in time is left out. */
  metricsOfOthers(principal: Principal): Promise<ReadonlyMap<number, string>>;
  /** Lets the process end. */
  close(): void;
}

/** A process with a channel to the first process. */
export type WorkerProcess = Pick<NodeJS.Process, 'send' | 'on' | 'connected' | 'channel'>;

/** The variable with the number of a worker. */
export const SLOT_VARIABLE = 'TOLLGATE_WORKER';
/** Longer than a worker takes that answers at all, ms. */
export const METRICS_MS = 2_000;
const SIGNALS: readonly string[] = ['SIGINT', 'SIGTERM', 'SIGHUP'];

/** Returns the link of a worker, and `on`, which its signal handlers use in place of that of the process. */
export function linkWorker(
  host: WorkerProcess,
  slot: number,
): { readonly link: WorkerLink; readonly on: typeof host.on } {
  const handlers: ((signal: NodeJS.Signals) => void)[] = [];
  /** Signals that came before this process listened to any. It has not read its configuration yet. */
  const early: NodeJS.Signals[] = [];
  const asked = new Map<string, { readonly found: Map<number, string>; readonly end: () => void }>();
  let shared: SharedByWorkers | undefined;
  const tell = (message: FromWorker): void => void (host.connected === true && host.send?.(message));
  const receive = (message: ToWorker): void => {
    switch (message.kind) {
      case 'signal':
        if (handlers.length === 0) early.push(message.signal);
        for (const handler of handlers) handler(message.signal);
        break;
      case 'listening':
        shared?.feed.relay(message.isListening ? (event) => tell({ kind: 'event', event }) : undefined);
        break;
      case 'event':
        shared?.feed.noteRelayed(message.event);
        break;
      case 'ask-metrics':
        tell({ kind: 'metrics', id: message.id, text: shared?.metrics(message.principal) ?? '' });
        break;
      case 'metrics':
        asked.get(message.id)?.found.set(message.slot, message.text);
        break;
      case 'no-more-metrics':
        asked.get(message.id)?.end();
    }
  };
  // Otherwise the worker would exit at once, without a drain, when the first process has ended.
  if (cluster.worker !== undefined) cluster.worker.exitedAfterDisconnect = true;
  host.on('message', receive as (message: unknown) => void);
  // The first process has ended, even if it was killed.
  host.on('disconnect', () => receive({ kind: 'signal', signal: 'SIGTERM' }));
  tell({ kind: 'linked' });
  for (const signal of SIGNALS) host.on(signal as NodeJS.Signals, () => undefined);
  const on = ((name: string, handler: (signal: NodeJS.Signals) => void) => {
    if (!SIGNALS.includes(name)) return host.on(name as 'message', handler as () => void);
    if (handlers.includes(handler)) return host;
    handlers.push(handler);
    for (const signal of early.splice(0)) handler(signal);
    return host;
  }) as typeof host.on;
  const link: WorkerLink = {
    slot,
    ready: (announcement) => tell({ kind: 'ready', announcement }),
    share: (given) => {
      shared = given;
      given.feed.onListening = (isListening) => tell({ kind: 'listening', isListening });
    },
    metricsOfOthers: async (principal) => {
      const id = randomUUID();
      const found = new Map<number, string>();
      await new Promise<void>((end) => {
        asked.set(id, { found, end });
        tell({ kind: 'ask-metrics', id, principal });
        setTimeout(end, METRICS_MS).unref();
      });
      asked.delete(id);
      return found;
    },
    close: () => host.channel?.unref(),
  };
  return { link, on };
}
