/** Makes the texts of outgoing JSON-RPC messages. The text of a result is never parsed or rebuilt. */
import { errorJson, type JsonRpcError, type WireText } from '../../adapters/rpc/wire-message.ts';
import type { TollgateError } from '../../catalogs/errors/error-table.ts';
import { jsonString } from '../../catalogs/text/json-string.ts';
import type { Reply } from './facade-port.ts';

/** The id of a request as its sender wrote it; null if it could not be read. */
export type ReplyId = string | number | null;

/** Returns a response around the text of a result, which stays unchanged. */
export function resultText(id: ReplyId, result: string): string {
  return `${resultHead(id)}${result}}`;
}

function resultHead(id: ReplyId): string {
  return `{"jsonrpc":"2.0","id":${typeof id === 'string' ? jsonString(id) : id},"result":`;
}

/** Returns a response with an error object. */
function errorText(id: ReplyId, error: JsonRpcError): string {
  return `{"jsonrpc":"2.0","id":${JSON.stringify(id)},"error":${errorJson(error)}}`;
}

/** Returns a response for an answer of the facade. */
export function replyText(id: ReplyId, reply: Reply): WireText {
  if (reply.kind === 'error') return errorText(id, reply.error);
  return typeof reply.text === 'string' ? resultText(id, reply.text) : [resultHead(id), ...reply.text, '}'];
}

/** Returns a response for an error of Tollgate. The error's data cannot replace its code or its advice. */
export function refusalText(id: ReplyId, error: TollgateError): string {
  const { rpc = -32603 } = error.row;
  return errorText(id, {
    code: rpc,
    message: error.message,
    data: { ...error.data, code: error.code, next: error.next, retryable: error.retryable },
  });
}

/** Returns a notification. */
export function notificationText(method: string, params?: Readonly<Record<string, unknown>>): string {
  return JSON.stringify({ jsonrpc: '2.0', method, params });
}
