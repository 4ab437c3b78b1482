/** The workers for evaluations that must not block this thread. A worker that does not finish in time is ended. */
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { FairQueue } from './fair-queue.ts';
import { type PolicyQuery, type WorkerAnswer, WorkerHandle, type WorkerParts } from './worker-handle.ts';

interface PendingQuery {
  readonly query: PolicyQuery;
  settle(answer: WorkerAnswer): void;
}

/**
 * Evaluates in two workers, one query of a principal at a time (see fair-queue.ts). A query without end uses one worker
 * until its deadline, while other queries of its caller wait behind those of others. It is then refused, and its worker
 * is ended and replaced; the other worker continues. If a worker exits, its query is refused.
 */
export class WorkerEvaluator {
  readonly #parts: WorkerParts;
  readonly #turns = new FairQueue<PendingQuery>();
  #workers: readonly WorkerHandle[];
  #closed = false;

  constructor(parts: WorkerParts) {
    this.#parts = parts;
    this.#workers = [this.#begin(), this.#begin()];
  }

  /** Resolves when both workers are ready. Throws POLICY_INVALID if the module cannot be loaded. */
  async start(): Promise<void> {
    try {
      await Promise.all(this.#workers.map(({ ready }) => ready));
    } catch (thrown) {
      this.close();
      throw new TollgateError('POLICY_INVALID', {
        detail: thrown instanceof Error ? thrown.message : 'The policy cannot be loaded.',
        cause: thrown,
      });
    }
  }

  /** Throws POLICY_FAILED. */
  async evaluate(query: PolicyQuery): Promise<Readonly<Record<string, unknown>>> {
    if (this.#closed) throw new TollgateError('POLICY_FAILED', { detail: 'The policy is closed.' });
    const pending = new Promise<WorkerAnswer>((settle) => this.#turns.add(query, { query, settle }));
    this.#replaceDead();
    this.#serve();
    const answer = await pending;
    if ('failed' in answer) throw new TollgateError('POLICY_FAILED', { detail: answer.failed });
    return answer.result;
  }

  close(): void {
    this.#closed = true;
    for (const worker of this.#workers) worker.stop();
    this.#refuse('The policy is closed.');
  }

  #serve(): void {
    for (const worker of this.#workers.filter(({ free }) => free)) {
      const turn = this.#turns.take();
      if (turn === undefined) return;
      void worker.ask(turn.item.query).then((answer) => {
        turn.item.settle(answer);
        this.#turns.done(turn.principal);
        this.#replaceDead();
        this.#serve();
      });
    }
  }

  #replaceDead(): void {
    if (this.#closed) return;
    this.#workers = this.#workers.map((worker) => {
      if (!worker.dead) return worker;
      worker.stop();
      return this.#begin();
    });
  }

  #begin(): WorkerHandle {
    const worker = new WorkerHandle(this.#parts);
    const failed = (thrown: unknown): void => {
      // The next query starts the workers again. Queries do not wait for workers that cannot start.
      if (this.#workers.every(({ dead }) => dead))
        this.#refuse(thrown instanceof Error ? thrown.message : 'The policy cannot be loaded.');
    };
    void worker.ready.then(() => this.#serve(), failed);
    return worker;
  }

  #refuse(failed: string): void {
    for (const { settle } of this.#turns.clear()) settle({ failed });
  }
}
