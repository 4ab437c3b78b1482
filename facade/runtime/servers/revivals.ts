/**
 * The decision of a person that a server may be started again although it kept failing, for every process. A decision
 * that is older than a process does not concern it.
 */
import type { Awaitable, State } from '../../state/state-port.ts';

const SPACE = 'revived';

/** The revivals that one process reads. */
export class Revivals {
  readonly #state: State;
  #heard: ReadonlyMap<string, string>;

  constructor(state: State) {
    this.#state = state;
    this.#heard = state.list(SPACE);
  }

  /** Returns the servers that were revived since the last question. Throws STATE_FAILED. */
  news(): readonly string[] {
    const before = this.#heard;
    this.#heard = this.#state.list(SPACE);
    return [...this.#heard].filter(([server, mark]) => before.get(server) !== mark).map(([server]) => server);
  }
}

/** Tells every process that a server may be started again. `mark` differs each time. */
export function reviveServer(state: State, server: string, mark: string): Awaitable<void> {
  return state.put(SPACE, server, mark);
}
