/**
 * Answers the tools of the server `code`: search for tools, modules for code, and runs of code. It gives no access:
 * each tool that is called by it passes the nine stages by itself.
 */
import type { InProcessAnswer, UpstreamCall } from '../../adapters/port.ts';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import type { OpenSession } from '../call/identify.ts';
import type { NameTable } from '../exposure/name-table.ts';
import type { CallRequest, Reply } from '../serve/facade-port.ts';

/** The running facade, as code and search use it. */
export interface InnerFacade {
  /** Returns an open session; undefined if it has ended. */
  session(id: string): OpenSession | undefined;
  /** Returns the tools of the session's principal. Throws what `NameTables.tableFor` does. */
  tableOf(session: OpenSession): Promise<NameTable>;
  /** Performs a call of the session. Never throws. */
  perform(session: OpenSession, request: CallRequest): Promise<Reply>;
}

/** One call of a tool of the server, with its session. */
export interface CodeCall {
  readonly call: UpstreamCall;
  readonly session: OpenSession;
  readonly facade: InnerFacade;
}

/** How one tool answers. Throws TollgateError. */
export type CodeTool = (call: CodeCall) => Promise<InProcessAnswer>;

/** Returns the function that answers for the server. `tools`: one function for each of its tools. */
export function createCodeServer(
  facade: () => InnerFacade,
  tools: Readonly<Record<string, CodeTool>>,
): (call: UpstreamCall) => Promise<InProcessAnswer> {
  return async (call) => {
    const session = facade().session(call.scope);
    const answer = Object.hasOwn(tools, call.tool) ? tools[call.tool] : undefined;
    if (session === undefined || answer === undefined) throw new TollgateError('INTERNAL');
    return answer({ call, session, facade: facade() });
  };
}
