/** Declares `tollgate known`, `tollgate search` and `tollgate connect`. */
import { Option } from 'commander';
import { type CommandDefinition, collectValues } from '../command-definition.ts';

/** Shows the catalog of known servers. */
export const KNOWN: CommandDefinition = {
  usage: 'known [name]',
  about: 'show the servers that connect knows by name',
  shared: ['json'],
  load: async () => (await import('./known-command.ts')).runKnown,
};

/** Finds servers among the known ones and in registries. */
export const SEARCH: CommandDefinition = {
  usage: 'search <words...>',
  about: 'find servers by words, among the known ones and in registries',
  examples: `Examples:
  $ tollgate search postgres
  $ tollgate search issues jira --json`,
  load: async () => (await import('./search-command.ts')).runSearch,
};

/** Adds a known server, or a service by its address. */
export const CONNECT: CommandDefinition = {
  usage: 'connect <service> [args...]',
  about: 'add a known server, a package, or a service by its address',
  as: 'the owner who decides',
  options: [
    new Option('--name <name>', 'the name of the server here'),
    new Option('--set <choice>', 'name=value of a choice; may be repeated').argParser(collectValues),
    new Option('--env <variable>', 'of a package: NAME=value, no secret; may be repeated').argParser(collectValues),
    new Option('--host <host>', 'of a package: a host that it may reach; may be repeated').argParser(collectValues),
    new Option('--bin <program>', 'of a package: its program, if it has several'),
    new Option('--profile <name>', 'the profile that shows its tools').default('default'),
    new Option('--credential <source>', 'NAME=env:VARIABLE or NAME=@FILE; may be repeated').argParser(collectValues),
    new Option('--header <name>', 'for a service by address: the header that carries its credential').default(
      'Authorization',
    ),
    new Option('--address <ip>', 'for a service by address: its private address'),
    new Option('--approve <hashes...>', 'approve without a terminal: the start hash, then the tools hash'),
    new Option('--test', 'after the approval, make one harmless call without asking'),
    new Option('--dry-run', 'show what would be done'),
    new Option('--yes', 'do it without asking'),
    new Option('--undo', 'undo what connect did'),
  ],
  examples: `Examples:
  $ tollgate connect notion             secret, installation, approval
  $ tollgate connect notion --dry-run   show what would be done
  $ tollgate connect grafana --set url=https://my-team.grafana.net
  $ tollgate connect notion --yes --credential NOTION_TOKEN=env:NOTION_TOKEN
  $ tollgate connect npm:@scope/notes-mcp@1.2.3 --host api.example.com -- --all
  $ tollgate connect https://tracker.example.com   a service without a server
  $ tollgate connect --undo notion`,
  load: async () => (await import('./connect-command.ts')).runConnect,
};
