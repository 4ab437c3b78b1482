/** Defines the form in which commands are declared as data, and adds them with their shared options to commander. */
import { type Argument, type Command, InvalidArgumentError, Option } from 'commander';
import type { Io } from './command-io.ts';
import type { Wiring } from './wiring.ts';

/**
 * The code of a command. `options` holds the options and, by their names, the arguments. `program` is for `completion`.
 * Returns the exit code.
 */
export type RunCommand = (
  options: never,
  io: Io,
  wiring: Wiring & { readonly program: Command },
) => Promise<number> | number;

/** Options that several commands take. */
const SHARED = {
  config: () => new Option('-c, --config <file>', 'configuration file').default('tollgate.yaml'),
  state: () => new Option('--state <folder>', 'the state folder; the configuration is then not read'),
  json: () => new Option('--json', 'print data as JSON'),
  opa: () => new Option('--opa <path>', 'the opa program, for your own Rego'),
} as const;

/** One command, or a group of commands. */
export interface CommandDefinition {
  /** The name, then the arguments without a description: `show <id>`. */
  readonly usage: string;
  readonly about: string;
  /** Arguments with a description or choices. */
  readonly arguments?: readonly Argument[];
  /** Printed after the options. */
  readonly examples?: string;
  /** The shared options; default `config` and `json`, and none for a group that does nothing itself. */
  readonly shared?: readonly (keyof typeof SHARED)[];
  /** The help of `--as`, for a command that has it. */
  readonly as?: string;
  readonly options?: readonly Option[];
  /** Further options that the code gets. They are not on the command line. */
  readonly fixed?: Readonly<Record<string, unknown>>;
  /** Loads the code when the command is called. Help and completion load no code. */
  readonly load?: () => Promise<RunCommand>;
  /** The command changes the configuration. What it wrote is accepted for the owner. */
  readonly editsConfiguration?: true;
  readonly commands?: readonly CommandDefinition[];
}

/** The world in which commands run. `done` receives the exit code. */
export interface CommandHost {
  readonly program: Command;
  readonly io: Io;
  readonly wiring: Wiring;
  readonly done: (code: number) => void;
}

/** Adds a command and the commands below it to `parent`. */
export function defineCommand(parent: Command, definition: CommandDefinition, host: CommandHost): void {
  const { usage, about, load, commands = [], shared = load === undefined ? [] : ['config', 'json'] } = definition;
  const command = parent.command(usage).description(about);
  for (const argument of definition.arguments ?? []) command.addArgument(argument);
  for (const name of shared) command.addOption(SHARED[name]());
  if (definition.as !== undefined) command.option('--as <principal>', definition.as);
  for (const own of definition.options ?? []) command.addOption(own);
  if (definition.examples !== undefined) command.addHelpText('after', `\n${definition.examples}`);
  for (const child of commands) defineCommand(command, child, host);
  if (load !== undefined) command.action(async () => host.done(await run(command, definition, host)));
}

async function run(
  command: Command,
  { load, fixed, editsConfiguration }: CommandDefinition,
  { io, wiring, program }: CommandHost,
): Promise<number> {
  const given = command.registeredArguments.map((one, index) => [one.name(), command.processedArgs[index]] as const);
  const options = {
    ...command.optsWithGlobals<{ config: string }>(),
    ...Object.fromEntries(given.filter(([, value]) => value !== undefined)),
    ...fixed,
  };
  // A file that is named is that file. Only the default may be elsewhere (config-file.ts).
  if (command.getOptionValueSourceWithGlobals('config') === 'cli' && options.config === 'tollgate.yaml')
    options.config = './tollgate.yaml';
  const start = async (): Promise<number> => (await load?.())?.(options as never, io, { ...wiring, program }) ?? 0;
  if (editsConfiguration !== true) return start();
  const { accepting } = await import('./configuration/configuration-acceptance.ts');
  return accepting(options, io, start);
}

/** Collects the values of an option that may be repeated. */
export function collectValues(value: string, before: readonly string[] = []): readonly string[] {
  return [...before, value];
}

/** Reads a count from 1 up to `most`. Throws InvalidArgumentError, which becomes USAGE. */
export function readCount(most: number): (text: string) => number {
  return (text) => {
    if (!/^[1-9]\d{0,11}$/.test(text) || Number(text) > most)
      throw new InvalidArgumentError(`It is a whole number from 1 to ${most}.`);
    return Number(text);
  };
}
