/** Owns the command line: commands, options and help; each command's code is loaded when it is called. */
import { Argument, Command, CommanderError, InvalidArgumentError, Option } from 'commander';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import type { CheckPolicy } from '../runtime/assembled-facade.ts';
import { VERSION } from '../serve/version.ts';
import { addApprovals } from './approval-commands/approvals-command.ts';
import { addGrants } from './approval-commands/grants-command.ts';
import { addLabels } from './approval-commands/labels-command.ts';
import { addPlan } from './approval-commands/plan-command.ts';
import { addUpgrades } from './approval-commands/upgrades-command.ts';
import { AUDIT_USAGE } from './audit-commands/audit-usage.ts';
import { addClients } from './client-files/client-commands.ts';
import type { CommonOptions } from './command-facade.ts';
import { EXIT, type Io } from './command-io.ts';
import type { Shell } from './completion.ts';
import type { Starter } from './configuration/init-command.ts';
import { addLogin } from './configuration/login-command.ts';
import { addSecret } from './configuration/secret-command.ts';
import { addConnect } from './connect/connect-commands.ts';
import { reportError } from './failure-report.ts';
import { addKnowledge } from './knowledge-commands/knowledge-command.ts';
import { addPolicy } from './policy-commands/policy-command.ts';
import { addConsent } from './server-consent/consent-commands.ts';
import { addState } from './serving/state-command.ts';
import type { Wiring } from './wiring.ts';

type As = CommonOptions & { readonly as?: string };

const STARTERS = ['workspace', 'reviewer', 'no-leaving', 'ci', 'strict'] as const satisfies readonly Starter[];
const SHELLS = ['bash', 'zsh', 'fish'] as const satisfies readonly Shell[];

const AFTERWARDS = `
Examples:
  $ tollgate init                         begin in the folder of your project
  $ tollgate check                        is everything written as it should be?
  $ tollgate try read '{"path": ".env"}'  would this call be allowed, and why?
  $ tollgate audit list                   what happened?

Exit codes: 0 done, 1 fault, 2 command line or configuration, 3 refused,
4 no such principal, 5 a server cannot be reached, 7 a person must approve.
Every command has help of its own: tollgate COMMAND --help`;

/** Runs one command line; resolves to the exit code. Never throws. */
export async function runCli(argv: readonly string[], io: Io, wiring: Wiring): Promise<number> {
  let exit: number = EXIT.ok;
  const program = buildProgram(io, wiring, (code) => {
    exit = code;
  });
  try {
    await program.parseAsync([...argv], { from: 'user' });
    return exit;
  } catch (thrown) {
    if (!(thrown instanceof CommanderError)) return reportError(thrown, { json: argv.includes('--json'), io });
    if (thrown.exitCode === 0) return EXIT.ok;
    // Without a command the help was shown already.
    if (thrown.code === 'commander.help') return EXIT.usage;
    return reportError(misuse(thrown, program, argv), { json: argv.includes('--json'), io });
  }
}

/** The commands. `done` receives the exit code of the one that ran. */
export function buildProgram(io: Io, wiring: Wiring, done: (code: number) => void): Command {
  const { assemble, check } = wiring;
  const program = new Command('tollgate')
    .description('A policy-driven facade for MCP servers: every call decided, capped and recorded.')
    .version(`tollgate ${VERSION}`, '-V, --version', 'print the version')
    .configureOutput({ writeOut: io.stdout, writeErr: io.stderr, outputError: () => undefined })
    .exitOverride()
    .addHelpText('after', AFTERWARDS);
  const add = (usage: string, about: string): Command =>
    program
      .command(usage)
      .description(about)
      .option('-c, --config <file>', 'configuration file', 'tollgate.yaml')
      .option('--json', 'print data as JSON')
      .option('--opa <path>', 'the opa program, for Rego of your own');
  program.commandsGroup('Begin:');
  add('init', 'write a tollgate.yaml from the client files found here')
    .option('--force', 'replace existing files')
    .addOption(new Option('--starter <name>', 'the rules to begin with; default workspace').choices(STARTERS))
    .option('--outside', 'write it to a folder of yours, where no agent can change it')
    .action(async (options: CommonOptions & { force?: true; starter?: Starter; outside?: true }) =>
      done(await (await import('./configuration/init-command.ts')).runInit(options, io)),
    );
  add('doctor', 'look at what this machine and its clients have, and prove the isolation')
    .option('--fix', 'mend what Tollgate can mend by itself')
    .action(async (options: CommonOptions & { fix?: true }) =>
      done(await (await import('./configuration/doctor-command.ts')).runDoctor(options, io, wiring.examine)),
    );
  addConnect({ program, io, wiring, done });
  addClients({ program, io, done });
  program.commandsGroup('Serve an agent:');
  add('run', 'serve one agent over stdio; this is what clients start')
    .option('--as <principal>', 'who the agent is')
    .action(async (options: As) =>
      done(await (await import('./serving/serve-command.ts')).runStdio(options, io, assemble)),
    );
  add('serve', 'serve agents over Streamable HTTP')
    .option('--port <number>', 'port; 0 picks a free one', readPort)
    .action(async (options: CommonOptions & { port?: number }) =>
      done(await (await import('./serving/serve-command.ts')).runHttp(options, io, assemble)),
    );
  addReload(add, { io, check, done });
  add('check', 'read configuration and policy; start nothing').action(async (options: CommonOptions) =>
    done(await (await import('./configuration/check-command.ts')).runCheck(options, io, check)),
  );
  add('tools [name]', 'show what an agent sees, or one tool of it whole')
    .option('--as <principal>', 'whose view')
    .action(async (name: string | undefined, options: As) =>
      done(await (await import('./serving/tools-command.ts')).runTools({ ...options, name }, io, assemble)),
    );
  add('try <tool> [args]', 'show the decision on a call without calling')
    .option('--as <principal>', 'who calls')
    .option('--explain', 'show the effect and the obligations too')
    .addHelpText('after', `\nArguments are one JSON object:\n  $ tollgate try read '{"path": "README.md"}' --explain`)
    .action(async (tool: string, args: string | undefined, options: As & { explain?: true }) =>
      done(
        await (await import('./serving/try-command.ts')).runTry({ ...options, tool, args: args ?? '{}' }, io, assemble),
      ),
    );
  program.commandsGroup('Decide:');
  addConsent({ program, io, wiring, done });
  for (const addGroup of [addApprovals, addGrants, addUpgrades, addPlan, addLabels]) addGroup({ program, io, done });
  addSwitch(program, io, done);
  addKill(program, io, done);
  program.commandsGroup('Keep:');
  addPolicy({ program, io, wiring, done });
  addSecret({ program, io, done });
  addLogin({ program, io, signIns: wiring.signIns, inspect: wiring.inspect, done });
  addKnowledge({ program, io, done });
  addState({ program, io, done });
  program.commandsGroup('Look back:');
  addAudit(program, io, done);
  program.commandsGroup('Commands:');
  program
    .command('completion')
    .description('print a completion script')
    .addArgument(new Argument('<shell>').choices(SHELLS))
    .addHelpText(
      'after',
      '\nExamples:\n  $ source <(tollgate completion bash)\n  $ tollgate completion fish > ~/.config/fish/completions/tollgate.fish',
    )
    .action(async (shell: Shell) => done((await import('./completion.ts')).runCompletion(shell, program, io)));
  program
    .command('version')
    .description('print the version')
    .option('--json', 'print data as JSON')
    .action((options: { json?: true }) => {
      io.stdout(
        options.json === true
          ? `${JSON.stringify({ version: VERSION, node: process.version })}\n`
          : `tollgate ${VERSION}\n`,
      );
      done(EXIT.ok);
    });
  return program;
}

function addReload(
  add: (usage: string, about: string) => Command,
  { io, check, done }: { readonly io: Io; readonly check: CheckPolicy; readonly done: (code: number) => void },
): void {
  add('reload', 'show what changed in the configuration, and accept it')
    .option('--as <principal>', 'who accepts')
    .option('--yes <hash>', 'accept what has this hash, without a question')
    .addHelpText(
      'after',
      '\nExamples:\n  $ tollgate reload             show what differs, ask, and accept it\n  $ tollgate reload --yes HASH  without a question: the hash that was shown',
    )
    .action(async (options: As & { yes?: string }) =>
      done(await (await import('./configuration/reload-command.ts')).runReload(options, io, check)),
    );
}

function addKill(program: Command, io: Io, done: (code: number) => void): void {
  program
    .command('kill [server]')
    .description('stop a server, or all, in every running Tollgate of this configuration')
    .option('--all', 'stop all servers')
    .option('--lift', 'let it run again; without a server: all')
    .option('-c, --config <file>', 'configuration file', 'tollgate.yaml')
    .option('--state <folder>', 'the state folder, when the configuration cannot be read')
    .option('--json', 'print data as JSON')
    .addHelpText(
      'after',
      '\nExamples:\n  $ tollgate kill github         stop one server\n  $ tollgate kill                what is stopped?\n  $ tollgate kill --lift github  let it run again',
    )
    .action(async (server: string | undefined, options: CommonOptions & { all?: true; lift?: true; state?: string }) =>
      done(
        await (await import('./serving/kill-command.ts')).runKill(
          { ...options, ...(server === undefined ? {} : { server }) },
          io,
        ),
      ),
    );
}

function addSwitch(program: Command, io: Io, done: (code: number) => void): void {
  for (const [name, about] of [
    ['off', 'switch everything off: lists are empty, nothing runs, in every process'],
    ['on', 'switch it on again'],
  ] as const) {
    program
      .command(name)
      .description(about)
      .option('-c, --config <file>', 'configuration file', 'tollgate.yaml')
      .option('--state <folder>', 'the state folder, when the configuration cannot be read')
      .option('--json', 'print data as JSON')
      .action(async (options: CommonOptions & { state?: string }) =>
        done(await (await import('./serving/switch-command.ts')).runMasterSwitch({ ...options, to: name }, io)),
      );
  }
}

/** The audit commands read files only, so they parse their own words. */
function addAudit(program: Command, io: Io, done: (code: number) => void): void {
  const audit = program
    .command('audit')
    .description('read the audit log: list, show, tail, verify, export, stats, archive')
    .argument('[words...]')
    .allowUnknownOption()
    .action(async (words: string[]) =>
      done(await (await import('./audit-commands/audit-command.ts')).runAudit(words, io)),
    );
  audit.helpInformation = () => AUDIT_USAGE;
}

function readPort(text: string): number {
  if (!/^\d{1,5}$/.test(text) || Number(text) > 65_535)
    throw new InvalidArgumentError('A port is a whole number from 0 to 65535.');
  return Number(text);
}

/** What commander refuses, in the form of every other refusal. */
function misuse(thrown: CommanderError, program: Command, argv: readonly string[]): TollgateError {
  const command = program.commands.find((one) => one.name() === argv[0]);
  const detail = thrown.message.replace(/^error: /, '').replaceAll('\n', ' ');
  return new TollgateError('USAGE', {
    detail,
    next: `Read \`tollgate ${command === undefined ? '' : `${command.name()} `}--help\`.`,
  });
}
