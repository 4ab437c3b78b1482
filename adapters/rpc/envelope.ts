/** Classifies a parsed JSON-RPC 2.0 message. It refuses ids, versions and params that the standard does not allow. */
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { scanJson } from './json-scan.ts';
import {
  isId,
  isObject,
  type JsonDoc,
  type JsonObject,
  type JsonRpcError,
  type ParsedMessage,
  type WireMessage,
} from './wire-message.ts';

const ENVELOPE = foldedKeys('jsonrpc id method params result error');
/** Keys with a meaning directly under `params`, for all methods (MCP 2025-11-25 schema). */
const PARAMS = foldedKeys(
  'name arguments uri _meta cursor ref argument context level task taskId requestId reason progressToken progress ' +
    'total message protocolVersion capabilities clientInfo',
);
const NO_MESSAGE = 'The server reported an error without a message.';

/** Classifies a message. Throws WIRE_* for clients, UPSTREAM_INVALID or WIRE_* for servers. */
export function classifyMessage(parsed: ParsedMessage): WireMessage {
  const { value, side } = parsed;
  if (side === 'client') refuseCaseVariants(Object.keys(value), ENVELOPE);
  if (value.jsonrpc !== '2.0') throw new TollgateError('WIRE_VERSION');
  const answers = 'result' in value || 'error' in value;
  if (!('method' in value)) return readAnswer(parsed);
  if (answers) throw new TollgateError('WIRE_VERSION', { detail: 'The message is a request and an answer at once.' });
  return readRequest(parsed);
}

function readRequest(parsed: ParsedMessage): WireMessage {
  const { value, side } = parsed;
  const { id, method } = value;
  if (id !== undefined && !isId(id)) throw new TollgateError('WIRE_ID');
  if (typeof method !== 'string' || method === '')
    throw new TollgateError('WIRE_METHOD', { detail: 'The method is not a name.' });
  const params = readParams(parsed);
  if (side === 'client' && method === 'tools/call') {
    if (id === undefined) throw new TollgateError('WIRE_NOTIFICATION_CALL');
    if (typeof params?.value.name !== 'string')
      throw new TollgateError('WIRE_PARAMS', { detail: 'params.name is not a string.' });
  }
  if (id === undefined) return { kind: 'notification', method, params };
  return { kind: 'request', id, method, params, args: readArguments(params) };
}

function readParams(parsed: ParsedMessage): JsonDoc<JsonObject> | undefined {
  const { params } = parsed.value;
  if (params === undefined || (params === null && parsed.side === 'server')) return undefined;
  if (!isObject(params)) throw new TollgateError('WIRE_PARAMS', { detail: 'params is not an object.' });
  if (parsed.side === 'client') refuseCaseVariants(Object.keys(params), PARAMS);
  return { text: textOf(parsed, 'params'), value: params, exact: parsed.exact };
}

/** Arguments may have any keys. The tool's own schema validates them. */
function readArguments(params: JsonDoc<JsonObject> | undefined): JsonDoc | undefined {
  if (params === undefined || !('arguments' in params.value)) return undefined;
  const span = scanJson(params.text).members.find((member) => member.key === 'arguments');
  if (span === undefined) return undefined;
  const text = params.text.slice(span.start, span.end);
  return { text, value: params.value.arguments, exact: params.exact || scanJson(text).exact };
}

function readAnswer(parsed: ParsedMessage): WireMessage {
  const { value, side } = parsed;
  const { id, result, error } = value;
  // Some implementations always write both and leave one null.
  const hasError = error !== undefined && error !== null;
  const hasResult = result !== undefined && result !== null;
  if (hasError === hasResult) {
    const detail = hasError
      ? 'The answer holds a result and an error.'
      : 'The message holds no method, result or error.';
    throw new TollgateError(side === 'server' ? 'UPSTREAM_INVALID' : 'WIRE_VERSION', { detail });
  }
  if (hasError) return { kind: 'error', id: isId(id) ? id : null, error: readError(error, parsed) };
  if (!isId(id)) throw new TollgateError('WIRE_ID');
  if (!isObject(result))
    throw new TollgateError(side === 'server' ? 'UPSTREAM_INVALID' : 'WIRE_PARAMS', {
      detail: 'The result is not an object.',
    });
  return { kind: 'result', id, result: { text: textOf(parsed, 'result'), value: result, exact: parsed.exact } };
}

/** Some servers send a string as the code or as the whole error. The caller gets their text with a standard code. */
function readError(error: unknown, parsed: ParsedMessage): JsonRpcError {
  if (!isObject(error)) return { code: -32603, message: typeof error === 'string' ? error : NO_MESSAGE };
  const { code, data } = error;
  const message = typeof error.message === 'string' ? error.message : NO_MESSAGE;
  const ownData = 'data' in error ? { data, ...exactData(parsed) } : {};
  return Number.isSafeInteger(code)
    ? { code: code as number, message, ...ownData }
    : { code: -32603, message, data: { code }, ...ownData };
}

function exactData(parsed: ParsedMessage): Pick<JsonRpcError, 'dataText'> {
  if (parsed.exact) return {};
  const error = textOf(parsed, 'error');
  const span = scanJson(error).members.find((member) => member.key === 'data');
  const dataText = span === undefined ? undefined : error.slice(span.start, span.end);
  return dataText === undefined || scanJson(dataText).exact ? {} : { dataText };
}

function textOf(parsed: ParsedMessage, key: string): string {
  const span = parsed.members.find((member) => member.key === key);
  return span === undefined ? 'null' : parsed.text.slice(span.start, span.end);
}

/** A parser that ignores case would read the variant as the key itself (CVE-2026-27896 and similar). */
function refuseCaseVariants(keys: readonly string[], known: ReadonlyMap<string, string>): void {
  for (const key of keys) {
    // Case folding is expensive, and nearly every key is spelled correctly.
    if (known.get(key) === key) continue;
    const exact = known.get(fold(key));
    if (exact !== undefined && exact !== key)
      throw new TollgateError('WIRE_AMBIGUOUS_KEY', { detail: `A key differs from "${exact}" only by case.` });
  }
}

/** Upper case first, then lower case: this also maps the long s, the dotless i and the Kelvin sign. */
function fold(key: string): string {
  return key.toUpperCase().toLowerCase();
}

function foldedKeys(keys: string): ReadonlyMap<string, string> {
  return new Map(keys.split(' ').map((key) => [fold(key), key]));
}
