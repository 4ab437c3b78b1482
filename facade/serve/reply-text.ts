/** Owns the texts of outgoing JSON-RPC messages; refuses to parse or rebuild the text of a result. */
import type { TollgateError } from '../../catalogs/errors/error-table.ts';
import type { Reply } from './facade-port.ts';

export { oneLine } from '../../adapters/rpc/framing.ts';

/** The id of a request as its sender wrote it; null where it could not be read. */
export type ReplyId = string | number | null;

/** A JSON-RPC error object. */
export type ReplyError = Extract<Reply, { kind: 'error' }>['error'];

/** A response around the text of a result, which goes out byte for byte. */
export function resultText(id: ReplyId, result: string): string {
  return `{"jsonrpc":"2.0","id":${JSON.stringify(id)},"result":${result}}`;
}

/** A response with an error object. */
function errorText(id: ReplyId, error: ReplyError): string {
  const { dataText, ...rest } = error;
  const text =
    dataText === undefined
      ? JSON.stringify(rest)
      : `{"code":${rest.code},"message":${JSON.stringify(rest.message)},"data":${dataText}}`;
  return `{"jsonrpc":"2.0","id":${JSON.stringify(id)},"error":${text}}`;
}

/** A response for what the facade answered. */
export function replyText(id: ReplyId, reply: Reply): string {
  return reply.kind === 'result' ? resultText(id, reply.text) : errorText(id, reply.error);
}

/** A response for a refusal of our own. What the refusal carries as data can shadow neither its code nor its advice. */
export function refusalText(id: ReplyId, error: TollgateError): string {
  const { rpc = -32603 } = error.row;
  return errorText(id, {
    code: rpc,
    message: error.message,
    data: { ...error.data, code: error.code, next: error.next, retryable: error.retryable },
  });
}

/** A notification. */
export function notificationText(method: string, params?: Readonly<Record<string, unknown>>): string {
  return JSON.stringify({ jsonrpc: '2.0', method, ...(params === undefined ? {} : { params }) });
}
