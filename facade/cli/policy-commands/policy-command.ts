/** Declares `tollgate policy` and its commands. */
import { Argument, InvalidArgumentError, Option } from 'commander';
import { type CommandDefinition, readCount } from '../command-definition.ts';

const SHARED = ['config', 'json', 'opa'] as const;
const ENFORCED = new Option('--enforced', 'treat policies in warn or shadow mode as enforced');
const SINCE = new Option('--since <time>', 'ISO time, or 30m, 2h, 7d ago');
const DRAFT = [
  new Option('--against <draft>', 'a file or folder in the place of the source of --instead-of'),
  new Option('--instead-of <source>', 'the source of the policy that --against replaces'),
];
const COUNT = readCount(99_999);

/** Commands on written policies. */
const WRITTEN: readonly CommandDefinition[] = [
  {
    usage: 'test',
    about: 'run suites and Rego tests, in opa and in WebAssembly',
    shared: SHARED,
    arguments: [new Argument('[paths...]', 'suites, Rego tests, or folders of them')],
    options: [
      new Option('--threshold <percent>', 'fail if the tests cover less').argParser(readPercent),
      ENFORCED,
      ...DRAFT,
    ],
    examples: `Examples:
  $ tollgate policy test
  $ tollgate policy test policies/rules_suite.yaml --threshold 90`,
    load: async () => (await import('./policy-test-command.ts')).runPolicyTest,
  },
  {
    usage: 'check',
    about: 'show every error and warning of YAML and Rego',
    shared: SHARED,
    arguments: [
      new Argument('[paths...]', 'rules, Rego, or folders of them; default: those that the configuration names'),
    ],
    options: DRAFT,
    examples: `Examples:
  $ tollgate policy check
  $ tollgate policy check policies/git --json
  $ tollgate policy check --against draft.yaml --instead-of rules.yaml`,
    load: async () => (await import('./policy-check-command.ts')).runPolicyCheck,
  },
  {
    usage: 'build',
    about: 'build a bundle of Rego, which needs no opa at the start',
    shared: SHARED,
    arguments: [new Argument('[paths...]', 'files or folders of Rego; default: those that the configuration names')],
    options: [
      new Option('-o, --output <file>', 'the file of the bundle').default('bundle.tar.gz'),
      new Option('--revision <text>', 'the revision of the bundle; default: a hash of its content'),
      new Option('--signing-key <file>', 'sign with this private key (PEM), or with the secret of HS256'),
      new Option('--signing-alg <name>', 'the signing algorithm').choices(['RS256', 'ES256', 'HS256']).default('RS256'),
    ],
    examples: `Examples:
  $ tollgate policy build -o bundle.tar.gz policies/git
  $ tollgate policy build --revision v7 --signing-key key.pem --signing-alg ES256`,
    load: async () => (await import('./policy-build-command.ts')).runPolicyBuild,
  },
  {
    usage: 'fmt',
    about: 'format Rego as opa does; YAML stays as it is',
    shared: SHARED,
    arguments: [new Argument('[paths...]', 'files or folders; default: those that the configuration names')],
    options: [
      new Option('--check', 'change nothing; exit code 1 if a file is not formatted'),
      new Option('--diff', 'show what would change, and change nothing'),
    ],
    examples: `Examples:
  $ tollgate policy fmt
  $ tollgate policy fmt --diff policies/git`,
    editsConfiguration: true,
    load: async () => (await import('./policy-fmt-command.ts')).runPolicyFmt,
  },
  {
    usage: 'init [folder]',
    about: 'write a first policy folder; overwrites nothing',
    shared: SHARED,
    options: [
      new Option('--rego', 'write Rego, even if no opa is found'),
      new Option('--no-rego', 'write rules in YAML only'),
    ],
    examples: `Examples:
  $ tollgate policy init
  $ tollgate policy init policies --no-rego`,
    editsConfiguration: true,
    load: async () => (await import('./policy-init-command.ts')).runPolicyInit,
  },
  {
    usage: 'diff <before> <after>',
    about: 'show the rules, entry points, modes and settings that differ',
    shared: SHARED,
    examples: `Each argument is a tollgate.yaml, a file of rules, a file or folder of Rego, or a bundle.
Exit code 1 if they differ:
  $ tollgate policy diff policies bundle.tar.gz
  $ tollgate policy diff tollgate.yaml draft.yaml --json`,
    load: async () => (await import('./policy-diff-command.ts')).runPolicyDiff,
  },
];

/** Commands on the policy in force and on recorded decisions. */
const IN_FORCE: readonly CommandDefinition[] = [
  {
    usage: 'mode [source] [mode]',
    about: 'show the mode of each policy and what rules in trial would have decided, or set a mode',
    shared: SHARED,
    options: [new Option('--days <number>', 'count the decisions of this many days').argParser(COUNT).default(7)],
    examples: `Modes: enforce, warn (tells the caller what it would decide),
shadow (only records that), off.
  $ tollgate policy mode
  $ tollgate policy mode policies/rules.yaml warn`,
    editsConfiguration: true,
    load: async () => (await import('./policy-mode-command.ts')).runMode,
  },
  {
    usage: 'why <call> [args]',
    about: 'explain a decision, and show what would change it',
    shared: SHARED,
    as: 'the principal that calls',
    examples: `The call is a tool with its arguments, KIND:SERVER with a URI, a name or JSON,
the decision id of a recorded call, or \`last\`:
  $ tollgate policy why read '{"path": ".env"}'
  $ tollgate policy why resource:docs docs://manual/intro
  $ tollgate policy why elicitation:docs '{"asks": {"mode": "url"}}'
  $ tollgate policy why last`,
    load: async () => (await import('./policy-why-command.ts')).runWhy,
  },
  {
    usage: 'rules',
    about: 'show the rules, and how often each has decided',
    shared: SHARED,
    load: async () => (await import('./policy-rules-command.ts')).runRules,
  },
  {
    usage: 'replay',
    about: 'decide recorded calls again with another policy',
    shared: SHARED,
    options: [
      new Option(
        '--against <path>',
        'a tollgate.yaml, rules, Rego or a bundle; default: the configuration as it is now',
      ),
      new Option('--instead-of <source>', 'the one source that --against replaces; default: all of them'),
      SINCE,
      new Option('--fail-on <classes>', 'exit code 3 if one of these classes occurs, separated by commas'),
      ENFORCED,
    ],
    examples: `Examples:
  $ tollgate policy replay --enforced
  $ tollgate policy replay --against draft.yaml
  $ tollgate policy replay --against policies --since 7d --fail-on deny-to-allow,allow-to-deny`,
    load: async () => (await import('./policy-replay-command.ts')).runReplay,
  },
  {
    usage: 'suggest',
    about: 'suggest rules for what owners approve again and again; changes nothing',
    shared: SHARED,
    options: [
      new Option('--min <number>', 'how often a call must have been approved').argParser(COUNT).default(3),
      SINCE,
    ],
    examples: `Examples:
  $ tollgate policy suggest
  $ tollgate policy suggest --min 5 --since 7d > policies/suggested.yaml`,
    load: async () => (await import('./policy-suggest-command.ts')).runSuggest,
  },
  {
    usage: 'inputs',
    about: 'make test fixtures without secrets from recorded calls',
    shared: SHARED,
    options: [
      new Option('--sample <number>', 'how many calls').argParser(COUNT).makeOptionMandatory(),
      new Option('--out <folder>', 'write a suite and input documents there, instead of printing the suite'),
      SINCE,
    ],
    examples: `Examples:
  $ tollgate policy inputs --sample 20
  $ tollgate policy inputs --sample 50 --out policies`,
    load: async () => (await import('./policy-inputs-command.ts')).runInputs,
  },
];

/** `policy` with its commands. */
export const POLICY: CommandDefinition = {
  usage: 'policy',
  about: 'write, test, explain and replay policies',
  commands: [...WRITTEN, ...IN_FORCE],
};

function readPercent(text: string): number {
  if (!/^\d{1,3}(\.\d+)?$/.test(text) || Number(text) > 100)
    throw new InvalidArgumentError('A threshold is a number from 0 to 100.');
  return Number(text);
}
