/** Owns what a replay is made against: a whole configuration, or rules that take the place of those of one; refuses files that are neither. */
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs';
import path from 'node:path';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import type { PolicyParts } from '../../../policies/authoring/authoring-port.ts';
import type { Config, PolicySource } from '../../config/config.ts';
import { loadConfig } from '../../config/load-config.ts';
import { readYaml } from '../../config/reading/yaml-document.ts';
import { policyKind } from '../../config/settings/policy-sources.ts';
import { policyParts } from '../../runtime/policy-parts.ts';
import type { Io } from '../command-io.ts';
import { printable } from '../print.ts';

const YAML = /\.ya?ml$/;

/** The policy of a configuration, or of a draft in its place. `draft` as the user wrote it. Throws USAGE, CONFIG_INVALID. */
export function partsAgainst(
  config: Config,
  { draft, opa }: { readonly draft?: string | undefined; readonly opa?: string | undefined },
  io: Io,
): PolicyParts {
  const options = opa === undefined ? {} : { opa };
  if (draft === undefined) return policyParts(config, options);
  const file = path.resolve(io.cwd, draft);
  if (isConfiguration(file, draft)) return policyParts(loadConfig(file, { env: io.env, home: io.home }), options);
  const policies = sourcesAt(file, draft).map(({ kind, at }): PolicySource => ({ path: at, kind, mode: 'enforce' }));
  io.stderr(
    `${printable(draft)} stands in for all rules of tollgate.yaml: what they allowed and it does not is denied.\n`,
  );
  return policyParts(
    { ...config, policies, rules: [], ruleDocument: { ...config.ruleDocument, value: { rules: [] } } },
    options,
  );
}

/** Whether a path is a whole configuration: a file of rules has nothing but rules. `shown` as the user wrote it. Throws USAGE when it is not there. */
export function isConfiguration(file: string, shown: string): boolean {
  const found = statSync(file, { throwIfNoEntry: false });
  if (found === undefined) throw usage(shown, 'is not there');
  return found.isFile() && YAML.test(file) && !holdsRules(file);
}

function holdsRules(file: string): boolean {
  const { value } = readYaml(path.basename(file), readFileSync(file, 'utf8'));
  return typeof value === 'object' && value !== null && Object.keys(value).join() === 'rules';
}

/** One source that a path holds. */
export interface Source {
  readonly kind: PolicySource['kind'];
  readonly at: string;
}

/** What a path holds; something at least. `shown` as the user wrote it. Throws USAGE: a policy of nothing is a mistake, and would be compared in silence. */
export function sourcesAt(file: string, shown: string): readonly Source[] {
  const sources = existsSync(file) ? sourcesIn(file) : undefined;
  if (sources === undefined) throw usage(shown, 'is not there');
  if (sources.length === 0) throw usage(shown, 'holds neither rules, nor Rego, nor a bundle');
  return sources;
}

/** What a path holds: suites and data that lie beside rules are no rules. A folder with Rego in it is one source, as under `policies`. */
function sourcesIn(file: string): readonly Source[] {
  const kind = statSync(file).isDirectory() ? undefined : policyKind(file, 'file');
  if (kind !== undefined) return [{ kind, at: file }];
  if (!statSync(file).isDirectory()) return [];
  const names = readdirSync(file, { recursive: true, encoding: 'utf8' })
    .filter((name) => !name.split(path.sep).some((part) => part.startsWith('.')))
    .sort();
  const rego = names.some((name) => name.endsWith('.rego') && !name.endsWith('_test.rego'));
  const yaml = names.filter((name) => YAML.test(name) && !name.includes(path.sep) && holdsRules(path.join(file, name)));
  return [
    ...(rego ? [{ kind: 'rego' as const, at: file }] : []),
    ...yaml.map((name) => ({ kind: 'yaml' as const, at: path.join(file, name) })),
  ];
}

function usage(draft: string, what: string): TollgateError {
  return new TollgateError('USAGE', {
    detail: `${draft === '.' ? 'This folder' : printable(draft)} ${what}.`,
    next: 'Name a tollgate.yaml, a file of rules, a file or folder of Rego, or a bundle.',
  });
}
