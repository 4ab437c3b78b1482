/** Owns `tollgate upgrades` and its commands: capabilities that are off until an owner adds them; their code is loaded when one is called. */
import { type Command, InvalidArgumentError } from 'commander';
import type { Io } from '../command-io.ts';
import type { UpgradeOptions } from './upgrades-actions.ts';

/** Adds `upgrades list`, `enable` and `disable`. */
export function addUpgrades({
  program,
  io,
  done,
}: {
  readonly program: Command;
  readonly io: Io;
  readonly done: (code: number) => void;
}): void {
  const upgrades = program
    .command('upgrades')
    .description(
      'capabilities that are off until an owner adds them: PDF, Excel, code in memory, remote control, the desktop, other workspaces',
    )
    .addHelpText(
      'after',
      `
Examples:
  $ tollgate upgrades list
  $ tollgate upgrades enable pdf --profile research --calls 20 --for 8h
  $ tollgate upgrades disable pdf`,
    );
  const add = (usage: string, about: string): Command =>
    upgrades
      .command(usage)
      .description(about)
      .option('-c, --config <file>', 'configuration file', 'tollgate.yaml')
      .option('--json', 'print data as JSON');
  add('list', 'all of them: what each allows, who added it, how much it was used').action(
    async (options: UpgradeOptions) => done(await (await import('./upgrades-actions.ts')).runUpgradeList(options, io)),
  );
  add('enable <name>', 'add one, from the next list and call on')
    .option('--profile <name>', 'to this profile alone (default: to every one)')
    .option('--calls <number>', 'calls a session', readCount)
    .option('--bytes <number>', 'bytes of results a session', readCount)
    .option('--for <time>', 'how long, as 30m, 8h or 7d (default: until it is taken back)')
    .option('--as <principal>', 'the owner who decides')
    .action(async (name: string, options: UpgradeOptions & { calls?: number; bytes?: number; for?: string }) =>
      done(await (await import('./upgrades-actions.ts')).runUpgradeEnable({ ...options, name }, io)),
    );
  add('disable <name>', 'take one back, for the next call of every process')
    .option('--profile <name>', 'from this profile alone (default: wherever it was added)')
    .option('--as <principal>', 'the owner who decides')
    .action(async (name: string, options: UpgradeOptions) =>
      done(await (await import('./upgrades-actions.ts')).runUpgradeDisable({ ...options, name }, io)),
    );
}

function readCount(text: string): number {
  if (!/^[1-9]\d{0,11}$/.test(text)) throw new InvalidArgumentError('It is a whole number from 1 on.');
  return Number(text);
}
