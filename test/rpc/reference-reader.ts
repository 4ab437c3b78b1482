/**
 * A reader of messages that is slow and plain: it parses the whole text with JSON.parse and looks at the value. The
 * reader of adapters/rpc, which builds no values, must agree with it.
 */
import { isUtf8 } from 'node:buffer';
import { fitsDouble } from '../../adapters/rpc/decimal.ts';
import { isId, isObject, type JsonObject, type MessageSender } from '../../adapters/rpc/wire-message.ts';
import type { ErrorCode } from '../../catalogs/errors/error-table.ts';

/** What both readers say about one message. Documents are their text, value and exactness. */
export interface ReadMessage {
  readonly kind: string;
  readonly id?: unknown;
  readonly code?: ErrorCode;
  readonly method?: string;
  readonly params?: unknown;
  readonly args?: unknown;
  readonly result?: unknown;
  readonly error?: unknown;
}

interface Member {
  readonly key: string;
  readonly text: string;
}

/** Facts that JSON.parse does not give. A text that is not JSON has them too. */
interface Facts {
  readonly members: readonly Member[];
  readonly keys: number;
  readonly values: number;
  readonly depth: number;
  readonly exact: boolean;
  readonly loneSurrogate: boolean;
}

class Refusal extends Error {
  readonly code: ErrorCode;

  constructor(code: ErrorCode) {
    super(code);
    this.code = code;
  }
}

const ENVELOPE = 'jsonrpc id method params result error'.split(' ');
const PARAMS = (
  'name arguments uri _meta cursor ref argument context level task taskId requestId reason progressToken progress ' +
  'total message protocolVersion capabilities clientInfo'
).split(' ');
const PAIR = /^[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}/;

/** Reads a message as `readMessage` must. */
export function readReference(line: Buffer, side: MessageSender): ReadMessage {
  if (!isUtf8(line)) return refused('WIRE_UTF8', side, null);
  const text = line.toString('utf8');
  const facts = factsOf(text);
  try {
    return classify(parse(text, facts, side), facts, side);
  } catch (thrown) {
    if (!(thrown instanceof Refusal)) throw thrown;
    return refused(thrown.code, side, idOf(facts.members));
  }
}

function refused(code: ErrorCode, side: MessageSender, id: unknown): ReadMessage {
  return { kind: 'invalid', id, code: side === 'server' && code !== 'UPSTREAM_TOO_LARGE' ? 'UPSTREAM_INVALID' : code };
}

function idOf(members: readonly Member[]): unknown {
  const ids = members.filter(({ key }) => key === 'id');
  try {
    const id: unknown = JSON.parse(ids.length === 1 ? (ids[0]?.text ?? '') : '');
    return isId(id) ? id : null;
  } catch {
    return null;
  }
}

function parse(text: string, facts: Facts, side: MessageSender): JsonObject {
  if (facts.depth > (side === 'client' ? 64 : 512)) throw new Refusal('WIRE_DEPTH');
  if (facts.values > 250_000) throw new Refusal(side === 'client' ? 'WIRE_SIZE' : 'UPSTREAM_TOO_LARGE');
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw new Refusal('WIRE_PARSE');
  }
  if (facts.loneSurrogate && side === 'client') throw new Refusal('WIRE_LONE_SURROGATE');
  if (countKeys(value) !== facts.keys) throw new Refusal('WIRE_DUPLICATE_KEY');
  if (Array.isArray(value)) throw new Refusal('WIRE_BATCH');
  if (!isObject(value)) throw new Refusal('WIRE_VERSION');
  return value;
}

function countKeys(value: unknown): number {
  if (typeof value !== 'object' || value === null) return 0;
  const own = Array.isArray(value) ? 0 : Object.keys(value).length;
  return Object.values(value).reduce((sum: number, item) => sum + countKeys(item), own);
}

function classify(value: JsonObject, facts: Facts, side: MessageSender): ReadMessage {
  const doc = (key: string): unknown => ({ text: textOf(facts, key), value: value[key], exact: facts.exact });
  if (side === 'client') refuseVariants(Object.keys(value), ENVELOPE);
  if (value.jsonrpc !== '2.0') throw new Refusal('WIRE_VERSION');
  const { id, method, params, result, error } = value;
  const fault = side === 'server' ? 'UPSTREAM_INVALID' : 'WIRE_VERSION';
  if ('method' in value) {
    if ('result' in value || 'error' in value) throw new Refusal('WIRE_VERSION');
    if (id !== undefined && !isId(id)) throw new Refusal('WIRE_ID');
    if (typeof method !== 'string' || method === '') throw new Refusal('WIRE_METHOD');
    const has = params !== undefined && !(params === null && side === 'server');
    if (has && !isObject(params)) throw new Refusal('WIRE_PARAMS');
    if (has && side === 'client') refuseVariants(Object.keys(params as JsonObject), PARAMS);
    if (side === 'client' && method === 'tools/call') {
      if (id === undefined) throw new Refusal('WIRE_NOTIFICATION_CALL');
      if (!has || typeof (params as JsonObject).name !== 'string') throw new Refusal('WIRE_PARAMS');
    }
    const paramsDoc = has ? doc('params') : undefined;
    if (id === undefined) return { kind: 'notification', method, params: paramsDoc };
    const inside =
      has && 'arguments' in (params as JsonObject) ? textOf(factsOf(textOf(facts, 'params')), 'arguments') : undefined;
    const args =
      inside === undefined
        ? undefined
        : { text: inside, value: (params as JsonObject).arguments, exact: factsOf(inside).exact };
    return { kind: 'request', id, method, params: paramsDoc, args };
  }
  const [hasError, hasResult] = [error !== undefined && error !== null, result !== undefined && result !== null];
  if (hasError === hasResult) throw new Refusal(fault);
  if (hasError) return { kind: 'error', id: isId(id) ? id : null, error };
  if (!isId(id)) throw new Refusal('WIRE_ID');
  if (!isObject(result)) throw new Refusal(side === 'server' ? 'UPSTREAM_INVALID' : 'WIRE_PARAMS');
  return { kind: 'result', id, result: doc('result') };
}

function textOf({ members }: Facts, key: string): string {
  return members.find((member) => member.key === key)?.text ?? 'null';
}

function refuseVariants(keys: readonly string[], known: readonly string[]): void {
  const fold = (key: string): string => key.toUpperCase().toLowerCase();
  for (const key of keys)
    if (!known.includes(key) && known.some((one) => fold(one) === fold(key))) throw new Refusal('WIRE_AMBIGUOUS_KEY');
}

/** Counts in any text, also in one that is not JSON. */
function factsOf(text: string): Facts {
  const members: Member[] = [];
  let [keys, values, level, depth, exact, loneSurrogate] = [0, 0, 0, 0, true, false];
  let [lastString, valueStart, key] = ['', -1, ''];
  const close = (end: number): void => {
    if (valueStart >= 0) members.push({ key, text: text.slice(valueStart, end).replace(/^[\0- ]+|[\0- ]+$/g, '') });
    valueStart = -1;
  };
  for (let at = 0; at < text.length; at += 1) {
    const char = text.charAt(at);
    if (char === '"') {
      const from = at + 1;
      for (at = from; at < text.length && text.charAt(at) !== '"'; at += 1) {
        if (text.charAt(at) !== '\\') continue;
        at += 1;
        const hex = text.slice(at + 1, at + 11);
        if (text.charAt(at) !== 'u' || !/^[dD][89a-fA-F][0-9a-fA-F]{2}/.test(hex)) continue;
        if (PAIR.test(hex)) at += 10;
        else loneSurrogate = true;
      }
      if (level === 1) lastString = text.slice(from, at);
    } else if (/[-0-9]/.test(char)) {
      const written = /^.[0-9.eE+-]*/.exec(text.slice(at, at + 400))?.[0] ?? char;
      if (!fitsDouble(written)) exact = false;
      at += written.length - 1;
    } else if (char === '{' || char === '[') {
      [values, level] = [values + 1, level + 1];
      depth = Math.max(depth, level);
    } else if (char === '}' || char === ']') {
      if (level === 1) close(at);
      level -= 1;
    } else if (char === ':') {
      keys += 1;
      if (level !== 1) continue;
      key = unescaped(lastString);
      valueStart = at + 1;
    } else if (char === ',') {
      values += 1;
      if (level === 1) close(at);
    }
  }
  return { members, keys, values, depth, exact, loneSurrogate };
}

function unescaped(raw: string): string {
  try {
    return JSON.parse(`"${raw}"`) as string;
  } catch {
    return raw;
  }
}
