/**
 * Shares the decisions of people that a server starts again, between all processes: one that kept failing may start,
 * and one that runs is restarted.
 */
import type { Awaitable } from '../../../catalogs/text/awaitable.ts';
import type { State } from '../../state/state-port.ts';

const SPACE = 'revived';
/** Begins the mark of a restart. */
const RESTART = 'restart ';

/** The decisions as one process reads them. It ignores those from before its start. */
export class Revivals {
  readonly #state: State;
  #known: ReadonlyMap<string, string>;

  constructor(state: State) {
    this.#state = state;
    this.#known = state.list(SPACE);
  }

  /** Returns the servers that were revived, and those to restart, since the last call. Throws STATE_FAILED. */
  takeNew(): { readonly revived: readonly string[]; readonly restarted: readonly string[] } {
    const before = this.#known;
    this.#known = this.#state.list(SPACE);
    const fresh = [...this.#known].filter(([server, mark]) => before.get(server) !== mark);
    const isRestart = ([, mark]: readonly [string, string]): boolean => mark.startsWith(RESTART);
    return {
      revived: fresh.filter((one) => !isRestart(one)).map(([server]) => server),
      restarted: fresh.filter(isRestart).map(([server]) => server),
    };
  }
}

/** Tells every process that a server may start again. `mark` must differ each time. */
export function reviveServer(state: Pick<State, 'put'>, server: string, mark: string): Awaitable<void> {
  return state.put(SPACE, server, mark);
}

/** Tells every process that runs a server to restart it, and all that it may start again. */
export function restartServer(state: Pick<State, 'put'>, server: string, mark: string): Awaitable<void> {
  return state.put(SPACE, server, `${RESTART}${mark}`);
}
