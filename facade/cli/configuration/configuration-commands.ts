/**
 * Declares the commands that set up and check a configuration: `setup`, `init`, `doctor`, `check`, `reload`, `secret`,
 * `login`, `logout`.
 */
import { Argument, Option } from 'commander';
import type { CommandDefinition } from '../command-definition.ts';
import type { Starter } from './init-command.ts';

const STARTERS = ['workspace', 'reviewer', 'no-leaving', 'ci', 'strict'] as const satisfies readonly Starter[];

/** Puts everything that clients start behind Tollgate. */
export const SETUP: CommandDefinition = {
  usage: 'setup',
  about: 'put the servers of all your clients behind Tollgate, in one go',
  as: 'the owner who decides',
  options: [
    new Option('--dry-run', 'show the plan'),
    new Option('--yes-to <hash...>', 'agree to the plan and to servers by the hashes that were shown'),
    new Option('--test', 'make one harmless read call of each server, without a question'),
    new Option('--undo [client]', 'restore the files of one client, or of all and remove what setup connected'),
  ],
  examples: `Examples:
  $ tollgate setup                  see the plan, and decide about each server
  $ tollgate setup --dry-run
  $ tollgate setup --undo cursor    the file of Cursor as it was before`,
  load: async () => (await import('../setup/setup-command.ts')).runSetup,
};

/** Writes a configuration to begin with. */
export const INIT: CommandDefinition = {
  usage: 'init',
  about: 'write a tollgate.yaml, with the servers of the client files found here',
  options: [
    new Option('--force', 'replace existing files'),
    new Option('--starter <name>', 'the rules to begin with; default workspace').choices(STARTERS),
    new Option('--outside', 'write it to a folder of yours, where no agent can change it'),
  ],
  load: async () => (await import('./init-command.ts')).runInit,
};

/** Examines the machine and its clients. */
export const DOCTOR: CommandDefinition = {
  usage: 'doctor',
  about: 'check what this machine and its clients have, and test the isolation',
  shared: ['config', 'json', 'opa'],
  options: [new Option('--fix', 'repair what Tollgate can repair')],
  load: async () => (await import('./doctor-command.ts')).runDoctor,
};

/** Checks the configuration and the policy. */
export const CHECK: CommandDefinition = {
  usage: 'check',
  about: 'check the configuration and the policy, and start nothing',
  shared: ['config', 'json', 'opa'],
  load: async () => (await import('./check-command.ts')).runCheck,
};

/** Shows and accepts changes of the configuration. */
export const RELOAD: CommandDefinition = {
  usage: 'reload',
  about: 'show what changed in the configuration, and accept it',
  shared: ['config', 'json', 'opa'],
  as: 'the owner who accepts',
  options: [new Option('--yes <hash>', 'accept the configuration with this hash without a question')],
  examples: `Examples:
  $ tollgate reload             show what differs, ask, and accept it
  $ tollgate reload --yes HASH  accept without a question; HASH was shown before`,
  load: async () => (await import('./reload-command.ts')).runReload,
};

const SECRET_NAME = new Argument('<name>', 'the name in ${secret:NAME}');

/**
 * `secret set`, `list`, `rm` and `rotate`. No command takes a value as an argument, because other users can read
 * arguments.
 */
export const SECRET: CommandDefinition = {
  usage: 'secret',
  about: 'manage the secrets of servers: set, list, rm, rotate',
  commands: [
    {
      usage: 'set',
      about: 'store a value, from a hidden prompt or stdin',
      arguments: [SECRET_NAME],
      examples: `Examples:
  $ tollgate secret set github.token
  $ pass show github | tollgate secret set github.token`,
      load: async () => (await import('./secret-actions.ts')).runSecretSet,
    },
    {
      usage: 'list',
      about: 'show names, where each comes from, and who uses it; never values',
      load: async () => (await import('./secret-actions.ts')).runSecretList,
    },
    {
      usage: 'rm',
      about: 'remove a value',
      arguments: [SECRET_NAME],
      load: async () => (await import('./secret-actions.ts')).runSecretRemove,
    },
    {
      usage: 'rotate',
      about: 'replace a value, and show which servers must restart',
      arguments: [SECRET_NAME],
      load: async () => (await import('./secret-actions.ts')).runSecretRotate,
    },
  ],
};

const REMOTE_SERVER = new Argument('<server>', 'a remote server of tollgate.yaml');

/** Signs in to a remote server. */
export const LOGIN: CommandDefinition = {
  usage: 'login',
  about: 'sign in to a remote server (OAuth)',
  arguments: [REMOTE_SERVER],
  options: [
    new Option('--no-browser', 'open no browser, only print the address'),
    new Option('--scope <scopes...>', 'request these rights, in addition to those that were granted'),
  ],
  examples: `Examples:
  $ tollgate login linear
  $ tollgate login linear --no-browser
  $ tollgate login linear --scope issues:write
On a machine without a browser, forward the port of redirect_uri in the
address to it, and open the address on a machine with a browser.`,
  load: async () => (await import('./login-actions.ts')).runLogin,
};

/** Signs out of a remote server. */
export const LOGOUT: CommandDefinition = {
  usage: 'logout',
  about: 'delete the sign-in to a remote server, and revoke its tokens',
  arguments: [REMOTE_SERVER],
  load: async () => (await import('./login-actions.ts')).runLogout,
};
