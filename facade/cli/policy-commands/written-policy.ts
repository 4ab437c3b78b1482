/** Finds the policy that a command is about: that of a configuration, or the files that the user named. */
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs';
import path from 'node:path';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import type { PolicyParts } from '../../../policies/authoring/authoring-port.ts';
import { MODE_NAMES } from '../../../policies/port.ts';
import type { Config, PolicySource } from '../../config/config.ts';
import { loadConfig } from '../../config/load-config.ts';
import { readYaml } from '../../config/reading/yaml-document.ts';
import { policyKind } from '../../config/settings/policy-sources.ts';
import { controlRule, policyParts } from '../../runtime/policy-parts.ts';
import { type CommonOptions, readConfig } from '../command-facade.ts';
import type { Io } from '../command-io.ts';
import { configFile } from '../config-file.ts';
import { printable } from '../print.ts';

/** Options of commands that take paths. */
export interface PathOptions extends CommonOptions, DraftOptions {
  /** Relative to the current folder. Default: the sources of the configuration. */
  readonly paths: readonly string[];
}

/**
 * A policy, and how many of its YAML rules are Tollgate's own, which are not counted as the user's. Rego alone needs no
 * `config`.
 */
export type WrittenParts = PolicyParts & { readonly ownRules: number; readonly config?: Config };

/**
 * Returns the policy of the configuration, or the named files instead of its sources. A folder of Rego alone is read
 * without a configuration. Throws CONFIG_INVALID, USAGE.
 */
export function partsOf(options: PathOptions, io: Io): WrittenParts {
  const named = options.paths.flatMap((shown) => enforcedSources(path.resolve(io.cwd, shown), shown));
  const needsConfig = named.length === 0 || named.some(({ kind }) => kind === 'yaml');
  if (!needsConfig && !existsSync(configFile(options.config, io))) return regoParts(named, options, io);
  const config = withDraft(readConfig(options, io), options, io);
  const parts = policyParts(config, options);
  return named.length === 0
    ? { ...parts, config, ownRules: controlRule(config).value.rules.length }
    : { ...parts, config, rules: [], sources: named, ownRules: 0 };
}

function regoParts(sources: readonly PolicySource[], { opa }: PathOptions, { cwd, env, home }: Io): WrittenParts {
  const stateHome = env.XDG_STATE_HOME ?? '';
  const base = path.isAbsolute(stateHome) ? stateHome : path.join(home, '.local', 'state');
  return {
    settings: { servers: [], profiles: [], budgets: [], caps: {}, schemaProfile: 'portable' },
    workspace: cwd,
    folder: cwd,
    cache: path.join(base, 'tollgate', 'policy'),
    rules: [],
    sources,
    readYaml,
    ownRules: 0,
    ...(opa !== undefined && { opa }),
  };
}

/** A draft, and the one source of the configuration that it replaces. Without `insteadOf` it replaces all of them. */
export interface DraftOptions {
  readonly against?: string;
  readonly insteadOf?: string;
  readonly opa?: string;
}

/**
 * Returns the configuration with the draft in the place of its source, and unchanged without a draft. The policy is
 * then checked and tested as a whole. Throws USAGE.
 */
export function withDraft(config: Config, { against: draft, insteadOf }: DraftOptions, io: Pick<Io, 'cwd'>): Config {
  if (draft === undefined && insteadOf === undefined) return config;
  if (draft === undefined || insteadOf === undefined)
    throw new TollgateError('USAGE', {
      detail: '--against and --instead-of belong together.',
      next: 'Name the draft with --against, and the source that it replaces with --instead-of.',
    });
  return withSource(config, path.resolve(io.cwd, insteadOf), path.resolve(io.cwd, draft));
}

/** The draft has the name of its source in messages. Throws USAGE. */
function withSource(config: Config, source: string, draft: string): Config {
  if (!config.policies.some((one) => one.path === source))
    throw new TollgateError('USAGE', {
      detail: '--instead-of names no source of the policy.',
      next: 'Name a file or folder under `policies` of tollgate.yaml, and the draft with --against.',
    });
  const [drafted] = enforcedSources(draft, draft);
  return {
    ...config,
    policies: config.policies.map((one) =>
      one.path === source && drafted !== undefined ? { ...one, kind: drafted.kind } : one,
    ),
    at: (file) => (file === source && drafted !== undefined ? drafted.path : config.at(file)),
  };
}

/**
 * Returns the policy of a configuration, or of the draft that the user named instead of it. Throws USAGE,
 * CONFIG_INVALID.
 */
export function partsAgainst(config: Config, { against: draft, insteadOf, opa }: DraftOptions, io: Io): PolicyParts {
  const options = opa === undefined ? {} : { opa };
  if (draft === undefined && insteadOf === undefined) return policyParts(config, options);
  const file = path.resolve(io.cwd, draft ?? '');
  if (insteadOf !== undefined) return policyParts(withSource(config, path.resolve(io.cwd, insteadOf), file), options);
  if (draft === undefined) return policyParts(config, options);
  if (isConfiguration(file, draft)) return policyParts(loadConfig(file, { env: io.env, home: io.home }), options);
  const policies = enforcedSources(file, draft);
  io.stderr(
    `${printable(draft)} replaces all rules of tollgate.yaml.\n` +
      'A call that only those rules allow is denied in this replay.\n',
  );
  return policyParts(
    { ...config, policies, rules: [], ruleDocument: { ...config.ruleDocument, value: { rules: [] } } },
    options,
  );
}

/**
 * Returns whether a path is a configuration. A file that has only the key `rules` is not. `shown` is the path as the
 * user wrote it. Throws USAGE if the path does not exist.
 */
export function isConfiguration(file: string, shown: string): boolean {
  const found = statSync(file, { throwIfNoEntry: false });
  if (found === undefined) throw noSources(shown, 'does not exist');
  return found.isFile() && YAML.test(file) && !holdsRules(file);
}

/** One source of policy below a path. */
export interface Source {
  readonly kind: PolicySource['kind'];
  readonly at: string;
}

/**
 * Returns the sources at a path, at least one. `shown` is the path as the user wrote it. Throws USAGE if there is none:
 * an empty policy is a mistake, which a comparison would not show.
 */
export function sourcesAt(file: string, shown: string): readonly Source[] {
  if (!existsSync(file)) throw noSources(shown, 'does not exist');
  const sources = sourcesIn(file);
  if (sources.length === 0) throw noSources(shown, 'contains no rules, no Rego and no bundle');
  return sources;
}

function enforcedSources(file: string, shown: string): readonly PolicySource[] {
  return sourcesAt(file, shown).map(({ kind, at }) => ({ path: at, kind, mode: 'enforce' }));
}

const YAML = /\.ya?ml$/;

function holdsRules(file: string): boolean {
  const { value } = readYaml(path.basename(file), readFileSync(file, 'utf8'));
  return typeof value === 'object' && value !== null && Object.keys(value).join() === 'rules';
}

/** Ignores suites and data next to rules. A folder with Rego is one source, as under `policies` in tollgate.yaml. */
function sourcesIn(file: string): readonly Source[] {
  if (!statSync(file).isDirectory()) {
    const kind = policyKind(file, 'file');
    return kind === undefined ? [] : [{ kind, at: file }];
  }
  const names = readdirSync(file, { recursive: true, encoding: 'utf8' })
    .filter((name) => !name.split(path.sep).some((part) => part.startsWith('.')))
    .sort();
  const hasRego = names.some((name) => name.endsWith('.rego') && !name.endsWith('_test.rego'));
  const yaml = names.filter((name) => YAML.test(name) && !name.includes(path.sep) && holdsRules(path.join(file, name)));
  return [
    ...(hasRego ? [{ kind: 'rego' as const, at: file }] : []),
    ...yaml.map((name) => ({ kind: 'yaml' as const, at: path.join(file, name) })),
  ];
}

function noSources(shown: string, fault: string): TollgateError {
  return new TollgateError('USAGE', {
    detail: `${shown === '.' ? 'This folder' : printable(shown)} ${fault}.`,
    next: 'Name a tollgate.yaml, a file of rules, a file or folder of Rego, or a bundle.',
  });
}

/**
 * Returns the policy with every source and rule in `enforce`, for every caller. What is `off` stays off. Without
 * `enforced` it returns the policy unchanged.
 */
export function asEnforced(parts: PolicyParts, { enforced }: { readonly enforced?: true }): PolicyParts {
  if (enforced !== true) return parts;
  return {
    ...parts,
    sources: parts.sources.map(({ modes, ...source }) => ({
      ...source,
      mode: source.mode === 'off' && modes === undefined ? 'off' : 'enforce',
    })),
    rules: parts.rules.map((document) => ({ ...document, value: enforceRules(document.value) })),
    readYaml: (file, text) => {
      const document = parts.readYaml(file, text);
      return { ...document, value: enforceRules(document.value), placeOf: (at, part) => document.placeOf(at, part) };
    },
  };
}

/** A value that is not a list of rules stays unchanged; the schema reports it. */
function enforceRules(value: unknown): unknown {
  const { rules } = (value ?? {}) as { readonly rules?: unknown };
  if (!Array.isArray(rules)) return value;
  return {
    ...(value as object),
    rules: rules.map((rule: unknown) => (isInTrial(rule) ? { ...rule, mode: 'enforce' } : rule)),
  };
}

function isInTrial(rule: unknown): rule is Readonly<Record<string, unknown>> {
  const { mode } = (rule ?? {}) as { readonly mode?: unknown };
  return (
    typeof mode === 'string' &&
    Object.hasOwn(MODE_NAMES, mode) &&
    ['warn', 'shadow'].includes(MODE_NAMES[mode as keyof typeof MODE_NAMES])
  );
}
