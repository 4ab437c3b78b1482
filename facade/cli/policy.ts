/** Owns `tollgate policy` and its commands: what an author of rules uses; each command's code is loaded when it is called. */
import type { Command } from 'commander';
import type { Io } from './io.ts';
import type { Wiring } from './program.ts';

/** What every command under `policy` is made with. */
export interface PolicyCommands {
  readonly program: Command;
  readonly io: Io;
  readonly wiring: Wiring;
  readonly done: (code: number) => void;
}

/** Adds `policy` with its commands; the code of each stands in facade/cli/policy/. */
export function addPolicy({ program }: PolicyCommands): void {
  program.command('policy').description('write, test, explain and replay policies');
}
