/** Owns the making of a policy from configuration, YAML rules, Rego and bundles; refuses all of it when any part has a fault. */
import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { setImmediate as turn } from 'node:timers/promises';
import { isDeepStrictEqual } from 'node:util';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { isBeneath } from '../../catalogs/readers/path-location.ts';
import { type Bundle, readBundle } from '../rego/bundles/bundle-format.ts';
import { bundleName, RemoteBundle } from '../rego/bundles/remote-bundle.ts';
import { exposeRuleNumber, findUnknownExposed } from '../rego/expose-members.ts';
import { findOpa } from '../rego/opa-program.ts';
import { compileRego } from '../rego/rego-build.ts';
import type { RegoFacts, RegoRule } from '../rego/rego-facts.ts';
import { findTakenIds, regoReasonIds } from '../rego/rego-ids.ts';
import { compileConfinement } from '../rules/confinement-rules.ts';
import { problemsOf, refuseProblems } from '../rules/policy-problems.ts';
import { compileSettings } from '../rules/policy-settings.ts';
import { compileRules, type YamlRuleDocument } from '../rules/rule-compiler.ts';
import { findRuleFaults } from '../rules/rule-faults.ts';
import { compileMode, type ModeData, mayHaveMode } from '../rules/rule-modes.ts';
import type { CompiledParts, PolicyParts, SourceSettings } from './compiled-parts.ts';
import type { CompiledPolicy } from './compiled-policy.ts';
import { weighRules } from './decision-cost.ts';
import { hashLibrary, readLibrary } from './policy-library.ts';
import { readyParts, startReady, startWorkers } from './policy-start.ts';
import { dropCache } from './wasm/wasm-module.ts';

const NO_SETS: RegoFacts['sets'] = { deny: false, ask: false, allow: false };
/** A bundle that does not say may define any. */
const ALL_SETS: RegoFacts['sets'] = { deny: true, ask: true, allow: true };

/**
 * Loads a policy. Throws POLICY_INVALID with every problem as `file:line:col: message` in `data.problems`, OPA_MISSING when
 * there is Rego and no opa. With no rules at all everything is denied.
 */
export async function loadPolicy(parts: PolicyParts): Promise<CompiledPolicy> {
  return startPolicy(await compileParts(parts), parts.deadlineMs);
}

/** Starts what was compiled. Throws POLICY_INVALID when the module cannot be loaded. */
export async function startPolicy(compiled: CompiledParts, deadlineMs?: number): Promise<CompiledPolicy> {
  return startReady(readyParts(compiled), { deadlineMs });
}

/** Reads and compiles all sources. Throws as `loadPolicy`. */
export async function compileParts(parts: PolicyParts): Promise<CompiledParts> {
  const { settings } = parts;
  const rules = compileRules(await readRules(parts), parts.workspace);
  await turn();
  const library = readLibrary();
  const faults = findRuleFaults(rules, parts, library.wasm);
  const user = await loadUser(
    parts,
    rules.rules.filter(({ mode }) => mode !== 'off').map(({ rule }) => rule.id),
  ).catch((thrown: unknown) => {
    refuseProblems([...faults, ...problemsOf(thrown)]);
    throw thrown;
  });
  refuseProblems([
    ...faults,
    ...(user?.facts === undefined
      ? []
      : [...findTakenIds(rules.rules, user.facts), ...findUnknownExposed(user.facts.exposes ?? [], parts)]),
  ]);
  const around = compileSettings(settings);
  const config = {
    version: 1,
    ...around,
    rules: { list: rules.list, index: rules.index },
    modes: user?.modes ?? {},
    mode: user?.mode ?? 'enforce',
    places: user?.facts?.places ?? {},
    regoRules: Object.fromEntries([
      ...(user?.facts?.rules ?? []).map(reasonFacts).entries(),
      ...(user?.facts?.exposes ?? []).map(({ file, line }, at) => [exposeRuleNumber(at), { file, line }] as const),
    ]),
    // Read where nobody has marked the rules.
    rego: user?.sets ?? NO_SETS,
  };
  const confining = compileConfinement(rules.rules, {
    workspace: parts.workspace,
    trusts: new Map(settings.servers.map(({ name, trust = 'external' }) => [name, trust])),
    foreign: user !== undefined && (user.sets.deny || user.sets.ask),
  });
  return {
    confining,
    weights: weighRules(rules, around),
    wasm: user?.wasm ?? library.wasm,
    data: JSON.stringify({ ...user?.data, config }),
    rules,
    foreign: user !== undefined,
    ...(user?.remote === undefined ? {} : { remote: user.remote }),
  };
}

/** The YAML rules of all sources, read and not yet judged. Throws POLICY_INVALID. */
export async function readRules(parts: PolicyParts): Promise<readonly YamlRuleDocument[]> {
  return [...parts.rules, ...(await readRuleFiles(parts))];
}

type UserPolicy = Bundle & {
  readonly modes: Readonly<Record<string, ModeData>>;
  readonly mode: ModeData;
  readonly sets: RegoFacts['sets'];
  readonly remote?: RemoteBundle;
};

/** User Rego or a bundle; two modules cannot be folded into one decision. */
async function loadUser(parts: PolicyParts, ids: readonly string[]): Promise<UserPolicy | undefined> {
  const active = parts.sources.filter((source) => compileMode(source) !== 'off');
  const rego = active.filter(({ kind }) => kind === 'rego');
  const [bundle, ...others] = active.filter(({ kind }) => kind === 'bundle');
  if (bundle === undefined) return rego.length === 0 ? undefined : buildUser(rego, parts);
  if (rego.length > 0 || others.length > 0)
    throw new TollgateError('POLICY_INVALID', { detail: 'A bundle stands alone: build all Rego into one bundle.' });
  const mode = compileMode(bundle);
  const name = policySourceName(bundle, parts);
  const remote =
    bundle.server === undefined
      ? undefined
      : new RemoteBundle({ server: bundle.server, name, cache: parts.cache, judge: checkBundle, ids });
  const read = remote === undefined ? await readBundle(bundle.path, name) : await remote.load();
  requireLibrary(read, `The bundle ${name}`);
  return {
    ...read,
    modes: {},
    mode,
    sets: mayHaveMode('enforce', mode) ? (read.facts?.sets ?? ALL_SETS) : NO_SETS,
    ...(remote === undefined ? {} : { remote }),
  };
}

/** What is fetched takes the place of a bundle that works only when it works too, beside the rules in YAML that have these ids. */
export async function checkBundle(bundle: Bundle, ids: readonly string[]): Promise<void> {
  requireLibrary(bundle, 'It');
  const taken = bundle.facts === undefined ? new Map() : regoReasonIds(bundle.facts);
  const shared = ids.find((id) => taken.has(id));
  if (shared !== undefined)
    throw new TollgateError('POLICY_INVALID', {
      detail: `It has a rule with the id "${shared}", and so have the rules in YAML.`,
      next: 'Ids are unique, in YAML and Rego together: rename one of the two.',
    });
  (await startWorkers(dropCache(bundle.wasm), JSON.stringify(bundle.data))).close();
}

function requireLibrary({ library }: Bundle, what: string): void {
  if (library !== undefined && library !== hashLibrary())
    throw new TollgateError('POLICY_INVALID', {
      detail: `${what} was built by another version of Tollgate.`,
      next: 'Build it anew with `tollgate policy build`.',
    });
}

async function buildUser(rego: readonly SourceSettings[], parts: PolicyParts): Promise<UserPolicy> {
  const opa = await findOpa(parts.opa);
  const compiled = await compileRego(
    rego.map((source) => ({ path: source.path, shown: policySourceName(source, parts) })),
    { opa, cache: parts.cache },
  );
  const modes: Record<string, ModeData> = {};
  for (const { name, source } of compiled.facts.packages) {
    const mode = compileMode(rego[source] ?? { mode: 'enforce' });
    if (!isDeepStrictEqual(modes[name] ?? mode, mode))
      throw new TollgateError('POLICY_INVALID', {
        detail: `The package policy.${name} stands in two sources of different modes.`,
      });
    modes[name] = mode;
  }
  const enforced = Object.values(modes).some((mode) => mayHaveMode('enforce', mode));
  return { ...compiled, modes, mode: 'enforce', sets: enforced ? compiled.facts.sets : NO_SETS };
}

/** What a reason says of its rule. */
function reasonFacts({ id, file, line, severity, remediation }: RegoRule): Partial<RegoRule> {
  return {
    ...(id === undefined ? {} : { id }),
    file,
    line,
    ...(severity === undefined ? {} : { severity }),
    ...(remediation === undefined ? {} : { remediation }),
  };
}

/** One after the other with a turn in between: parsing is the dear part of a reload, and calls go on meanwhile. */
async function readRuleFiles(parts: PolicyParts): Promise<readonly YamlRuleDocument[]> {
  const documents: YamlRuleDocument[] = [];
  for (const source of parts.sources.filter(({ kind }) => kind === 'yaml')) {
    await turn();
    const file = policySourceName(source, parts);
    const text = await readFile(source.path, 'utf8').catch((cause: unknown) => {
      throw new TollgateError('POLICY_INVALID', { detail: `The rules ${file} cannot be read.`, cause });
    });
    const document = parts.readYaml(file, text);
    documents.push({
      file,
      problems: document.problems,
      mode: source.mode,
      ...(source.modes === undefined ? {} : { modes: source.modes }),
      value: document.value,
      placeOf: (at, part) => document.placeOf(at, part),
    });
  }
  return documents;
}

/** How messages name a source. */
export function policySourceName(source: SourceSettings, parts: PolicyParts): string {
  if (source.server !== undefined) return bundleName(source.server);
  if (source.shown !== undefined) return source.shown;
  return isBeneath(parts.folder, source.path)
    ? path.relative(parts.folder, source.path) || '.'
    : path.basename(source.path);
}
