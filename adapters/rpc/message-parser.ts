/**
 * Reads one JSON-RPC message from bytes, and keeps the text of each part. It refuses texts that two parsers could read
 * differently.
 */
import { isUtf8 } from 'node:buffer';
import { type ErrorCode, TollgateError } from '../../catalogs/errors/error-table.ts';
import { classifyMessage } from './envelope.ts';
import { type JsonMember, type JsonScan, MAX_JSON_VALUES, scanJson } from './json-scan.ts';
import { isId, JsonText, type MessageSender, type WireMessage } from './wire-message.ts';

export type { JsonMember } from './json-scan.ts';
export { jsonMembers, MAX_JSON_VALUES } from './json-scan.ts';
export type { JsonObject, JsonRpcError, MessageSender, WireMessage } from './wire-message.ts';
export { isId, isObject } from './wire-message.ts';

/** The first byte of an array. */
export const OPEN_LIST = 91;
const OPEN_OBJECT = 123;

/**
 * The deepest nesting that is accepted. Servers may nest deeper: their calls have already run, and one deep definition
 * must not invalidate a whole list. Both limits are far below any stack limit.
 */
const MAX_DEPTH: Readonly<Record<MessageSender, number>> = { client: 64, server: 512 };

/**
 * Reads one line or body. Never throws, and takes linear time. From both sides it refuses invalid UTF-8, a byte order
 * mark, duplicate keys (also by escapes), deep nesting, more than MAX_JSON_VALUES values, and batches. From clients it
 * also refuses lone surrogates, and keys of the protocol in another case (MCP 2025-11-25 basic; JSON-RPC 2.0; RFC 8259
 * §4, §8). It parses no result and no params: their documents do when their values are first read. A message of more
 * than KEPT_LINE_BYTES keeps `line`. `scanned`: the scan of the line at level 2, if there is one.
 */
export function readMessage(line: Buffer, side: MessageSender, scanned?: JsonScan): WireMessage {
  if (!isUtf8(line)) return invalid(side, refuse('WIRE_UTF8'));
  const scan = scanned ?? scanJson(line, 2);
  try {
    checkScan(scan, side);
    const first = firstByte(line);
    if (first === OPEN_LIST) throw refuse('WIRE_BATCH');
    if (first !== OPEN_OBJECT) throw refuse('WIRE_VERSION', 'The message is not an object.');
    return classifyMessage(line, scan, side);
  } catch (thrown) {
    if (!(thrown instanceof TollgateError)) throw thrown;
    return invalid(side, thrown, readId(line, scan.members));
  }
}

/**
 * Reads one JSON text strictly. Throws WIRE_PARSE, WIRE_DEPTH, WIRE_SIZE, WIRE_LONE_SURROGATE or WIRE_DUPLICATE_KEY.
 */
export function parseJsonDoc(text: string): JsonText {
  const bytes = Buffer.from(text);
  const scan = scanJson(bytes);
  // A text that was not decoded from UTF-8 may contain lone surrogates without escapes.
  if (/\p{Surrogate}/u.test(text)) throw refuse('WIRE_LONE_SURROGATE');
  checkScan(scan, 'client');
  return JsonText.ofScan(text, bytes, scan);
}

function checkScan(scan: JsonScan, side: MessageSender): void {
  // A scan can follow any depth, but later code walks the value recursively.
  if (scan.depth > MAX_DEPTH[side]) throw refuse('WIRE_DEPTH', `The message is nested ${scan.depth} levels deep.`);
  if (scan.values > MAX_JSON_VALUES)
    throw refuse(
      side === 'client' ? 'WIRE_SIZE' : 'UPSTREAM_TOO_LARGE',
      `The message holds more than ${MAX_JSON_VALUES} values.`,
    );
  if (!scan.isValid) throw refuse('WIRE_PARSE');
  if (scan.hasLoneSurrogate && side === 'client') throw refuse('WIRE_LONE_SURROGATE');
  // JSON.parse keeps the last of two equal keys, and other parsers keep the first one. So the value that was checked
  // could differ from the value that is used.
  if (scan.hasDuplicate) throw refuse('WIRE_DUPLICATE_KEY');
}

/** Returns the first byte that is no white space. */
export function firstByte(line: Buffer): number | undefined {
  let at = 0;
  while (at < line.length && (line[at] as number) <= 32) at += 1;
  return line[at];
}

function readId(line: Buffer, members: readonly JsonMember[]): string | number | null {
  const ids = members.filter((member) => member.key === 'id');
  const [only] = ids;
  if (only === undefined || ids.length > 1) return null;
  try {
    const id: unknown = JSON.parse(line.toString('utf8', only.start, only.end));
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
