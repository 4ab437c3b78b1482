/** Answers run_code: runs code in the sandbox, and turns what it returns and prints into a result. */
import type { InProcessAnswer } from '../../adapters/port.ts';
import { cancelReason } from '../../adapters/rpc/cancellation.ts';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import type { ContentItem } from '../../catalogs/tools/tool-definition.ts';
import type { OpenSession } from '../call/identify.ts';
import type { CodeConfig, SnippetConfig } from '../config/config.ts';
import type { RunHost } from './code-execution.ts';
import { modulesOf } from './code-modules.ts';
import type { CodeRuns, FinishedRun } from './code-runs.ts';
import type { CodeCall, CodeTool } from './code-server.ts';
import type { CodeSandbox } from './sandbox/code-sandbox.ts';

/** What runs need. */
export interface RunCodeParts {
  readonly runs: () => CodeRuns;
  readonly sandbox: () => CodeSandbox;
  /** Returns the limits of a session's profiles. */
  readonly limitsOf: (session: OpenSession) => CodeConfig;
  /** Returns the owner's own code by name. */
  readonly snippets: () => ReadonlyMap<string, SnippetConfig>;
}

/** Characters of the printed text that an error repeats. */
const PRINTED_TAIL = 2_000;

/**
 * Returns the tool run_code, and the tools that are code of the owner. They throw CODE_SYNTAX, CODE_FAILED, CODE_LIMIT
 * and what `CodeRuns.run` throws.
 */
export function createRunCode(parts: RunCodeParts): { readonly runCode: CodeTool; readonly snippet: CodeTool } {
  const { runs, limitsOf, snippets } = parts;
  /** Variables between the runs of a session, as JSON. */
  const variables = new WeakMap<OpenSession, string>();
  const runCode: CodeTool = async (asked) => {
    const { call, session } = asked;
    const { code, resume, discard } = call.args.value as { code?: string; resume?: string; discard?: string };
    if (discard !== undefined) {
      await runs().discard(session.principal, discard);
      return { text: `Run ${discard} is forgotten. What it has done stays done.` };
    }
    const host = await hostOf(parts, asked);
    const limits = limitsOf(session);
    const kept = limits.variables === 0 ? undefined : (variables.get(session) ?? '{}');
    const finished =
      resume === undefined
        ? await runs().run(host, { code: code ?? '', ...(kept !== undefined && { variables: kept }) })
        : await runs().resume(host, resume);
    const answer = answerOf(finished, host);
    const { outcome } = finished;
    if (outcome.kind === 'returned' && outcome.variables !== undefined)
      keepVariables(outcome.variables, { limits, keep: (text) => variables.set(session, text) });
    return answer;
  };
  const snippet: CodeTool = async (asked) => {
    const code = snippets().get(asked.call.tool)?.code;
    if (code === undefined) throw new TollgateError('UNKNOWN_TOOL');
    const host = await hostOf(parts, asked);
    return answerOf(await runs().run(host, { code, args: JSON.stringify(asked.call.args.value) }), host);
  };
  return { runCode, snippet };
}

async function hostOf(
  { sandbox, limitsOf }: Pick<RunCodeParts, 'sandbox' | 'limitsOf'>,
  { call, session, facade }: CodeCall,
): Promise<RunHost> {
  if (call.id === undefined) throw new TollgateError('INTERNAL');
  return {
    facade,
    session,
    parent: call.id,
    run: call.run ?? session.id,
    signal: call.signal,
    modules: modulesOf(await facade.tableOf(session)),
    limits: limitsOf(session),
    sandbox: sandbox(),
  };
}

function keepVariables(
  text: string,
  { limits, keep }: { readonly limits: CodeConfig; readonly keep: (text: string) => void },
): void {
  const size = Buffer.byteLength(text);
  if (size > limits.variables)
    throw new TollgateError('CODE_LIMIT', {
      detail: `The variables have ${size} bytes, and a session keeps ${limits.variables} at most. They are as before.`,
      next: 'Remove what is not needed from `vars`. The calls of this run were made.',
    });
  keep(text);
}

/** Throws the error of a run that did not return. */
function answerOf({ id, outcome, continued }: FinishedRun, { signal }: RunHost): InProcessAnswer {
  const { printed } = outcome;
  const note = continued ? `[tollgate: this continues run ${id}; no call was made twice]\n` : '';
  if (outcome.kind === 'stopped') throw signal.aborted ? cancelReason(signal) : new TollgateError('INTERRUPTED');
  if (outcome.kind === 'used-planned') throw new TollgateError('INTERNAL');
  if (outcome.kind === 'failed') {
    const tail = printed.slice(-PRINTED_TAIL);
    const before =
      printed === '' ? '' : `\nPrinted before${tail.length < printed.length ? ', at the end' : ''}:\n${tail}`;
    // Its last line says what to do next.
    const at = outcome.message.lastIndexOf('\n');
    const [what, next] = [outcome.message.slice(0, at), outcome.message.slice(at + 1)];
    throw new TollgateError(outcome.code, { detail: `${note}${what}${before}`, next });
  }
  const { value, media } = outcome;
  const returned = value === undefined ? '' : shownValue(value);
  const gap = printed !== '' && returned !== '' && !printed.endsWith('\n') ? '\n' : '';
  const text = `${note}${printed}${gap}${returned}`;
  return {
    text: text === '' ? 'The code returned nothing and printed nothing.' : text,
    media: media.map((block) => JSON.parse(block) as ContentItem),
  };
}

/** A returned text is shown as it is, any other value as JSON. */
function shownValue(json: string): string {
  return json.startsWith('"') ? (JSON.parse(json) as string) : json;
}
