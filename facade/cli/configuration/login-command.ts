/** Owns `tollgate login` and `logout` as the command line has them; their code is loaded when one is called. */
import { Argument, type Command } from 'commander';
import type { SignIns, StartInspector } from '../../../adapters/port.ts';
import type { Io } from '../command-io.ts';
import type { LoginOptions } from './login-actions.ts';

/** What the two commands are made with. */
export interface LoginCommands {
  readonly program: Command;
  readonly io: Io;
  readonly signIns: SignIns;
  readonly inspect: StartInspector;
  readonly done: (code: number) => void;
}

/** Adds both. */
export function addLogin({ program, io, signIns, inspect, done }: LoginCommands): void {
  const add = (name: string, about: string): Command =>
    program
      .command(name)
      .description(about)
      .addArgument(new Argument('<server>', 'a remote server of tollgate.yaml'))
      .option('-c, --config <file>', 'configuration file', 'tollgate.yaml')
      .option('--json', 'print data as JSON');
  add('login', 'sign in to a remote server (OAuth)')
    .option('--no-browser', 'open no browser, only print the address')
    .addHelpText(
      'after',
      '\nExamples:\n  $ tollgate login linear\n  $ tollgate login linear --no-browser\nOn a machine without a browser, forward the port of redirect_uri in the\naddress to it, and open the address where there is one.',
    )
    .action(async (server: string, options: LoginOptions & { browser: boolean }) =>
      done(await (await import('./login-actions.ts')).runLogin({ ...options, server }, io, { signIns, inspect })),
    );
  add('logout', 'forget the sign-in to a remote server, and take it back').action(
    async (server: string, options: LoginOptions) =>
      done(await (await import('./login-actions.ts')).runLogout({ ...options, server }, io, { signIns, inspect })),
  );
}
