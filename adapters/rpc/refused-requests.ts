/**
 * Counts the requests of a server that were refused, and tells of them at a bounded rate: a storm must not fill the
 * audit log.
 */

/**
 * A result that carries requests to the client (revision 2026-07-28), and the error that asks it to open addresses (MCP
 * 2025-11-25, elicitation).
 */
export const [INPUT_REQUIRED, URL_ELICITATION] = ['input_required', 'elicitation/url'] as const;
/**
 * By which a server can ask its client for something. Any other method is told as `other`: its name is text of the
 * server.
 */
const KNOWN: ReadonlySet<string> = new Set([
  'sampling/createMessage',
  'elicitation/create',
  'roots/list',
  'tasks/get',
  'tasks/result',
  'tasks/list',
  'tasks/cancel',
  INPUT_REQUIRED,
  URL_ELICITATION,
]);
const WINDOW_MS = 60_000;

/** Refused requests of one method. */
export interface RefusedRequest {
  readonly method: string;
  readonly count: number;
}

/**
 * The refusals of one connection: the first of a method is told at once, those of the following minute in one count.
 */
export class RefusedRequests {
  readonly #tell: (refused: RefusedRequest) => void;
  readonly #counts = new Map<string, number>();
  readonly #timers = new Set<NodeJS.Timeout>();

  constructor(tell: (refused: RefusedRequest) => void) {
    this.#tell = tell;
  }

  note(asked: string): void {
    const method = KNOWN.has(asked) ? asked : 'other';
    const count = this.#counts.get(method);
    if (count !== undefined) return void this.#counts.set(method, count + 1);
    this.#begin(method);
    this.#tell({ method, count: 1 });
  }

  /** Tells what was counted: the connection ends. */
  end(): void {
    for (const timer of this.#timers) clearTimeout(timer);
    for (const [method, count] of this.#counts) if (count > 0) this.#tell({ method, count });
    this.#counts.clear();
  }

  #begin(method: string): void {
    this.#counts.set(method, 0);
    const timer = setTimeout(() => {
      this.#timers.delete(timer);
      const count = this.#counts.get(method) ?? 0;
      this.#counts.delete(method);
      if (count === 0) return;
      this.#begin(method);
      this.#tell({ method, count });
    }, WINDOW_MS).unref();
    this.#timers.add(timer);
  }
}
