/** Owns `tollgate grants` and its commands: what origins may do; their code is loaded when one is called. */
import { type Command, Option } from 'commander';
import { GRANT_KINDS, type Grant } from '../../consent/grants/grant.ts';
import type { Io } from '../command-io.ts';
import type { GrantOptions } from './grants-actions.ts';

/** Adds `grants list`, `add`, `revoke` and `check`. */
export function addGrants({
  program,
  io,
  done,
}: {
  readonly program: Command;
  readonly io: Io;
  readonly done: (code: number) => void;
}): void {
  const grants = program
    .command('grants')
    .description('what origins may list, call and connect: once, always, or never')
    .addHelpText(
      'after',
      `
Examples:
  $ tollgate grants add https://a.example mcp:tools.list --profile harbor
  $ tollgate grants add https://a.example mcp:tools.call --tools files.read_file
  $ tollgate grants check https://a.example mcp:tools.call --tool files.stat
  $ tollgate grants list
Scopes: mcp:tools.list, mcp:tools.call, mcp:server.connect,
browser:activeTab.read, or namespace:word.word of a host's own.`,
    );
  const add = (usage: string, about: string): Command =>
    grants
      .command(usage)
      .description(about)
      .option('-c, --config <file>', 'configuration file', 'tollgate.yaml')
      .option('--json', 'print data as JSON');
  const bound = (command: Command): Command =>
    command.option('--session <id>', 'of this session alone').option('--tab <id>', 'of this tab alone');
  add('list', 'the grants that count now, the newest first')
    .option('--origin <origin>', 'of this origin alone')
    .option('--profile <name>', 'of this profile alone')
    .action(async (options: GrantOptions & { origin?: string }) =>
      done(await (await import('./grants-actions.ts')).runGrantList(options, io)),
    );
  bound(
    add('add <origin> <scope>', 'give or deny a permission').option(
      '--profile <name>',
      'with this profile (default: default)',
    ),
  )
    .addOption(
      new Option('--kind <kind>', 'once expires, always stays, deny refuses').choices(GRANT_KINDS).default('once'),
    )
    .option('--tools <names>', "server.tool, server.* or '*', with commas between; only these answer an ask of a rule")
    .option('--for <time>', 'how long, as 90s, 10m, 12h or 7d; once: 10m')
    .option('--as <principal>', 'the owner who decides')
    .action(async (origin: string, scope: string, options: GrantOptions & { kind: Grant['kind']; for?: string }) =>
      done(await (await import('./grants-actions.ts')).runGrantAdd({ ...options, origin, scope }, io)),
    );
  add('revoke <id>', 'take a grant back, for the next call of every process; the beginning of an id suffices')
    .option('--as <principal>', 'the owner who decides')
    .action(async (id: string, options: GrantOptions) =>
      done(await (await import('./grants-actions.ts')).runGrantRevoke({ ...options, id }, io)),
    );
  bound(
    add('check <origin> <scope>', 'whether it is granted: exit code 0, 7 nobody has decided, 3 denied').option(
      '--profile <name>',
      'with this profile (default: default)',
    ),
  )
    .option('--tool <name>', 'for this tool, as server.tool')
    .action(async (origin: string, scope: string, options: GrantOptions & { tool?: string }) =>
      done(await (await import('./grants-actions.ts')).runGrantCheck({ ...options, origin, scope }, io)),
    );
}
