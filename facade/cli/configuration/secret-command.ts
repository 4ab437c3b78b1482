/** Owns `tollgate secret` and its commands; the code of all is loaded when one is called. */
import { Argument, type Command } from 'commander';
import type { CommonOptions } from '../command-facade.ts';
import type { Io } from '../command-io.ts';

/** What the commands under `secret` are made with. */
export interface SecretCommands {
  readonly program: Command;
  readonly io: Io;
  readonly done: (code: number) => void;
}

/** Adds `secret` with its commands. None takes a value: arguments stand in lists of processes and in shell histories. */
export function addSecret({ program, io, done }: SecretCommands): void {
  const secret = program.command('secret').description('keep the secrets of servers: set, list, rm, rotate');
  const add = (name: string, about: string): Command =>
    secret
      .command(name)
      .description(about)
      .option('-c, --config <file>', 'configuration file', 'tollgate.yaml')
      .option('--json', 'print data as JSON');
  const named = (): Argument => new Argument('<name>', 'as in ${secret:NAME}');
  add('set', 'store a value, from a hidden prompt or stdin')
    .addArgument(named())
    .addHelpText(
      'after',
      '\nExamples:\n  $ tollgate secret set github.token\n  $ pass show github | tollgate secret set github.token',
    )
    .action(async (name: string, options: CommonOptions) =>
      done(await (await import('./secret-actions.ts')).runSecretSet({ ...options, name }, io)),
    );
  add('list', 'show names, where each comes from, and who uses it; never values').action(
    async (options: CommonOptions) => done(await (await import('./secret-actions.ts')).runSecretList(options, io)),
  );
  add('rm', 'remove a value')
    .addArgument(named())
    .action(async (name: string, options: CommonOptions) =>
      done(await (await import('./secret-actions.ts')).runSecretRemove({ ...options, name }, io)),
    );
  add('rotate', 'replace a value, and say which servers must restart')
    .addArgument(named())
    .action(async (name: string, options: CommonOptions) =>
      done(await (await import('./secret-actions.ts')).runSecretRotate({ ...options, name }, io)),
    );
}
