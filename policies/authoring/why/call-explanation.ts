/** Explains why a call was decided as it was, and which changes of facts would change the decision. */
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import type { CompiledParts, PolicyParts } from '../../engine/compiled-parts.ts';
import { readLibrary } from '../../engine/policy-library.ts';
import { compileParts, loadPolicy, policySourceName, startPolicy } from '../../engine/policy-loader.ts';
import type { CallDecision, CallInput, Mode, Policy } from '../../port.ts';
import type { RuleOutcome } from '../../rules/rule-conditions.ts';
import { callShape } from '../suggest/approved-calls.ts';
import { controlGlobs, exceptionFor, type RuleException, withChanges } from '../suggest/suggested-changes.ts';
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
import type { Explanation, Flip, RuleWhy } from './explanation-format.ts';
import { regoChanges } from './rego-changes.ts';
import { type StagedRego, stageRego } from './rego-explanation.ts';

/** How many rules that did not match are reported. */
const NEAR = 5;
/** How many rules the search tries to make match, and how many failed conditions such a rule may have. */
const CANDIDATES = 12;
const MOST_FAILED = 3;
/** How many decisions a search may make. Decisions of the library are cheap. */
const BUDGET = { library: 2000, worker: 600 } as const;

/** What answers a rule that asks. */
const APPROVAL: Flip = {
  outcome: 'allow',
  changes: [{ fact: 'approval', from: 'none', to: 'approved', text: 'an owner approved this call' }],
};

/** Explains the decision on a call. Throws the same as `loadPolicy`, and POLICY_FAILED if there is no decision. */
export async function explainCall(parts: PolicyParts, input: CallInput): Promise<Explanation> {
  const compiled = await compileParts(parts);
  const policy = await startPolicy(compiled, parts.deadlineMs);
  const rego = await readRego(parts);
  try {
    const decision = await policy.call(input);
    const found = await evaluateRules(compiled, parts, input);
    const staged = typeof rego === 'object' ? rego : undefined;
    const candidates = [
      ...ruleCandidates(found, input, decision.outcome),
      ...settingsCandidates(
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
      flips:
        decision.outcome === 'allow'
          ? []
          : [
              ...(decision.outcome === 'ask' ? [APPROVAL] : []),
              ...(await findFlips({
                input,
                outcome: decision.outcome,
                candidates,
                decide: (call) => outcomeOf(policy, call),
                budget: compiled.foreign ? BUDGET.worker : BUDGET.library,
              })),
              ...(await exceptionFlips({ compiled, parts, input, decision })),
            ],
    };
  } finally {
    policy.close();
    if (typeof rego === 'object') await rego.close();
  }
}

/**
 * Returns the names of the facts that each of these YAML rules reads, without unknown ids. Throws the same as
 * `loadPolicy`.
 */
export async function readsOf(
  parts: PolicyParts,
  ids: readonly string[],
): Promise<ReadonlyMap<string, readonly string[]>> {
  const { rules } = (await compileParts(parts)).rules;
  return new Map(rules.filter(({ rule }) => ids.includes(rule.id)).map(({ rule }) => [rule.id, factNames(rule.when)]));
}

/** Without opa, a policy may still run from its cache or as a bundle; then there is no trace of its Rego. */
async function readRego(parts: PolicyParts): Promise<StagedRego | Explanation['unexplained']> {
  const active = parts.sources.filter(({ mode }) => mode !== 'off');
  if (active.some(({ kind }) => kind === 'bundle')) return 'bundle';
  const rego = active.filter(({ kind }) => kind === 'rego');
  if (rego.length === 0) return undefined;
  try {
    return await stageRego(
      rego.map((source) => ({ path: source.path, shown: policySourceName(source, parts) })),
      parts.opa,
    );
  } catch (thrown) {
    if (thrown instanceof TollgateError && thrown.code === 'OPA_MISSING') return 'opa';
    throw thrown;
  }
}

/** A rule and its conditions, evaluated for this call. */
interface EvaluatedRule {
  readonly rule: RuleWhy;
  readonly groups: readonly ConditionGroup[];
}

async function evaluateRules(
  compiled: CompiledParts,
  { workspace }: PolicyParts,
  input: CallInput,
): Promise<readonly EvaluatedRule[]> {
  const library = await startPolicy({ ...compiled, wasm: readLibrary().wasm, foreign: false });
  const { rules: evaluated } = (await library.explain(input)) as unknown as {
    readonly rules: readonly {
      readonly id: string;
      readonly mode: Mode;
      readonly isOfKind: boolean;
      readonly failed: FailedConditions;
    }[];
  };
  const data = new Map(compiled.rules.list.map((rule) => [rule.reason.id, rule]));
  const located = new Map(compiled.rules.rules.map((one) => [one.rule.id, one]));
  return evaluated.flatMap(({ id, mode, isOfKind, failed }): readonly EvaluatedRule[] => {
    const [rule, where] = [data.get(id), located.get(id)];
    if (rule === undefined || where === undefined || mode === 'off') return [];
    const groups = conditionGroups(where, rule, { failed, workspace, isOfKind });
    const conditions = groups.map(({ field, written, line, holds }) => ({
      field,
      written,
      line,
      holds,
      facts: factsOfField(field, input),
    }));
    const fired = isOfKind && failed.principal.length + failed.target.length + failed.call.length === 0;
    const { message, file, line } = rule.reason;
    return [{ groups, rule: { id, outcome: where.rule.outcome, mode, message, file, line, fired, conditions } }];
  });
}

/** Conditions that make a rule be about other tools or kinds. */
const TOOL_FIELDS: ReadonlySet<string> = new Set(['kind', 'tools', 'servers', 'exceptTools', 'trust']);

/**
 * Sorts by failed conditions, fewest first. Rules that cannot change the outcome, and rules about other tools, come
 * later.
 */
function nearest(found: readonly EvaluatedRule[], outcome: RuleOutcome): readonly EvaluatedRule[] {
  const rank = ({ rule }: EvaluatedRule): number =>
    Number(rule.outcome === outcome) +
    Number(rule.mode !== 'enforce') +
    Number(rule.conditions.some(({ field, holds }) => !holds && TOOL_FIELDS.has(field))) * 2;
  const near = found.filter((one) => !one.rule.fired && canMatch(one));
  return [...near].sort((a, b) => failedOf(a).length + rank(a) - failedOf(b).length - rank(b));
}

function failedOf({ groups }: EvaluatedRule): readonly ConditionGroup[] {
  return groups.filter(({ holds }) => !holds);
}

/** A rule whose failed conditions read facts that the call does not have cannot match after a change of facts. */
function canMatch({ rule, groups }: EvaluatedRule): boolean {
  const failed = rule.conditions.filter(({ holds }) => !holds);
  return (
    failed.length <= MOST_FAILED &&
    (failed.length < groups.length || failed.length <= 2) &&
    failed.every(({ facts }) => facts.length > 0)
  );
}

/**
 * Returns changes that make a deciding rule fail, and changes that make a rule with another outcome match. Changes of
 * the call's own facts come before those of the caller.
 */
function ruleCandidates(
  found: readonly EvaluatedRule[],
  input: CallInput,
  outcome: RuleOutcome,
): readonly CandidateChange[] {
  const enforced = found.filter(({ rule }) => rule.mode === 'enforce');
  const deciding = enforced.filter(({ rule }) => rule.fired && rule.outcome === outcome);
  const wanted = nearest(
    enforced.filter(({ rule }) => rule.outcome !== outcome),
    outcome,
  ).slice(0, CANDIDATES);
  const candidates = [
    ...deciding.flatMap(({ groups }) => groups.flatMap(({ when }) => candidateChanges(when, { input, hold: false }))),
    ...wanted.flatMap((one) =>
      failedOf(one).flatMap(({ when }) =>
        candidateChanges(when, { input, hold: true }).map(
          (change): CandidateChange => ({ ...change, toward: one.rule.outcome, of: one.rule.id }),
        ),
      ),
    ),
  ];
  const rank = ({ fact }: CandidateChange): number => Number(fact.startsWith('principal.'));
  return [...candidates].sort((a, b) => rank(a) - rank(b));
}

/** Returns changes that end a refusal by the configuration itself: by profiles, or by plan mode. */
function settingsCandidates(
  { settings }: PolicyParts,
  input: CallInput,
  ids: readonly string[],
): readonly CandidateChange[] {
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
    ...(ids.includes('profile') && input.principal.owner === true
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

/** The decision that an exception would change. */
interface Exceptional {
  readonly compiled: CompiledParts;
  readonly parts: PolicyParts;
  readonly input: CallInput;
  readonly decision: CallDecision;
}

/**
 * Returns the exceptions of the rules that decided after which the call would be decided less strictly, proved with the
 * changed policy. There is none for control files.
 */
async function exceptionFlips({ compiled, parts, input, decision }: Exceptional): Promise<readonly Flip[]> {
  const rules = new Map(compiled.rules.rules.map((one) => [one.rule.id, one]));
  const shape = callShape(input, controlGlobs(rules));
  if (typeof shape === 'string') return [];
  const exceptions: RuleException[] = [];
  for (const { id } of decision.reasons) {
    const located = rules.get(id);
    const exception = located === undefined ? id : exceptionFor(located, shape);
    if (typeof exception === 'string') return [];
    exceptions.push(exception);
  }
  const outcome = await decideChanged(withChanges(parts, [{ exceptions, guards: [] }], []), input);
  if (outcome === undefined || STRICTNESS[outcome] >= STRICTNESS[decision.outcome]) return [];
  const changes = exceptions.map(({ id, file, line, column, field, add }) => ({
    fact: 'rule',
    from: id,
    to: { [field]: add },
    text: `the rule ${id} (${file}:${line}:${column}) had the exception ${field}: ${JSON.stringify(add)}`,
  }));
  return [{ outcome, changes }];
}

const STRICTNESS: Readonly<Record<RuleOutcome, number>> = { allow: 0, ask: 1, deny: 2 };

/** Returns undefined if the changed policy is refused, or gives no decision. */
async function decideChanged(parts: PolicyParts, input: CallInput): Promise<RuleOutcome | undefined> {
  try {
    const policy = await loadPolicy(parts);
    return await outcomeOf(policy, input).finally(() => policy.close());
  } catch (thrown) {
    if (thrown instanceof TollgateError && thrown.code === 'POLICY_INVALID') return undefined;
    throw thrown;
  }
}

async function outcomeOf(policy: Policy, call: CallInput): Promise<RuleOutcome | undefined> {
  try {
    return (await policy.call(call)).outcome;
  } catch (thrown) {
    if (thrown instanceof TollgateError && thrown.code === 'POLICY_FAILED') return undefined;
    throw thrown;
  }
}
