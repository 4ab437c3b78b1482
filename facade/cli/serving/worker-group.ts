/**
 * `tollgate serve --workers`: the first process starts workers, which share its port, and starts them again when they
 * end. It serves nothing itself.
 */
import cluster, { type Worker } from 'node:cluster';
import { setTimeout as sleep } from 'node:timers/promises';
import { EXIT, type Io } from '../command-io.ts';
import { type FromWorker, METRICS_MS, SLOT_VARIABLE, type ToWorker } from './worker-link.ts';

/** The wait before a worker is started again, ms: doubled each time, up to the longest. */
const [RESTART_MS, LONGEST_MS] = [500, 30_000];
/** A worker that has run this long starts again after the shortest wait. */
const STABLE_MS = 60_000;

/** A worker that ended before it was ready. */
interface EarlyEnd {
  readonly code: number;
}

/** Runs workers until a signal comes. `onReady` is called when the first worker listens. Returns the exit code. */
export async function runWorkers(
  count: number,
  io: Pick<Io, 'stdout' | 'stderr' | 'stopped' | 'onUrge' | 'onHangup'>,
  onReady: () => Promise<{ close(): Promise<void> } | undefined>,
): Promise<number> {
  const { stopped } = io;
  // Each worker accepts from the common socket when it is free. A connection that the first process gave to a worker
  // would hang if that worker was killed at this moment.
  cluster.schedulingPolicy = cluster.SCHED_NONE;
  const group = new WorkerGroup(io);
  io.onHangup?.(() => group.signal('SIGHUP'));
  let isStopping = false;
  const stop = stopped.then(() => {
    isStopping = true;
    group.stop();
    const urge = (): void => {
      group.signal('SIGTERM');
      io.onUrge?.(urge);
    };
    io.onUrge?.(urge);
  });
  const first = await group.start(0);
  if (first !== undefined) return first.code;
  const window = isStopping ? undefined : await onReady();
  for (let slot = 1; slot < count && !isStopping; slot += 1) await group.start(slot);
  await stop;
  await window?.close();
  return group.ended();
}

class WorkerGroup {
  readonly #io: Pick<Io, 'stdout' | 'stderr'>;
  readonly #workers = new Map<number, Worker>();
  /** Workers that listen to messages. Node drops those that come earlier. */
  readonly #linked = new Set<number>();
  /** Workers that start, and whether they must read their configuration again afterwards. */
  readonly #starting = new Map<number, boolean>();
  /** Workers whose hosts listen to events. */
  readonly #listening = new Set<number>();
  /** Who asked for metrics, and who has not answered yet, by request. */
  readonly #asked = new Map<string, { readonly from: number; readonly open: Set<number> }>();
  #isAnnounced = false;
  readonly #stopping = new AbortController();
  #code: number = EXIT.ok;
  #onEmpty: (() => void) | undefined;

  constructor(io: Pick<Io, 'stdout' | 'stderr'>) {
    this.#io = io;
  }

  /**
   * Starts a worker. Resolves when it is ready, or with its end before that. The first one is not started again if it
   * was never ready: its configuration or its port is wrong.
   */
  async start(slot: number, waitMs = RESTART_MS): Promise<EarlyEnd | undefined> {
    const began = performance.now();
    return new Promise((resolve) => {
      let isReady = false;
      const end = (code: number | null, why: string): void => {
        this.#forget(slot);
        const isFirst = !this.#isAnnounced;
        resolve({ code: code ?? EXIT.unexpected });
        // A worker that is stopped before it was ready has served no one.
        if (this.#stopping.signal.aborted) this.#code ||= isReady ? (code ?? EXIT.unexpected) : EXIT.ok;
        else if (!isFirst) {
          const wait = performance.now() - began > STABLE_MS ? RESTART_MS : waitMs;
          this.#io.stderr(`Worker ${slot} ended (${why}). It is started again.\n`);
          void this.#restart(slot, wait);
        }
        if (this.#workers.size === 0) this.#onEmpty?.();
      };
      // It was not started, for example because there are too many processes. No exit follows.
      const fail = ({ code = 'unknown' }: NodeJS.ErrnoException): void => {
        if (!this.#isAnnounced) this.#io.stderr(`Worker ${slot} could not be started (${code}).\n`);
        end(null, code);
      };
      let worker: Worker;
      try {
        worker = cluster.fork({ [SLOT_VARIABLE]: String(slot) });
      } catch (thrown) {
        return fail(thrown as NodeJS.ErrnoException);
      }
      this.#workers.set(slot, worker);
      this.#starting.set(slot, false);
      worker.on('message', (message: FromWorker) => {
        isReady ||= message.kind === 'ready';
        if (isReady) resolve(undefined);
        this.#receive(slot, message);
      });
      worker.on('exit', (code, signal) => end(code, signal ?? `code ${code}`));
      worker.on('error', (error) => (worker.process.pid === undefined ? fail(error) : undefined));
    });
  }

  signal(signal: NodeJS.Signals): void {
    // A process that does not expect SIGHUP yet would end.
    for (const slot of this.#workers.keys())
      if (signal === 'SIGHUP' && this.#starting.has(slot)) this.#starting.set(slot, true);
      else this.#tell(slot, { kind: 'signal', signal });
  }

  stop(): void {
    this.#stopping.abort();
    this.signal('SIGTERM');
  }

  /** Resolves to the exit code when all workers have ended. */
  async ended(): Promise<number> {
    if (this.#workers.size > 0) await new Promise<void>((resolve) => (this.#onEmpty = resolve));
    return this.#code;
  }

  async #restart(slot: number, waitMs: number): Promise<void> {
    // The wait keeps the process alive: all workers may have ended.
    const { signal } = this.#stopping;
    await sleep(waitMs, undefined, { signal }).catch(() => undefined);
    if (!signal.aborted) await this.start(slot, Math.min(LONGEST_MS, 2 * waitMs));
  }

  #receive(slot: number, message: FromWorker): void {
    switch (message.kind) {
      case 'linked':
        this.#linked.add(slot);
        if (this.#stopping.signal.aborted) this.#tell(slot, { kind: 'signal', signal: 'SIGTERM' });
        break;
      case 'ready':
        if (!this.#isAnnounced) {
          this.#io.stdout(message.announcement.out);
          this.#io.stderr(message.announcement.err);
        }
        this.#isAnnounced = true;
        // A worker that is stopping would take this signal for a second stop, and end with code 1.
        if (this.#starting.get(slot) === true && !this.#stopping.signal.aborted)
          this.#tell(slot, { kind: 'signal', signal: 'SIGHUP' });
        this.#starting.delete(slot);
        this.#tellListening();
        break;
      case 'listening':
        if (message.isListening) this.#listening.add(slot);
        else this.#listening.delete(slot);
        this.#tellListening();
        break;
      case 'event':
        for (const one of this.#listening) if (one !== slot) this.#tell(one, message);
        break;
      case 'ask-metrics': {
        const others = [...this.#workers.keys()].filter((one) => one !== slot);
        this.#asked.set(message.id, { from: slot, open: new Set(others) });
        for (const one of others) this.#tell(one, message);
        // A worker that hangs does not answer, and the asker waits no longer.
        setTimeout(() => this.#asked.delete(message.id), METRICS_MS).unref();
        this.#closeAnswered();
        break;
      }
      case 'metrics': {
        const asked = this.#asked.get(message.id);
        if (asked !== undefined) this.#tell(asked.from, { ...message, slot });
        asked?.open.delete(slot);
        this.#closeAnswered();
      }
    }
  }

  /** A worker sends its events only while another one has a host that listens. */
  #tellListening(): void {
    for (const slot of this.#workers.keys())
      this.#tell(slot, { kind: 'listening', isListening: [...this.#listening].some((one) => one !== slot) });
  }

  #closeAnswered(): void {
    for (const [id, { from, open }] of this.#asked) {
      if (open.size > 0) continue;
      this.#asked.delete(id);
      this.#tell(from, { kind: 'no-more-metrics', id });
    }
  }

  #forget(slot: number): void {
    this.#workers.delete(slot);
    this.#linked.delete(slot);
    this.#starting.delete(slot);
    if (this.#listening.delete(slot)) this.#tellListening();
    for (const { open } of this.#asked.values()) open.delete(slot);
    this.#closeAnswered();
  }

  #tell(slot: number, message: ToWorker): void {
    const worker = this.#workers.get(slot);
    // A worker may end before the message reaches it.
    if (this.#linked.has(slot) && worker?.isConnected() === true) worker.send(message, () => undefined);
  }
}
