/** Owns `tollgate approvals` and its commands: who decides about calls that wait; their code is loaded when one is called. */
import { type Command, Option } from 'commander';
import { APPROVAL_SCOPES } from '../../../policies/port.ts';
import type { Io } from '../command-io.ts';
import type { ApprovalOptions, VerdictOptions } from './approvals-actions.ts';

const EXAMPLES = `
Examples:
  $ tollgate approvals list           what waits for a person?
  $ tollgate approvals show k3m9      who, what, which rule, every argument
  $ tollgate approvals approve k3m9   look at it, then answer y
  $ tollgate approvals deny k3m9 --reason "Not on a Friday."`;

/** Adds `approvals list`, `show`, `approve` and `deny`. */
export function addApprovals({
  program,
  io,
  done,
}: {
  readonly program: Command;
  readonly io: Io;
  readonly done: (code: number) => void;
}): void {
  const approvals = program
    .command('approvals')
    .description('decide about calls that wait for a person')
    .addHelpText('after', EXAMPLES);
  const add = (usage: string, about: string): Command =>
    approvals
      .command(usage)
      .description(about)
      .option('-c, --config <file>', 'configuration file', 'tollgate.yaml')
      .option('--json', 'print data as JSON')
      .option('--as <principal>', 'the owner who decides');
  add('list', 'what waits, what is approved and what is denied').action(async (options: ApprovalOptions) =>
    done(await (await import('./approvals-actions.ts')).runApprovalList(options, io)),
  );
  add('show <id>', 'all of one; the beginning of an id suffices')
    .option('--all', 'long arguments too, to their end')
    .action(async (id: string, options: ApprovalOptions & { all?: true }) =>
      done(await (await import('./approvals-actions.ts')).runApprovalShow({ ...options, id }, io)),
    );
  add('approve <id>', 'let this call be made, once')
    .addOption(
      new Option('--for <scope>', 'what the approval covers, as far as the rules let it')
        .choices(APPROVAL_SCOPES)
        .default('call'),
    )
    .option('--yes <hash>', 'without a question: the first 12 or more digits of the binding that `show` prints')
    .action(async (id: string, options: VerdictOptions) =>
      done(await (await import('./approvals-actions.ts')).runApproveCall({ ...options, id }, io)),
    );
  add('deny <id>', 'refuse this call, or take an approval back')
    .option('--reason <text>', 'what the caller is told')
    .action(async (id: string, options: VerdictOptions) =>
      done(await (await import('./approvals-actions.ts')).runDeny({ ...options, id }, io)),
    );
}
