/** Plain HTTP answers: status, headers and body in one write. Nothing of the request is repeated. */
import type { IncomingMessage, OutgoingHttpHeaders, ServerResponse } from 'node:http';
import { sizeOfText, type WireText } from '../../../adapters/rpc/wire-message.ts';
import type { ErrorCode, TollgateError } from '../../../catalogs/errors/error-table.ts';
import { type ReplyId, refusalText } from '../reply-text.ts';

/** How long a refused client may continue to send, so that it can read the answer. What it sends is discarded. */
const LINGER_MS = 1000;

/**
 * The status of each refusal. Those that are not named here are a fault of the message. In an MCP session, refusals of
 * calls have status 200.
 */
export const STATUS: Readonly<Partial<Record<ErrorCode, number>>> = {
  HTTP_AUTH: 401,
  ...each(403, 'HTTP_HOST', 'HTTP_ORIGIN', 'IDENTITY', 'DENIED', 'APPROVAL_REQUIRED', 'SUSPENDED'),
  ...each(404, 'HTTP_SESSION', 'HTTP_PATH', 'UNKNOWN_TOOL'),
  HTTP_METHOD: 405,
  ...each(409, 'PIN_MISMATCH', 'CANCELLED'),
  HTTP_BODY_TOO_LARGE: 413,
  ...each(422, 'TOOL_FAILED', 'NOT_SUPPORTED', 'UPSTREAM_REQUEST_DENIED', 'URL_ELICITATION_DENIED'),
  ...each(429, 'HTTP_SESSIONS_QUOTA', 'RATE_LIMITED', 'BUDGET_EXCEEDED'),
  ...each(500, 'INTERNAL', 'POLICY_FAILED', 'OUTCOME_UNRECORDED'),
  ...each(502, 'TOOL_CRASHED', 'INTERRUPTED', 'UPSTREAM_INVALID', 'UPSTREAM_TOO_LARGE', 'OUTPUT_INVALID'),
  ...each(
    503,
    'HTTP_SESSIONS_FULL',
    'ISSUER_UNAVAILABLE',
    'SHUTTING_DOWN',
    'STATE_FAILED',
    'STATE_AWAY',
    'AUDIT_FAILED',
    'SERVER_UNAVAILABLE',
    'SANDBOX_UNAVAILABLE',
    'SECRET_MISSING',
    'VAULT_FAILED',
    'SWITCHED_OFF',
  ),
  TOOL_TIMEOUT: 504,
};

function each(status: number, ...codes: readonly ErrorCode[]): Readonly<Partial<Record<ErrorCode, number>>> {
  return Object.fromEntries(codes.map((code) => [code, status]));
}

/** What the headers of a refusal say besides its body. */
export const REFUSAL_HEADERS: Readonly<Partial<Record<ErrorCode, OutgoingHttpHeaders>>> = {
  ISSUER_UNAVAILABLE: { 'retry-after': '30' },
  RATE_LIMITED: { 'retry-after': '1' },
  HTTP_SESSIONS_FULL: { 'retry-after': '10' },
  HTTP_SESSIONS_QUOTA: { 'retry-after': '10' },
  SHUTTING_DOWN: { 'retry-after': '1' },
  STATE_AWAY: { 'retry-after': '2' },
};

/** How a refusal is answered, if not only by its code. */
export interface RefusalOptions {
  readonly id?: ReplyId;
  readonly status?: number;
  readonly headers?: OutgoingHttpHeaders;
}

/** Answers with a body. */
export function respond(response: ServerResponse, body: WireText, headers: OutgoingHttpHeaders): void {
  respondWith(response, { status: 200, body, headers });
}

/** Answers with a body and a status. */
export function respondWith(
  response: ServerResponse,
  {
    status,
    body,
    headers,
  }: { readonly status: number; readonly body: WireText; readonly headers: OutgoingHttpHeaders },
): void {
  if (response.destroyed || response.writableEnded) return;
  response.writeHead(status, { 'content-length': sizeOfText(body), ...headers });
  if (typeof body === 'string') return void response.end(body);
  response.cork();
  for (const part of body) response.write(part);
  response.end();
}

/** Answers with a status and no body. */
export function respondEmpty(response: ServerResponse, status: 202 | 204, headers: OutgoingHttpHeaders = {}): void {
  if (response.destroyed || response.writableEnded) return;
  response.writeHead(status, status === 204 ? headers : { ...headers, 'content-length': 0 });
  response.end();
}

/** Answers with an error, as a JSON-RPC body, and discards a body that is still coming in. */
export function respondRefusal(response: ServerResponse, error: TollgateError, options: RefusalOptions = {}): void {
  if (response.destroyed || response.headersSent) return;
  const body = refusalText(options.id ?? null, error);
  const headers = {
    ...REFUSAL_HEADERS[error.code],
    ...options.headers,
    'content-type': 'application/json',
    'content-length': Buffer.byteLength(body),
  };
  response.writeHead(options.status ?? STATUS[error.code] ?? 400, headers);
  response.end(body);
  discardBody(response.req);
}

/** Discards a body that is still coming in. */
export function discardBody(request: IncomingMessage): void {
  if (request.complete) return;
  // Closing at once would reset the connection, and the client would see that instead of the answer.
  setTimeout(() => {
    if (!request.complete) request.destroy();
  }, LINGER_MS).unref();
}
