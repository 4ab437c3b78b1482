/** Owns where a program that prints a secret may lie: nowhere that an agent writes; refuses one of which any word leads into the workspace. */
import { realpathSync } from 'node:fs';
import path from 'node:path';
import { filePathOf, fileTextsIn } from '../../catalogs/programs/command-words.ts';
import { isAgentWritable, isProgram } from '../../catalogs/programs/helper-programs.ts';

/** It starts here: in the folder of whoever calls, names among its words (`python3 -m NAME`) would lead to files of an agent. */
export const PROGRAM_FOLDER = '/';

/** Index of the word that leads into the workspace, as it is written or behind its links; -1: none. Other files that are not there are none. */
export function wordInside(command: readonly string[], workspace: string): number {
  const roots = [workspace, realOf(workspace)];
  return command.findIndex((word) =>
    fileTextsIn(word)
      .flatMap((piece) => pathsOf(piece))
      .some((file) => roots.some((root) => isWithin(file, root) || isWithin(realOf(file), root))),
  );
}

/** The file of a program, by an absolute path or a name in an absolute folder of `search` (a PATH) that agents may not write. Undefined: there is none. */
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

function isWithin(file: string, root: string): boolean {
  return file === root || file.startsWith(root === '/' ? root : `${root}/`);
}

/** Of what is not there yet: the real place of the folder that is. */
function realOf(file: string): string {
  try {
    return realpathSync(file);
  } catch {
    const parent = path.dirname(file);
    return parent === file ? file : path.join(realOf(parent), path.basename(file));
  }
}
