/**
 * The plans of runs (CY-27). They are in the shared state, so that an approval counts in every process at the next
 * call. An approval lasts at most a day.
 */
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import type { Awaitable } from '../../catalogs/text/awaitable.ts';
import { TimeSlices } from '../../catalogs/text/time-slices.ts';
import type { PlanState, Principal } from '../../policies/port.ts';
import type { Config } from '../config/config.ts';
import type { State } from '../state/state-port.ts';

/** A run in plan mode. `since`: ms since 1970, of the first call or of the approval. */
export interface RunPlan {
  readonly run: string;
  readonly principal: string;
  readonly state: Exclude<PlanState, 'none'>;
  readonly since: number;
  /** The owner who approved. */
  readonly by?: string;
}

/** The plans as a running facade uses them. Methods throw STATE_FAILED. */
export interface RunPlans {
  /** Returns true if the principal is in plan mode. */
  applies(principal: Principal): boolean;
  /**
   * Returns the plan of a run, or `none` outside plan mode. The first call makes a run pending, so that an owner can
   * approve it.
   */
  of(principal: Principal, run: string): Awaitable<PlanState>;
  /** Ends a run and its approval. */
  end(principal: Principal, run: string): Promise<void>;
}

const SPACE = 'plan';
/** Hosts choose the names of runs and may use a name again, so an old approval does not count. */
const APPROVED_MS = 24 * 3_600_000;

/** Returns the plans of the principals of a configuration. */
export function createPlans(config: Pick<Config, 'profiles'>, state: State, now: () => number): RunPlans {
  const applies = ({ profiles }: Principal): boolean =>
    profiles.some((name) => config.profiles.get(name)?.plan === true);
  return {
    applies,
    of: (principal, run) => {
      if (!applies(principal)) return 'none';
      const known = readPlan(run, state.get(SPACE, run), now());
      if (known?.principal === principal.id) return known.state;
      const pending = { run, principal: principal.id, state: 'pending', since: now() } as const;
      return writePlan(state, pending).then(() => pending.state);
    },
    end: async (principal, run) => {
      if (applies(principal)) await state.remove(SPACE, run);
    },
  };
}

/**
 * Returns every run in plan mode, the newest first. Deletes the runs that were not used for a day, in time slices.
 * Throws the signal's reason.
 */
export async function listPlans(state: State, now: number, signal?: AbortSignal): Promise<readonly RunPlan[]> {
  const plans: RunPlan[] = [];
  const pace = new TimeSlices(signal);
  for (const [run, text] of state.list(SPACE)) {
    const plan = readPlan(run, text, now);
    if (plan === undefined) await state.remove(SPACE, run);
    else plans.push(plan);
    if (pace.isDue) await pace.rest();
  }
  return plans.sort((a, b) => b.since - a.since);
}

/**
 * An owner's decision on a run. `record` is called before it takes effect, so that an approval that cannot be recorded
 * does not count.
 */
export interface PlanVerdict {
  readonly run: string;
  readonly approve: boolean;
  readonly by: string;
  readonly record: (plan: RunPlan) => Promise<void>;
}

/** Approves the plan of a run, or withdraws an approval. Throws USAGE for a run without a call in plan mode. */
export async function decidePlan(
  state: State,
  { run, approve, by, record }: PlanVerdict,
  now: number,
): Promise<RunPlan> {
  const known = readPlan(run, state.get(SPACE, run), now);
  if (known === undefined) {
    throw new TollgateError('USAGE', {
      detail: `No run ${JSON.stringify(run.slice(0, 80))} is in plan mode.`,
      next: '`tollgate plan list` shows the runs. A run is listed after its first call.',
    });
  }
  const plan: RunPlan = {
    run,
    principal: known.principal,
    since: now,
    ...(approve ? { state: 'approved', by } : { state: 'pending' }),
  };
  await record(plan);
  await writePlan(state, plan);
  return plan;
}

async function writePlan(state: State, { run, ...rest }: RunPlan): Promise<void> {
  await state.put(SPACE, run, JSON.stringify(rest));
}

function readPlan(run: string, text: string | undefined, now: number): RunPlan | undefined {
  if (text === undefined) return undefined;
  const plan = { run, ...(JSON.parse(text) as Omit<RunPlan, 'run'>) };
  return now - plan.since < APPROVED_MS ? plan : undefined;
}
