/** Owns `tollgate known` and `tollgate connect` as the command line has them; their code is loaded when one is called. */
import type { Command } from 'commander';
import type { CommonOptions } from '../command-facade.ts';
import type { Io } from '../command-io.ts';
import type { Wiring } from '../wiring.ts';
import type { ConnectOptions } from './connect-consent.ts';

/** What the two commands are made with. */
export interface ConnectCommands {
  readonly program: Command;
  readonly io: Io;
  readonly wiring: Wiring;
  readonly done: (code: number) => void;
}

const EXAMPLES = `
Examples:
  $ tollgate connect notion             secret, install and approval by steps
  $ tollgate connect notion --dry-run   show what would be done
  $ tollgate connect grafana --set url=https://my-team.grafana.net
  $ tollgate connect notion --yes --credential NOTION_TOKEN=env:NOTION_TOKEN
  $ tollgate connect https://tracker.example.com   a service without a server
  $ tollgate connect --undo notion`;

/** Adds both. */
export function addConnect({ program, io, wiring, done }: ConnectCommands): void {
  const collect = (value: string, before: readonly string[] = []): readonly string[] => [...before, value];
  program
    .command('known [name]')
    .description('show the servers that connect knows by name')
    .option('--json', 'print data as JSON')
    .action(async (name: string | undefined, options: Pick<CommonOptions, 'json'>) =>
      done((await import('./known-command.ts')).runKnown({ ...options, ...(name === undefined ? {} : { name }) }, io)),
    );
  program
    .command('connect <service>')
    .description('bring in a known server, or a service by its address')
    .option('-c, --config <file>', 'configuration file', 'tollgate.yaml')
    .option('--json', 'print data as JSON')
    .option('--name <name>', 'what it is called here')
    .option('--set <choice>', 'name=value of something to choose; may be repeated', collect)
    .option('--profile <name>', 'the profile that shows its tools', 'default')
    .option('--credential <source>', 'NAME=env:VARIABLE or NAME=@FILE; may be repeated', collect)
    .option('--header <name>', 'of a service by address: the header with its credential', 'Authorization')
    .option('--address <ip>', 'of a service by address: the private address that it has')
    .option('--as <principal>', 'the owner who decides')
    .option('--approve <hashes...>', 'agree to it without a terminal: the start hash, then the tools hash')
    .option('--dry-run', 'show what would be done')
    .option('--yes', 'do it without asking')
    .option('--undo', 'take back what connect did')
    .addHelpText('after', EXAMPLES)
    .action(async (service: string, options: Omit<ConnectOptions, 'service'> & { undo?: true }) =>
      done(
        options.undo === true
          ? await (await import('../configuration/configuration-acceptance.ts')).accepting(options, io, async () =>
              (await import('./connect-undo.ts')).runUndo({ ...options, service }, io, wiring),
            )
          : await (await import('./connect-command.ts')).runConnect({ ...options, service }, io, wiring),
      ),
    );
}
