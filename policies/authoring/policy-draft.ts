/** Makes the files of a first policy folder, as texts by name. It writes nothing. */
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { CAPABILITIES_FILE, SCHEMA_FOLDER } from '../engine/policy-library.ts';
import { findOpa } from '../rego/opa-program.ts';

const DRAFT = path.join(path.dirname(fileURLToPath(import.meta.url)), 'draft');

/** `rego`: whether to include Rego; default: if opa is found. `folder`: relative to where opa and Regal will run. */
export interface DraftRequest {
  readonly rego?: boolean;
  readonly folder: string;
  readonly opa?: string;
}

/** The files of a first policy folder. */
export interface PolicyDraft {
  /** Text of each file, by its name in the folder. */
  readonly files: ReadonlyMap<string, string>;
  /** What `policies` in tollgate.yaml must contain, relative to the folder. */
  readonly sources: readonly string[];
}

/**
 * Returns rules, cases and schemas; with Rego also a package with tests, and the settings of opa and Regal. If `rego`
 * is not given, there is Rego if opa is found. `folder` is the path of the policy folder relative to where they will
 * run.
 */
export async function draftPolicy({ rego, folder, opa }: DraftRequest): Promise<PolicyDraft> {
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
  const hasOpa = (): Promise<boolean> =>
    findOpa(opa).then(
      () => true,
      () => false,
    );
  if (!(rego ?? (await hasOpa()))) return { files: new Map(always), sources: ['rules.yaml'] };
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
