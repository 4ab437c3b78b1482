/**
 * The commands that the console runs. Each page shows and changes what a command of the terminal shows and changes, so
 * there is one check, one record and one error text for both.
 */
import { spawn } from 'node:child_process';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';

/** What a parameter may be. Each text goes to one word of the command line, and no word can become an option. */
const KINDS = {
  name: /^[\w@.:/+-][^\0\n]{0,199}$/u,
  id: /^[0-9A-Za-z][\w.:-]{0,127}$/,
  hash: /^[0-9a-f]{12,64}$/,
  time: /^(?:\d{1,6}[smhd]|\d{4}-\d\d-\d\d[\w:.+-]{0,30}|today|yesterday)$/,
  count: /^[1-9]\d{0,6}$/,
  text: /^[^\0]{0,4000}$/u,
  word: /^[a-z][a-z-]{0,30}$/,
} as const;

type Kind = keyof typeof KINDS;

/** One command: its words, the options with a value, and the arguments. A name that ends in `?` may be absent. */
interface ConsoleCommand {
  readonly words: readonly string[];
  readonly options?: Readonly<Record<string, Kind>>;
  readonly arguments?: Readonly<Record<string, Kind>>;
  /** Several values of one option: hashes of what was shown. */
  readonly hashes?: string;
  /** The command takes `--as` the owner who opened the console. */
  readonly asOwner?: true;
}

const NAMED = { arguments: { name: 'name' } } as const;

/** Every command of the console by its name. What is not here cannot be run. */
export const CONSOLE_COMMANDS = {
  approvals: { words: ['approvals', 'list'], asOwner: true },
  approval: { words: ['approvals', 'show'], arguments: { id: 'id' }, asOwner: true },
  deny: { words: ['approvals', 'deny'], arguments: { id: 'id' }, options: { 'reason?': 'text' }, asOwner: true },
  servers: { words: ['servers', '--no-start'] },
  server: { words: ['servers', 'info'], ...NAMED, asOwner: true },
  'server-log': { words: ['servers'], options: { log: 'name' } },
  'server-restart': { words: ['servers', 'restart'], ...NAMED, asOwner: true },
  'server-enable': { words: ['servers', 'enable'], ...NAMED, asOwner: true },
  'server-disable': { words: ['servers', 'disable'], ...NAMED, asOwner: true },
  'server-approve': { words: ['approve'], ...NAMED, hashes: 'yes', asOwner: true },
  'server-approve-own': { words: ['approve', '--own-isolation'], ...NAMED, hashes: 'yes', asOwner: true },
  'server-revoke': { words: ['revoke'], ...NAMED, asOwner: true },
  kill: { words: ['kill'], ...NAMED, asOwner: true },
  'kill-lift': { words: ['kill', '--lift'], ...NAMED, asOwner: true },
  rules: { words: ['policy', 'rules'] },
  recorded: { words: ['audit', 'show', '--args'], arguments: { id: 'id' } },
  'policy-test': { words: ['policy', 'test'] },
  grants: { words: ['grants', 'list'] },
  'grant-revoke': { words: ['grants', 'revoke'], arguments: { id: 'id' }, asOwner: true },
  budgets: { words: ['budgets'], asOwner: true },
  'budget-reset': {
    words: ['budgets', 'reset'],
    arguments: { budget: 'name', key: 'name' },
    asOwner: true,
  },
  suspend: { words: ['suspend'], arguments: { principal: 'name' }, options: { 'for?': 'time' }, asOwner: true },
  resume: { words: ['resume'], arguments: { principal: 'name' }, asOwner: true },
  plans: { words: ['plan', 'list'] },
  'plan-approve': { words: ['plan', 'approve'], arguments: { run: 'id' }, asOwner: true },
  'plan-revoke': { words: ['plan', 'revoke'], arguments: { run: 'id' }, asOwner: true },
  labels: { words: ['labels', 'list'], asOwner: true },
  verify: { words: ['audit', 'verify'] },
  explain: { words: ['explain'], arguments: { id: 'id' } },
} as const satisfies Readonly<Record<string, ConsoleCommand>>;

/** The name of a command of the console. */
export type ConsoleCommandName = keyof typeof CONSOLE_COMMANDS;

/** What a command answered. `data` is its JSON, absent if it printed none; `messages` is what it said on stderr. */
export interface CommandAnswerData {
  readonly command: string;
  readonly exit: number;
  readonly data?: unknown;
  readonly messages: string;
}

/**
 * Returns the words of a command, without the name of the program. Throws WIRE_PARAMS for a parameter that the command
 * does not take, lacks, or that is malformed.
 */
export function commandWords(
  name: string,
  given: Readonly<Record<string, unknown>>,
  owner: string | undefined,
): readonly string[] {
  const found: ConsoleCommand | undefined = Object.hasOwn(CONSOLE_COMMANDS, name)
    ? CONSOLE_COMMANDS[name as ConsoleCommandName]
    : undefined;
  if (found === undefined) throw wrong(`The console has no command ${JSON.stringify(name.slice(0, 40))}.`);
  const left = new Map(Object.entries(given));
  const take = ([key, kind]: readonly [string, Kind]): readonly [string, string][] => {
    const parameter = key.replace('?', '');
    const value = left.get(parameter);
    left.delete(parameter);
    if (value === undefined && key.endsWith('?')) return [];
    if (typeof value !== 'string' || !KINDS[kind].test(value) || value.startsWith('-'))
      throw wrong(`${parameter} is missing, or no ${kind}${kind === 'time' ? ', such as 30m, 2h or 7d' : ''}.`);
    return [[parameter, value]];
  };
  const options = Object.entries(found.options ?? {})
    .flatMap(take)
    .map(([key, value]) => `--${key}=${value}`);
  const hashes = left.get(found.hashes ?? '') ?? [];
  left.delete(found.hashes ?? '');
  if (!Array.isArray(hashes) || !hashes.every((one) => typeof one === 'string' && KINDS.hash.test(one)))
    throw wrong(`${found.hashes} is no list of hashes.`);
  const words = Object.entries(found.arguments ?? {})
    .flatMap(take)
    .map(([, value]) => value);
  const [unknown] = left.keys();
  if (unknown !== undefined) throw wrong(`${name} takes no ${unknown.slice(0, 40)}.`);
  return [
    ...found.words,
    ...(found.asOwner === true && owner !== undefined ? [`--as=${owner}`] : []),
    ...options,
    '--json',
    ...(hashes as string[]).map((one) => `--${found.hashes}=${one}`),
    ...(words.length > 0 ? ['--', ...words] : []),
  ];
}

/** Returns a command as it is typed in a terminal. No argument begins with `-`, so `--` before them is left out. */
export function commandText(words: readonly string[]): string {
  const typed = words.filter((word) => word !== '--json' && word !== '--');
  return ['tollgate', ...typed].map(shellWord).join(' ');
}

function shellWord(word: string): string {
  return /^[\w@.,:=/+-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}

function wrong(detail: string): TollgateError {
  return new TollgateError('WIRE_PARAMS', { detail, next: 'Correct the value.' });
}

/** Where and how commands run. `self`: the arguments that start this program again. */
export interface CommandRunner {
  readonly self: readonly string[];
  readonly config: string;
  readonly cwd: string;
  readonly env: Readonly<Record<string, string | undefined>>;
}

/** A command that takes longer is ended, and the page says so, ms. */
const COMMAND_MS = 120_000;
/** The most characters of an answer. */
const MAX_OUTPUT = 64 * 1024 * 1024;
/** Commands that run at the same time. The next one waits. */
const MAX_RUNNING = 3;

/** Runs commands, each in a process of its own, so that none of them can hold up the console or leave state in it. */
export class ConsoleCommands {
  readonly #runner: CommandRunner;
  readonly #waiting: (() => void)[] = [];
  #running = 0;

  constructor(runner: CommandRunner) {
    this.#runner = runner;
  }

  /** Runs a command. Throws CANCELLED if the browser disconnects, and TOOL_TIMEOUT. */
  async run(words: readonly string[], gone: AbortSignal): Promise<CommandAnswerData> {
    if (this.#running >= MAX_RUNNING) await new Promise<void>((resolve) => this.#waiting.push(resolve));
    else this.#running += 1;
    try {
      if (gone.aborted) throw new TollgateError('CANCELLED');
      return await this.#spawn(words, gone);
    } finally {
      const next = this.#waiting.shift();
      if (next === undefined) this.#running -= 1;
      else next();
    }
  }

  #spawn(words: readonly string[], gone: AbortSignal): Promise<CommandAnswerData> {
    const { self, config, cwd, env } = this.#runner;
    const [program = process.execPath, ...before] = self;
    const [first = '', ...rest] = words;
    const at = rest.findIndex((word) => word.startsWith('-'));
    const line = [first, ...rest.slice(0, at), `--config=${config}`, ...rest.slice(at)];
    return new Promise((resolve, reject) => {
      const child = spawn(program, [...before, ...line], { cwd, env, stdio: ['ignore', 'pipe', 'pipe'] });
      const output = { stdout: '', stderr: '' };
      const end = (error: TollgateError): void => {
        child.kill('SIGTERM');
        reject(error);
      };
      const leave = (): void => end(new TollgateError('CANCELLED'));
      const timer = setTimeout(
        () => end(new TollgateError('TOOL_TIMEOUT', { detail: 'The command took longer than two minutes.' })),
        COMMAND_MS,
      );
      gone.addEventListener('abort', leave, { once: true });
      for (const stream of ['stdout', 'stderr'] as const)
        child[stream].setEncoding('utf8').on('data', (text: string) => {
          output[stream] += text;
          if (output[stream].length > MAX_OUTPUT) end(new TollgateError('UPSTREAM_TOO_LARGE'));
        });
      child.once('error', (cause) => end(new TollgateError('INTERNAL', { cause })));
      child.once('close', (exit) => {
        clearTimeout(timer);
        gone.removeEventListener('abort', leave);
        const data = parse(output.stdout);
        resolve({
          command: commandText(words),
          exit: exit ?? 1,
          ...(data !== undefined && { data }),
          messages: output.stderr,
        });
      });
    });
  }
}

function parse(text: string): unknown {
  try {
    return text.trim() === '' ? undefined : (JSON.parse(text) as unknown);
  } catch {
    return undefined;
  }
}
