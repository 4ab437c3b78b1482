/**
 * Reads one JSON-RPC message from bytes, and keeps the text of each part. It refuses texts that two parsers could read
 * differently.
 */
import { isUtf8 } from 'node:buffer';
import { type ErrorCode, TollgateError } from '../../catalogs/errors/error-table.ts';
import { classifyMessage } from './envelope.ts';
import { type JsonMember, type JsonScan, scanJson } from './json-scan.ts';
import { isId, isObject, type JsonDoc, type JsonObject, type MessageSender, type WireMessage } from './wire-message.ts';

export type { JsonMember } from './json-scan.ts';
export { jsonMembers } from './json-scan.ts';
export type { JsonObject, JsonRpcError, MessageSender, WireMessage } from './wire-message.ts';
export { isId, isObject } from './wire-message.ts';

/**
 * The deepest nesting that is accepted. Servers may nest deeper: their calls have already run, and one deep definition
 * must not invalidate a whole list. Both limits are far below any stack limit.
 */
const MAX_DEPTH: Readonly<Record<MessageSender, number>> = { client: 64, server: 512 };

/** The most values in one message. Each takes at least 50 bytes, and up to four microseconds in each step of a call. */
export const MAX_JSON_VALUES = 250_000;

/**
 * Reads one line or body. Never throws, and takes linear time. From both sides it refuses invalid UTF-8, a byte order
 * mark, duplicate keys (also by escapes), deep nesting, more than MAX_JSON_VALUES values, and batches. From clients it
 * also refuses lone surrogates, and keys of the protocol in another case (MCP 2025-11-25 basic; JSON-RPC 2.0; RFC 8259
 * §4, §8).
 */
export function readMessage(line: Buffer, side: MessageSender): WireMessage {
  if (!isUtf8(line)) return invalid(side, refuse('WIRE_UTF8'));
  const text = line.toString('utf8');
  const scan = scanJson(text);
  try {
    const value = parseScanned(text, scan, side);
    if (Array.isArray(value)) throw refuse('WIRE_BATCH');
    if (!isObject(value)) throw refuse('WIRE_VERSION', 'The message is not an object.');
    return classifyMessage({ side, text, value, members: scan.members, exact: scan.exact });
  } catch (thrown) {
    if (!(thrown instanceof TollgateError)) throw thrown;
    return invalid(side, thrown, readId(text, scan.members));
  }
}

/**
 * Parses one JSON text strictly. Throws WIRE_PARSE, WIRE_DEPTH, WIRE_SIZE, WIRE_LONE_SURROGATE or WIRE_DUPLICATE_KEY.
 */
export function parseJsonDoc(text: string): JsonDoc {
  const scan = scanJson(text);
  // A text that was not decoded from UTF-8 may contain lone surrogates without escapes.
  if (/\p{Surrogate}/u.test(text)) throw refuse('WIRE_LONE_SURROGATE');
  return { text, value: parseScanned(text, scan, 'client'), exact: scan.exact };
}

function parseScanned(text: string, scan: JsonScan, side: MessageSender): unknown {
  // V8 can parse any depth, but later code walks the value recursively.
  if (scan.depth > MAX_DEPTH[side]) throw refuse('WIRE_DEPTH', `The message is nested ${scan.depth} levels deep.`);
  if (scan.values > MAX_JSON_VALUES)
    throw refuse(
      side === 'client' ? 'WIRE_SIZE' : 'UPSTREAM_TOO_LARGE',
      `The message holds more than ${MAX_JSON_VALUES} values.`,
    );
  const value = parse(text);
  if (scan.loneSurrogate && side === 'client') throw refuse('WIRE_LONE_SURROGATE');
  // JSON.parse keeps the last of two equal keys, and other parsers keep the first one. So the value that was checked
  // could differ from the value that is used.
  if (countKeys(value) !== scan.keys) throw refuse('WIRE_DUPLICATE_KEY');
  return value;
}

/** The error message of JSON.parse quotes its input, so it stays private. */
function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw new TollgateError('WIRE_PARSE', { cause });
  }
}

/** Counts the keys of all objects. Object.values would be several times slower for objects with a million keys. */
function countKeys(root: unknown): number {
  let count = 0;
  const open: object[] = [[root]];
  for (let next = open.pop(); next !== undefined; next = open.pop()) {
    const items: readonly unknown[] = Array.isArray(next) ? next : Object.keys(next);
    const isArray = items === next;
    if (!isArray) count += items.length;
    for (const item of items) {
      const child = isArray ? item : (next as JsonObject)[item as string];
      if (typeof child === 'object' && child !== null) open.push(child);
    }
  }
  return count;
}

function readId(text: string, members: readonly JsonMember[]): string | number | null {
  const ids = members.filter((member) => member.key === 'id');
  const [only] = ids;
  if (only === undefined || ids.length > 1) return null;
  try {
    const id: unknown = JSON.parse(text.slice(only.start, only.end));
    return isId(id) ? id : null;
  } catch {
    return null;
  }
}

function invalid(side: MessageSender, error: TollgateError, id: string | number | null = null): WireMessage {
  if (side === 'client' || error.code === 'UPSTREAM_INVALID' || error.code === 'UPSTREAM_TOO_LARGE')
    return { kind: 'invalid', id, error };
  return {
    kind: 'invalid',
    id,
    error: new TollgateError('UPSTREAM_INVALID', {
      detail: `The server broke the protocol: ${error.message}`,
      cause: error,
    }),
  };
}

function refuse(code: ErrorCode, detail?: string): TollgateError {
  return new TollgateError(code, detail === undefined ? {} : { detail });
}
