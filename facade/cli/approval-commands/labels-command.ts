/** Adds `tollgate labels` and its commands; their code is loaded when one is called. */
import type { Command } from 'commander';
import type { Io } from '../command-io.ts';
import type { LabelOptions } from './labels-actions.ts';

/** Adds `labels list` and `labels clear`. */
export function addLabels({
  program,
  io,
  done,
}: {
  readonly program: Command;
  readonly io: Io;
  readonly done: (code: number) => void;
}): void {
  const labels = program
    .command('labels')
    .description('show and clear sticky labels')
    .addHelpText('after', '\nExamples:\n  $ tollgate labels list\n  $ tollgate labels clear alice untrusted');
  const add = (usage: string, about: string): Command =>
    labels
      .command(usage)
      .description(about)
      .option('-c, --config <file>', 'configuration file', 'tollgate.yaml')
      .option('--json', 'print data as JSON')
      .option('--as <principal>', 'the owner who decides');
  add('list', 'who carries which').action(async (options: LabelOptions) =>
    done(await (await import('./labels-actions.ts')).runLabelList(options, io)),
  );
  add('clear <principal> [labels...]', 'clear some of them, or all').action(
    async (principal: string, names: string[], options: LabelOptions) =>
      done(await (await import('./labels-actions.ts')).runLabelClear({ ...options, principal, labels: names }, io)),
  );
}
