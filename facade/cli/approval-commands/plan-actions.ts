/** Owns `plan list`, `plan approve` and `plan revoke`: an owner at the terminal decides, the audit keeps who; refuses everybody else. */
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import type { AuditPrincipal, ConsentEntry } from '../../audit/audit-entry.ts';
import type { Config } from '../../config/config.ts';
import { decidePlan, listPlans, type RunPlan } from '../../consent/plan-mode.ts';
import { openState } from '../../state/sqlite-state.ts';
import type { State } from '../../state/state-port.ts';
import { type CommonOptions, readForOwner, readPrincipal } from '../command-facade.ts';
import { EXIT, type Io } from '../command-io.ts';
import { recordActs, signed } from '../command-state.ts';
import { json, table } from '../print.ts';

/** Prints the runs in plan mode. Throws CONFIG_INVALID, STATE_FAILED. */
export async function runPlanList(options: PlanOptions, io: Io): Promise<number> {
  const config = readForOwner(options, io);
  const plans = await withState(config, (state) => listPlans(state, Date.now()));
  if (options.json === true) io.stdout(json({ plans }));
  else if (plans.length > 0)
    io.stdout(
      table(
        io,
        ['RUN', 'PRINCIPAL', 'PLAN', 'SINCE'],
        plans.map((plan) => [plan.run, plan.principal, stateOf(plan), new Date(plan.since).toISOString()]),
      ),
    );
  else io.stderr('No run is in plan mode.\n');
  return EXIT.ok;
}

/**
 * Approves or revokes. Throws IDENTITY for somebody who is no owner, USAGE for an unknown run, AUDIT_FAILED, STATE_FAILED.
 */
export async function runPlanDecision(
  options: PlanOptions & { readonly run: string; readonly approve: boolean },
  io: Io,
): Promise<number> {
  const config = readForOwner(options, io);
  const by = readPrincipal(config, options, io);
  if (by.owner !== true)
    throw new TollgateError('IDENTITY', {
      detail: `${by.id} is no owner, and only an owner approves plans.`,
      next: 'Use --as with a principal that has `owner: true`.',
    });
  const verdict = {
    run: options.run,
    approve: options.approve,
    by: by.id,
    record: (decided: RunPlan) => recordActs(config.audit, [signed(actOf(config, decided, by.id), io)]),
  };
  const plan = await withState(config, (state) => decidePlan(state, verdict, Date.now()));
  if (options.json === true) io.stdout(json(plan));
  else
    io.stderr(
      options.approve
        ? `Approved: ${plan.principal} may now do in this run what the rules allow, until it ends, for a day at most.\n`
        : `Revoked: ${plan.principal} only reads in this run.\n`,
    );
  return EXIT.ok;
}

async function withState<T>(config: Config, work: (state: State) => Promise<T>): Promise<T> {
  const state = openState(config.state);
  try {
    return await work(state);
  } finally {
    await state.close();
  }
}

function actOf(config: Config, plan: RunPlan, by: string): ConsentEntry {
  const approved = plan.state === 'approved';
  return {
    type: 'approval',
    event: approved ? 'plan-approved' : 'plan-revoked',
    id: plan.run,
    outcome: approved ? 'allow' : 'deny',
    principal: principalOf(config, plan.principal),
    by,
  };
}

/** Whose run it is; a principal that was taken out of the configuration since is known by its id alone. */
function principalOf(config: Config, id: string): AuditPrincipal {
  const { role = '', profiles = [], client = '' } = config.principals.find((principal) => principal.id === id) ?? {};
  return { id, role, profiles, origin: client };
}

function stateOf(plan: RunPlan): string {
  return plan.by === undefined ? plan.state : `${plan.state} by ${plan.by}`;
}
/** What a plan command is told on the command line. */
export interface PlanOptions extends Pick<CommonOptions, 'config' | 'json'> {
  readonly as?: string;
}
