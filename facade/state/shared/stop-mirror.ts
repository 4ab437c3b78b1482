/**
 * Carries stops between the stop files of machines, through the store. A stop is first in the file of the machine where
 * it is made, so it holds there even if the store is away. If it is not known whether a stop was lifted, it stays.
 */
import { isDeepStrictEqual } from 'node:util';
import type { State } from '../state-port.ts';
import type { Stop, Stops } from '../stop-file.ts';

const SPACE = 'stops';

/** The value of a name: a stop, or the last one that was lifted. */
interface SharedStop {
  readonly stop: Stop;
  readonly lifted?: true;
}

/** The mirror of one machine's file. */
export class StopMirror {
  readonly #stops: Stops;
  readonly #state: Pick<State, 'list' | 'put'>;
  /** The stops that were in both places. One that is gone from the file was lifted on this machine. */
  readonly #agreed = new Map<string, Stop>();
  #running: Promise<void> | undefined;
  #isAgain = false;

  constructor(stops: Stops, state: Pick<State, 'list' | 'put'>) {
    this.#stops = stops;
    this.#state = state;
  }

  /** Makes both places equal. Rejects with STATE_FAILED or STATE_AWAY. */
  async sync(): Promise<void> {
    this.#isAgain = true;
    while (this.#isAgain || this.#running !== undefined) {
      if (this.#running === undefined) {
        this.#isAgain = false;
        this.#running = this.#run().finally(() => (this.#running = undefined));
      }
      await this.#running;
    }
  }

  async #run(): Promise<void> {
    const shared = readShared(this.#state);
    const local = lastingOf(this.#stops);
    for (const [name, { stop, lifted }] of shared) this.#receive(name, { stop, lifted, here: local.get(name) });
    for (const [name, stop] of this.#agreed)
      if (!lastingOf(this.#stops).has(name) && isDeepStrictEqual(shared.get(name), { stop })) {
        await this.#tell(name, { stop, lifted: true });
        this.#agreed.delete(name);
      }
    for (const [name, stop] of lastingOf(this.#stops)) {
      if (!isDeepStrictEqual(shared.get(name)?.stop, stop)) await this.#tell(name, { stop });
      this.#agreed.set(name, stop);
    }
  }

  /** Takes over what another machine did. `here`: the stop of this machine. */
  #receive(
    name: string,
    { stop, lifted, here }: { stop: Stop; lifted: true | undefined; here: Stop | undefined },
  ): void {
    if (lifted !== undefined) {
      if (here !== undefined && isDeepStrictEqual(here, stop)) this.#stops.remove(name, here);
      if (isDeepStrictEqual(this.#agreed.get(name), stop)) this.#agreed.delete(name);
      return;
    }
    const wasAgreed = isDeepStrictEqual(this.#agreed.get(name), stop);
    if (here === undefined && !wasAgreed) this.#stops.put(name, stop);
    // Of two stops of one name, the later one stays.
    else if (here !== undefined && here.since < stop.since) this.#stops.put(name, stop);
  }

  async #tell(name: string, shared: SharedStop): Promise<void> {
    await this.#state.put(SPACE, name, JSON.stringify(shared));
  }
}

/** A stop with an id lasts as long as one command, on one machine. */
function lastingOf(stops: Stops): ReadonlyMap<string, Stop> {
  return new Map([...stops.list()].filter(([, { id }]) => id === undefined));
}

function readShared(state: Pick<State, 'list'>): ReadonlyMap<string, SharedStop> {
  return new Map([...state.list(SPACE)].map(([name, text]) => [name, JSON.parse(text) as SharedStop]));
}
