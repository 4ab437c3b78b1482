/** Owns which files are tests of a policy: suites and Rego tests beside it, or those that were named; refuses to find nothing. */
import { readdir, stat } from 'node:fs/promises';
import path from 'node:path';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { isBeneath } from '../../../catalogs/readers/path-location.ts';
import type { PolicyParts } from '../../engine/compiled-parts.ts';

const SUITE = /(^|_)suite\.ya?ml$/;
const REGO_TEST = /_test\.rego$/;

/** A file, absolute, and as messages name it. */
export interface TestFile {
  readonly path: string;
  readonly shown: string;
}

/** What there is to run. */
export interface TestFiles {
  readonly suites: readonly TestFile[];
  readonly rego: readonly TestFile[];
}

/**
 * `*_suite.yaml`, `suite.yaml` and `*_test.rego` under `named` (absolute files or folders); where none are named, beside each policy
 * and, for suites, beside the configuration. Throws USAGE where there is nothing: a check that checks nothing must not pass.
 */
export async function findTests(
  parts: Pick<PolicyParts, 'folder' | 'sources'>,
  named: readonly string[],
): Promise<TestFiles> {
  const found =
    named.length === 0
      ? await besidePolicies(parts)
      : (await Promise.all(named.map((one) => under(one, showName(one, parts.folder))))).flat();
  const files = [...new Set(found)].sort().map((file) => ({ path: file, shown: showName(file, parts.folder) }));
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

async function besidePolicies({
  folder,
  sources,
}: Pick<PolicyParts, 'folder' | 'sources'>): Promise<readonly string[]> {
  const folders = sources.map(async ({ path: source }) =>
    (await stat(source)).isDirectory() ? listFiles(source) : listBeside(source),
  );
  const own = (await listBeside(path.join(folder, 'tollgate.yaml'))).filter((file) => !REGO_TEST.test(file));
  return [...own, ...(await Promise.all(folders)).flat()];
}

/** A named file is a suite or a test whatever it is called. */
async function under(named: string, shown: string): Promise<readonly string[]> {
  const top = await stat(named).catch(() => undefined);
  if (top === undefined)
    throw new TollgateError('USAGE', {
      detail: `There is no ${shown}.`,
      next: 'Name a suite, a Rego test, or a folder of them.',
    });
  if (!top.isDirectory()) return [named];
  const files = await listFiles(named);
  if (files.length === 0)
    throw new TollgateError('USAGE', {
      detail: `${shown} holds no suite and no Rego test.`,
      next: 'They are called *_suite.yaml, suite.yaml or *_test.rego.',
    });
  return files;
}

async function listBeside(file: string): Promise<readonly string[]> {
  const folder = path.dirname(file);
  return (await readdir(folder)).filter(isTest).map((name) => path.join(folder, name));
}

async function listFiles(folder: string): Promise<readonly string[]> {
  const entries = (await readdir(folder, { withFileTypes: true })).filter(
    ({ name }) => !name.startsWith('.') && name !== 'node_modules',
  );
  const nested = entries.map(async (entry) => {
    const file = path.join(folder, entry.name);
    if (entry.isDirectory()) return listFiles(file);
    return isTest(entry.name) ? [file] : [];
  });
  return (await Promise.all(nested)).flat();
}

function isTest(name: string): boolean {
  return SUITE.test(name) || REGO_TEST.test(name);
}

function showName(file: string, folder: string): string {
  return isBeneath(folder, file) ? path.relative(folder, file) : path.basename(file);
}
