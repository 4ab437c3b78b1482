/** Finds a program that prints a secret, and checks that no argument of it names a file of the workspace. */
import { realpathSync } from 'node:fs';
import path from 'node:path';
import { filePathOf, fileTextsIn } from '../../catalogs/programs/command-words.ts';
import { isAgentWritable, isProgram } from '../../catalogs/programs/helper-programs.ts';
import { isPathWithin } from '../../catalogs/readers/path-location.ts';

/** The folder in which it starts. In the workspace, `python3 -m NAME` would run a file of an agent. */
export const PROGRAM_FOLDER = '/';

/** Returns the index of the first word that names a file of the workspace, directly or through links; -1 if none. */
export function wordInside(command: readonly string[], workspace: string): number {
  const roots = [workspace, realOf(workspace)];
  return command.findIndex((word) =>
    fileTextsIn(word)
      .flatMap(pathsOf)
      .some((file) => roots.some((root) => isPathWithin(file, root) || isPathWithin(realOf(file), root))),
  );
}

/**
 * Returns the file of a program; undefined if there is none. A name is searched in those absolute folders of `search`
 * (a PATH) that agents cannot write.
 */
export function programFile(program: string, search = ''): string | undefined {
  if (program.includes('/')) return path.resolve(PROGRAM_FOLDER, program);
  return search
    .split(':')
    .filter((folder) => folder.startsWith('/') && !isAgentWritable(folder))
    .map((folder) => path.join(folder, program))
    .find(isProgram);
}

function pathsOf(text: string): readonly string[] {
  const file = filePathOf(text);
  return file === undefined ? [] : [path.resolve(PROGRAM_FOLDER, file)];
}

/** Resolves links. For a file that does not exist, it resolves the nearest existing folder. */
function realOf(file: string): string {
  try {
    return realpathSync(file);
  } catch {
    const parent = path.dirname(file);
    return parent === file ? file : path.join(realOf(parent), path.basename(file));
  }
}
