/** Owns the workers that evaluate what must not hold up this thread: two, each warm; stops what runs away and refuses what it was asked. */
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { FairQueue } from './fair-queue.ts';
import { type PolicyQuery, type WorkerAnswer, WorkerHandle, type WorkerParts } from './worker-handle.ts';

interface Asked {
  readonly question: PolicyQuery;
  settle(answer: WorkerAnswer): void;
}

/**
 * Evaluates in two workers, one question of a principal at a time, in turns (policies/engine/workers/fair-queue.ts): what runs away holds one
 * worker until its deadline, and what else its caller asks waits behind what others do. It is refused and its worker ended;
 * the other one, loaded and warm, goes on while a new one comes up. A worker that dies refuses what it had.
 */
export class WorkerEvaluator {
  /** User Rego sees its arguments whole. */
  readonly projects = false;
  readonly #parts: WorkerParts;
  readonly #turns = new FairQueue<Asked>();
  #workers: readonly WorkerHandle[];
  #closed = false;

  constructor(parts: WorkerParts) {
    this.#parts = parts;
    this.#workers = [this.#begin(), this.#begin()];
  }

  /** Resolves once both workers are warm. Throws POLICY_INVALID when the module cannot be loaded. */
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
  async evaluate(question: PolicyQuery): Promise<Readonly<Record<string, unknown>>> {
    if (this.#closed) throw new TollgateError('POLICY_FAILED', { detail: 'The policy is closed.' });
    const asked = new Promise<WorkerAnswer>((settle) => this.#turns.add(question, { question, settle }));
    this.#revive();
    this.#serve();
    const answer = await asked;
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
      void worker.ask(turn.item.question).then((answer) => {
        turn.item.settle(answer);
        this.#turns.done(turn.principal);
        this.#revive();
        this.#serve();
      });
    }
  }

  /** In the place of each that has died. */
  #revive(): void {
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
      // Whoever asks next has them begun anew; nobody waits for ones that do not start.
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
