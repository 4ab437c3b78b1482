/** Owns `tollgate plan` and its commands: who approves what agents in plan mode want to do; their code is loaded when one is called. */
import type { Command } from 'commander';
import type { Io } from '../command-io.ts';
import type { PlanOptions } from './plan-actions.ts';

/** Adds `plan list`, `plan approve` and `plan revoke`. */
export function addPlan({
  program,
  io,
  done,
}: {
  readonly program: Command;
  readonly io: Io;
  readonly done: (code: number) => void;
}): void {
  const plan = program
    .command('plan')
    .description('approve the plans of runs in plan mode')
    .addHelpText(
      'after',
      '\nExamples:\n  $ tollgate plan list\n  $ tollgate plan approve 6f1d9c0e5b7a4c1f8e2d3b4a5c6d7e8f',
    );
  const add = (usage: string, about: string): Command =>
    plan
      .command(usage)
      .description(about)
      .option('-c, --config <file>', 'configuration file', 'tollgate.yaml')
      .option('--json', 'print data as JSON');
  add('list', 'the runs in plan mode, the newest first').action(async (options: PlanOptions) =>
    done(await (await import('./plan-actions.ts')).runPlanList(options, io)),
  );
  for (const [name, approve, about] of [
    ['approve', true, 'let the run do more than read, until it ends or a day has passed'],
    ['revoke', false, 'take an approval back'],
  ] as const) {
    add(`${name} <run>`, about)
      .option('--as <principal>', 'the owner who decides')
      .action(async (run: string, options: PlanOptions) =>
        done(await (await import('./plan-actions.ts')).runPlanDecision({ ...options, run, approve }, io)),
      );
  }
}
