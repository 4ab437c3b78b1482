/** The interface to the tools of policy authors: check, test, build, format, diff, explain, replay. */
import type { PolicyParts } from '../engine/compiled-parts.ts';
import type { CallInput } from '../port.ts';
import type { BuildRequest, BuiltBundle } from './bundle-build.ts';
import type { RecordedCall, Replayed } from './call-replay.ts';
import type { CheckReport, WrittenRule } from './policy-check.ts';
import type { Difference, DiffRequest } from './policy-diff.ts';
import type { DraftRequest, PolicyDraft } from './policy-draft.ts';
import type { FormatReport, FormatRequest } from './rego-format.ts';
import type { SuggestionReport, SuggestionRequest } from './suggest/rule-suggestions.ts';
import type { TestReport, TestRequest } from './testing/test-run.ts';
import type { WrittenRequest } from './testing/written-effect.ts';
import type { Explanation } from './why/explanation-format.ts';

export type { OfferedTools } from '../rules/offered-tools.ts';
export type { BuildRequest, BuiltBundle } from './bundle-build.ts';
export type { Decided, RecordedCall, ReplayClass, Replayed } from './call-replay.ts';
export type { CheckReport, PolicyFinding, WrittenRule } from './policy-check.ts';
export type { Difference, DiffRequest, DiffSide, DiffSource } from './policy-diff.ts';
export type { PolicyDraft } from './policy-draft.ts';
export type { FormatReport, FormatRequest } from './rego-format.ts';
export type { JudgedRecording, OwnerVerdict } from './suggest/approved-calls.ts';
export type { Suggestion, SuggestionReport } from './suggest/rule-suggestions.ts';
export type {
  CaseResult,
  Coverage,
  RegoTest,
  TestReport,
  TestRequest,
  Uncovered,
} from './testing/test-run.ts';
export type {
  CallFact,
  ConditionWhy,
  Explanation,
  ExpressionWhy,
  FactChange,
  Flip,
  RuleWhy,
} from './why/explanation-format.ts';

/** Each tool loads its code when it is first called, so that a running facade does not load it. */
export interface Authoring {
  /**
   * Runs suites and Rego tests; each case runs in opa and in the built WebAssembly. Throws POLICY_INVALID, OPA_MISSING,
   * and USAGE if there is nothing to run.
   */
  test(request: TestRequest): Promise<TestReport>;
  /**
   * Explains the decision on this call, and what would change it. Throws the same as `loadPolicy`, and POLICY_FAILED if
   * there is no decision.
   */
  explain(parts: PolicyParts, input: CallInput): Promise<Explanation>;
  /** Returns the effect of a request of another kind than a call, as an author writes it. Throws USAGE. */
  effectOf(parts: PolicyParts, request: WrittenRequest): Promise<Pick<CallInput, 'effect' | 'argsText'>>;
  /**
   * Returns the names of the facts that YAML rules read, by rule id, without unknown rules. Throws the same as
   * `explain`.
   */
  readsOf(parts: PolicyParts, ids: readonly string[]): Promise<ReadonlyMap<string, readonly string[]>>;
  /**
   * Decides recorded calls again with the draft and nothing else. Throws the same as `explain`, before the first call.
   */
  replay(parts: PolicyParts, calls: Iterable<RecordedCall>): AsyncIterable<Replayed>;
  /**
   * Suggests changes of the policy that allow what owners approved several times, each verified by deciding the calls
   * again. Throws the same as `explain`, before the first call.
   */
  suggest(parts: PolicyParts, request: SuggestionRequest): Promise<SuggestionReport>;
  /**
   * Returns the input document of a call (policies/schemas/input.json). Throws POLICY_FAILED if the arguments are no
   * object.
   */
  inputText(input: CallInput): Promise<string>;
  /**
   * Returns every error and warning of all sources. Throws OPA_MISSING if there is Rego, no opa, and no error in YAML.
   */
  check(parts: PolicyParts): Promise<CheckReport>;
  /** Returns all YAML rules, with those that are off, in the order of their files. Throws POLICY_INVALID. */
  rules(parts: PolicyParts): Promise<readonly WrittenRule[]>;
  /**
   * Builds a bundle of Rego. Equal input gives equal bytes. Throws POLICY_INVALID, OPA_MISSING, and USAGE for an unfit
   * key.
   */
  build(request: BuildRequest): Promise<BuiltBundle>;
  /**
   * Formats Rego. Throws USAGE for a missing path, POLICY_INVALID for Rego that does not parse, and OPA_MISSING.
   */
  format(request: FormatRequest): Promise<FormatReport>;
  /** Returns the differences between two policies. Throws POLICY_INVALID, OPA_MISSING. */
  diff(request: DiffRequest): Promise<readonly Difference[]>;
  /**
   * Returns the files of a first policy folder. It has Rego if `rego` is true, or, by default, if opa is found.
   * `folder` is its path relative to where opa and Regal will run.
   */
  draft(request: DraftRequest): Promise<PolicyDraft>;
}

export type { PolicyParts } from '../engine/compiled-parts.ts';
export type { Drafting } from './testing/test-case.ts';
