/** Classifies a scanned JSON-RPC 2.0 message. It refuses ids, versions and params that the standard does not allow. */
import { isAscii } from 'node:buffer';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { KEPT_LINE_BYTES } from './framing.ts';
import type { JsonMember, JsonScan } from './json-scan.ts';
import {
  isId,
  isObject,
  type JsonObject,
  type JsonRpcError,
  JsonText,
  type MessageSender,
  MIN_BYTES,
  type WireMessage,
} from './wire-message.ts';

const QUOTE = 34;
const OPEN_OBJECT = 123;
/** The first letter of null. */
const LETTER_N = 110;

const ENVELOPE = foldedKeys('jsonrpc id method params result error');
/** Keys with a meaning directly under `params`, for all methods (MCP 2025-11-25 schema). */
const PARAMS = foldedKeys(
  'name arguments uri _meta cursor ref argument context level task taskId requestId reason progressToken progress ' +
    'total message protocolVersion capabilities clientInfo',
);
const NO_MESSAGE = 'The server reported an error without a message.';

/** A message whose text is JSON, before its envelope is checked. */
class Envelope {
  readonly side: MessageSender;
  readonly exact: boolean;
  readonly members: readonly JsonMember[];
  private readonly line: Buffer;
  private readonly strings: JsonScan['strings'];
  /** The text of a small message that is plain ASCII. */
  private readonly text: string | undefined;

  constructor(line: Buffer, scan: JsonScan, side: MessageSender) {
    this.line = line;
    this.side = side;
    this.exact = scan.exact;
    this.members = scan.members;
    this.strings = scan.strings;
    this.text = line.length < MIN_BYTES && isAscii(line) ? line.toString('latin1') : undefined;
  }

  get(key: string): JsonMember | undefined {
    for (const member of this.members) if (member.key === key) return member;
    return undefined;
  }

  /** Returns the first byte of a value, which tells its type. */
  firstByte({ start }: JsonMember): number {
    return this.line[start] as number;
  }

  textOf({ start, end }: JsonMember): string {
    return this.text?.slice(start, end) ?? this.line.toString('utf8', start, end);
  }

  parse(member: JsonMember): unknown {
    const text = this.textOf(member);
    if (this.firstByte(member) === QUOTE && !text.includes('\\')) return text.slice(1, -1);
    return JSON.parse(text);
  }

  /** Returns an object or a value in it as a document. */
  doc<T>(member: JsonMember, exact: boolean, parse?: () => T): JsonText<T> {
    const { start, end, members } = member;
    return new JsonText<T>(this.sourceOf(start, end), { exact, members, strings: this.strings, origin: start }, parse);
  }

  private sourceOf(start: number, end: number): string | Buffer {
    if (this.text !== undefined) return this.text.slice(start, end);
    const part = this.line.subarray(start, end);
    return this.line.length > KEPT_LINE_BYTES ? part : Buffer.from(part);
  }
}

/** Classifies a message. Throws WIRE_* for clients, UPSTREAM_INVALID or WIRE_* for servers. */
export function classifyMessage(line: Buffer, scan: JsonScan, side: MessageSender): WireMessage {
  const message = new Envelope(line, scan, side);
  if (side === 'client') refuseCaseVariants(message.members, ENVELOPE);
  const version = message.get('jsonrpc');
  if (version === undefined || message.parse(version) !== '2.0') throw new TollgateError('WIRE_VERSION');
  const method = message.get('method');
  if (method === undefined) return readAnswer(message);
  if (message.get('result') !== undefined || message.get('error') !== undefined)
    throw new TollgateError('WIRE_VERSION', { detail: 'The message is a request and an answer at once.' });
  return readRequest(message, message.parse(method));
}

function readRequest(message: Envelope, method: unknown): WireMessage {
  const { side } = message;
  const id = readId(message);
  if (id !== undefined && !isId(id)) throw new TollgateError('WIRE_ID');
  if (typeof method !== 'string' || method === '')
    throw new TollgateError('WIRE_METHOD', { detail: 'The method is not a name.' });
  const member = paramsOf(message);
  if (side === 'client' && method === 'tools/call') {
    if (id === undefined) throw new TollgateError('WIRE_NOTIFICATION_CALL');
    const name = member?.members.find(({ key }) => key === 'name');
    if (name === undefined || message.firstByte(name) !== QUOTE)
      throw new TollgateError('WIRE_PARAMS', { detail: 'params.name is not a string.' });
  }
  const params = member === undefined ? undefined : message.doc<JsonObject>(member, message.exact);
  if (id === undefined) return { kind: 'notification', method, params };
  // Arguments may have any keys. The tool's own schema validates them.
  const span = member?.members.find(({ key }) => key === 'arguments');
  const args = span === undefined ? undefined : message.doc(span, span.exact, () => params?.value.arguments);
  return { kind: 'request', id, method, params, args };
}

function readId(message: Envelope): unknown {
  const id = message.get('id');
  return id === undefined ? undefined : message.parse(id);
}

function paramsOf(message: Envelope): JsonMember | undefined {
  const params = message.get('params');
  if (params === undefined || (message.side === 'server' && message.firstByte(params) === LETTER_N)) return undefined;
  if (message.firstByte(params) !== OPEN_OBJECT)
    throw new TollgateError('WIRE_PARAMS', { detail: 'params is not an object.' });
  if (message.side === 'client') refuseCaseVariants(params.members, PARAMS);
  return params;
}

function readAnswer(message: Envelope): WireMessage {
  const { side } = message;
  const id = readId(message);
  // Some implementations always write both and leave one null.
  const [error, result] = [answerOf(message, 'error'), answerOf(message, 'result')];
  if ((error === undefined) === (result === undefined)) {
    const detail =
      error === undefined ? 'The message holds no method, result or error.' : 'The answer holds a result and an error.';
    throw new TollgateError(side === 'server' ? 'UPSTREAM_INVALID' : 'WIRE_VERSION', { detail });
  }
  if (error !== undefined) return { kind: 'error', id: isId(id) ? id : null, error: readError(message, error) };
  if (!isId(id)) throw new TollgateError('WIRE_ID');
  if (result === undefined || message.firstByte(result) !== OPEN_OBJECT)
    throw new TollgateError(side === 'server' ? 'UPSTREAM_INVALID' : 'WIRE_PARAMS', {
      detail: 'The result is not an object.',
    });
  return { kind: 'result', id, result: message.doc<JsonObject>(result, message.exact) };
}

function answerOf(message: Envelope, key: 'error' | 'result'): JsonMember | undefined {
  const member = message.get(key);
  return member === undefined || message.firstByte(member) === LETTER_N ? undefined : member;
}

/** Some servers send a string as the code or as the whole error. The caller gets their text with a standard code. */
function readError(message: Envelope, member: JsonMember): JsonRpcError {
  const error = message.parse(member);
  if (!isObject(error)) return { code: -32603, message: typeof error === 'string' ? error : NO_MESSAGE };
  const { code, data } = error;
  const told = typeof error.message === 'string' ? error.message : NO_MESSAGE;
  const ownData = data === undefined ? {} : { data };
  if (!Number.isSafeInteger(code)) return { code: -32603, message: told, data: { code }, ...ownData };
  const text = told === error.message ? { text: message.textOf(member) } : {};
  return { code: code as number, message: told, ...ownData, ...text };
}

/** A parser that ignores case would read the variant as the key itself (CVE-2026-27896 and similar). */
function refuseCaseVariants(members: readonly JsonMember[], known: ReadonlyMap<string, string>): void {
  for (const { key } of members) {
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
