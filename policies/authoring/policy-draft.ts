/** Owns the first folder of a policy: what stands in it, as texts by name; writes nothing. */
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { CAPABILITIES_FILE, SCHEMA_FOLDER } from '../engine/policy-library.ts';
import { findOpa } from '../rego/opa-program.ts';

const DRAFT = path.join(path.dirname(fileURLToPath(import.meta.url)), 'draft');

/** A folder to begin with. */
export interface PolicyDraft {
  /** Text of each file by its name in the folder. */
  readonly files: ReadonlyMap<string, string>;
  /** What `policies` of tollgate.yaml must name, relative to the folder. */
  readonly sources: readonly string[];
}

/**
 * Rules, cases and schemas; with Rego a package of its own, its tests, and what opa and Regal must know. Without a word about
 * `rego` there is some where opa is found. `folder` is how it is called from where they are started.
 */
export async function draftPolicy({
  rego,
  folder,
  opa,
}: {
  readonly rego?: boolean;
  readonly folder: string;
  readonly opa?: string;
}): Promise<PolicyDraft> {
  const text = (name: string): string => readFileSync(path.join(DRAFT, name), 'utf8');
  const schemas = readdirSync(SCHEMA_FOLDER)
    .filter((name) => name.endsWith('.json'))
    .sort()
    .map((name): [string, string] => [`schemas/${name}`, readFileSync(path.join(SCHEMA_FOLDER, name), 'utf8')]);
  const always: [string, string][] = [
    ['rules.yaml', text('rules.yaml')],
    ['rules_suite.yaml', text('rules_suite.yaml')],
    ...schemas,
  ];
  if (
    !(
      rego ??
      (await findOpa(opa).then(
        () => true,
        () => false,
      ))
    )
  )
    return { files: new Map(always), sources: ['rules.yaml'] };
  const more: [string, string][] = [
    ['git/git.rego', text('git.rego')],
    ['git/git_test.rego', text('git-test.rego')],
    ['git/git_suite.yaml', text('git_suite.yaml')],
    ['capabilities.json', readFileSync(CAPABILITIES_FILE, 'utf8')],
    [
      '.regal/config.yaml',
      text('regal.yaml').replace('policies/capabilities.json', path.posix.join(folder, 'capabilities.json')),
    ],
  ];
  return { files: new Map([...always, ...more]), sources: ['rules.yaml', 'git'] };
}
