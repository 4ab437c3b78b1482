/** Owns the reading of what a failed HTTP request means for its call; refuses to show what a stranger's server wrote. */
import { TollgateError } from '../../catalogs/errors/error-table.ts';

/** The call's error, and why the whole session is over, if it is. */
export interface RemoteFailure {
  readonly error: TollgateError;
  /** Public; completes "Server x …". */
  readonly lost?: string;
}

const MAY_HAVE_RUN = 'The call may have run: check before you repeat it.';
/** Failures of the network that come before anything was sent. */
const NOT_SENT = new Set([
  'ECONNREFUSED',
  'ENOTFOUND',
  'EAI_AGAIN',
  'EHOSTUNREACH',
  'ENETUNREACH',
  'UND_ERR_CONNECT_TIMEOUT',
]);

/** Judges what the SDK's transports throw. Bodies of answers stay private: they are foreign text. `refusal` says what is wrong with the sign-in, if anything is. */
export function judgeRemoteFailure(name: string, thrown: unknown, refusal?: TollgateError): RemoteFailure {
  const status = httpStatus(thrown);
  if (refusal !== undefined && (status === 401 || status === 403)) return { error: refusal };
  if (status !== undefined) return judgeStatus(name, status, thrown);
  if (isRefusedFrame(thrown))
    return {
      error: new TollgateError('UPSTREAM_INVALID', {
        detail: `Server "${name}" sent an answer that is no JSON-RPC message.`,
        cause: thrown,
      }),
    };
  const code = networkCode(thrown);
  const lost = `cannot be reached${code === undefined ? '' : ` (${code})`}`;
  if (code !== undefined && NOT_SENT.has(code))
    return { error: unavailable(`Server "${name}" ${lost}.`, thrown), lost };
  return {
    error: new TollgateError('TOOL_CRASHED', {
      detail: `The connection to server "${name}" broke${code === undefined ? '' : ` (${code})`}.`,
      cause: thrown,
    }),
    lost,
  };
}

/** Statuses by which a server asks to be called again later (RFC 9110, RFC 6585, RFC 8470). Any other answers the same again, or may have run. */
const PASSING: ReadonlySet<number> = new Set([408, 425, 429, 503]);

function judgeStatus(name: string, status: number, cause: unknown): RemoteFailure {
  if (status === 401 || status === 403) {
    const next = `Correct the headers under servers.${name} in tollgate.yaml.`;
    return {
      error: new TollgateError('SERVER_UNAVAILABLE', {
        detail: `Server "${name}" refuses our credentials (HTTP ${status}).`,
        next,
        cause,
        retryable: false,
      }),
    };
  }
  if (status === 404) {
    // The specification's sign for a session that the server has ended: the next call shakes hands again.
    const lost = 'does not know our session or this address (HTTP 404)';
    return { error: unavailable(`Server "${name}" ${lost}.`, cause), lost };
  }
  if (status >= 300 && status < 400)
    return {
      error: new TollgateError('SERVER_UNAVAILABLE', {
        detail: `Server "${name}" answers with a redirect to another origin, which is not followed (HTTP ${status}).`,
        cause,
        retryable: false,
      }),
    };
  const error = new TollgateError('SERVER_UNAVAILABLE', {
    detail: `Server "${name}" answers with HTTP ${status}.`,
    cause,
    ...(status >= 500 && status !== 503 && { next: MAY_HAVE_RUN }),
    ...(!PASSING.has(status) && { retryable: false as const }),
  });
  return { error };
}

function unavailable(detail: string, cause: unknown): TollgateError {
  return new TollgateError('SERVER_UNAVAILABLE', { detail, cause });
}

/** The Streamable HTTP transport gives a number, the SSE transport a text. */
function httpStatus(thrown: unknown): number | undefined {
  if (!(thrown instanceof Error)) return undefined;
  const { code } = thrown as { code?: unknown };
  if (typeof code === 'number' && code >= 100) return code;
  const told = /\(HTTP (\d{3})\)/.exec(thrown.message.slice(0, 200));
  return told === null ? undefined : Number(told[1]);
}

/** A frame that the SDK's schema refuses, text that is not JSON, or a content type that is none of MCP's (code -1). */
function isRefusedFrame(thrown: unknown): boolean {
  if (!(thrown instanceof Error)) return false;
  return thrown.name === 'ZodError' || thrown.name === 'SyntaxError' || (thrown as { code?: unknown }).code === -1;
}

function networkCode(thrown: unknown): string | undefined {
  for (let error = thrown; error instanceof Error; error = error.cause) {
    const { code } = error as NodeJS.ErrnoException;
    if (typeof code === 'string' && /^[A-Z0-9_]{3,40}$/.test(code)) return code;
    // The event source keeps only the text.
    const told = /\bE[A-Z_]{4,20}\b/.exec(error.message.slice(0, 500));
    if (told !== null) return told[0];
  }
  return undefined;
}
