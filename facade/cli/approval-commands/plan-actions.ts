/** Runs `plan list`, `plan approve` and `plan revoke`. An owner at the terminal decides, and the audit records who. */
import type { ConsentEntry } from '../../audit/audit-entry.ts';
import type { Config } from '../../config/config.ts';
import { decidePlan, listPlans, type RunPlan } from '../../consent/plan-mode.ts';
import { auditPrincipal, type OwnerOptions, readDecider, readForOwner } from '../command-facade.ts';
import { EXIT, type Io } from '../command-io.ts';
import { recordActs, signed, withState } from '../command-state.ts';
import { printList, printResult } from '../print.ts';

/** Prints the runs in plan mode. Throws CONFIG_INVALID, STATE_FAILED. */
export async function runPlanList(options: OwnerOptions, io: Io): Promise<number> {
  const config = readForOwner(options, io);
  const plans = await withState(config, (state) => listPlans(state, Date.now()));
  printList(
    { io, options },
    {
      data: { plans },
      columns: ['RUN', 'PRINCIPAL', 'PLAN', 'SINCE'],
      rows: plans.map((plan) => [plan.run, plan.principal, stateOf(plan), new Date(plan.since).toISOString()]),
      empty: 'No run is in plan mode.',
    },
  );
  return EXIT.ok;
}

/**
 * Approves or revokes a plan. Throws IDENTITY for a principal that is no owner, USAGE for an unknown run, AUDIT_FAILED,
 * STATE_FAILED.
 */
export async function runPlanDecision(
  options: OwnerOptions & { readonly run: string; readonly approve: boolean },
  io: Io,
): Promise<number> {
  const { config, by } = readDecider(options, 'approves plans', io);
  const verdict = {
    run: options.run,
    approve: options.approve,
    by,
    record: (decided: RunPlan) => recordActs(config.audit, [signed(actOf(config, decided, by), io)]),
  };
  const plan = await withState(config, (state) => decidePlan(state, verdict, Date.now()));
  printResult(
    { io, options },
    plan,
    options.approve
      ? `Approved: in this run, ${plan.principal} may now do what the rules allow, ` +
          'until the run ends, for one day at most.'
      : `Revoked: ${plan.principal} may only read in this run.`,
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
    principal: auditPrincipal(config, plan.principal),
    by,
  };
}

function stateOf(plan: RunPlan): string {
  return plan.by === undefined ? plan.state : `${plan.state} by ${plan.by}`;
}
