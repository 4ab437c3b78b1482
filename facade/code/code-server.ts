/**
 * Answers the tools of the server `code`: search for tools, modules for code, and runs of code. It gives no access:
 * each tool that is called by it passes the nine stages by itself.
 */
import type { InProcessAnswer, UpstreamCall } from '../../adapters/port.ts';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import type { CallGate } from '../call/decide.ts';
import type { OpenSession } from '../call/identify.ts';
import type { Approvals, CallToApprove } from '../consent/approvals/approval-port.ts';
import type { NameTable } from '../exposure/name-table.ts';
import type { Cap } from '../output/text-cut.ts';
import type { CallRequest, Reply } from '../serve/facade-port.ts';

/** How a call of code differs from other calls. The policy is not told. */
export interface InnerCall {
  /** The limit of its result, in place of that of the profile: values for code may be longer than those for models. */
  readonly cap: Cap;
  readonly gate: CallGate;
  /** Answers a rule that asks, in place of `Approvals.obtain`. It must not wait for a person. */
  readonly obtain: (call: CallToApprove, approvals: Approvals) => Promise<string | undefined>;
}

/** The running facade, as code and search use it. */
export interface InnerFacade {
  /** Returns an open session; undefined if it has ended. */
  session(id: string): OpenSession | undefined;
  /** Returns the tools of the session's principal. Throws what `NameTables.tableFor` does. */
  tableOf(session: OpenSession): Promise<NameTable>;
  /** Performs a call that code makes. Never throws. */
  performInner(session: OpenSession, request: CallRequest, inner: InnerCall): Promise<Reply>;
  /** Waits for a person as `Approvals.obtain` does. */
  askPerson(call: CallToApprove): Promise<string | undefined>;
  /** Returns the labels of what a run has read. */
  labelsOf(session: OpenSession, run: string): readonly string[];
  /** Adds the labels of values that code had before its run was interrupted. Throws STATE_FAILED. */
  joinLabels(session: OpenSession, run: string, labels: readonly string[]): Promise<void>;
}

/** One call of a tool of the server, with its session. */
export interface CodeCall {
  readonly call: UpstreamCall;
  readonly session: OpenSession;
  readonly facade: InnerFacade;
}

/** How one tool answers. Throws TollgateError. */
export type CodeTool = (call: CodeCall) => Promise<InProcessAnswer>;

/**
 * Returns the function that answers for the server. `tools`: one function for each of its own tools. `snippet` answers
 * for the code of the owner.
 */
export function createCodeServer(
  facade: () => InnerFacade,
  tools: ReadonlyMap<string, CodeTool>,
  snippet: CodeTool,
): (call: UpstreamCall) => Promise<InProcessAnswer> {
  return async (call) => {
    const session = facade().session(call.scope);
    const answer = tools.get(call.tool) ?? snippet;
    if (session === undefined) throw new TollgateError('INTERNAL');
    return answer({ call, session, facade: facade() });
  };
}
