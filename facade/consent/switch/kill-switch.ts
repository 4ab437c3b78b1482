/** Owns the switches in the shared state: which servers nobody may run or call, and the master switch of all that is, in all processes; refuses to guess when the state cannot be read. */
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { EVERYTHING as ALL, type Stops } from '../../state/stop-file.ts';

/** One switch that is thrown. `server` is absent for the master switch. */
export interface Kill {
  readonly server?: string;
  /** ISO 8601, UTC. */
  readonly since: string;
  /** The user who threw it. */
  readonly by: string;
}

/** Reads the file of stops at every question: what another process threw holds from the next call on. */
export class KillSwitch {
  readonly #stops: Stops;

  constructor({ stops }: { readonly stops: Stops }) {
    this.#stops = stops;
  }

  /** Throws the switch of one server, or the master switch. It is on the disk when this returns. */
  throw({ server, since, by }: Kill): void {
    this.#stops.put(server ?? ALL, { since, by });
  }

  /** Lifts the switch of one server, or every switch. The names that may run again; empty when none was thrown. */
  lift(server?: string): readonly string[] {
    const names = [...this.#stops.list().keys()].filter((name) => server === undefined || name === server);
    for (const name of names) this.#stops.remove(name);
    return names;
  }

  /** Turns the master switch on again, and nothing else. False when it was on. */
  turnOn(): boolean {
    return this.#stops.remove(ALL);
  }

  /** What the master switch says to every list and call, or undefined while it is on. */
  offRefusal(): TollgateError | undefined {
    return !this.#stops.list().has(ALL) ? undefined : switchedOff();
  }

  /** All that are thrown, the master switch first. */
  list(): readonly Kill[] {
    return [...this.#stops.list()].map(([server, stop]) => ({ ...(server === ALL ? {} : { server }), ...stop }));
  }

  /** True when a switch was thrown at this time or later, ms since 1970. */
  isThrownSince(time: number): boolean {
    return [...this.#stops.list().values()].some(({ since }) => Date.parse(since) >= time);
  }

  /** What stands against a server, or undefined. Throws STATE_FAILED: what cannot be known to run must not. */
  refusalOf(server: string): TollgateError | undefined {
    const thrown = this.#stops.list();
    return thrown.size === 0 ? undefined : refusalIn(new Set(thrown.keys()), server);
  }

  /** The names that are thrown, for comparing. */
  names(): ReadonlySet<string> {
    return new Set(this.#stops.list().keys());
  }
}

/** As `refusalOf`, for names that were read already. */
export function refusalIn(names: ReadonlySet<string>, server: string): TollgateError | undefined {
  if (names.has(ALL)) return switchedOff();
  if (!names.has(server)) return undefined;
  return new TollgateError('SERVER_UNAVAILABLE', {
    detail: `Server "${server}" was stopped by the kill switch.`,
    next: `Go on without it. The owner lifts it with \`tollgate kill --lift ${server}\`.`,
    data: { killed: true },
    retryable: false,
  });
}

function switchedOff(): TollgateError {
  return new TollgateError('SWITCHED_OFF', { data: { killed: true } });
}
