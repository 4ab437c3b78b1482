/** Counts connections over all processes of a state folder, and says when the limit is reached. */
import type { SharedConnectionSlots } from '../../../adapters/port.ts';
import { instant } from '../../state/budget-clock.ts';
import type { BudgetClaim, Reservation, State } from '../../state/state-port.ts';

const SPACE = 'connections';
const WANTED = 'wanted';

/** Connections that all processes share, each a lease that ends with its process. */
export class SharedConnections implements SharedConnectionSlots {
  readonly #state: State;
  readonly #claim: BudgetClaim;
  readonly #onFault: (thrown: unknown) => void;
  readonly #owed: Reservation[] = [];
  #heard: string | undefined;

  /** `onFault` is called when a lease cannot be given back; see `giveBackOwed`. */
  constructor(state: State, { limit, onFault }: { limit: number; onFault: (thrown: unknown) => void }) {
    this.#state = state;
    this.#claim = { budget: SPACE, scope: 'folder', key: '', demands: [], concurrent: limit };
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
        this.#owed.push(answer.reservation);
        this.#onFault(thrown);
      });
    };
  }

  /**
   * Gives back what could not be given back before. Otherwise each full disk and each lock would cost connections until
   * the process ends. Call it regularly.
   */
  async giveBackOwed(): Promise<void> {
    for (const reservation of this.#owed.splice(0))
      await this.#giveBack(reservation).catch(() => this.#owed.push(reservation));
  }

  async #giveBack(reservation: Reservation): Promise<void> {
    await this.#state.settle(reservation, { outputBytes: 0, wallMs: 0 });
  }

  async ask(): Promise<void> {
    this.#heard = `${this.#state.mark()} ${Date.now()}`;
    await this.#state.put(SPACE, WANTED, this.#heard);
  }

  /** True once for each time that another process has asked since the last question. */
  async isAsked(): Promise<boolean> {
    const wanted = this.#state.get(SPACE, WANTED);
    const isNew = wanted !== undefined && wanted !== this.#heard && this.#heard !== undefined;
    // A request from before this process began does not concern it.
    this.#heard = wanted ?? '';
    return isNew;
  }
}
