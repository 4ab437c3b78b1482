/** Owns `tollgate knowledge` and its commands as the command line has them; their code is loaded when one is called. */
import { type Command, Option } from 'commander';
import type { Io } from '../command-io.ts';
import type { ForgetOptions, KnowledgeOptions, LoadOptions } from './knowledge-access.ts';

const EXAMPLES = `
Examples:
  $ tollgate knowledge load docs handbook.md --space team
  $ tollgate knowledge set team.lead "Ada Lovelace" --space team
  $ tollgate knowledge list
  $ tollgate knowledge forget docs/old.md --space team`;

/** Adds `knowledge` with its commands. */
export function addKnowledge({
  program,
  io,
  done,
}: {
  readonly program: Command;
  readonly io: Io;
  readonly done: (code: number) => void;
}): void {
  const knowledge = program
    .command('knowledge')
    .description('fill the store that the server knowledge answers from: load, set, list, forget')
    .addHelpText('after', EXAMPLES);
  const add = (usage: string, about: string): Command =>
    knowledge
      .command(usage)
      .description(about)
      .option('-c, --config <file>', 'configuration file', 'tollgate.yaml')
      .option('--json', 'print data as JSON')
      .option('--as <principal>', 'the owner who does it')
      .option(
        '--space <name>',
        'the space; may be left out where there is only one, and for that of your own principal',
      )
      .option('--user <id>', 'the one user of it who may see this; without it all of them');
  const labelled = (command: Command): Command =>
    command.option('--label <label...>', 'labels that results will carry');
  labelled(add('load <paths...>', 'take in documents: files, or folders of .md, .markdown and .txt'))
    .option('--memory', 'as memories of the user')
    .option('--conversation <id>', 'the conversation that the memories belong to')
    .action(async (paths: string[], options: LoadOptions) =>
      done(await (await import('./knowledge-load.ts')).runLoad({ ...options, paths }, io)),
    );
  labelled(add('set <key> <value>', 'store a fact; the value may be @FILE, or - for stdin')).action(
    async (key: string, value: string, options: LoadOptions) =>
      done(await (await import('./knowledge-facts.ts')).runSet({ ...options, key, value }, io)),
  );
  add('list', 'show what is stored: names, sizes and labels, never texts').action(async (options: KnowledgeOptions) =>
    done(await (await import('./knowledge-facts.ts')).runList(options, io)),
  );
  add('forget [name]', 'take out what is named or selected')
    .option('--conversation <id>', 'memories of this conversation')
    .option('--all', 'all of the space, or of the user in it')
    .addOption(new Option('--kind <kind>', 'only these').choices(['document', 'memory', 'fact']))
    .action(async (name: string | undefined, options: ForgetOptions) =>
      done(
        await (await import('./knowledge-facts.ts')).runForget(
          { ...options, ...(name === undefined ? {} : { name }) },
          io,
        ),
      ),
    );
}
