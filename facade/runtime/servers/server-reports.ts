/**
 * What each process reports of the servers that it runs or has given up, in the shared state. Reports of dead processes
 * are ignored.
 */
import type { Health, HealthState } from '../../../adapters/port.ts';
import type { State } from '../../state/state-port.ts';

const SPACE = 'health';

/** The state of a server in one process. `version`: the one of its handshake. */
export type ServerStatus = Health & { readonly version?: string };

/** A report of a living process. */
export interface ServerReport extends Pick<ServerStatus, 'state' | 'reason' | 'version' | 'unfit'> {
  readonly server: string;
  readonly pid: number;
}

/** No process reports a server that was not started, and the decisions of people are in the state anyway. */
const WORTH: ReadonlySet<HealthState> = new Set<HealthState>(['healthy', 'degraded', 'unavailable', 'disabled']);
/** The most serious first. A command that finds one of the first three need not start the server to know its state. */
const GRAVITY: readonly HealthState[] = ['disabled', 'degraded', 'healthy', 'unavailable'];

/** The reports of this process. */
export class OwnReports {
  readonly #state: State;
  #said: ReadonlyMap<string, string> = new Map();

  constructor(state: State) {
    this.#state = state;
  }

  /** Writes what has changed since the last time. Throws STATE_FAILED, and then waits for the next change. */
  async say(healths: ReadonlyMap<string, ServerStatus>): Promise<void> {
    const before = this.#said;
    this.#said = new Map(
      [...healths]
        .filter(([, { state }]) => WORTH.has(state))
        .map(([server, { state, reason, version, unfit }]) => [
          server,
          JSON.stringify({ pid: process.pid, state, reason, version, unfit }),
        ]),
    );
    const mark = this.#state.mark();
    for (const server of before.keys())
      if (!this.#said.has(server)) await this.#state.remove(SPACE, keyOf(mark, server));
    for (const [server, text] of this.#said)
      if (before.get(server) !== text) await this.#state.put(SPACE, keyOf(mark, server), text);
  }
}

/**
 * Returns the reports of living processes by server, the most serious first. Removes those of dead ones. Throws
 * STATE_FAILED.
 */
export async function readReports(state: State): Promise<ReadonlyMap<string, readonly ServerReport[]>> {
  const all = new Map<string, ServerReport[]>();
  for (const [key, text] of state.list(SPACE)) {
    const { mark, server } = partsOf(key);
    if (!state.isAlive(mark)) await state.remove(SPACE, key);
    else
      all.set(
        server,
        [...(all.get(server) ?? []), { server, ...(JSON.parse(text) as Pick<ServerReport, 'state' | 'pid'>) }].sort(
          (one, other) => GRAVITY.indexOf(one.state) - GRAVITY.indexOf(other.state),
        ),
      );
  }
  return all;
}

/** Returns whether a report makes an own start unnecessary: the server runs there, or has been given up. */
export function isFinal({ state }: ServerReport): boolean {
  return state !== 'unavailable';
}

function keyOf(mark: string, server: string): string {
  return `${mark} ${server}`;
}

function partsOf(key: string): { readonly mark: string; readonly server: string } {
  const [mark = '', server = ''] = key.split(' ');
  return { mark, server };
}
