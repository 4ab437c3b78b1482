/** Declares `tollgate import` and `tollgate export`, which read and write the configuration files of MCP clients. */
import { Option } from 'commander';
import type { CommandDefinition } from '../command-definition.ts';

const WRITING = [
  new Option('--secrets <where>', 'where literal keys go: vault, or env (you set the variables)').choices([
    'vault',
    'env',
  ]),
  new Option('--dry-run', 'show what would be written'),
  new Option('--yes', 'write without asking'),
];

/** Lists the servers of other clients and imports them. */
export const IMPORT: CommandDefinition = {
  usage: 'import [file]',
  about: 'list the servers of other clients, and import them',
  options: [
    ...WRITING,
    new Option('--undo', 'undo the last import'),
    new Option('--from <client>', 'the files of one client'),
    new Option('--all', 'the files of all clients'),
    new Option('--only <names>', 'only these servers, separated by commas'),
    new Option('--copy', 'copy the servers into tollgate.yaml; without it, they stay in their files'),
  ],
  examples: `Examples:
  $ tollgate import                       which servers are there?
  $ tollgate import --from cursor         include the file of Cursor
  $ tollgate import .mcp.json --copy      copies; keys move to the vault
  $ tollgate import --undo`,
  editsConfiguration: true,
  load: async () => (await import('./import-command.ts')).runImport,
};

/** Writes Tollgate into the file of a client. */
export const EXPORT: CommandDefinition = {
  usage: 'export',
  about: 'write Tollgate into the file of a client',
  as: 'the principal of the agent',
  options: [
    ...WRITING,
    new Option('--undo', 'undo the last export'),
    new Option('--client <name>', 'the client'),
    new Option('--file <file>', 'another file of this client'),
    new Option('--user', "the user's file instead of the project's file"),
    new Option('--replace', 'move the servers of the file behind Tollgate'),
    new Option('--http', 'write the address of `tollgate serve` instead of a program'),
  ],
  examples: `Examples:
  $ tollgate export --client cursor             the agent sees Tollgate too
  $ tollgate export --client cursor --replace   the agent sees only Tollgate
  $ tollgate export --undo`,
  editsConfiguration: true,
  load: async () => (await import('./export-command.ts')).runExport,
};
