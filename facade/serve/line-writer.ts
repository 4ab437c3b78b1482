/** Writes messages as lines to a pipe, many in one write. */
import type { Writable } from 'node:stream';
import { oneLine } from '../../adapters/rpc/framing.ts';

/** Collects the messages that one read causes: under load one system call carries many replies. */
export class LineWriter {
  readonly #output: Writable;
  readonly #onChange: () => void;
  #queue: string[] = [];
  #full = false;

  /** `onChange` is called when `full` has changed. */
  constructor(output: Writable, onChange: () => void) {
    this.#output = output;
    this.#onChange = onChange;
  }

  /** The client does not read fast enough, so no more should be asked of it. */
  get full(): boolean {
    return this.#full;
  }

  write(message: string): void {
    this.#queue.push(oneLine(message));
    if (this.#queue.length === 1) process.nextTick(() => this.#flush());
  }

  /** Writes the rest and waits, at most `graceMs`, until the output has taken it. Never rejects. */
  async finish(graceMs: number): Promise<void> {
    // Replies of calls that ended just now are still on their way through promises.
    await new Promise((resolve) => setImmediate(resolve));
    this.#flush();
    if (graceMs === 0 || this.#output.destroyed) return;
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, graceMs);
      this.#output.write('', () => {
        clearTimeout(timer);
        resolve();
      });
    });
  }

  #flush(): void {
    const queue = this.#queue;
    this.#queue = [];
    if (queue.length === 0 || this.#output.destroyed) return;
    if (this.#output.write(`${queue.join('\n')}\n`) || this.#full) return;
    this.#setFull(true);
    this.#output.once('drain', () => this.#setFull(false));
  }

  #setFull(full: boolean): void {
    this.#full = full;
    this.#onChange();
  }
}
