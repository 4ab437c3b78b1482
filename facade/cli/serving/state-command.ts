/** Adds `tollgate state` and its commands; their code is loaded when one is called. */
import type { Command } from 'commander';
import type { Io } from '../command-io.ts';
import type { StateOptions } from './state-actions.ts';

/** Adds `state check`, `state backup`, `state restore` and `state repair`. */
export function addState({
  program,
  io,
  done,
}: {
  readonly program: Command;
  readonly io: Io;
  readonly done: (code: number) => void;
}): void {
  const state = program
    .command('state')
    .description('check, back up, restore and repair the state database')
    .addHelpText(
      'after',
      '\nExamples:\n  $ tollgate state check\n  $ tollgate state backup state-2026-11-23.db\n  $ tollgate state restore state-2026-11-23.db',
    );
  const add = (usage: string, about: string): Command =>
    state
      .command(usage)
      .description(about)
      .option('-c, --config <file>', 'configuration file', 'tollgate.yaml')
      .option('--state <folder>', 'the state folder itself')
      .option('--json', 'print data as JSON');
  const commands = (): Promise<typeof import('./state-actions.ts')> => import('./state-actions.ts');
  add('check', 'look whether the database is sound').action(async (options: StateOptions) =>
    done(await (await commands()).runStateCheck(options, io)),
  );
  add('backup <file>', 'write a copy of it to a new file').action(async (file: string, options: StateOptions) =>
    done(await (await commands()).runStateBackup({ ...options, file }, io)),
  );
  add('restore <file>', 'put a backup in its place').action(async (file: string, options: StateOptions) =>
    done(await (await commands()).runStateRestore({ ...options, file }, io)),
  );
  add('repair', 'keep what can be read of a damaged one')
    .option('--start-empty', 'begin with an empty one')
    .action(async (options: StateOptions & { readonly startEmpty?: true }) =>
      done(await (await commands()).runStateRepair(options, io)),
    );
}
