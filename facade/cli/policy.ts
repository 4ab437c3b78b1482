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
}

function readPercent(text: string): number {
  if (!/^\d{1,3}(\.\d+)?$/.test(text) || Number(text) > 100) throw new InvalidArgumentError('A threshold is a number from 0 to 100.');
  return Number(text);
}
