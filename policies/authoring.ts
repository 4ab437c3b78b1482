/** Owns the port to what authors of policies use beside a running facade: check, test, build, format, explain; decides no call. */
import type { TestReport, TestRequest } from './authoring/test.ts';

export type { CaseResult, Coverage, Drafting, RegoTest, TestReport, TestRequest, Uncovered } from './authoring/test.ts';

/** Every tool loads its own code when it is called, so that a running facade never pays for it. See policies/authoring/. */
export interface Authoring {
  /** Runs suites and Rego tests, every case in opa and in the built wasm. Throws POLICY_INVALID, USAGE where there is nothing to run, OPA_MISSING. */
  test(request: TestRequest): Promise<TestReport>;
}
