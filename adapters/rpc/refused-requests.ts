/** Counts and reports refused requests of a server, at a limited rate, so that a flood cannot fill the audit log. */

/**
 * The method names under which two other forms of requests are counted: a result that contains requests to the client
 * (revision 2026-07-28), and the error that asks the client to open URLs (MCP 2025-11-25, elicitation).
 */
export const [INPUT_REQUIRED, URL_ELICITATION] = ['input_required', 'elicitation/url'] as const;
/** Requests of a server to its client. Other methods are reported as `other`, because their names are server text. */
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
 * The refusals of one connection. The first one of a method is reported immediately, those of the next minute as one
 * count.
 */
export class RefusedRequests {
  readonly #report: (refused: RefusedRequest) => void;
  readonly #counts = new Map<string, number>();
  readonly #timers = new Set<NodeJS.Timeout>();

  constructor(report: (refused: RefusedRequest) => void) {
    this.#report = report;
  }

  /** Counts one refused request. */
  note(requested: string): void {
    const method = KNOWN.has(requested) ? requested : 'other';
    const count = this.#counts.get(method);
    if (count !== undefined) return void this.#counts.set(method, count + 1);
    this.#begin(method);
    this.#report({ method, count: 1 });
  }

  /** Reports the remaining counts at the end of the connection. */
  end(): void {
    for (const timer of this.#timers) clearTimeout(timer);
    for (const [method, count] of this.#counts) if (count > 0) this.#report({ method, count });
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
      this.#report({ method, count });
    }, WINDOW_MS).unref();
    this.#timers.add(timer);
  }
}
