/** Shares the decisions of people that a server that kept failing may start again, between all processes. */
import type { Awaitable } from '../../../catalogs/text/awaitable.ts';
import type { State } from '../../state/state-port.ts';

const SPACE = 'revived';

/** The revivals as one process reads them. It ignores those from before its start. */
export class Revivals {
  readonly #state: State;
  #known: ReadonlyMap<string, string>;

  constructor(state: State) {
    this.#state = state;
    this.#known = state.list(SPACE);
  }

  /** Returns the servers that were revived since the last call. Throws STATE_FAILED. */
  takeNew(): readonly string[] {
    const before = this.#known;
    this.#known = this.#state.list(SPACE);
    return [...this.#known].filter(([server, mark]) => before.get(server) !== mark).map(([server]) => server);
  }
}

/** Tells every process that a server may start again. `mark` must differ each time. */
export function reviveServer(state: State, server: string, mark: string): Awaitable<void> {
  return state.put(SPACE, server, mark);
}
