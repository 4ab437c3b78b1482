/**
 * Fetches one commit of a git repository into a folder. No program that the repository could name runs: its settings
 * are not read, and the files are written without the settings of the user, which may run filters.
 */
import { mkdirSync, mkdtempSync, realpathSync } from 'node:fs';
import { readdir } from 'node:fs/promises';
import path from 'node:path';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { isPathWithin } from '../../catalogs/readers/path-location.ts';
import { type InstallWorld, installFailure, runInstaller } from './installer.ts';
import type { PackageSource } from './package-spec.ts';

/** Without prompts, unknown host keys, and redirects to other protocols. */
const FETCH = { GIT_TERMINAL_PROMPT: '0', GIT_SSH_COMMAND: 'ssh -o BatchMode=yes', GIT_ALLOW_PROTOCOL: 'https:ssh' };
const GONE = /not our ref|unadvertised object|remote ref|shallow capabilities/i;

/**
 * Fetches a commit, and returns the absolute folder with its files, inside `into`. git checks the files against the
 * hash of the commit. Throws INSTALL_FAILED for a repository without the commit, with a submodule, or with a symbolic
 * link out of its folder; CANCELLED.
 */
export async function fetchCommit(
  { url, commit }: Extract<PackageSource, { readonly kind: 'git' }>,
  into: string,
  world: InstallWorld,
): Promise<string> {
  const store = mkdtempSync(path.join(into, 'git-'));
  const tree = path.join(store, 'tree');
  mkdirSync(tree);
  const own = { HOME: store, XDG_CONFIG_HOME: store, GIT_CONFIG_NOSYSTEM: '1' };
  let said = '';
  const git = (env: Readonly<Record<string, string>>, ...args: readonly string[]): Promise<string> =>
    runInstaller(
      {
        program: 'git',
        args: [`--git-dir=${store}`, ...args],
        cwd: tree,
        env,
        what: `Fetching ${url}`,
        warned: (text) => (said = text),
      },
      world,
    );
  await git(own, 'init', '--quiet', '--bare', '--template=');
  await git(
    FETCH,
    ...['-c', 'fetch.fsckObjects=true', 'fetch', '--quiet', '--depth=1', '--no-tags', url, commit],
  ).catch((thrown: unknown) => {
    if (!(thrown instanceof TollgateError) || !GONE.test(said)) throw thrown;
    throw installFailure(
      `${url} does not give the commit ${commit}. It may have been removed, or belong to another repository.`,
      'Check the commit, for example in `git log` of a clone.',
    );
  });
  const submodule = /(?:^|\0)160000 [^\t]*\t([^\0]*)/.exec(await git(own, 'ls-tree', '-r', '-z', commit))?.[1];
  if (submodule !== undefined)
    throw installFailure(
      `${url} has a submodule, ${JSON.stringify(submodule.slice(0, 80))}, which the commit does not contain.`,
      'Clone it with its submodules, examine it, and connect the folder: tollgate connect ./FOLDER',
    );
  await git(own, 'read-tree', commit);
  await git(own, `--work-tree=${tree}`, '-c', 'core.symlinks=true', 'checkout-index', '--all', '--quiet');
  await refuseLinksOut(tree, url);
  return tree;
}

/** npm reads package.json through a link. */
async function refuseLinksOut(tree: string, url: string): Promise<void> {
  const root = realpathSync(tree);
  for (const entry of await readdir(tree, { recursive: true, withFileTypes: true })) {
    if (!entry.isSymbolicLink()) continue;
    const file = path.join(entry.parentPath, entry.name);
    if (isWithin(file, root)) continue;
    throw installFailure(
      `${url} has a symbolic link out of its folder, or to nothing: ${JSON.stringify(path.relative(tree, file))}.`,
      'Ask its authors to remove the link, or take another commit.',
    );
  }
}

function isWithin(file: string, root: string): boolean {
  try {
    return isPathWithin(realpathSync(file), root);
  } catch {
    return false;
  }
}
