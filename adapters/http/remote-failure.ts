/** Decides what a failed HTTP request means for its call and its session. It never shows text of the server. */
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { serverUnavailable } from '../supervisor/server-settings.ts';

/** The error of the call, and why the session is lost, if it is. */
export interface RemoteFailure {
  readonly error: TollgateError;
  /** Public. Completes "Server x …". */
  readonly lost?: string;
}

const MAY_HAVE_RUN = 'The call may have run: check before you repeat it.';
/** Network errors that occur before anything was sent. */
const NOT_SENT = new Set([
  'ECONNREFUSED',
  'ENOTFOUND',
  'EAI_AGAIN',
  'EHOSTUNREACH',
  'ENETUNREACH',
  'UND_ERR_CONNECT_TIMEOUT',
]);

/** Judges an error of the SDK's transports. `refusal` says what is wrong with the sign-in, if anything is. */
export function judgeRemoteFailure(name: string, thrown: unknown, refusal?: TollgateError): RemoteFailure {
  const status = httpStatus(thrown);
  if (refusal !== undefined && (status === 401 || status === 403)) return { error: refusal };
  if (status !== undefined) return judgeStatus(name, status, thrown);
  if (isRefusedFrame(thrown))
    return {
      error: new TollgateError('UPSTREAM_INVALID', {
        detail: `Server "${name}" sent an answer that is not a JSON-RPC message.`,
        cause: thrown,
      }),
    };
  const code = networkCode(thrown);
  const lost = `cannot be reached${code === undefined ? '' : ` (${code})`}`;
  if (code !== undefined && NOT_SENT.has(code))
    return { error: serverUnavailable(name, lost, { cause: thrown }), lost };
  return {
    error: new TollgateError('TOOL_CRASHED', {
      detail: `The connection to server "${name}" broke${code === undefined ? '' : ` (${code})`}.`,
      cause: thrown,
    }),
    lost,
  };
}

/**
 * Statuses that ask the client to try again later (RFC 9110, RFC 6585, RFC 8470). After any other status, a call gets
 * the same answer again, or may have run.
 */
const TEMPORARY: ReadonlySet<number> = new Set([408, 425, 429, 503]);

function judgeStatus(name: string, status: number, cause: unknown): RemoteFailure {
  const code = `(HTTP ${status})`;
  if (status === 401 || status === 403) {
    const next = `Correct the headers under servers.${name} in tollgate.yaml.`;
    const fault = `refuses the configured credentials ${code}`;
    return { error: serverUnavailable(name, fault, { next, cause, retryable: false }) };
  }
  if (status === 404) {
    // By the specification, the server has ended the session. The next call performs a new handshake.
    const lost = `does not know the session or this address ${code}`;
    return { error: serverUnavailable(name, lost, { cause }), lost };
  }
  if (status >= 300 && status < 400) {
    const fault = `answers with a redirect to another origin, which is not followed ${code}`;
    return { error: serverUnavailable(name, fault, { cause, retryable: false }) };
  }
  const error = serverUnavailable(name, `answers with HTTP ${status}`, {
    cause,
    ...(status >= 500 && status !== 503 && { next: MAY_HAVE_RUN }),
    ...(!TEMPORARY.has(status) && { retryable: false as const }),
  });
  return { error };
}

/** Returns the HTTP status. Errors of the Streamable HTTP transport have it as a number, those of SSE in their text. */
function httpStatus(thrown: unknown): number | undefined {
  if (!(thrown instanceof Error)) return undefined;
  const { code } = thrown as { code?: unknown };
  if (typeof code === 'number' && code >= 100) return code;
  const match = /\(HTTP (\d{3})\)/.exec(thrown.message.slice(0, 200));
  return match === null ? undefined : Number(match[1]);
}

/** Returns true for a frame that the SDK's schema refuses, invalid JSON, or an unexpected content type (code -1). */
function isRefusedFrame(thrown: unknown): boolean {
  if (!(thrown instanceof Error)) return false;
  return thrown.name === 'ZodError' || thrown.name === 'SyntaxError' || (thrown as { code?: unknown }).code === -1;
}

function networkCode(thrown: unknown): string | undefined {
  for (let error = thrown; error instanceof Error; error = error.cause) {
    const { code } = error as NodeJS.ErrnoException;
    if (typeof code === 'string' && /^[A-Z0-9_]{3,40}$/.test(code)) return code;
    // Errors of the event source have the code only in their text.
    const match = /\bE[A-Z_]{4,20}\b/.exec(error.message.slice(0, 500));
    if (match !== null) return match[0];
  }
  return undefined;
}
