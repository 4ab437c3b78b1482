/** Owns the port to what authors of policies use beside a running facade: check, test, build, format, explain; decides no call. */
import type { PolicyParts } from '../engine/compiled-parts.ts';
import type { CallInput } from '../port.ts';
import type { BuildRequest, BuiltBundle } from './bundle-build.ts';
import type { RecordedCall, Replayed } from './call-replay.ts';
import type { CheckReport } from './policy-check.ts';
import type { Difference, DiffRequest } from './policy-diff.ts';
import type { PolicyDraft } from './policy-draft.ts';
import type { FormatReport, FormatRequest } from './rego-format.ts';
import type { TestReport, TestRequest } from './testing/test-run.ts';
import type { Explanation } from './why/explanation-format.ts';

export type { OfferedTools } from '../rules/offered-tools.ts';
export type { BuildRequest, BuiltBundle } from './bundle-build.ts';
export type { Decided, RecordedCall, ReplayClass, Replayed } from './call-replay.ts';
export type { CheckReport, PolicyFinding } from './policy-check.ts';
export type { Difference, DiffRequest, DiffSide, DiffSource } from './policy-diff.ts';
export type { PolicyDraft } from './policy-draft.ts';
export type { FormatReport, FormatRequest } from './rego-format.ts';
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

/** Every tool loads its own code when it is called, so that a running facade never pays for it. See policies/authoring/. */
export interface Authoring {
  /** Runs suites and Rego tests, every case in opa and in the built wasm. Throws POLICY_INVALID, USAGE where there is nothing to run, OPA_MISSING. */
  test(request: TestRequest): Promise<TestReport>;
  /** Why this call is decided as it is, and what would change it. Throws as Assemble does for a policy, and POLICY_FAILED where there is no decision. */
  explain(parts: PolicyParts, input: CallInput): Promise<Explanation>;
  /** Names of the facts that YAML rules read, by rule id; rules that are not there are absent. Throws as `explain`. */
  readsOf(parts: PolicyParts, ids: readonly string[]): Promise<ReadonlyMap<string, readonly string[]>>;
  /** Decides recorded calls anew, with no input or output but the draft. Throws as `explain`, before the first. */
  replay(parts: PolicyParts, calls: Iterable<RecordedCall>): AsyncIterable<Replayed>;
  /** The input document of a call, as policies/schemas/input.json describes it. Throws POLICY_FAILED where the arguments are no object. */
  inputText(input: CallInput): Promise<string>;
  /** Every fault and warning of all sources, YAML and Rego. Throws OPA_MISSING when there is Rego, no opa, and no fault in YAML. */
  check(parts: PolicyParts): Promise<CheckReport>;
  /** A bundle of Rego, the same bytes for the same input. Throws POLICY_INVALID, OPA_MISSING, USAGE for a key that does not sign. */
  build(request: BuildRequest): Promise<BuiltBundle>;
  /** Formats Rego, or says what that would change. Throws USAGE for what is not there, POLICY_INVALID for what does not parse, OPA_MISSING. */
  format(request: FormatRequest): Promise<FormatReport>;
  /** What differs between two policies. Throws POLICY_INVALID, OPA_MISSING. */
  diff(request: DiffRequest): Promise<readonly Difference[]>;
  /** A folder to begin with; with `rego` when asked so, or when opa is found. `folder` is its path from where opa and Regal are started. */
  draft(request: { readonly folder: string; readonly rego?: boolean; readonly opa?: string }): Promise<PolicyDraft>;
}

export type { PolicyParts } from '../engine/compiled-parts.ts';
export type { Drafting } from './testing/test-case.ts';
