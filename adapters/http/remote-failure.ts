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

/** A server answered with a status that is not 2xx. */
export class HttpStatusError extends Error {
  readonly code: number;

  constructor(code: number) {
    super(`HTTP ${code}`);
    this.name = 'HttpStatusError';
    this.code = code;
  }
}

/** Judges an error of a request. `refusal` says what is wrong with the sign-in, if anything is. */
export function judgeRemoteFailure(name: string, thrown: unknown, refusal?: TollgateError): RemoteFailure {
  if (thrown instanceof TollgateError) return { error: thrown };
  if (thrown instanceof HttpStatusError) {
    const isRefused = thrown.code === 401 || thrown.code === 403;
    return refusal !== undefined && isRefused ? { error: refusal } : judgeStatus(name, thrown.code, thrown);
  }
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

/** Returns true if the server, or a proxy before it, may answer the same request otherwise later. */
export function isTemporary(status: number): boolean {
  return status >= 500 || TEMPORARY.has(status);
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

function networkCode(thrown: unknown): string | undefined {
  for (let error = thrown; error instanceof Error; error = error.cause) {
    const { code } = error as NodeJS.ErrnoException;
    if (typeof code === 'string' && /^[A-Z0-9_]{3,40}$/.test(code)) return code;
  }
  return undefined;
}
