/** Owns the answer to "why was this call decided so": asks the engine which conditions hold, opa which expressions failed, and decides anew what it claims; refuses to guess. */
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import type { CompiledParts, PolicyParts } from '../../engine/compiled-parts.ts';
import { readLibrary } from '../../engine/policy-library.ts';
import { compileParts, startPolicy } from '../../engine/policy-loader.ts';
import type { CallInput, Mode, Policy } from '../../port.ts';
import type { RuleOutcome } from '../../rules/rule-conditions.ts';
import { withPrincipal } from './call-edits.ts';
import { type CandidateChange, candidateChanges } from './candidate-changes.ts';
import {
  type ConditionGroup,
  conditionGroups,
  type FailedConditions,
  factNames,
  factsOfField,
} from './condition-groups.ts';
import { findFlips } from './decision-flips.ts';
import type { Explanation, RuleWhy } from './explanation-format.ts';
import { regoChanges } from './rego-changes.ts';
import { type StagedRego, stageRego } from './rego-explanation.ts';

/** Rules that did not fire and are told of. */
const NEAR = 5;
/** Rules that a search lets fire, and conditions of one that it mends. */
const CANDIDATES = 12;
const MOST_FAILED = 3;
/** Decisions that a search may take: those in this thread are cheap. */
const BUDGET = { library: 2000, worker: 600 } as const;

/** Explains the decision on a call. Throws as `loadPolicy`, and POLICY_FAILED where there is no decision. */
export async function explainCall(parts: PolicyParts, input: CallInput): Promise<Explanation> {
  const compiled = await compileParts(parts);
  const policy = await startPolicy(compiled, parts.deadlineMs);
  const rego = await readRego(parts);
  try {
    const decision = await policy.call(input);
    const found = await judgeRules(compiled, parts, input);
    const staged = typeof rego === 'object' ? rego : undefined;
    const atoms = [
      ...ruleAtoms(found, input, decision.outcome),
      ...ownAtoms(
        parts,
        input,
        decision.reasons.map(({ id }) => id),
      ),
      ...(staged === undefined
        ? []
        : regoChanges(
            staged.files.map(({ module }) => module),
            input,
          )),
    ];
    const fired = found.filter(({ rule }) => rule.fired).map(({ rule }) => rule);
    const near = nearest(found, decision.outcome)
      .slice(0, NEAR)
      .map(({ rule }) => rule);
    return {
      decision,
      revision: policy.revision,
      rules: [...fired, ...near],
      others: found.length - fired.length - near.length,
      expressions: (await staged?.failures(input, [...decision.reasons, ...decision.shadow])) ?? [],
      ...(typeof rego === 'string' ? { unexplained: rego } : {}),
      flips: await findFlips({
        input,
        outcome: decision.outcome,
        atoms,
        decide: (call) => outcomeOf(policy, call),
        budget: compiled.foreign ? BUDGET.worker : BUDGET.library,
      }),
    };
  } finally {
    policy.close();
    if (typeof rego === 'object') await rego.close();
  }
}

/** Which facts each of these rules reads, by its id; those that stand in no YAML of today are absent. Throws as `loadPolicy`. */
export async function readsOf(
  parts: PolicyParts,
  ids: readonly string[],
): Promise<ReadonlyMap<string, readonly string[]>> {
  const { rules } = (await compileParts(parts)).rules;
  return new Map(rules.filter(({ rule }) => ids.includes(rule.id)).map(({ rule }) => [rule.id, factNames(rule.when)]));
}

/** Without opa a policy may still run from its cache or as a bundle. */
async function readRego({ sources, opa, folder }: PolicyParts): Promise<StagedRego | Explanation['unexplained']> {
  const active = sources.filter(({ mode }) => mode !== 'off');
  if (active.some(({ kind }) => kind === 'bundle')) return 'bundle';
  const rego = active.filter(({ kind }) => kind === 'rego');
  if (rego.length === 0) return undefined;
  try {
    return await stageRego(
      rego.map(({ path }) => ({ path, shown: shownIn(folder, path) })),
      opa,
    );
  } catch (thrown) {
    if (thrown instanceof TollgateError && thrown.code === 'OPA_MISSING') return 'opa';
    throw thrown;
  }
}

function shownIn(folder: string, file: string): string {
  return file.startsWith(`${folder}/`) ? file.slice(folder.length + 1) : file;
}

/** A rule with its parts, as they hold in this call. */
interface Judged {
  readonly rule: RuleWhy;
  readonly groups: readonly ConditionGroup[];
}

async function judgeRules(
  compiled: CompiledParts,
  { workspace }: PolicyParts,
  input: CallInput,
): Promise<readonly Judged[]> {
  const library = await startPolicy({ ...compiled, wasm: readLibrary().wasm, foreign: false });
  const { rules: told } = (await library.explain(input)) as unknown as {
    readonly rules: readonly { readonly id: string; readonly mode: Mode; readonly failed: FailedConditions }[];
  };
  const data = new Map(compiled.rules.list.map((rule) => [rule.reason.id, rule]));
  const located = new Map(compiled.rules.rules.map((one) => [one.rule.id, one]));
  return told.flatMap(({ id, mode, failed }): readonly Judged[] => {
    const [rule, where] = [data.get(id), located.get(id)];
    if (rule === undefined || where === undefined || mode === 'off') return [];
    const groups = conditionGroups(where, rule, { failed, workspace });
    const conditions = groups.map(({ field, written, line, holds }) => ({
      field,
      written,
      line,
      holds,
      facts: factsOfField(field, input),
    }));
    const fired = failed.principal.length + failed.target.length + failed.call.length === 0;
    const { message, file, line } = rule.reason;
    return [{ groups, rule: { id, outcome: where.rule.outcome, mode, message, file, line, fired, conditions } }];
  });
}

/** Fields by which a rule is about other tools. */
const OF_TOOL: ReadonlySet<string> = new Set(['tools', 'servers', 'trust']);

/** Fewest failed parts first; rules that could change the outcome before others, and rules about other tools last. */
function nearest(found: readonly Judged[], outcome: RuleOutcome): readonly Judged[] {
  const rank = ({ rule }: Judged): number =>
    Number(rule.outcome === outcome) +
    Number(rule.mode !== 'enforce') +
    Number(rule.conditions.some(({ field, holds }) => !holds && OF_TOOL.has(field))) * 2;
  const near = found.filter((one) => !one.rule.fired && canFire(one));
  return [...near].sort((a, b) => failedOf(a).length + rank(a) - failedOf(b).length - rank(b));
}

function failedOf({ groups }: Judged): readonly ConditionGroup[] {
  return groups.filter(({ holds }) => !holds);
}

/** A rule on commands never fires for a call that has none, however the facts that it has change. */
function canFire({ rule, groups }: Judged): boolean {
  const failed = rule.conditions.filter(({ holds }) => !holds);
  return (
    failed.length <= MOST_FAILED &&
    (failed.length < groups.length || failed.length <= 2) &&
    failed.every(({ facts }) => facts.length > 0)
  );
}

/** What takes a rule that decided away, and what lets one fire that would decide otherwise. Facts of the call before those of the caller and the tool. */
function ruleAtoms(found: readonly Judged[], input: CallInput, outcome: RuleOutcome): readonly CandidateChange[] {
  const enforced = found.filter(({ rule }) => rule.mode === 'enforce');
  const standing = enforced.filter(({ rule }) => rule.fired && rule.outcome === outcome);
  const wanted = nearest(
    enforced.filter(({ rule }) => rule.outcome !== outcome),
    outcome,
  ).slice(0, CANDIDATES);
  const atoms = [
    ...standing.flatMap(({ groups }) => groups.flatMap(({ when }) => candidateChanges(when, { input, hold: false }))),
    ...wanted.flatMap((one) =>
      failedOf(one).flatMap(({ when }) =>
        candidateChanges(when, { input, hold: true }).map(
          (atom): CandidateChange => ({ ...atom, toward: one.rule.outcome, of: one.rule.id }),
        ),
      ),
    ),
  ];
  const rank = ({ fact }: CandidateChange): number =>
    fact.startsWith('principal.') ? 1 : Number(['verb', 'server', 'tool'].includes(fact)) * 2;
  return [...atoms].sort((a, b) => rank(a) - rank(b));
}

/** What the configuration itself refuses can be lifted by facts too. */
function ownAtoms({ settings }: PolicyParts, input: CallInput, ids: readonly string[]): readonly CandidateChange[] {
  const { profiles } = input.principal;
  const having = settings.profiles.filter(
    ({ name, servers, primitives }) =>
      !profiles.includes(name) &&
      [
        ...servers,
        ...Object.values(primitives)
          .flat()
          .map(({ server }) => server),
      ].includes(input.effect.server),
  );
  return [
    ...(ids.includes('profile')
      ? having.map(
          ({ name }): CandidateChange => ({
            fact: 'principal.profiles',
            from: profiles,
            to: [...profiles, name],
            text: `principal.profiles had ${name}`,
            apply: withPrincipal({ profiles: [...profiles, name] }),
          }),
        )
      : []),
    ...(ids.includes('plan-mode')
      ? [
          {
            fact: 'plan',
            from: input.plan ?? 'none',
            to: 'approved',
            text: 'the plan of the run were approved',
            apply: (call: CallInput): CallInput => ({ ...call, plan: 'approved' }),
          },
        ]
      : []),
  ];
}

async function outcomeOf(policy: Policy, call: CallInput): Promise<RuleOutcome | undefined> {
  try {
    return (await policy.call(call)).outcome;
  } catch (thrown) {
    if (thrown instanceof TollgateError && thrown.code === 'POLICY_FAILED') return undefined;
    throw thrown;
  }
}
