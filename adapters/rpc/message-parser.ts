/**
 * Owns the reading of one JSON-RPC message from bytes, with the text of each part kept; refuses what two readers could
 * read differently.
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
 * Nesting that is still read. Results of servers have run already, and one deep tool must not cost its list, so they
 * get more room; both are far below any stack.
 */
const MAX_DEPTH: Readonly<Record<MessageSender, number>> = { client: 64, server: 512 };

/** Values of one message. Each takes 50 bytes of memory and more, and each step of a call up to four microseconds. */
export const MAX_JSON_VALUES = 250_000;

/**
 * Reads one line or body. Never throws, on any bytes; time is linear. Refused on both sides: invalid UTF-8, a byte
 * order mark, a key twice in one object (also by escapes), deep nesting, more than MOST_VALUES
 * values, batches. Refused from clients only: halves of
 * surrogate pairs and keys of the protocol in another case (MCP 2025-11-25 basic; JSON-RPC 2.0; RFC 8259 §4, §8).
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
 * Strict parse of one JSON text. Throws WIRE_PARSE, WIRE_DEPTH, WIRE_SIZE, WIRE_LONE_SURROGATE or WIRE_DUPLICATE_KEY.
 */
export function parseJsonDoc(text: string): JsonDoc {
  const scan = scanJson(text);
  // A text that did not come through UTF-8 may hold halves of pairs unescaped.
  if (/\p{Surrogate}/u.test(text)) throw refuse('WIRE_LONE_SURROGATE');
  return { text, value: parseScanned(text, scan, 'client'), exact: scan.exact };
}

function parseScanned(text: string, scan: JsonScan, side: MessageSender): unknown {
  // Before the parse: V8 copes with depth, but what walks the value later recurses.
  if (scan.depth > MAX_DEPTH[side]) throw refuse('WIRE_DEPTH', `The message is nested ${scan.depth} levels deep.`);
  if (scan.values > MAX_JSON_VALUES)
    throw refuse(
      side === 'client' ? 'WIRE_SIZE' : 'UPSTREAM_TOO_LARGE',
      `The message holds more than ${MAX_JSON_VALUES} values.`,
    );
  const value = parse(text);
  if (scan.loneSurrogate && side === 'client') throw refuse('WIRE_LONE_SURROGATE');
  // JSON.parse keeps the last of two equal keys; other readers keep the first, so what was checked could differ from
  // what runs.
  if (countKeys(value) !== scan.keys) throw refuse('WIRE_DUPLICATE_KEY');
  return value;
}

/** The message of JSON.parse quotes its input, so it stays private. */
function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw new TollgateError('WIRE_PARSE', { cause });
  }
}

/** Keys of all objects. By name, not by Object.values: that is several times slower on objects of a million keys. */
function countKeys(root: unknown): number {
  let count = 0;
  const open: object[] = [[root]];
  for (let next = open.pop(); next !== undefined; next = open.pop()) {
    const list: readonly unknown[] = Array.isArray(next) ? next : Object.keys(next);
    const named = list !== next;
    if (named) count += list.length;
    for (const item of list) {
      const child = named ? (next as JsonObject)[item as string] : item;
      if (isContainer(child)) open.push(child);
    }
  }
  return count;
}

function isContainer(value: unknown): value is object {
  return typeof value === 'object' && value !== null;
}

function readId(text: string, found: readonly JsonMember[]): string | number | null {
  const ids = found.filter((member) => member.key === 'id');
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
