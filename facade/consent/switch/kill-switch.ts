/**
 * The switches in the stop file: stopped servers and the master switch, for all processes. If the file cannot be read,
 * everything is refused.
 */
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { EVERYTHING as ALL, PRINCIPAL_MARK, type Stop, type Stops } from '../../state/stop-file.ts';
import { NO_PRECONDITIONS, type Precondition, type PreconditionView } from '../preconditions.ts';

/** One active switch. `server` is absent for the master switch. */
export interface Kill {
  readonly server?: string;
  /** ISO 8601, UTC. */
  readonly since: string;
  /** The user who set the switch. */
  readonly by: string;
}

/** Reads the stop file for every answer, so a switch of another process counts at the next call. */
export class KillSwitch {
  readonly #stops: Stops;

  constructor({ stops }: { readonly stops: Stops }) {
    this.#stops = stops;
  }

  /** Stops one server, or everything. The stop is on the disk when the method returns. */
  throw({ server, since, by }: Kill): void {
    this.#stops.put(server ?? ALL, { since, by });
  }

  /**
   * Lifts the stop of one server, or every stop. Returns the names that may run again, which is none if nothing was
   * stopped.
   */
  lift(server?: string): readonly string[] {
    const names = this.#servers().flatMap(([name]) => (server === undefined || name === server ? [name] : []));
    for (const name of names) this.#stops.remove(name);
    return names;
  }

  /** Turns the master switch on again. Returns false if it was on. */
  turnOn(): boolean {
    return this.#stops.remove(ALL);
  }

  /** Returns the refusal of every list and call while the master switch is off. */
  offRefusal(): TollgateError | undefined {
    return !this.#stops.list().has(ALL) ? undefined : switchedOff();
  }

  /** Returns all stops, the master switch first. */
  list(): readonly Kill[] {
    return this.#servers().map(([server, stop]) => ({ ...(server === ALL ? {} : { server }), ...stop }));
  }

  /** Stops of principals are not of this switch (see suspensions.ts). */
  #servers(): readonly (readonly [string, Stop])[] {
    return [...this.#stops.list()].filter(([name]) => !name.startsWith(PRINCIPAL_MARK));
  }

  /** Returns true if something was stopped at this time (ms since 1970) or later. */
  isThrownSince(time: number): boolean {
    return [...this.#stops.list().values()].some(({ since }) => Date.parse(since) >= time);
  }

  /** Returns the refusal of a server. Throws STATE_FAILED: if the stops are unknown, nothing runs. */
  refusalOf(server: string): TollgateError | undefined {
    const thrown = this.#stops.list();
    return thrown.size === 0 ? undefined : refusalIn(new Set(thrown.keys()), server);
  }

  /** Returns the stopped names, for comparing. */
  names(): ReadonlySet<string> {
    return new Set(this.#servers().map(([name]) => name));
  }
}

/** Like `refusalOf`, for names that were read already. */
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

const ON: PreconditionView = { revision: 'on', hides: () => false };

/** Returns the precondition for the master switch (HA-19). Every list and every call reads it. */
export function masterSwitchPrecondition(killSwitch: Pick<KillSwitch, 'offRefusal'>): Precondition {
  return {
    view: () => {
      const off = killSwitch.offRefusal();
      return off === undefined ? ON : { revision: 'off', hides: () => true, listsNothing: true, refused: off };
    },
    // The switch may have changed after the name was resolved.
    judge: () => {
      const off = killSwitch.offRefusal();
      if (off !== undefined) throw off;
      return NO_PRECONDITIONS;
    },
  };
}
