/**
 * The labels that calls have read: per session, per named run, and per principal for sticky labels, which only an owner
 * clears.
 */
import type { Principal } from '../../policies/port.ts';
import { labelSpace, type Runs } from '../serve/host/host-runs.ts';
import type { State } from '../state/state-port.ts';
import { type OpenSession, sessionKey } from './identify.ts';

/** The labels of runs. Both methods throw STATE_FAILED. */
export interface RunLabels {
  /**
   * Returns the labels of a call. A run that the client named has the labels of its session, and those that other
   * sessions added to this name. A run that an owner opened has only its own. Sticky labels of the principal always
   * apply.
   */
  of(session: OpenSession, run: string): readonly string[];
  /** Adds labels. Call this before the server is reached, because its progress and its errors are its data as well. */
  join(session: OpenSession, run: string, labels: readonly string[]): Promise<void>;
  /** Deletes what other processes know of the labels of a session that has ended. */
  end(session: OpenSession): Promise<void>;
}

/** A sticky label that is set. `since`: milliseconds since 1970. */
export interface StickyLabel {
  readonly principal: string;
  readonly label: string;
  readonly since: number;
}

const STICKY = 'sticky';
const NONE: readonly string[] = [];

/** What `createLabels` needs. `sticky`: the labels that survive sessions. */
export interface LabelParts {
  readonly state: State;
  readonly runs: Pick<Runs, 'isOwned'>;
  readonly sticky: readonly string[];
  readonly now: () => number;
}

/**
 * Creates the labels of runs. Each label is one value of the shared state, so that two processes cannot overwrite each
 * other's.
 */
export function createLabels({ state, runs, sticky, now }: LabelParts): RunLabels {
  const stickyOf = createStickyReader(state, sticky.length > 0);
  const spaceOf = ({ id }: OpenSession): string => labelSpace(sessionKey(id));
  return {
    of: (session, run) => {
      const stuck = stickyOf(session.principal);
      const isNamed = run !== session.id;
      if (state.isShared) for (const label of state.list(spaceOf(session)).keys()) session.labels.add(label);
      if (!isNamed && stuck.length === 0) return session.labels.size === 0 ? NONE : [...session.labels];
      const named = isNamed ? state.list(labelSpace(run)).keys() : NONE;
      return [
        ...new Set([...(isNamed && runs.isOwned(session.principal, run) ? NONE : session.labels), ...named, ...stuck]),
      ];
    },
    join: async (session, run, labels) => {
      for (const label of labels) {
        if (sticky.includes(label)) {
          if (!stickyOf(session.principal).includes(label))
            await state.put(STICKY, keyOf(session.principal.id, label), String(now()));
          continue;
        }
        // First, because the server is reached with the label in force everywhere, or not at all.
        if (state.isShared && !state.list(spaceOf(session)).has(label))
          await state.put(spaceOf(session), label, String(now()));
        session.labels.add(label);
        if (run !== session.id) await state.put(labelSpace(run), label, String(now()));
      }
    },
    end: async (session) => {
      if (!state.isShared) return;
      for (const label of state.list(spaceOf(session)).keys()) await state.remove(spaceOf(session), label);
    },
  };
}

/** Returns a reader of a principal's sticky labels, which reads them again only after the state changed. */
function createStickyReader(state: State, isUsed: boolean): (principal: Principal) => readonly string[] {
  const known = new Map<string, readonly string[]>();
  let stamp = '';
  return ({ id }) => {
    if (!isUsed) return NONE;
    const current = state.stamp();
    if (current !== stamp) known.clear();
    stamp = current;
    const labels = known.get(id) ?? [...state.list(STICKY, `${id}/`).keys()].map((key) => key.slice(id.length + 1));
    known.set(id, labels);
    return labels;
  };
}

/** Returns all sticky labels. Throws STATE_FAILED. */
export function listSticky(state: Pick<State, 'list'>): readonly StickyLabel[] {
  return [...state.list(STICKY)].map(([key, since]) => {
    const slash = key.indexOf('/');
    return { principal: key.slice(0, slash), label: key.slice(slash + 1), since: Number(since) };
  });
}

/** Removes a sticky label. Throws STATE_FAILED. */
export async function clearSticky(
  state: Pick<State, 'remove'>,
  { principal, label }: Pick<StickyLabel, 'principal' | 'label'>,
): Promise<void> {
  await state.remove(STICKY, keyOf(principal, label));
}

/** Ids of principals contain no slash. */
function keyOf(principal: string, label: string): string {
  return `${principal}/${label}`;
}

/** Returns all labels once. */
export function joinLabels(
  own: readonly string[],
  ...more: readonly (readonly string[] | undefined)[]
): readonly string[] {
  const added = more.flatMap((labels) => labels ?? NONE);
  return added.length === 0 ? own : [...new Set([...own, ...added])];
}
