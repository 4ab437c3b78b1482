/** Owns `tollgate policy` and its commands: what an author of rules uses; each command's code is loaded when it is called. */
import { type Command, InvalidArgumentError, Option } from 'commander';
import type { CommonOptions } from '../command-facade.ts';
import type { Io } from '../command-io.ts';
import type { Wiring } from '../wiring.ts';

const ENFORCED = 'as if what is in warn or shadow were enforced';

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
    policy
      .command(usage)
      .description(about)
      .option('-c, --config <file>', 'configuration file', 'tollgate.yaml')
      .option('--json', 'print data as JSON')
      .option('--opa <path>', 'the opa program, for Rego of your own');
  add('test', 'run suites and Rego tests, in opa and in the built wasm')
    .argument('[paths...]', 'suites, Rego tests, or folders of them')
    .option('--threshold <percent>', 'fail where tests cover less', readPercent)
    .option('--enforced', ENFORCED)
    .addHelpText(
      'after',
      '\nExamples:\n  $ tollgate policy test\n  $ tollgate policy test policies/rules_suite.yaml --threshold 90',
    )
    .action(async (paths: readonly string[], options: CommonOptions & { threshold?: number; enforced?: true }) =>
      done(await (await import('./policy-test-command.ts')).runPolicyTest({ ...options, paths }, io, wiring)),
    );
  addWritten(add, { io, wiring, done });
  addMode(add, { io, done });
  addRecorded(add, { io, wiring, done });
}

/** What works on written policies. */
function addWritten(
  add: (usage: string, about: string) => Command,
  { io, wiring, done }: Omit<PolicyCommands, 'program'>,
): void {
  add('check', 'every fault and warning of YAML and Rego at once')
    .argument('[paths...]', 'rules, Rego, or folders of them; default what the configuration names')
    .addHelpText('after', '\nExamples:\n  $ tollgate policy check\n  $ tollgate policy check policies/git --json')
    .action(async (paths: readonly string[], options: CommonOptions) =>
      done(await (await import('./policy-check-command.ts')).runPolicyCheck({ ...options, paths }, io, wiring)),
    );
  add('build', 'a bundle of Rego that needs no opa at start')
    .argument('[paths...]', 'files or folders of Rego; default those that the configuration names')
    .option('-o, --output <file>', 'where the bundle goes', 'bundle.tar.gz')
    .option('--revision <text>', 'what the bundle calls itself; default a hash of what is in it')
    .option('--signing-key <file>', 'sign with this private key (PEM), or with the secret of HS256')
    .addOption(new Option('--signing-alg <name>', 'how to sign').choices(['RS256', 'ES256', 'HS256']).default('RS256'))
    .addHelpText(
      'after',
      '\nExamples:\n  $ tollgate policy build -o bundle.tar.gz policies/git\n  $ tollgate policy build --revision v7 --signing-key key.pem --signing-alg ES256',
    )
    .action(
      async (
        paths: readonly string[],
        options: CommonOptions & { output: string; signingAlg: 'RS256' | 'ES256' | 'HS256' },
      ) => done(await (await import('./policy-build-command.ts')).runPolicyBuild({ ...options, paths }, io, wiring)),
    );
  add('fmt', 'format Rego as opa does; YAML stays as it is')
    .argument('[paths...]', 'files or folders; default those that the configuration names')
    .option('--check', 'change nothing; exit code 1 where something is not formatted')
    .option('--diff', 'show what would change, and change nothing')
    .addHelpText('after', '\nExamples:\n  $ tollgate policy fmt\n  $ tollgate policy fmt --diff policies/git')
    .action(async (paths: readonly string[], options: CommonOptions & { check?: true; diff?: true }) =>
      done(
        await (await import('../configuration/configuration-acceptance.ts')).accepting(options, io, async () =>
          (await import('./policy-fmt-command.ts')).runPolicyFmt({ ...options, paths }, io, wiring),
        ),
      ),
    );
  add('init [folder]', 'a folder to begin a policy in; overwrites nothing')
    .option('--rego', 'with Rego, even where no opa is found')
    .option('--no-rego', 'rules in YAML only')
    .addHelpText('after', '\nExamples:\n  $ tollgate policy init\n  $ tollgate policy init policies --no-rego')
    .action(async (folder: string | undefined, options: CommonOptions & { rego?: boolean }) =>
      done(
        await (await import('../configuration/configuration-acceptance.ts')).accepting(options, io, async () =>
          (await import('./policy-init-command.ts')).runPolicyInit(
            { ...options, folder: folder ?? 'policies' },
            io,
            wiring,
          ),
        ),
      ),
    );
  add('diff <before> <after>', 'rules, entry points, modes and settings that differ')
    .addHelpText(
      'after',
      `
Each is a tollgate.yaml, a file of rules, a file or folder of Rego, or a bundle. Exit code 1 where they differ:
  $ tollgate policy diff policies bundle.tar.gz
  $ tollgate policy diff tollgate.yaml draft.yaml --json`,
    )
    .action(async (before: string, after: string, options: CommonOptions) =>
      done(await (await import('./policy-diff-command.ts')).runPolicyDiff({ ...options, before, after }, io, wiring)),
    );
}

/** What works on the configuration that runs. */
function addMode(
  add: (usage: string, about: string) => Command,
  { io, done }: Pick<PolicyCommands, 'io' | 'done'>,
): void {
  add('mode [source] [mode]', 'which policies count, how often the others would have, and a change of that')
    .option('--days <number>', 'how far back to count', readCount, 7)
    .addHelpText(
      'after',
      `
Modes: enforce, warn (tells the caller what it would have done), shadow (only records it), off.
  $ tollgate policy mode
  $ tollgate policy mode policies/rules.yaml warn`,
    )
    .action(async (source: string | undefined, mode: string | undefined, options: CommonOptions & { days: number }) =>
      done(
        await (await import('../configuration/configuration-acceptance.ts')).accepting(options, io, async () =>
          (await import('./policy-mode-command.ts')).runMode(
            { ...options, ...(source === undefined ? {} : { source }), ...(mode === undefined ? {} : { mode }) },
            io,
          ),
        ),
      ),
    );
}

/** What explains decisions and works on recorded ones. */
function addRecorded(
  add: (usage: string, about: string) => Command,
  { io, wiring, done }: Omit<PolicyCommands, 'program'>,
): void {
  add('why <call> [args]', 'why a call is decided as it is, and what would change that')
    .option('--as <principal>', 'who calls')
    .addHelpText(
      'after',
      `
The call is a tool with its arguments, a recorded one by its decision id, or the last recorded one:
  $ tollgate policy why read '{"path": ".env"}'
  $ tollgate policy why last`,
    )
    .action(async (call: string, args: string | undefined, options: CommonOptions & { as?: string }) =>
      done(
        await (await import('./policy-why-command.ts')).runWhy(
          { ...options, call, ...(args === undefined ? {} : { args }) },
          io,
          wiring,
        ),
      ),
    );
  add('replay', 'decide recorded calls anew, under a draft')
    .option('--against <path>', 'a tollgate.yaml, rules, Rego or a bundle; default the configuration as it is now')
    .option('--since <time>', 'ISO time, or 30m, 2h, 7d ago')
    .option('--fail-on <classes>', 'exit code 3 where one of these classes occurs')
    .option('--enforced', ENFORCED)
    .addHelpText(
      'after',
      '\nExamples:\n  $ tollgate policy replay --enforced\n  $ tollgate policy replay --against draft.yaml\n  $ tollgate policy replay --against policies --since 7d --fail-on deny-to-allow,allow-to-deny',
    )
    .action(async (options: CommonOptions & { against?: string; since?: string; failOn?: string; enforced?: true }) =>
      done(await (await import('./policy-replay-command.ts')).runReplay(options, io, wiring)),
    );
  add('inputs', 'recorded calls as fixtures for tests, without secrets')
    .requiredOption('--sample <number>', 'how many calls', readCount)
    .option('--out <folder>', 'write a suite and input documents there, instead of printing the suite')
    .option('--since <time>', 'ISO time, or 30m, 2h, 7d ago')
    .addHelpText(
      'after',
      '\nExamples:\n  $ tollgate policy inputs --sample 20\n  $ tollgate policy inputs --sample 50 --out policies',
    )
    .action(async (options: CommonOptions & { sample: number; out?: string; since?: string }) =>
      done(await (await import('./policy-inputs-command.ts')).runInputs(options, io, wiring)),
    );
}

function readPercent(text: string): number {
  if (!/^\d{1,3}(\.\d+)?$/.test(text) || Number(text) > 100)
    throw new InvalidArgumentError('A threshold is a number from 0 to 100.');
  return Number(text);
}

function readCount(text: string): number {
  if (!/^[1-9]\d{0,4}$/.test(text)) throw new InvalidArgumentError('It is a whole number from 1 to 99999.');
  return Number(text);
}
