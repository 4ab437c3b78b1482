/** Declares the commands that serve agents, show what they may do, and stop them, and `state`. */
import { InvalidArgumentError, Option } from 'commander';
import type { CommandDefinition } from '../command-definition.ts';

/** `run`. */
export const RUN: CommandDefinition = {
  usage: 'run',
  about: 'serve one agent over stdio; clients start this command',
  shared: ['config', 'json', 'opa'],
  as: 'the principal of the agent',
  load: async () => (await import('./serve-command.ts')).runStdio,
};

/** `serve`. */
export const SERVE: CommandDefinition = {
  usage: 'serve',
  about: 'serve agents over Streamable HTTP',
  shared: ['config', 'json', 'opa'],
  options: [
    new Option('--port <number>', 'the port; 0 picks a free one').argParser(readPort),
    new Option('--workers <number>', 'serve with this many processes on one port, 1 to 256').argParser(readWorkers),
    new Option('--console [owner]', 'open the console too, on another port, for this owner'),
  ],
  load: async () => (await import('./serve-command.ts')).runHttp,
};

/** `console`. */
export const CONSOLE: CommandDefinition = {
  usage: 'console',
  about: 'open the console of the admin in a browser of this machine',
  as: 'the owner who opens it',
  options: [new Option('--port <number>', 'the port; default: a free one').argParser(readPort)],
  load: async () => (await import('../console/console-command.ts')).runConsole,
};

/** `status`. */
export const SHOW_STATUS: CommandDefinition = {
  usage: 'status',
  about: 'show what runs, and what needs your attention',
  shared: ['config', 'json'],
  options: [new Option('--watch', 'show it again at each change, until Ctrl-C')],
  load: async () => (await import('./status-command.ts')).runStatus,
};

/** `tools`. */
export const TOOLS: CommandDefinition = {
  usage: 'tools [name]',
  about: 'show the tools that an agent sees, or one of them completely',
  shared: ['config', 'json', 'opa'],
  as: 'the principal whose tools are shown',
  load: async () => (await import('./tools-command.ts')).runTools,
};

/** `try`. */
export const TRY: CommandDefinition = {
  usage: 'try <tool> [args...]',
  about: 'show the decision on a call without making it',
  shared: ['config', 'json', 'opa'],
  as: 'the principal that calls',
  options: [new Option('--explain', 'show the effect and the obligations too')],
  examples: argumentForms('try'),
  load: async () => (await import('./try-command.ts')).runTry,
};

/** `call`. */
export const CALL: CommandDefinition = {
  usage: 'call <tool> [args...]',
  about: 'make a call by hand, decided and recorded as every call, and print its result',
  shared: ['config', 'json', 'opa'],
  as: 'the principal for whom the owner calls (default: the owner)',
  options: [new Option('--by <owner>', 'the owner who calls, if you may be several')],
  examples: argumentForms('call'),
  load: async () => (await import('./call-command.ts')).runCall,
};

/** `off`. */
export const OFF: CommandDefinition = {
  usage: 'off',
  about: 'switch everything off, in every process: lists are empty, calls are refused',
  shared: ['config', 'state', 'json'],
  fixed: { to: 'off' },
  load: async () => (await import('./switch-command.ts')).runMasterSwitch,
};

/** `on`. */
export const ON: CommandDefinition = {
  ...OFF,
  usage: 'on',
  about: 'switch everything on again',
  fixed: { to: 'on' },
};

/** The help of `--as` for acts that need no configuration. */
const ACTOR = 'the owner to record; default: the user of the machine';

/** `kill`. */
export const KILL: CommandDefinition = {
  usage: 'kill [server]',
  about: 'stop one server, or all, in every running Tollgate of this configuration',
  shared: ['config', 'state', 'json'],
  as: ACTOR,
  options: [
    new Option('--all', 'stop all servers'),
    new Option('--lift', 'let the server run again; without a server: all of them'),
  ],
  examples: `Examples:
  $ tollgate kill github         stop one server
  $ tollgate kill                show what is stopped
  $ tollgate kill --lift github  let it run again`,
  load: async () => (await import('./kill-command.ts')).runKill,
};

/** `suspend`. */
export const SUSPEND: CommandDefinition = {
  usage: 'suspend [principal]',
  about: 'refuse every call of a principal, in every process; alone: list who is suspended',
  shared: ['config', 'state', 'json'],
  as: ACTOR,
  options: [new Option('--for <duration>', 'for how long, such as 2h; default: until `resume`')],
  examples: `Examples:
  $ tollgate suspend alice           until someone lifts it
  $ tollgate suspend alice --for 2h  two hours
  $ tollgate suspend                 show who is suspended`,
  load: async () => (await import('./suspend-command.ts')).runSuspend,
};

/** `resume`. */
export const RESUME: CommandDefinition = {
  usage: 'resume <principal>',
  about: 'lift the suspension of a principal',
  shared: ['config', 'state', 'json'],
  as: ACTOR,
  load: async () => (await import('./suspend-command.ts')).runResume,
};

/** `state check`, `migrate`, `backup`, `restore` and `repair`. */
export const STATE: CommandDefinition = {
  usage: 'state',
  about: 'check, migrate, back up, restore and repair the state',
  examples: `Examples:
  $ tollgate state check
  $ tollgate state migrate
  $ tollgate state backup state-2026-11-23.db
  $ tollgate state restore state-2026-11-23.db`,
  commands: [
    {
      usage: 'check',
      about: 'check the database for damage, or the store',
      shared: ['config', 'state', 'json'],
      load: async () => (await import('./state-actions.ts')).runStateCheck,
    },
    {
      usage: 'migrate',
      about: 'create or upgrade the store that machines share',
      shared: ['config', 'json'],
      load: async () => (await import('./state-actions.ts')).runStateMigrate,
    },
    {
      usage: 'backup <file>',
      about: 'copy the database to a new file',
      shared: ['config', 'state', 'json'],
      load: async () => (await import('./state-actions.ts')).runStateBackup,
    },
    {
      usage: 'restore <file>',
      about: 'replace the database with a backup',
      shared: ['config', 'state', 'json'],
      load: async () => (await import('./state-actions.ts')).runStateRestore,
    },
    {
      usage: 'repair',
      about: 'make a new database from the readable part of a damaged one',
      shared: ['config', 'state', 'json'],
      options: [new Option('--start-empty', 'start with an empty database')],
      load: async () => (await import('./state-actions.ts')).runStateRepair,
    },
  ],
};

function argumentForms(command: 'call' | 'try'): string {
  return `Arguments are one JSON object, pairs, or a file with the object:
  $ tollgate ${command} read '{"path": "README.md"}'
  $ tollgate ${command} workspace.read path=README.md limit=10
  $ tollgate ${command} read @arguments.json`;
}

function readWorkers(text: string): number {
  if (!/^\d{1,3}$/.test(text) || Number(text) < 1 || Number(text) > 256)
    throw new InvalidArgumentError('The number of workers is a whole number from 1 to 256.');
  return Number(text);
}

function readPort(text: string): number {
  if (!/^\d{1,5}$/.test(text) || Number(text) > 65_535)
    throw new InvalidArgumentError('A port is a whole number from 0 to 65535.');
  return Number(text);
}
