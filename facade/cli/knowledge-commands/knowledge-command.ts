/** Declares `tollgate knowledge`, which fills the store of the internal server knowledge. */
import { Option } from 'commander';
import type { CommandDefinition } from '../command-definition.ts';

const OWNER = 'the owner who runs the command';
const SPACE = [
  new Option('--space <name>', 'the space; default: the space of the owner, or the only one'),
  new Option('--user <id>', 'the only user who may see this; default: every user of the space'),
];
const LABEL = new Option('--label <label...>', 'labels that results will carry');

/** `knowledge load`, `set`, `list` and `forget`. */
export const KNOWLEDGE_COMMANDS: CommandDefinition = {
  usage: 'knowledge',
  about: 'fill the store of the internal server knowledge: load, set, list, forget',
  examples: `Examples:
  $ tollgate knowledge load docs handbook.md --space team
  $ tollgate knowledge set team.lead "Ada Lovelace" --space team
  $ tollgate knowledge list
  $ tollgate knowledge forget docs/old.md --space team`,
  commands: [
    {
      usage: 'load <paths...>',
      about: 'store documents: files, or folders of .md, .markdown and .txt',
      as: OWNER,
      options: [
        ...SPACE,
        LABEL,
        new Option('--memory', 'store them as memories of the user'),
        new Option('--conversation <id>', 'the conversation that the memories belong to'),
      ],
      load: async () => (await import('./knowledge-load.ts')).runLoad,
    },
    {
      usage: 'set <key> <value>',
      about: 'store a fact; the value may be @FILE, or - for stdin',
      as: OWNER,
      options: [...SPACE, LABEL],
      load: async () => (await import('./knowledge-facts.ts')).runSet,
    },
    {
      usage: 'list',
      about: 'show names, sizes and labels of what is stored, never texts',
      as: OWNER,
      options: SPACE,
      load: async () => (await import('./knowledge-facts.ts')).runList,
    },
    {
      usage: 'forget [name]',
      about: 'delete one entry, or the entries that the options select',
      as: OWNER,
      options: [
        ...SPACE,
        new Option('--conversation <id>', 'memories of this conversation'),
        new Option('--all', 'everything in the space, or everything of the user in it'),
        new Option('--kind <kind>', 'only this kind').choices(['document', 'memory', 'fact']),
      ],
      load: async () => (await import('./knowledge-facts.ts')).runForget,
    },
  ],
};
