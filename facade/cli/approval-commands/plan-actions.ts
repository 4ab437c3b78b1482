/** Runs `plan list`, `plan approve` and `plan revoke`. An owner at the terminal decides, and the audit records who. */
import type { AuditPrincipal, ConsentEntry } from '../../audit/audit-entry.ts';
import type { Config } from '../../config/config.ts';
import { decidePlan, listPlans, type RunPlan } from '../../consent/plan-mode.ts';
import { type CommonOptions, readForOwner, readOwner } from '../command-facade.ts';
import { EXIT, type Io } from '../command-io.ts';
import { recordActs, signed, withState } from '../command-state.ts';
import { json, table } from '../print.ts';

/** Prints the runs in plan mode. Throws CONFIG_INVALID, STATE_FAILED. */
export async function runPlanList(options: PlanOptions, io: Io): Promise<number> {
  const config = readForOwner(options, io);
  const plans = await withState(config.state, (state) => listPlans(state, Date.now()));
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
 * Approves or revokes a plan. Throws IDENTITY for a principal that is no owner, USAGE for an unknown run, AUDIT_FAILED,
 * STATE_FAILED.
 */
export async function runPlanDecision(
  options: PlanOptions & { readonly run: string; readonly approve: boolean },
  io: Io,
): Promise<number> {
  const config = readForOwner(options, io);
  const by = readOwner(config, { as: options.as, act: 'approves plans' }, io);
  const verdict = {
    run: options.run,
    approve: options.approve,
    by,
    record: (decided: RunPlan) => recordActs(config.audit, [signed(actOf(config, decided, by), io)]),
  };
  const plan = await withState(config.state, (state) => decidePlan(state, verdict, Date.now()));
  if (options.json === true) io.stdout(json(plan));
  else
    io.stderr(
      options.approve
        ? `Approved: ${plan.principal} may now do in this run what the rules allow, until the run ends, for one day at most.\n`
        : `Revoked: ${plan.principal} may only read in this run.\n`,
    );
  return EXIT.ok;
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

/** The principal of the run. Of one that was removed from the configuration, only the id is known. */
function principalOf(config: Config, id: string): AuditPrincipal {
  const { role = '', profiles = [], client = '' } = config.principals.find((principal) => principal.id === id) ?? {};
  return { id, role, profiles, origin: client };
}

function stateOf(plan: RunPlan): string {
  return plan.by === undefined ? plan.state : `${plan.state} by ${plan.by}`;
}
/** Options of the plan commands. */
export interface PlanOptions extends Pick<CommonOptions, 'config' | 'json'> {
  readonly as?: string;
}
