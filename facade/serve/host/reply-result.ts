/**
 * Reads a reply of the facade for callers that are no clients of MCP: hosts, and the command line. A refusal becomes an
 * error, however MCP would carry it.
 */
import { joinText } from '../../../adapters/rpc/wire-message.ts';
import { ERRORS } from '../../../catalogs/errors/error-table.ts';
import { CORRELATION_KEY } from '../../call/identify.ts';
import type { Reply } from '../facade-port.ts';

/**
 * Returns the text of a result. Refusals become errors, however MCP would carry them. A server cannot forge them,
 * because its keys under `tollgate/` are removed.
 */
export function replyResult(reply: Reply): string {
  if (reply.kind === 'error') throw refusedOf(reply);
  const text = joinText(reply.text);
  const meta = text.includes('"tollgate/code"')
    ? (JSON.parse(text) as { _meta?: Readonly<Record<string, unknown>>; content?: readonly { text?: string }[] })
    : undefined;
  const {
    'tollgate/code': code,
    'tollgate/retryable': retryable,
    'tollgate/decision': decision,
    'tollgate/approval': approval,
    [CORRELATION_KEY]: correlation,
  } = meta?._meta ?? {};
  if (typeof code !== 'string') return text;
  const [message = '', ...next] = (meta?.content?.[0]?.text ?? '').split('\n');
  throw new HostRefusal(message, {
    code,
    next: next.join('\n'),
    retryable: retryable === true,
    decision: String(decision),
    correlation: typeof correlation === 'string' ? correlation : undefined,
    approval: typeof approval === 'string' ? approval : undefined,
  });
}

/**
 * Over MCP the message also says what to do next; here that has its own field. The data of a server's own error is the
 * server's and names no code of Tollgate.
 */
function refusedOf({ error: { message, data = {} }, upstream }: Extract<Reply, { kind: 'error' }>): HostRefusal {
  if (upstream !== undefined)
    return new HostRefusal(message, { code: 'TOOL_FAILED', next: ERRORS.TOOL_FAILED.next, decision: upstream });
  const { code, next, retryable, decision, correlation } = data as Refusal;
  return new HostRefusal(
    next !== undefined && message.endsWith(` ${next}`) ? message.slice(0, -next.length - 1) : message,
    { code, next, retryable: retryable === true, decision, correlation },
  );
}

/**
 * A refusal in words. `retryable`: the same may succeed later. `decision`: the id of a call in the audit. `allow`: the
 * methods of the path.
 */
interface Refusal {
  readonly code?: string | undefined;
  readonly next?: string | undefined;
  readonly retryable?: boolean;
  readonly decision?: string | undefined;
  readonly correlation?: string | undefined;
  /** The id of the request that a person must decide. */
  readonly approval?: string | undefined;
  readonly status?: number;
  readonly allow?: string;
}

/** Thrown for an error that the facade has described and recorded already. */
export class HostRefusal extends Error {
  readonly refusal: Refusal;

  constructor(message: string, refusal: Refusal = {}) {
    super(message);
    this.refusal = refusal;
  }
}
