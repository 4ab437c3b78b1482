/** Owns the switches in the shared state: which servers nobody may run or call, and the master switch of all that is, in all processes; refuses to guess when the state cannot be read. */
import { TollgateError } from '../../catalogs/errors.ts';
import { STOPS, type State } from '../state/state.ts';

/** The master switch. No server has this name. */
const ALL = '*';

/** One switch that is thrown. `server` is absent for the master switch. */
export interface Kill {
  readonly server?: string;
  /** ISO 8601, UTC. */
  readonly since: string;
  /** The user who threw it. */
  readonly by: string;
}

/** Reads the state at every question: what another process threw holds from the next call on. */
export class KillSwitch {
  readonly #state: State;

  constructor(state: State) {
    this.#state = state;
  }

  /** Throws the switch of one server, or the master switch. */
  async throw({ server, since, by }: Kill): Promise<void> {
    await this.#state.put(STOPS, server ?? ALL, JSON.stringify({ since, by }));
  }

  /** Lifts the switch of one server, or every switch. The names that may run again; empty when none was thrown. */
  async lift(server?: string): Promise<readonly string[]> {
    const names = [...this.#state.list(STOPS).keys()].filter((name) => server === undefined || name === server);
    for (const name of names) await this.#state.remove(STOPS, name);
    return names;
  }

  /** Turns the master switch on again, and nothing else. False when it was on. */
  async turnOn(): Promise<boolean> {
    const wasOff = this.offRefusal() !== undefined;
    await this.#state.remove(STOPS, ALL);
    return wasOff;
  }

  /** What the master switch says to every list and call, or undefined while it is on. */
  offRefusal(): TollgateError | undefined {
    return this.#state.get(STOPS, ALL) === undefined ? undefined : switchedOff();
  }

  /** All that are thrown, the master switch first. */
  async list(): Promise<readonly Kill[]> {
    return [...this.#state.list(STOPS)].map(([server, text]) => ({ ...(server === ALL ? {} : { server }), ...(JSON.parse(text) as Omit<Kill, 'server'>) }));
  }

  /** True when a switch was thrown at this time or later, ms since 1970. */
  isThrownSince(time: number): boolean {
    return [...this.#state.list(STOPS).values()].some((text) => Date.parse((JSON.parse(text) as Kill).since) >= time);
  }

  /** What stands against a server, or undefined. Throws STATE_FAILED: what cannot be known to run must not. */
  refusalOf(server: string): TollgateError | undefined {
    const thrown = this.#state.list(STOPS);
    return thrown.size === 0 ? undefined : refusalIn(new Set(thrown.keys()), server);
  }

  /** The names that are thrown, for comparing. */
  names(): ReadonlySet<string> {
    return new Set(this.#state.list(STOPS).keys());
  }
}

/** As `refusalOf`, for names that were read already. */
export function refusalIn(names: ReadonlySet<string>, server: string): TollgateError | undefined {
  if (names.has(ALL)) return switchedOff();
  if (!names.has(server)) return undefined;
  return new TollgateError('SERVER_UNAVAILABLE', { detail: `Server "${server}" was stopped by the kill switch.`, next: `Go on without it. The owner lifts it with \`tollgate kill --lift ${server}\`.`, data: { killed: true }, retryable: false });
}

function switchedOff(): TollgateError {
  return new TollgateError('SWITCHED_OFF', { data: { killed: true } });
}
