/** Owns which labels each run has brought in: a run with a name shares them in all its sessions and processes; refuses to lose one. */
import type { OpenSession } from './session.ts';
import type { State } from './state/state.ts';

/** What a running facade needs of labels. Throws STATE_FAILED. */
export interface RunLabels {
  of(session: OpenSession, run: string): readonly string[];
  /** From now on the run carries these too. To be called before the server is reached: its progress and its errors are its words as well. */
  join(session: OpenSession, run: string, labels: readonly string[]): Promise<void>;
}

/** Labels of named runs stand in the shared state, one value a label, so that two processes cannot overwrite each other's. */
export function createLabels(state: State, now: () => number): RunLabels {
  return {
    of: (session, run) => (run === session.id ? [...session.labels] : [...state.list(spaceOf(run)).keys()]),
    join: async (session, run, labels) => {
      for (const label of labels) {
        if (run === session.id) session.labels.add(label);
        else await state.put(spaceOf(run), label, String(now()));
      }
    },
  };
}

function spaceOf(run: string): string {
  return `labels/${run}`;
}
