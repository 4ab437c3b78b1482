/** Builds the command line from the definitions of all commands, and answers a wrong command line. */
import { Argument, Command, CommanderError, Option } from 'commander';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { VERSION } from '../serve/version.ts';
import { APPROVALS, BUDGETS, GRANTS, LABELS, PLAN, UPGRADES } from './approval-commands/approval-commands.ts';
import { AUDIT, EXPLAIN, INCIDENT, STATS } from './audit-commands/audit-commands.ts';
import { EXPORT, IMPORT } from './client-files/client-commands.ts';
import { type CommandDefinition, defineCommand } from './command-definition.ts';
import { EXIT, type Io } from './command-io.ts';
import { CHECK, DOCTOR, INIT, LOGIN, LOGOUT, RELOAD, SECRET, SETUP } from './configuration/configuration-commands.ts';
import { CONNECT, KNOWN, SEARCH } from './connect/connect-commands.ts';
import { reportError } from './failure-report.ts';
import { KNOWLEDGE_COMMANDS } from './knowledge-commands/knowledge-command.ts';
import { POLICY } from './policy-commands/policy-command.ts';
import { APPROVE, REVOKE, SERVERS } from './server-consent/consent-commands.ts';
import {
  CALL,
  CONSOLE,
  KILL,
  OFF,
  ON,
  RESUME,
  RUN,
  SERVE,
  SHOW_STATUS,
  STATE,
  SUSPEND,
  TOOLS,
  TRY,
} from './serving/serving-commands.ts';
import type { Shell } from './shell-completion/completion.ts';
import type { Wiring } from './wiring.ts';

const SHELLS = ['bash', 'zsh', 'fish'] as const satisfies readonly Shell[];

const COMPLETION: CommandDefinition = {
  usage: 'completion',
  about: 'print a completion script, or install it',
  shared: [],
  arguments: [new Argument('<shell>').choices(SHELLS)],
  examples: `Examples:
  $ tollgate completion install           for the shell that you use
  $ source <(tollgate completion bash)    for this session only`,
  load: async () => (await import('./shell-completion/completion.ts')).runCompletion,
  commands: [
    {
      usage: 'install',
      about: 'write the script where the shell finds it',
      shared: ['json'],
      arguments: [new Argument('[shell]', 'default: that of $SHELL').choices(SHELLS)],
      options: [
        new Option('--dry-run', 'show what would be written'),
        new Option('--yes', 'write without asking'),
        new Option('--undo', 'remove the script'),
      ],
      load: async () => (await import('./shell-completion/completion-install.ts')).runCompletionInstall,
    },
  ],
};

const PRINT_VERSION: CommandDefinition = {
  usage: 'version',
  about: 'print the version',
  shared: ['json'],
  load: async () => printVersion,
};

/** All commands, by the headings of the help. */
const COMMANDS: Readonly<Record<string, readonly CommandDefinition[]>> = {
  'Begin:': [SETUP, INIT, DOCTOR, KNOWN, SEARCH, CONNECT, IMPORT, EXPORT],
  'Serve an agent:': [RUN, SERVE, RELOAD, CHECK, TOOLS, TRY, CALL],
  'Decide:': [
    APPROVE,
    REVOKE,
    SERVERS,
    APPROVALS,
    GRANTS,
    UPGRADES,
    PLAN,
    LABELS,
    BUDGETS,
    OFF,
    ON,
    KILL,
    SUSPEND,
    RESUME,
  ],
  'Maintain:': [POLICY, SECRET, LOGIN, LOGOUT, KNOWLEDGE_COMMANDS, STATE],
  'Look back:': [SHOW_STATUS, CONSOLE, AUDIT, EXPLAIN, INCIDENT, STATS],
  'Commands:': [COMPLETION, PRINT_VERSION],
};

const EXAMPLES = `
Examples:
  $ tollgate init                         begin in the folder of your project
  $ tollgate check                        are configuration and policy correct?
  $ tollgate try read '{"path": ".env"}'  would this call be allowed, and why?
  $ tollgate audit list                   what happened?

Exit codes: 0 done, 1 failed, 2 command line or configuration, 3 refused,
4 no such principal, 5 a server cannot be reached, 6 a tool failed, 7 a person must
approve.
Every command has its own help: tollgate COMMAND --help`;

/** Runs one command line. Resolves to the exit code. Never throws. */
export async function runCli(argv: readonly string[], io: Io, wiring: Wiring): Promise<number> {
  let exit: number = EXIT.ok;
  const program = buildProgram(io, wiring, (code) => {
    exit = code;
  });
  try {
    await program.parseAsync([...argv], { from: 'user' });
    return exit;
  } catch (thrown) {
    const json = argv.includes('--json');
    if (!(thrown instanceof CommanderError)) return reportError(thrown, { json, io });
    if (thrown.exitCode === 0) return EXIT.ok;
    // Without a command the help was shown already.
    if (thrown.code === 'commander.help') return EXIT.usage;
    return reportError(usageError(thrown, program, argv), { json, io });
  }
}

/** Returns commander's tree of all commands. `done` receives the exit code of the command that ran. */
export function buildProgram(io: Io, wiring: Wiring, done: (code: number) => void): Command {
  const program = new Command('tollgate')
    .description('A policy-driven facade for MCP servers: every call is decided, limited and recorded.')
    .version(`tollgate ${VERSION}`, '-V, --version', 'print the version')
    .configureOutput({ writeOut: io.stdout, writeErr: io.stderr, outputError: () => undefined })
    .exitOverride()
    .addHelpText('after', EXAMPLES);
  for (const [heading, definitions] of Object.entries(COMMANDS)) {
    program.commandsGroup(heading);
    for (const definition of definitions) defineCommand(program, definition, { program, io, wiring, done });
  }
  return program;
}

function printVersion(options: { readonly json?: true }, io: Io): number {
  const data = { version: VERSION, node: process.version };
  io.stdout(options.json === true ? `${JSON.stringify(data)}\n` : `tollgate ${VERSION}\n`);
  return EXIT.ok;
}

/** Turns an error of commander into a USAGE error that names the help of the command. */
function usageError(thrown: CommanderError, program: Command, argv: readonly string[]): TollgateError {
  const command = program.commands.find((one) => one.name() === argv[0]);
  const detail = thrown.message.replace(/^error: /, '').replaceAll('\n', ' ');
  return new TollgateError('USAGE', {
    detail,
    next: `Read \`tollgate ${command === undefined ? '' : `${command.name()} `}--help\`.`,
  });
}
