/** Reads what a request of revision 2026-07-28 says about itself: its revision, its client, and its headers. */
import type { IncomingHttpHeaders } from 'node:http';
import { LOG_LEVELS, type LogLevel } from '../../../adapters/port.ts';
import { isObject, type JsonObject, type WireMessage } from '../../../adapters/rpc/wire-message.ts';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import type { MirroredArgument } from '../../../catalogs/schemas/mirrored-arguments.ts';
import { type CallParams, readCall } from '../legacy-dispatch.ts';
import { eraOf, REVISION_KEY, SUPPORTED_REVISIONS } from '../protocol-revisions.ts';

/** A request of any era. */
export type RequestMessage = Extract<WireMessage, { kind: 'request' }>;

/** A request, and what its `_meta` says. */
export interface StatelessRequest extends CallParams {
  readonly message: RequestMessage;
  /** The capabilities of the client for this request. */
  readonly client: JsonObject;
  /** Absent: the client wants no log messages. */
  readonly logLevel: LogLevel | undefined;
}

const PREFIX = 'io.modelcontextprotocol/';
const CAPABILITIES_KEY = `${PREFIX}clientCapabilities`;
const CLIENT_KEY = `${PREFIX}clientInfo`;
const LEVEL_KEY = `${PREFIX}logLevel`;
/** The params that the header Mcp-Name repeats, by method. */
const NAMED_BY: ReadonlyMap<string, string> = new Map([
  ['tools/call', 'name'],
  ['prompts/get', 'name'],
  ['resources/read', 'uri'],
  ['tasks/get', 'taskId'],
  ['tasks/update', 'taskId'],
  ['tasks/cancel', 'taskId'],
]);
/** The longest text of a client that an error repeats. */
const MAX_QUOTED = 64;
const ENCODED = /^=\?base64\?(.*)\?=$/;
const NUMBER = /^-?\d+(?:\.\d+)?$/;
const BASE64 = /^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/;

/**
 * Reads a request. `headers`: only over HTTP. Throws WIRE_PARAMS for a `_meta` that lacks a required member,
 * WIRE_REVISION, and HEADER_MISMATCH.
 */
export function readStateless(message: RequestMessage, headers?: IncomingHttpHeaders): StatelessRequest {
  const meta = message.params?.value._meta;
  if (!isObject(meta)) throw missing(REVISION_KEY);
  const revision = meta[REVISION_KEY];
  if (typeof revision !== 'string') throw missing(REVISION_KEY);
  if (headers !== undefined) checkHeader('MCP-Protocol-Version', headers['mcp-protocol-version'], revision);
  if (eraOf(revision) !== 'modern')
    throw new TollgateError('WIRE_REVISION', {
      data: { supported: SUPPORTED_REVISIONS, requested: revision.slice(0, MAX_QUOTED) },
    });
  const client = meta[CAPABILITIES_KEY];
  if (!isObject(client)) throw missing(CAPABILITIES_KEY);
  if (meta[CLIENT_KEY] !== undefined && !isObject(meta[CLIENT_KEY])) throw missing(CLIENT_KEY);
  if (headers !== undefined) checkHeaders(message, headers);
  const logLevel = readLevel(meta[LEVEL_KEY]);
  const { meta: others = {}, ...call } = readCall(message);
  // These members are about the way to Tollgate. Its own way to a server has other values.
  const own = Object.entries(others).filter(([key]) => !key.startsWith(PREFIX));
  return { ...call, meta: Object.fromEntries(own), message, client, logLevel };
}

function missing(key: string): TollgateError {
  return new TollgateError('WIRE_PARAMS', {
    detail: `_meta["${key}"] is missing or has the wrong form.`,
    next: 'Send it with every request of revision 2026-07-28.',
  });
}

function readLevel(level: unknown): LogLevel | undefined {
  if (level === undefined || LOG_LEVELS.includes(level as LogLevel)) return level as LogLevel | undefined;
  throw new TollgateError('WIRE_PARAMS', { detail: `_meta["${LEVEL_KEY}"] is none of ${LOG_LEVELS.join(', ')}.` });
}

/** A proxy may decide by the headers, and Tollgate by the body (attack: headers that differ from the body). */
function checkHeaders({ method, params }: RequestMessage, headers: IncomingHttpHeaders): void {
  checkHeader('Mcp-Method', headers['mcp-method'], method);
  const source = NAMED_BY.get(method);
  const name = source === undefined ? undefined : params?.value[source];
  // Without a name the request is refused by what it lacks.
  if (typeof name === 'string') checkHeader('Mcp-Name', decoded(headers['mcp-name']), name);
}

function checkHeader(name: string, header: unknown, value: string): void {
  if (header !== value)
    throw mismatch(name, header === undefined ? 'is missing or malformed' : 'differs from the body');
}

function mismatch(header: string, fault: string): TollgateError {
  return new TollgateError('HEADER_MISMATCH', { detail: `The header ${header} ${fault}.` });
}

/**
 * Checks the headers that repeat arguments of a tool (MCP 2026-07-28, transports, custom headers). Throws
 * HEADER_MISMATCH.
 */
export function checkArgumentHeaders(
  marked: readonly MirroredArgument[],
  args: unknown,
  headers: IncomingHttpHeaders,
): void {
  for (const { path, header: name } of marked) {
    const header = `mcp-param-${name.toLowerCase()}`;
    const value = path.reduce<unknown>(
      (at, key) => (isObject(at) && Object.hasOwn(at, key) ? at[key] : undefined),
      args,
    );
    const raw = headers[header];
    if (value === undefined || value === null) {
      if (raw !== undefined) throw mismatch(header, 'repeats an argument that is absent');
      continue;
    }
    const text = decoded(raw);
    if (text === undefined) throw mismatch(header, 'is missing or malformed');
    if (!isSame(text, value)) throw mismatch(header, 'differs from the argument');
  }
}

/** 42 and 42.0 are one number. */
function isSame(text: string, value: unknown): boolean {
  if (typeof value === 'number') return NUMBER.test(text) && Number(text) === value;
  return (typeof value === 'string' || typeof value === 'boolean') && text === String(value);
}

/** Returns the value of a header; undefined if it is absent, not ASCII, or wrongly encoded. */
function decoded(header: string | readonly string[] | undefined): string | undefined {
  if (typeof header !== 'string' || /[^\t\x20-\x7e]/.test(header)) return undefined;
  const encoded = ENCODED.exec(header)?.[1];
  if (encoded === undefined) return header;
  if (!BASE64.test(encoded)) return undefined;
  const bytes = Buffer.from(encoded, 'base64');
  const text = bytes.toString('utf8');
  return Buffer.from(text).equals(bytes) ? text : undefined;
}
