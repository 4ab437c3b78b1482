/** Owns the command line: commands, options and help; each command's code is loaded when it is called. */
import { Command, CommanderError } from 'commander';
import { asTollgateError, TollgateError } from '../../catalogs/errors.ts';
import type { Assemble, Check } from '../assembled.ts';
import { VERSION } from '../wire/version.ts';
import type { Problem } from '../config/config.ts';
import { formatProblems } from '../config/problems.ts';
import { EXIT, type Io } from './io.ts';

interface Common {
  readonly config: string;
  readonly json?: true;
  readonly opa?: string;
}

/** What facade/main.ts gives the commands. */
export interface Wiring {
  readonly assemble: Assemble;
  readonly check: Check;
}

/** Runs one command line; resolves to the exit code. Never throws. */
export async function runCli(argv: readonly string[], io: Io, wiring: Wiring): Promise<number> {
  let exit: number = EXIT.ok;
  const program = buildProgram(io, wiring, (code) => {
    exit = code;
  });
  try {
    await program.parseAsync([...argv], { from: 'user' });
  } catch (thrown) {
    return thrown instanceof CommanderError ? (thrown.exitCode === 0 ? EXIT.ok : EXIT.usage) : report(thrown, { argv, io });
  }
  return exit;
}

/** The commands. `done` receives the exit code of the one that ran. */
export function buildProgram(io: Io, { assemble, check }: Wiring, done: (code: number) => void): Command {
  const program = new Command('tollgate')
    .description('A policy-driven facade for MCP servers: every call decided, capped and recorded.')
    .configureOutput({ writeOut: io.stdout, writeErr: io.stderr })
    .exitOverride()
    .showHelpAfterError('(tollgate --help shows the commands)');
  const add = (usage: string, about: string): Command =>
    program.command(usage).description(about).exitOverride()
      .option('-c, --config <file>', 'configuration file', 'tollgate.yaml').option('--json', 'print data as JSON').option('--opa <path>', 'the opa program, for Rego of your own');
  add('init', 'write a tollgate.yaml from the client files found here').option('--force', 'replace existing files')
    .action(async (options: Common & { force?: true }) => done(await (await import('./init.ts')).runInit(options, io)));
  add('run', 'serve one agent over stdio').option('--as <principal>', 'who the agent is')
    .action(async (options: Common & { as?: string }) => done(await (await import('./serve.ts')).runStdio(options, io, assemble)));
  add('serve', 'serve agents over Streamable HTTP').option('--port <number>', 'port; 0 picks a free one')
    .action(async (options: Common & { port?: string }) => done(await (await import('./serve.ts')).runHttp(options, io, assemble)));
  add('check', 'read configuration and policy; start nothing')
    .action(async (options: Common) => done(await (await import('./check.ts')).runCheck(options, io, check)));
  add('try <tool> [args]', 'show the decision on a call without calling').option('--as <principal>', 'who calls').option('--explain', 'show the effect and the obligations too')
    .action(async (tool: string, args: string | undefined, options: Common & { as?: string; explain?: true }) =>
      done(await (await import('./try.ts')).runTry({ ...options, tool, args: args ?? '{}' }, io, assemble)));
  add('tools', 'show what an agent sees').option('--as <principal>', 'whose view')
    .action(async (options: Common & { as?: string }) => done(await (await import('./tools.ts')).runTools(options, io, assemble)));
  add('servers', 'show the servers, their state and their quarantined tools')
    .action(async (options: Common) => done(await (await import('./tools.ts')).runServers(options, io, assemble)));
  addAudit(program, io, done);
  program.command('completion <shell>').description('print a completion script for bash, zsh or fish').exitOverride()
    .action(async (shell: string) => done((await import('./completion.ts')).runCompletion(shell, program, io)));
  program.command('version').description('print the version').option('--json', 'print data as JSON').exitOverride()
    .action((options: { json?: true }) => {
      io.stdout(options.json === true ? `${JSON.stringify({ version: VERSION, node: process.version })}\n` : `tollgate ${VERSION}\n`);
      done(EXIT.ok);
    });
  return program;
}

/** The audit commands read files only, so they parse their own words. */
function addAudit(program: Command, io: Io, done: (code: number) => void): void {
  program.command('audit').description('read the audit log: list, show, tail, verify, export, stats').exitOverride()
    .argument('[words...]', 'see tollgate audit --help').helpOption(false).allowUnknownOption().passThroughOptions(false)
    .action(async (words: string[]) => done(await (await import('./audit.ts')).runAudit(words, io)));
}

/** One line what, one line what next; never a stack. */
function report(thrown: unknown, at: { argv: readonly string[]; io: Io }): number {
  const error = asTollgateError(thrown);
  const problems = error.data['problems'];
  if (at.argv.includes('--json')) {
    at.io.stderr(`${JSON.stringify({ error: { code: error.code, message: error.message, next: error.next, ...error.data } })}\n`);
  } else {
    const lines = Array.isArray(problems) ? `${formatProblems(problems as readonly Problem[])}\n` : '';
    at.io.stderr(`${error.code}: ${error.code === 'INTERNAL' ? error.row.what : error.message}\n${lines}${error.next}\n`);
  }
  return exitOf(error);
}

function exitOf(error: TollgateError): number {
  if (error.code === 'IDENTITY') return EXIT.auth;
  if (error.code === 'SERVER_UNAVAILABLE' || error.code === 'INIT_FAILED') return EXIT.server;
  if (error.code === 'POLICY_INVALID' || error.code === 'OPA_MISSING' || error.code === 'CONFIG_INVALID' || error.code === 'USAGE') return EXIT.usage;
  if (error.code === 'DENIED' || error.code === 'POLICY_FAILED') return EXIT.refused;
  return error.code === 'APPROVAL_REQUIRED' ? EXIT.approval : EXIT.unexpected;
}
