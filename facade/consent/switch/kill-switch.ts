/**
 * The switches in the file of stops: which servers must not run, and the master switch, in all processes. If the file
 * cannot be read, everything is refused.
 */
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { EVERYTHING as ALL, type Stops } from '../../state/stop-file.ts';

/** One active switch. `server` is absent for the master switch. */
export interface Kill {
  readonly server?: string;
  /** ISO 8601, UTC. */
  readonly since: string;
  /** The user who switched. */
  readonly by: string;
}

/** Reads the file of stops at every question, so a switch of another process counts at the next call. */
export class KillSwitch {
  readonly #stops: Stops;

  constructor({ stops }: { readonly stops: Stops }) {
    this.#stops = stops;
  }

  /** Stops one server, or everything. The stop is on the disk when this returns. */
  throw({ server, since, by }: Kill): void {
    this.#stops.put(server ?? ALL, { since, by });
  }

  /** Lifts the stop of one server, or every stop. Returns the names that may run again; none if nothing was stopped. */
  lift(server?: string): readonly string[] {
    const names = [...this.#stops.list().keys()].filter((name) => server === undefined || name === server);
    for (const name of names) this.#stops.remove(name);
    return names;
  }

  /** Ends only the master switch. Returns false if everything was on. */
  turnOn(): boolean {
    return this.#stops.remove(ALL);
  }

  /** The answer of the master switch to every list and call, or undefined while it is on. */
  offRefusal(): TollgateError | undefined {
    return !this.#stops.list().has(ALL) ? undefined : switchedOff();
  }

  /** Returns all stops, the master switch first. */
  list(): readonly Kill[] {
    return [...this.#stops.list()].map(([server, stop]) => ({ ...(server === ALL ? {} : { server }), ...stop }));
  }

  /** Returns true if something was stopped at this time or later, ms since 1970. */
  isThrownSince(time: number): boolean {
    return [...this.#stops.list().values()].some(({ since }) => Date.parse(since) >= time);
  }

  /** Returns what refuses a server, or undefined. Throws STATE_FAILED: if it cannot be known, nothing runs. */
  refusalOf(server: string): TollgateError | undefined {
    const thrown = this.#stops.list();
    return thrown.size === 0 ? undefined : refusalIn(new Set(thrown.keys()), server);
  }

  /** Returns the stopped names, for comparing. */
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
    next: `Continue without it. The owner lifts it with \`tollgate kill --lift ${server}\`.`,
    data: { killed: true },
    retryable: false,
  });
}

function switchedOff(): TollgateError {
  return new TollgateError('SWITCHED_OFF', { data: { killed: true } });
}
