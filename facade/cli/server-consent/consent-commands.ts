/** Declares `approve`, `revoke` and `servers`, with which an owner decides on servers. */
import { Option } from 'commander';
import type { CommandDefinition } from '../command-definition.ts';

const NO_START = new Option('--no-start', 'start nothing, and show the tools that were listed last');
const OWNER = 'the owner who decides';

/** Shows a server, and lets an owner approve its start and its tools. */
export const APPROVE: CommandDefinition = {
  usage: 'approve <name>',
  about: 'show a server, and approve its start and its tools',
  as: OWNER,
  options: [
    new Option('--yes <hashes...>', 'approve without a terminal: the start hash, then the tools hash'),
    new Option('--any-tools', 'approve all its tools, including those that it will list later'),
    new Option('--with-secrets', 'list its tools with its secrets'),
    new Option('--with-network', 'list its tools with its allowed domains'),
    new Option('--own-isolation', 'list its tools at its own isolation instead of in a sandbox'),
  ],
  examples: `Examples:
  $ tollgate approve github            read both screens, and answer
  $ tollgate approve github --json     print both as JSON; approves nothing
  $ tollgate approve mine --any-tools  a server of your own that changes often`,
  load: async () => (await import('./approve-command.ts')).runApproveServer,
};

/** Withdraws the approval of a server. */
export const REVOKE: CommandDefinition = {
  usage: 'revoke <name>',
  about: 'withdraw the approval of a server, in every running Tollgate',
  as: OWNER,
  load: async () => (await import('./server-consent-commands.ts')).runRevoke,
};

/** `servers`, `servers list`, `info`, `enable` and `disable`. */
export const SERVERS: CommandDefinition = {
  usage: 'servers',
  about: 'show the servers, their consent, their state and their quarantined tools',
  shared: ['config', 'json', 'opa'],
  options: [new Option('--log <server>', 'show what a server wrote to stderr; starts nothing'), NO_START],
  examples: `Examples:
  $ tollgate servers                 starts the approved servers to list tools
  $ tollgate servers info github     starts nothing`,
  load: async () => (await import('../serving/tools-command.ts')).runServers,
  commands: [
    {
      usage: 'list',
      about: 'the same as `tollgate servers`',
      options: [NO_START],
      load: async () => (await import('../serving/tools-command.ts')).runServers,
    },
    {
      usage: 'info <name>',
      about: 'show what a server would run, its approvals, and changes that wait for one',
      as: OWNER,
      load: async () => (await import('./server-consent-commands.ts')).runInfo,
    },
    {
      usage: 'restart <name>',
      about: 'restart a server in every Tollgate that runs it',
      as: OWNER,
      load: async () => (await import('./server-consent-commands.ts')).runServerRestart,
    },
    {
      usage: 'enable <name>',
      about: 'let a disabled server be used again',
      as: OWNER,
      fixed: { enable: true },
      load: async () => (await import('./server-consent-commands.ts')).runServerSwitch,
    },
    {
      usage: 'disable <name>',
      about: 'stop the use of a server; its approval stays',
      as: OWNER,
      fixed: { enable: false },
      load: async () => (await import('./server-consent-commands.ts')).runServerSwitch,
    },
  ],
};
