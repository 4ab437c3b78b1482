/** Finds the test files of a policy: suites and Rego tests next to it, or those that the user names. */
import { readdir, stat } from 'node:fs/promises';
import path from 'node:path';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { type PolicyParts, pathInMessages } from '../../engine/compiled-parts.ts';
import { listVisibleFiles } from '../../rego/rego-files.ts';

const SUITE = /(^|_)suite\.ya?ml$/;
const REGO_TEST = /_test\.rego$/;

/** A file: its absolute path, and its name in messages. */
export interface TestFile {
  readonly path: string;
  readonly shown: string;
}

/** The tests to run. */
interface TestFiles {
  readonly suites: readonly TestFile[];
  readonly rego: readonly TestFile[];
}

/**
 * Finds `*_suite.yaml`, `suite.yaml` and `*_test.rego` under `named` (absolute files or folders). Default: next to each
 * policy and, for suites, next to the configuration. Throws USAGE if there are none, because an empty run must not
 * pass.
 */
export async function findTests(
  parts: Pick<PolicyParts, 'folder' | 'sources'>,
  named: readonly string[],
): Promise<TestFiles> {
  const found =
    named.length === 0
      ? await nextToPolicies(parts)
      : (await Promise.all(named.map((one) => under(one, pathInMessages(one, parts.folder))))).flat();
  const files = [...new Set(found)].sort().map((file) => ({ path: file, shown: pathInMessages(file, parts.folder) }));
  if (files.length === 0)
    throw new TollgateError('USAGE', {
      detail: 'There are no suites and no Rego tests.',
      next: 'Write cases into policies/rules_suite.yaml; docs/trials.md shows one.',
    });
  return {
    suites: files.filter(({ path: file }) => !REGO_TEST.test(file)),
    rego: files.filter(({ path: file }) => REGO_TEST.test(file)),
  };
}

async function nextToPolicies({
  folder,
  sources,
}: Pick<PolicyParts, 'folder' | 'sources'>): Promise<readonly string[]> {
  const folders = sources.map(async ({ path: source }) =>
    (await stat(source)).isDirectory() ? listTests(source) : listNextTo(source),
  );
  const own = (await listNextTo(path.join(folder, 'tollgate.yaml'))).filter((file) => !REGO_TEST.test(file));
  return [...own, ...(await Promise.all(folders)).flat()];
}

/** A file that the user names is a suite or test, whatever its name is. */
async function under(named: string, shown: string): Promise<readonly string[]> {
  const top = await stat(named).catch(() => undefined);
  if (top === undefined)
    throw new TollgateError('USAGE', {
      detail: `${shown} does not exist.`,
      next: 'Name a suite, a Rego test, or a folder of them.',
    });
  if (!top.isDirectory()) return [named];
  const files = await listTests(named);
  if (files.length === 0)
    throw new TollgateError('USAGE', {
      detail: `${shown} contains no suite and no Rego test.`,
      next: 'Their names are *_suite.yaml, suite.yaml or *_test.rego.',
    });
  return files;
}

async function listNextTo(file: string): Promise<readonly string[]> {
  const folder = path.dirname(file);
  return (await readdir(folder)).filter(isTest).map((name) => path.join(folder, name));
}

async function listTests(folder: string): Promise<readonly string[]> {
  return (await listVisibleFiles(folder)).filter((file) => isTest(path.basename(file)));
}

function isTest(name: string): boolean {
  return SUITE.test(name) || REGO_TEST.test(name);
}
