/** Owns the words of `approve`, `revoke` and `servers`; their code is loaded when one is called. */
import type { Command } from 'commander';
import type { AssembleFacade, CheckPolicy } from '../../runtime/assembled-facade.ts';
import type { CommonOptions } from '../command-facade.ts';
import type { Io } from '../command-io.ts';
import type { ApproveOptions } from './consent-dialogue.ts';
import type { ConsentOptions, ConsentWiring } from './owner-context.ts';

/** What is added, and what it works with. */
export interface ConsentCommands {
  readonly program: Command;
  readonly io: Io;
  readonly wiring: ConsentWiring & { readonly assemble: AssembleFacade; readonly check: CheckPolicy };
  readonly done: (code: number) => void;
}

/** Adds `approve`, `revoke`, and `servers` with its commands. */
export function addConsent({ program, io, wiring, done }: ConsentCommands): void {
  const common = (command: Command, about: string): Command =>
    command
      .description(about)
      .option('-c, --config <file>', 'configuration file', 'tollgate.yaml')
      .option('--json', 'print data as JSON');
  const asOwner = (command: Command): Command => command.option('--as <principal>', 'the owner who decides');
  asOwner(common(program.command('approve <name>'), 'look at a server, and let it start and its tools be used'))
    .option('--yes <hashes...>', 'agree without a terminal: the start hash, then the tools hash')
    .option('--any-tools', 'agree to whatever tools it lists, now and later')
    .option('--with-secrets', 'list its tools with its secrets')
    .option('--with-network', 'list its tools with the domains that it is allowed')
    .option('--own-isolation', 'list its tools at its own isolation instead of in a sandbox')
    .addHelpText(
      'after',
      '\nExamples:\n  $ tollgate approve github            look at both screens, and answer\n  $ tollgate approve github --json     the same as data; agrees to nothing\n  $ tollgate approve mine --any-tools  one of your own that changes all the time',
    )
    .action(async (name: string, options: Omit<ApproveOptions, 'name'>) =>
      done(await (await import('./approve-command.ts')).runApproveServer({ ...options, name }, io, wiring)),
    );
  asOwner(
    common(program.command('revoke <name>'), 'take the approval of a server back, in every running Tollgate'),
  ).action(async (name: string, options: ConsentOptions) =>
    done(await (await import('./server-consent-commands.ts')).runRevoke({ ...options, name }, io, wiring)),
  );
  addServers({ program, io, wiring, done }, { common, asOwner });
}

type Shape = (command: Command, about: string) => Command;

function addServers(
  { program, io, wiring, done }: ConsentCommands,
  { common, asOwner }: { readonly common: Shape; readonly asOwner: (command: Command) => Command },
): void {
  const list = async (options: CommonOptions & { log?: string }): Promise<void> => {
    const { log, ...rest } = options;
    done(
      log === undefined
        ? await (await import('../serving/tools-command.ts')).runServers(rest, io, wiring.assemble)
        : (await import('../serving/server-log.ts')).runServerLog({ ...rest, log }, io),
    );
  };
  const servers = common(
    program.command('servers'),
    'show the servers, their consent, their state and their quarantined tools',
  )
    .option('--opa <path>', 'the opa program, for Rego of your own')
    .option('--log <server>', 'show what a server wrote to stderr; starts nothing')
    .addHelpText(
      'after',
      '\nExamples:\n  $ tollgate servers                 starts those that are approved, to ask them\n  $ tollgate servers info github     starts nothing',
    )
    .action(list);
  common(servers.command('list'), 'the same as `tollgate servers`').action((_options: unknown, command: Command) =>
    list(command.optsWithGlobals()),
  );
  asOwner(common(servers.command('info <name>'), 'what a server would run, who agreed to what, and what waits')).action(
    async (name: string, _options: unknown, command: Command) =>
      done(
        await (await import('./server-consent-commands.ts')).runInfo(
          { ...command.optsWithGlobals<ConsentOptions>(), name },
          io,
          wiring,
        ),
      ),
  );
  for (const [word, enable, about] of [
    ['enable', true, 'let a disabled server be used again'],
    ['disable', false, 'take a server out of use; its approval stays'],
  ] as const) {
    asOwner(common(servers.command(`${word} <name>`), about)).action(
      async (name: string, _options: unknown, command: Command) =>
        done(
          await (await import('./server-consent-commands.ts')).runServerSwitch(
            { ...command.optsWithGlobals<ConsentOptions>(), name, enable },
            io,
            wiring,
          ),
        ),
    );
  }
}
