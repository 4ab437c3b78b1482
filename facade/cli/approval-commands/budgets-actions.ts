/** Runs `budgets` and `budgets reset`: what is spent, what is left, and a budget that an owner makes full again. */
import { type BudgetState, readBudgetStates, resetBudget, shareOf } from '../../budget/budget-report.ts';
import { type OwnerOptions, readDecider } from '../command-facade.ts';
import { EXIT, type Io } from '../command-io.ts';
import { withDecisions, withState } from '../command-state.ts';
import { type Cell, plural, printable, printList, printResult } from '../print.ts';

/** Prints what is spent. Throws CONFIG_INVALID, IDENTITY for a principal that is no owner, STATE_FAILED. */
export async function runBudgetList(options: OwnerOptions, io: Io): Promise<number> {
  const { config } = readDecider(options, 'sees and resets budgets', io);
  const budgets = await withState(config, (state) => readBudgetStates({ config, state }));
  printList(
    { io, options },
    {
      data: { budgets },
      columns: ['BUDGET', 'PER', 'WHOSE', 'UNIT', 'SPENT', 'LEFT', 'RETURNS'],
      rows: budgets.map(rowOf),
      empty: 'Nothing of a budget is spent.',
    },
  );
  return EXIT.ok;
}

function rowOf(one: BudgetState): readonly Cell[] {
  const { budget, scope, key, unit, spent, limit, left, returns } = one;
  const [of, rest] = limit === undefined ? ['', ''] : [` of ${limit}`, String(left)];
  const share = shareOf(one);
  const colour = share >= 1 ? 'red' : 'yellow';
  return [
    budget,
    scope,
    key,
    unit,
    `${spent}${of}`,
    share >= 0.9 ? { text: rest, colour } : rest,
    returns ?? `with its ${scope}`,
  ];
}

/** Makes a budget full again. Throws as `runBudgetList`, USAGE and AUDIT_FAILED. */
export async function runBudgetReset(
  options: OwnerOptions & { readonly budget: string; readonly key?: string },
  io: Io,
): Promise<number> {
  const { config, by } = readDecider(options, 'sees and resets budgets', io);
  const { budget, key } = options;
  const reset = await withDecisions(config, io, ({ state, append }) =>
    resetBudget({ config, state, append }, { budget, key, by }),
  );
  const whose = key === undefined ? '' : ` of ${printable(key)}`;
  printResult(
    { io, options },
    { budget, ...(key !== undefined && { key }), reset },
    reset === 0
      ? `Nothing of ${printable(budget)} is spent.`
      : `${printable(budget)}${whose} is full again: ${plural(reset, 'counter')}. ` +
          'Running sessions follow within a second.',
  );
  return EXIT.ok;
}
