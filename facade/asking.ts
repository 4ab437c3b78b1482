/** Owns the questions to servers that are under way, and how long each who asks waits; refuses to ask a server twice at once. */

interface Asking {
  done: Promise<void>;
  /** Monotonic milliseconds. */
  readonly since: number;
  missed: boolean;
}

/** What asks one server; it is told whether somebody has gone without the answer. Never rejects. */
export type Question = (isMissed: () => boolean) => Promise<void>;

/** The questions of one catalog. */
export class Askings {
  readonly #running = new Map<string, Asking>();

  /** True while a server is being asked. */
  has(server: string): boolean {
    return this.#running.has(server);
  }

  /** Asks, or joins whoever asks already; resolves with the answer, or once the server has been asked for `waitMs`. */
  async ask(server: string, question: Question, waitMs?: number): Promise<void> {
    const asking = this.#running.get(server) ?? this.#begin(server, question);
    if (waitMs === undefined) return asking.done;
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<void>((resolve) => {
      timer = setTimeout(
        () => {
          asking.missed = true;
          resolve();
        },
        asking.since + waitMs - performance.now(),
      );
    });
    await Promise.race([asking.done, late]).finally(() => clearTimeout(timer));
  }

  #begin(server: string, question: Question): Asking {
    const asking: Asking = { done: Promise.resolve(), since: performance.now(), missed: false };
    this.#running.set(server, asking);
    asking.done = question(() => asking.missed).finally(() => this.#running.delete(server));
    return asking;
  }
}
