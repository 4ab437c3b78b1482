/**
 * The runs that a host opens: their user, conversation and turn, and the number of calls that they may make. A run of
 * another principal, or an ended one, is refused.
 */
import { randomBytes } from 'node:crypto';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { TimeSlices } from '../../../catalogs/text/time-slices.ts';
import type { Principal } from '../../../policies/port.ts';
import type { Budgets, CallBudget } from '../../budget/budgets.ts';
import type { Config } from '../../config/config.ts';
import { NO_PRECONDITIONS, OPEN_VIEW, type Precondition } from '../../consent/preconditions.ts';
import type { State } from '../../state/state-port.ts';

/** The user and space of a run, as internal servers get them. They are never read from arguments or `_meta`. */
export interface RunScope {
  readonly user: string;
  readonly space: string;
  readonly conversation: string;
  readonly turn: string;
}

/** A run that a host has opened. `name` is the value of `_meta["tollgate/run"]`; times in ms since 1970. */
export interface HostRun {
  readonly name: string;
  readonly principal: string;
  readonly origin: string;
  readonly conversation?: string;
  readonly turn?: string;
  /** The calls that it may make, in addition to the budgets of policy. */
  readonly maxCalls?: number;
  /** An owner opened it, so it has its own labels and budgets. Absent: they are those of the session that names it. */
  readonly owned?: true;
  readonly openedAt: number;
}

/** The runs of all processes. Methods throw STATE_FAILED. */
export interface Runs {
  /**
   * Returns whether labels and run budgets belong to the run itself: only an owner opens such a run. A client could
   * otherwise drop the labels of its session by naming another run.
   */
  isOwned(principal: Principal, run: string): boolean;
  /**
   * Default: the user is the principal, the space is its `space` of tollgate.yaml or its id, conversation and turn are
   * the run.
   */
  scopeOf(principal: Principal, run: string): RunScope;
  open(run: Omit<HostRun, 'name' | 'openedAt'>): Promise<HostRun>;
  /** Returns a run of any principal; undefined if there never was one, or if it has ended. */
  find(name: string): HostRun | undefined;
  /** Returns the calls that are left in its own budget; undefined if it has none. */
  left(run: HostRun): Promise<number | undefined>;
  end(run: HostRun): Promise<void>;
  /** Ends all runs that are too old, in time slices. Throws the signal's reason when it is aborted. */
  sweep(signal: AbortSignal): Promise<void>;
  readonly standing: Precondition;
}

const SPACE = 'runs';
/**
 * Only names of this form are looked up. One that is not open is refused, so an ended run cannot continue without its
 * budget.
 */
const FORM = /^host_[0-9a-f]{32}$/;

/** The id of a run in records, budgets and labels. Ids of principals contain no slash. */
export function runKey({ principal, name }: Pick<HostRun, 'principal' | 'name'>): string {
  return `${principal}/${name}`;
}

/**
 * Where the labels of a named run are stored. They are deleted when a host ends the run, because its name is never used
 * again.
 */
export function labelSpace(run: string): string {
  return `labels/${run}`;
}

/** Runs over shared state. `now` in ms since 1970. */
export function createRuns(
  config: Pick<Config, 'principals' | 'runs'>,
  { state, budgets }: { readonly state: State; readonly budgets: Pick<Budgets, 'left' | 'end'> },
  now: () => number,
): Runs {
  const isAlive = ({ openedAt }: HostRun): boolean => now() - openedAt < config.runs.keepMs;
  const read = (name: string): HostRun | undefined => {
    const text = FORM.test(name) ? state.get(SPACE, name) : undefined;
    const run = text === undefined ? undefined : (JSON.parse(text) as HostRun);
    return run !== undefined && isAlive(run) ? run : undefined;
  };
  const end = async (run: HostRun): Promise<void> => {
    await state.remove(SPACE, run.name);
    const space = labelSpace(runKey(run));
    for (const label of state.list(space).keys()) await state.remove(space, label);
    await budgets.end('run', runKey(run));
  };
  const owned = ({ id, origin }: Principal, key: string): HostRun | undefined => {
    const run = read(nameOf(key));
    return run !== undefined && runKey(run) === key && run.principal === id && run.origin === origin ? run : undefined;
  };
  return {
    isOwned: (principal, key) => owned(principal, key)?.owned === true,
    scopeOf: (principal, key) => {
      const { id } = principal;
      const run = owned(principal, key);
      const space = config.principals.find((one) => one.id === id)?.space ?? id;
      return { user: id, space, conversation: run?.conversation ?? key, turn: run?.turn ?? key };
    },
    open: async (asked) => {
      const run: HostRun = { ...asked, name: `host_${randomBytes(16).toString('hex')}`, openedAt: now() };
      await state.put(SPACE, run.name, JSON.stringify(run));
      return run;
    },
    find: read,
    left: async (run) => {
      const [budget] = budgetsOf(run);
      return budget === undefined ? undefined : budgets.left(budget);
    },
    end,
    sweep: async (signal) => {
      const pace = new TimeSlices(signal);
      for (const text of state.list(SPACE).values()) {
        const run = JSON.parse(text) as HostRun;
        if (!isAlive(run)) await end(run);
        if (pace.isDue) await pace.rest();
      }
    },
    standing: {
      view: () => OPEN_VIEW,
      judge: ({ caller }) => {
        if (!FORM.test(nameOf(caller.run))) return NO_PRECONDITIONS;
        const run = owned(caller.principal, caller.run);
        if (run === undefined)
          throw new TollgateError('IDENTITY', {
            detail: 'There is no such run: it has ended, or it is not yours.',
            next: 'Open a new run.',
          });
        return { budgets: budgetsOf(run) };
      },
    },
  };
}

/** Returns the name in the id of a run. */
function nameOf(key: string): string {
  return key.slice(key.indexOf('/') + 1);
}

/** Returns the limit of the run itself. It counts by the run, no matter who opened it. */
function budgetsOf(run: HostRun): readonly CallBudget[] {
  return run.maxCalls === undefined
    ? []
    : [{ id: 'host-run-calls', scope: 'run', calls: run.maxCalls, key: runKey(run) }];
}
