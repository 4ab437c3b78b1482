/**
 * Makes a policy from configuration, YAML rules, Rego and bundles. If any part has a fault, the whole policy is
 * refused.
 */

import { readFile } from 'node:fs/promises';
import { setImmediate as letOthersRun } from 'node:timers/promises';
import { isDeepStrictEqual } from 'node:util';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { definedFields } from '../../catalogs/text/collections.ts';
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
import { type CompiledParts, type PolicyParts, pathInMessages, type SourceSettings } from './compiled-parts.ts';
import type { CompiledPolicy } from './compiled-policy.ts';
import { weighRules } from './decision-cost.ts';
import { hashLibrary, readLibrary } from './policy-library.ts';
import { readyParts, startReady, startWorkers } from './policy-start.ts';
import { dropCache } from './wasm/wasm-module.ts';

const NO_SETS: RegoFacts['sets'] = { deny: false, ask: false, allow: false };
/** A bundle without facts may define any set. */
const ALL_SETS: RegoFacts['sets'] = { deny: true, ask: true, allow: true };

/**
 * Loads a policy. Throws POLICY_INVALID with every problem as `file:line:col: message` in `data.problems`, and
 * OPA_MISSING if there is Rego and no opa. A policy without rules denies every call.
 */
export async function loadPolicy(parts: PolicyParts): Promise<CompiledPolicy> {
  return startPolicy(await compileParts(parts), parts.deadlineMs);
}

/** Starts a compiled policy. Throws POLICY_INVALID if the module cannot be loaded. */
export async function startPolicy(compiled: CompiledParts, deadlineMs?: number): Promise<CompiledPolicy> {
  return startReady(readyParts(compiled), { deadlineMs });
}

/** Reads and compiles all sources. Throws the same as `loadPolicy`. */
export async function compileParts(parts: PolicyParts): Promise<CompiledParts> {
  const { settings } = parts;
  const rules = compileRules(await readRules(parts), parts.workspace);
  await letOthersRun();
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
  const settingsData = compileSettings(settings);
  const config = {
    version: 1,
    ...settingsData,
    rules: { list: rules.list, index: rules.index },
    modes: user?.modes ?? {},
    mode: user?.mode ?? 'enforce',
    places: user?.facts?.places ?? {},
    regoRules: Object.fromEntries([
      ...(user?.facts?.rules ?? []).map(reasonFacts).entries(),
      ...(user?.facts?.exposes ?? []).map(({ file, line }, at) => [exposeRuleNumber(at), { file, line }] as const),
    ]),
    kindRules: Object.fromEntries(
      [...(user?.facts?.rules ?? []).entries()].flatMap(([number, { readsKind }]) =>
        readsKind ? [[number, true]] : [],
      ),
    ),
    // Used if the build made no copies of the rules.
    rego: user?.sets ?? NO_SETS,
  };
  const confining = compileConfinement(rules.rules, {
    workspace: parts.workspace,
    trusts: new Map(settings.servers.map(({ name, trust = 'external' }) => [name, trust])),
    foreign: user !== undefined && (user.sets.deny || user.sets.ask),
  });
  return {
    confining,
    weights: weighRules(rules, settingsData),
    wasm: user?.wasm ?? library.wasm,
    data: JSON.stringify({ ...user?.data, config }),
    rules,
    foreign: user !== undefined,
    ...definedFields({ remote: user?.remote }),
  };
}

/** Reads the YAML rules of all sources, without checking them. Throws POLICY_INVALID. */
export async function readRules(parts: PolicyParts): Promise<readonly YamlRuleDocument[]> {
  return [...parts.rules, ...(await readRuleFiles(parts))];
}

type UserPolicy = Bundle & {
  readonly modes: Readonly<Record<string, ModeData>>;
  readonly mode: ModeData;
  readonly sets: RegoFacts['sets'];
  readonly remote?: RemoteBundle;
};

/** Loads user Rego or a bundle, not both: two modules cannot make one decision. */
async function loadUser(parts: PolicyParts, ids: readonly string[]): Promise<UserPolicy | undefined> {
  const active = parts.sources.filter((source) => compileMode(source) !== 'off');
  const rego = active.filter(({ kind }) => kind === 'rego');
  const [bundle, ...others] = active.filter(({ kind }) => kind === 'bundle');
  if (bundle === undefined) return rego.length === 0 ? undefined : buildUser(rego, parts);
  if (rego.length > 0 || others.length > 0)
    throw new TollgateError('POLICY_INVALID', {
      detail: 'A bundle cannot be combined with other Rego or bundles. Build all Rego into one bundle.',
    });
  const mode = compileMode(bundle);
  const name = policySourceName(bundle, parts);
  const remote =
    bundle.server === undefined
      ? undefined
      : new RemoteBundle({ server: bundle.server, name, cache: parts.cache, check: checkBundle, ids });
  const read = remote === undefined ? await readBundle(bundle.path, name) : await remote.load();
  requireLibrary(read, `The bundle ${name}`);
  return {
    ...read,
    modes: {},
    mode,
    sets: mayHaveMode('enforce', mode) ? (read.facts?.sets ?? ALL_SETS) : NO_SETS,
    ...definedFields({ remote }),
  };
}

/**
 * Checks a fetched bundle before it replaces one that works: library version, ids of YAML rules (`ids`), and that it
 * loads.
 */
export async function checkBundle(bundle: Bundle, ids: readonly string[]): Promise<void> {
  requireLibrary(bundle, 'It');
  const regoIds = bundle.facts === undefined ? new Map() : regoReasonIds(bundle.facts);
  const shared = ids.find((id) => regoIds.has(id));
  if (shared !== undefined)
    throw new TollgateError('POLICY_INVALID', {
      detail: `It has a rule with the id "${shared}", and so have the YAML rules.`,
      next: 'Ids are unique across YAML and Rego. Rename one of the two rules.',
    });
  (await startWorkers(dropCache(bundle.wasm), JSON.stringify(bundle.data))).close();
}

function requireLibrary({ library }: Bundle, what: string): void {
  if (library !== undefined && library !== hashLibrary())
    throw new TollgateError('POLICY_INVALID', {
      detail: `${what} was built by another version of Tollgate.`,
      next: 'Build it again with `tollgate policy build`.',
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
        detail: `The package policy.${name} is in two sources with different modes. Give both the same mode.`,
      });
    modes[name] = mode;
  }
  const enforced = Object.values(modes).some((mode) => mayHaveMode('enforce', mode));
  return { ...compiled, modes, mode: 'enforce', sets: enforced ? compiled.facts.sets : NO_SETS };
}

/** Returns what a reason says about its rule. */
function reasonFacts({ id, file, line, severity, remediation }: RegoRule): Partial<RegoRule> {
  return definedFields({ id, file, line, severity, remediation });
}

/** Reads one file after the other and lets calls run in between, because parsing is the expensive part of a reload. */
async function readRuleFiles(parts: PolicyParts): Promise<readonly YamlRuleDocument[]> {
  const documents: YamlRuleDocument[] = [];
  for (const source of parts.sources.filter(({ kind }) => kind === 'yaml')) {
    await letOthersRun();
    const file = policySourceName(source, parts);
    const text = await readFile(source.path, 'utf8').catch((cause: unknown) => {
      throw new TollgateError('POLICY_INVALID', { detail: `The rules ${file} cannot be read.`, cause });
    });
    const document = parts.readYaml(file, text);
    documents.push({
      file,
      problems: document.problems,
      mode: source.mode,
      ...definedFields({ modes: source.modes }),
      value: document.value,
      placeOf: (at, part) => document.placeOf(at, part),
    });
  }
  return documents;
}

/** Returns the name of a source in messages. */
export function policySourceName(source: SourceSettings, parts: PolicyParts): string {
  if (source.server !== undefined) return bundleName(source.server);
  return source.shown ?? pathInMessages(source.path, parts.folder);
}
