/** Owns `tollgate import` and `tollgate export`: what clients have, brought in, and Tollgate written into their files; their code is loaded when one is called. */
import { type Command, Option } from 'commander';
import type { Io } from '../command-io.ts';
import type { ExportOptions } from './export-command.ts';
import type { ImportOptions } from './import-server.ts';

const SECRETS = ['vault', 'env'] as const;

/** Adds both commands. */
export function addClients({
  program,
  io,
  done,
}: {
  readonly program: Command;
  readonly io: Io;
  readonly done: (code: number) => void;
}): void {
  const add = (usage: string, about: string): Command =>
    program
      .command(usage)
      .description(about)
      .option('-c, --config <file>', 'configuration file', 'tollgate.yaml')
      .option('--json', 'print data as JSON')
      .addOption(
        new Option('--secrets <where>', 'where literal keys go: vault, or env (you set variables)').choices(SECRETS),
      )
      .option('--dry-run', 'show what would be written')
      .option('--yes', 'write without asking')
      .option('--undo', 'put back what the last one replaced');
  add('import [file]', 'list the servers of other clients, and bring them in')
    .option('--from <client>', 'the files of one client')
    .option('--all', 'the files of all clients')
    .option('--only <names>', 'these servers, separated by commas')
    .option('--copy', 'make copies of your own; without it, servers stay in their files')
    .addHelpText(
      'after',
      '\nExamples:\n  $ tollgate import                       what is there?\n  $ tollgate import --from cursor         include its file\n  $ tollgate import .mcp.json --copy      copies; keys move into the vault\n  $ tollgate import --undo',
    )
    .action(async (file: string | undefined, options: ImportOptions) =>
      done(
        await (await import('../configuration/configuration-acceptance.ts')).accepting(options, io, async () =>
          (await import('./import-command.ts')).runImport({ ...options, ...(file === undefined ? {} : { file }) }, io),
        ),
      ),
    );
  add('export', 'write Tollgate into the file of a client')
    .option('--client <name>', 'which client')
    .option('--file <file>', 'another file of this client')
    .option('--user', 'the file of the user instead of the one of this project')
    .option('--replace', 'move the servers of the file behind Tollgate')
    .option('--http', 'the address of tollgate serve, instead of a program')
    .option('--as <principal>', 'who the agent is')
    .addHelpText(
      'after',
      '\nExamples:\n  $ tollgate export --client cursor             the agent sees Tollgate too\n  $ tollgate export --client cursor --replace   the agent sees Tollgate alone\n  $ tollgate export --undo',
    )
    .action(async (options: ExportOptions) =>
      done(
        await (await import('../configuration/configuration-acceptance.ts')).accepting(options, io, async () =>
          (await import('./export-command.ts')).runExport(options, io),
        ),
      ),
    );
}
