/**
 * Compares two configurations, and finds the changes that are certainly stricter. Every other change counts as one that
 * may allow more.
 */
import path from 'node:path';
import { isPathWithin } from '../../catalogs/readers/path-location.ts';
import { type Accepted, type Contents, changedFiles } from './accepted-config.ts';
import type { Config } from './config.ts';
import { readYaml } from './reading/yaml-document.ts';

/** One difference. `widens`: it may allow more, or cannot be shown to allow less. */
export interface Change {
  readonly what: string;
  readonly widens: boolean;
}

type Plain = Readonly<Record<string, unknown>>;

/** Lists in which an additional entry allows more. */
const ALLOW_LISTS = new Set(['allowRead', 'allowWrite', 'allowedDomains', 'origins', 'hosts', 'profiles', 'servers']);
/** Lists in which an additional entry forbids more. */
const DENY_LISTS = new Set(['denyRead', 'denyWrite', 'deniedDomains']);
/** Settings that may contain keys or tokens, or that mean nothing to a reader: only their names are shown. */
const CONFIDENTIAL =
  /(?:^|\.)(?:env|environments|headers|args|oauth|url|webhook|token\w*|filled|secretSources|secrets)(?:\.|$)/;
/** Sections of numbers in which less is stricter. */
const LIMIT_SECTIONS =
  /^(?:caps|limits|budgets\.[^.]+|servers\.[^.]+\.(?:sandbox\.limits|caps)|bash\.sandbox\.limits)\.[^.]+$/;
/** The numbers of these sections. */
const LIMIT_KEYS = new RegExp(
  '^(?:bytes|lines|argBytes|spillBytes|media|concurrent|servers|connections|calls|' +
    'memoryMb|processes|fileMb|cpuSeconds)$',
);

/**
 * Returns all differences, those that may allow more first. Values of variables, headers and arguments are never shown.
 */
export function compareConfigs(before: Config, after: Config): readonly Change[] {
  const changes = [
    ...compareValues('', settingsOf(before), settingsOf(after)),
    ...compareRules('tollgate.yaml', before.rules, after.rules),
  ];
  return [...changes.filter(({ widens }) => widens), ...changes.filter(({ widens }) => !widens)];
}

/** Returns the differences in policy files, and in all other files except tollgate.yaml and `servers/`. */
export function compareFiles(before: Accepted, after: Contents, { file, folder, reads }: Config): readonly Change[] {
  const settings = [file, path.join(folder, 'servers')];
  return changedFiles(before, after)
    .filter((name) => !settings.some((place) => isPathWithin(name, place)))
    .flatMap((name) => {
      const shown = isPathWithin(name, folder) ? path.relative(folder, name) : name;
      const [old, now] = [before.files.get(name), after.files.get(name)];
      const isRules = reads.includes(name) && /\.ya?ml$/.test(name);
      if (isRules) return compareRules(shown, rulesIn(old), rulesIn(now));
      return [
        { what: `${shown}: ${old === undefined ? 'new' : now === undefined ? 'removed' : 'changed'}`, widens: true },
      ];
    });
}

/** Sections that are compared as they are. */
const SECTIONS = [
  'workspace',
  'state',
  'store',
  'otherWorkspaces',
  'bash',
  'caps',
  'audit',
  'approvals',
  'runs',
  'knowledge',
  'listen',
  'limits',
  'schemaProfile',
  'registries',
] as const;

/** Returns the settings as one map. Lists of named entries become maps from their names. */
function settingsOf(config: Config): Plain {
  const byId = (list: readonly { readonly id: string }[]): Plain =>
    Object.fromEntries(list.map((one) => [one.id, one]));
  const policies = config.policies.map(({ path: at, ...source }) => {
    const name = source.server === undefined ? path.relative(config.folder, at) : at;
    return [name, { name, ...source }];
  });
  return {
    ...Object.fromEntries(SECTIONS.map((section) => [section, config[section]])),
    code: { ...config.code, snippets: Object.fromEntries(config.code.snippets) },
    servers: Object.fromEntries(config.servers),
    profiles: Object.fromEntries(config.profiles),
    secretSources: Object.fromEntries(config.secretSources),
    principals: byId(config.principals),
    budgets: byId(config.budgets),
    policies: Object.fromEntries(policies),
  };
}

function compareValues(at: string, before: unknown, after: unknown): readonly Change[] {
  if (isDeepEqual(before, after)) return [];
  const key = at.split('.').at(-1) ?? '';
  if (isMap(before) && isMap(after)) {
    return [...new Set([...Object.keys(before), ...Object.keys(after)])].flatMap((name) =>
      compareValues(at === '' ? name : `${at}.${name}`, before[name], after[name]),
    );
  }
  if (Array.isArray(before) && Array.isArray(after) && (ALLOW_LISTS.has(key) || DENY_LISTS.has(key)))
    return compareLists(at, before, after);
  if (after === undefined)
    return [{ what: `${at}: removed`, widens: !isEntry(at) || /^(?:budgets|policies)\./.test(at) }];
  if (before === undefined)
    return [
      {
        what: `${at}: new${isEntry(at) ? summaryOf(after) : valueText(at, after, ', ')}`,
        widens: !/^budgets\.[^.]+$/.test(at),
      },
    ];
  const isLimit = LIMIT_SECTIONS.test(at) && LIMIT_KEYS.test(key);
  const isLess = isLimit && typeof before === 'number' && typeof after === 'number' && after < before;
  const isIsolated = key === 'isolation' && before === 'direct';
  return [
    {
      what: `${at}:${valueText(at, before, ' ')}${valueText(at, after, ' → ') || ' changed'}`,
      widens: !isLess && !isIsolated,
    },
  ];
}

/** Returns whether a path names a complete server, profile, principal, budget, policy or secret source. */
function isEntry(at: string): boolean {
  return /^(?:servers|profiles|principals|budgets|policies|secretSources)\.[^.]+$/.test(at);
}

function summaryOf(entry: unknown): string {
  const { command, isolation, mode, role } = (isMap(entry) ? entry : {}) as Readonly<Record<string, unknown>>;
  const words = Object.entries({ command, isolation, mode, role })
    .filter(([, value]) => typeof value === 'string')
    .map(([name, value]) => `${name} ${JSON.stringify(value)}`);
  return words.length === 0 ? '' : ` (${words.join(', ')})`;
}

function compareLists(at: string, before: readonly unknown[], after: readonly unknown[]): readonly Change[] {
  const [old, now] = [before, after].map((list) => new Set(list.map((one) => JSON.stringify(one)))) as [
    Set<string>,
    Set<string>,
  ];
  const isDenyList = DENY_LISTS.has(at.split('.').at(-1) ?? '');
  const added = [...now]
    .filter((one) => !old.has(one))
    .map((one) => ({ what: `${at}: + ${one}`, widens: !isDenyList }));
  const removed = [...old]
    .filter((one) => !now.has(one))
    .map((one) => ({ what: `${at}: - ${one}`, widens: isDenyList }));
  return added.length + removed.length === 0
    ? [{ what: `${at}: another order`, widens: true }]
    : [...added, ...removed];
}

/** A new rule that denies, or a removed rule that allows, can only make outcomes stricter. */
function compareRules(file: string, before: readonly unknown[], after: readonly unknown[]): readonly Change[] {
  const byId = (rules: readonly unknown[]): Map<string, Plain> =>
    new Map(rules.filter(isMap).map((rule, index) => [typeof rule.id === 'string' ? rule.id : `#${index + 1}`, rule]));
  const [old, now] = [byId(before), byId(after)];
  const named = (id: string, { outcome }: Plain): string =>
    `${file}: rule ${id} (${typeof outcome === 'string' ? outcome : 'no outcome'})`;
  return [...new Set([...old.keys(), ...now.keys()])].flatMap((id): readonly Change[] => {
    const [previous, current] = [old.get(id), now.get(id)];
    if (isDeepEqual(previous, current)) return [];
    if (previous === undefined && current !== undefined)
      return [{ what: `${named(id, current)} is new`, widens: current.outcome !== 'deny' }];
    if (previous !== undefined && current === undefined)
      return [
        {
          what: `${named(id, previous)} is removed`,
          widens: previous.outcome !== 'allow' || previous.obligations !== undefined,
        },
      ];
    return [{ what: `${named(id, current ?? {})} is changed`, widens: true }];
  });
}

function rulesIn(bytes: Buffer | undefined): readonly unknown[] {
  const { value } = readYaml('rules.yaml', bytes?.toString('utf8') ?? '');
  const rules = isMap(value) ? value.rules : undefined;
  return Array.isArray(rules) ? rules : [];
}

function valueText(at: string, value: unknown, before: string): string {
  return CONFIDENTIAL.test(at) || value === undefined ? '' : `${before}${JSON.stringify(value).slice(0, 200)}`;
}

function isDeepEqual(one: unknown, other: unknown): boolean {
  return one === other || JSON.stringify(one) === JSON.stringify(other);
}

function isMap(value: unknown): value is Plain {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
