/** Shares the state of servers between processes: each process reports those that it runs or has given up. */
import type { Health, HealthState } from '../../../adapters/port.ts';
import type { State } from '../../state/state-port.ts';

const SPACE = 'health';

/** The state of a server in one process. `version`: from its handshake. */
export type ServerStatus = Health & { readonly version?: string };

/** A report of a living process. */
export interface ServerReport extends Pick<ServerStatus, 'state' | 'reason' | 'version' | 'unfit'> {
  readonly server: string;
  readonly pid: number;
}

/** The states that are reported. Decisions of people are in the state anyway. */
const REPORTED: ReadonlySet<HealthState> = new Set<HealthState>(['healthy', 'degraded', 'unavailable', 'disabled']);
/** The most serious first. The first three are final: a command need not start the server to know its state. */
const BY_SEVERITY: readonly HealthState[] = ['disabled', 'degraded', 'healthy', 'unavailable'];

/** The reports of this process about its servers. */
export class OwnReports {
  readonly #state: State;
  #reported: ReadonlyMap<string, string> = new Map();

  constructor(state: State) {
    this.#state = state;
  }

  /** Writes the states that have changed since the last call. Throws STATE_FAILED; then the next change is written. */
  async report(healths: ReadonlyMap<string, ServerStatus>): Promise<void> {
    const before = this.#reported;
    this.#reported = new Map(
      [...healths]
        .filter(([, { state }]) => REPORTED.has(state))
        .map(([server, { state, reason, version, unfit }]) => [
          server,
          JSON.stringify({ pid: process.pid, state, reason, version, unfit }),
        ]),
    );
    const mark = this.#state.mark();
    for (const server of before.keys())
      if (!this.#reported.has(server)) await this.#state.remove(SPACE, keyOf(mark, server));
    // Others remove the reports of a process that was silent for too long.
    for (const [server, text] of this.#reported)
      if (this.#state.get(SPACE, keyOf(mark, server)) !== text) await this.#state.put(SPACE, keyOf(mark, server), text);
  }
}

/** Returns the reports by server, the most serious first. Removes those of dead processes. Throws STATE_FAILED. */
export async function readReports(state: State): Promise<ReadonlyMap<string, readonly ServerReport[]>> {
  const all = new Map<string, ServerReport[]>();
  const dead = new Set([...state.list(SPACE).keys()].filter((key) => !state.isAlive(parseKey(key).mark)));
  for (const [key, text] of state.list(SPACE)) {
    const { server } = parseKey(key);
    if (dead.has(key)) await state.remove(SPACE, key);
    else
      all.set(
        server,
        [...(all.get(server) ?? []), { server, ...(JSON.parse(text) as Pick<ServerReport, 'state' | 'pid'>) }].sort(
          (one, other) => BY_SEVERITY.indexOf(one.state) - BY_SEVERITY.indexOf(other.state),
        ),
      );
  }
  return all;
}

/** Returns whether the server runs in the reporting process, or was given up there, so that no start is needed. */
export function isFinal({ state }: ServerReport): boolean {
  return state !== 'unavailable';
}

/** Returns whether the server runs in the reporting process. */
export function runsServer({ state }: Pick<ServerReport, 'state'>): boolean {
  return state === 'healthy' || state === 'degraded';
}

function keyOf(mark: string, server: string): string {
  return `${mark} ${server}`;
}

function parseKey(key: string): { readonly mark: string; readonly server: string } {
  const [mark = '', server = ''] = key.split(' ');
  return { mark, server };
}
