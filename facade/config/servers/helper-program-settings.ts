/** Checks the paths of helper programs, and finds the folders that agents may write. */
import {
  HELPER_NAMES,
  type HelperSettings,
  isWithinAny,
  useHelpers,
} from '../../../catalogs/programs/helper-programs.ts';
import type { Config } from '../config.ts';
import { type ProblemReport, quote } from '../config-problems.ts';
import { realPath } from '../reading/text-files.ts';

/** Returns the folders that agents may write: with the primitives, with commands, or through a server. */
export function writableFolders({
  workspace,
  bash,
  servers,
  otherWorkspaces,
}: Pick<Config, 'workspace' | 'bash' | 'servers' | 'otherWorkspaces'>): readonly string[] {
  const sandboxFolders = [bash.sandbox, ...[...servers.values()].map(({ sandbox }) => sandbox)].flatMap(
    (sandbox) => sandbox?.filesystem.allowWrite ?? [],
  );
  return [...new Set([workspace, ...sandboxFolders, ...otherWorkspaces.write])];
}

/** Reports paths at which an agent could place its own program. */
export function checkPrograms(
  programs: HelperSettings['programs'],
  writable: readonly string[],
  report: ProblemReport,
): void {
  const folders = writable.flatMap((folder) => [folder, realPath(folder)]);
  for (const name of HELPER_NAMES) {
    const file = programs[name];
    if (file === undefined) continue;
    if (!file.startsWith('/'))
      report.refuse(
        ['programs', name],
        `the path of ${name} is relative, so the folder that Tollgate starts in would choose the program; ` +
          'write a path from /',
      );
    else if (isWithinAny(file, folders))
      report.refuse(
        ['programs', name],
        `the program ${quote(file)} is in a folder that agents may write, so an agent could replace it and run ` +
          'with the rights of Tollgate; install it elsewhere, such as under /opt, and write that path',
      );
  }
}

/** Makes this process use the helper programs of a configuration. */
export function useProgramsOf(config: Config): void {
  useHelpers({ programs: config.programs, writable: writableFolders(config) }, config.tenant);
}
