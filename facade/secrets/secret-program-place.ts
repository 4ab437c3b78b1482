/**
 * Checks where a program that prints a secret is: not where an agent can write, and with no argument that leads into
 * the workspace.
 */
import { realpathSync } from 'node:fs';
import path from 'node:path';
import { filePathOf, fileTextsIn } from '../../catalogs/programs/command-words.ts';
import { isAgentWritable, isProgram } from '../../catalogs/programs/helper-programs.ts';
import { isPathWithin } from '../../catalogs/readers/path-location.ts';

/**
 * The folder in which it starts. In the folder of the caller, names among its arguments (`python3 -m NAME`) would lead
 * to files of an agent.
 */
export const PROGRAM_FOLDER = '/';

/**
 * Returns the index of the argument that leads into the workspace, directly or through links; -1 if none does. An
 * argument that names no existing file is ignored.
 */
export function wordInside(command: readonly string[], workspace: string): number {
  const roots = [workspace, realOf(workspace)];
  return command.findIndex((word) =>
    fileTextsIn(word)
      .flatMap((piece) => pathsOf(piece))
      .some((file) => roots.some((root) => isPathWithin(file, root) || isPathWithin(realOf(file), root))),
  );
}

/**
 * Returns the file of a program, by an absolute path or by a name in an absolute folder of `search` (a PATH) that
 * agents may not write. Undefined if there is none.
 */
export function programFile(program: string, search = ''): string | undefined {
  if (program.includes('/')) return path.resolve(PROGRAM_FOLDER, program);
  return search
    .split(':')
    .filter((folder) => folder.startsWith('/') && !isAgentWritable(folder))
    .map((folder) => path.join(folder, program))
    .find(isProgram);
}

function pathsOf(piece: string): readonly string[] {
  const file = filePathOf(piece);
  return file === undefined ? [] : [path.resolve(PROGRAM_FOLDER, file)];
}

/** For a file that does not exist yet: the real place of the nearest existing folder. */
function realOf(file: string): string {
  try {
    return realpathSync(file);
  } catch {
    const parent = path.dirname(file);
    return parent === file ? file : path.join(realOf(parent), path.basename(file));
  }
}
