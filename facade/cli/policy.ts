/** Owns `tollgate policy` and its commands: what an author of rules uses; each command's code is loaded when it is called. */
import { InvalidArgumentError, type Command } from 'commander';
import type { Io } from './io.ts';
import type { CommonOptions } from './open.ts';
import type { Wiring } from './program.ts';

/** What every command under `policy` is made with. */
export interface PolicyCommands {
  readonly program: Command;
  readonly io: Io;
  readonly wiring: Wiring;
  readonly done: (code: number) => void;
}

/** Adds `policy` with its commands; the code of each stands in facade/cli/policy/. */
export function addPolicy({ program, io, wiring, done }: PolicyCommands): void {
  const policy = program.command('policy').description('write, test, explain and replay policies');
  const add = (usage: string, about: string): Command =>
    policy.command(usage).description(about).option('-c, --config <file>', 'configuration file', 'tollgate.yaml').option('--json', 'print data as JSON').option('--opa <path>', 'the opa program, for Rego of your own');
  add('test', 'run suites and Rego tests, in opa and in the built wasm').argument('[paths...]', 'suites, Rego tests, or folders of them')
    .option('--threshold <percent>', 'fail where tests cover less', readPercent)
    .addHelpText('after', '\nExamples:\n  $ tollgate policy test\n  $ tollgate policy test policies/rules_suite.yaml --threshold 90')
    .action(async (paths: readonly string[], options: CommonOptions & { threshold?: number }) => done(await (await import('./policy/test.ts')).runPolicyTest({ ...options, paths }, io, wiring)));
  addRecorded(add, { io, wiring, done });
}

/** What explains decisions and works on recorded ones. */
function addRecorded(add: (usage: string, about: string) => Command, { io, wiring, done }: Omit<PolicyCommands, 'program'>): void {
  add('why <call> [args]', 'why a call is decided as it is, and what would change that').option('--as <principal>', 'who calls')
    .addHelpText('after', `
The call is a tool with its arguments, a recorded one by its decision id, or the last recorded one:
  $ tollgate policy why read '{"path": ".env"}'
  $ tollgate policy why last`)
    .action(async (call: string, args: string | undefined, options: CommonOptions & { as?: string }) =>
      done(await (await import('./policy/why.ts')).runWhy({ ...options, call, ...(args === undefined ? {} : { args }) }, io, wiring)));
  add('replay', 'decide recorded calls anew, under a draft').option('--against <path>', 'a tollgate.yaml, rules, Rego or a bundle; default the configuration as it is now').option('--since <time>', 'ISO time, or 30m, 2h, 7d ago')
    .option('--fail-on <classes>', 'exit code 3 where one of these classes occurs')
    .addHelpText('after', '\nExamples:\n  $ tollgate policy replay --against draft.yaml\n  $ tollgate policy replay --against policies --since 7d --fail-on deny-to-allow,allow-to-deny')
    .action(async (options: CommonOptions & { against?: string; since?: string; failOn?: string }) => done(await (await import('./policy/replay.ts')).runReplay(options, io, wiring)));
  add('inputs', 'recorded calls as fixtures for tests, without secrets').requiredOption('--sample <number>', 'how many calls', readCount)
    .option('--out <folder>', 'write a suite and input documents there, instead of printing the suite').option('--since <time>', 'ISO time, or 30m, 2h, 7d ago')
    .addHelpText('after', '\nExamples:\n  $ tollgate policy inputs --sample 20\n  $ tollgate policy inputs --sample 50 --out policies')
    .action(async (options: CommonOptions & { sample: number; out?: string; since?: string }) => done(await (await import('./policy/inputs.ts')).runInputs(options, io, wiring)));
}

function readPercent(text: string): number {
  if (!/^\d{1,3}(\.\d+)?$/.test(text) || Number(text) > 100) throw new InvalidArgumentError('A threshold is a number from 0 to 100.');
  return Number(text);
}

function readCount(text: string): number {
  if (!/^[1-9]\d{0,4}$/.test(text)) throw new InvalidArgumentError('A sample is a whole number from 1.');
  return Number(text);
}
