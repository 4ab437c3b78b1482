/** Limits the connections of all processes of a state folder together. */
import type { SharedConnectionSlots } from '../../../adapters/port.ts';
import { instant } from '../../state/budget-clock.ts';
import type { BudgetClaim, Reservation, State } from '../../state/state-port.ts';

const SPACE = 'connections';
const REQUEST = 'wanted';

/** The connection slots of all processes. Each is a lease that ends with its process. */
export class SharedConnections implements SharedConnectionSlots {
  readonly #state: State;
  readonly #claim: BudgetClaim;
  readonly #onFault: (thrown: unknown) => void;
  readonly #unreturned: Reservation[] = [];
  #lastRequest: string | undefined;

  /** `onFault` is called when a lease cannot be given back; see `retryReturns`. */
  constructor(state: State, { limit, onFault }: { limit: number; onFault: (thrown: unknown) => void }) {
    this.#state = state;
    this.#claim = { budget: SPACE, scope: 'folder', key: state.machine, demands: [], concurrent: limit };
    this.#onFault = onFault;
  }

  async take(): Promise<(() => void) | undefined> {
    const answer = await this.#state.reserve([this.#claim], instant());
    if ('refused' in answer) return undefined;
    let isOpen = true;
    return () => {
      if (!isOpen) return;
      isOpen = false;
      void this.#giveBack(answer.reservation).catch((thrown: unknown) => {
        this.#unreturned.push(answer.reservation);
        this.#onFault(thrown);
      });
    };
  }

  /** Returns leases again that could not be returned, for example on a full disk. Call it regularly. */
  async retryReturns(): Promise<void> {
    for (const reservation of this.#unreturned.splice(0))
      await this.#giveBack(reservation).catch(() => this.#unreturned.push(reservation));
  }

  async #giveBack(reservation: Reservation): Promise<void> {
    await this.#state.settle(reservation, { outputBytes: 0, wallMs: 0 });
  }

  async ask(): Promise<void> {
    this.#lastRequest = `${this.#state.mark()} ${Date.now()}`;
    await this.#state.put(SPACE, REQUEST + this.#state.machine, this.#lastRequest);
  }

  /** Returns true once for each request of another process. */
  async isAsked(): Promise<boolean> {
    const request = this.#state.get(SPACE, REQUEST + this.#state.machine);
    const isNew = request !== undefined && request !== this.#lastRequest && this.#lastRequest !== undefined;
    // A request from before this process began does not concern it.
    this.#lastRequest = request ?? '';
    return isNew;
  }
}
