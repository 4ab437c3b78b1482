/**
 * The beginning of a connection to a server: which protocol revision both sides speak, and what the server offers. No
 * setting is needed, because the server is asked.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { asTollgateError, type TollgateError } from '../../catalogs/errors/error-table.ts';
import { type ServerInfo, UpstreamError } from '../port.ts';
import { type Connection, STATELESS_REVISION } from '../rpc/connection.ts';
import { isObject, type JsonObject } from '../rpc/message-parser.ts';
import type { Peer } from '../rpc/peer.ts';
import { type Discovered, StatelessRevision } from '../stateless/stateless-revision.ts';

/** What a handshake found out. */
export interface Handshake {
  readonly info: ServerInfo;
  /** The capabilities that the server declared. */
  readonly offers: JsonObject;
  readonly instructions: string | undefined;
  /** Present if the server speaks a revision without sessions. */
  readonly stateless: StatelessRevision | undefined;
  /** True if the server answered `initialize`, but not the question for a revision that it got before. */
  readonly ignoredQuestion?: boolean;
}

/** What is known of a server from earlier handshakes. */
export interface HandshakeMemory {
  /** True if the server ended, or was silent, when it was asked for a revision. `initialize` comes first then. */
  sessionFirst: boolean;
}

/** What a handshake needs. */
export interface HandshakeParts {
  readonly name: string;
  readonly connection: Connection;
  readonly peer: Peer;
  /** Returns the capabilities of clients that Tollgate declares. */
  readonly capabilities: () => JsonObject;
  readonly memory: Readonly<HandshakeMemory>;
  /** Milliseconds that the whole handshake may take. The caller ends it then. */
  readonly timeoutMs: number;
  /** Called when the server has answered the question for a revision that it does not offer. */
  readonly onRefused: () => void;
  /** Returns INIT_FAILED. `why` completes "Server x …". */
  readonly fail: (why: string) => TollgateError;
}

const NEWEST = '2025-11-25';
const ACCEPTED: readonly string[] = [NEWEST, '2025-06-18', '2025-03-26', '2024-11-05', '2024-10-07'];
/** The code of an answer that refuses the revision of a request (MCP 2026-07-28, versioning). */
const UNSUPPORTED_REVISION = -32022;
const CLIENT = { name: 'tollgate', version: '0.1.0' };
/**
 * The part of the handshake's time after which a server that has not answered `server/discover` gets `initialize` too.
 * Servers that do not know the method answer with an error at once. Most others are still starting: if they read
 * `initialize` then, they begin a session although they offer the newer revision.
 */
const PATIENCE = 0.5;
/** Milliseconds after which no answer to `server/discover` is expected any more. */
const DISCOVER_LATE_MS = 30_000;

/**
 * Asks the server for the revision without sessions, and begins a session if it does not offer that. Has no deadline of
 * its own. Throws what a request throws, and what `fail` returns.
 */
export async function shakeHands(parts: HandshakeParts): Promise<Handshake> {
  if (parts.connection.overHttp === 'sse') return beginSession(parts);
  if (parts.memory.sessionFirst) return beginSessionFirst(parts);
  let isAnswered = false;
  const discovering = discover(parts).finally(() => {
    isAnswered = true;
  });
  const silence = sleep(parts.timeoutMs * PATIENCE, 'silent' as const, { ref: false });
  const early = await Promise.race([discovering, silence]);
  if (early !== undefined && early !== 'silent') return early;
  parts.connection.useProtocolVersion(undefined);
  if (early === undefined) parts.onRefused();
  try {
    const begun = await beginSession(parts);
    return { ...begun, ignoredQuestion: !isAnswered };
  } catch (thrown) {
    const late = early === 'silent' && thrown instanceof UpstreamError ? await discovering : undefined;
    if (late === undefined) throw thrown;
    parts.connection.useProtocolVersion(STATELESS_REVISION);
    return late;
  }
}

/** Returns undefined if the server does not offer the revision without sessions. */
async function discover({ name, connection, peer, capabilities }: HandshakeParts): Promise<Handshake | undefined> {
  connection.useProtocolVersion(STATELESS_REVISION);
  const hasHeaders = connection.overHttp === 'streamable';
  const stateless = new StatelessRevision({ peer, clientInfo: CLIENT, capabilities, hasHeaders });
  let discovered: Discovered | undefined;
  try {
    discovered = await stateless.discover(DISCOVER_LATE_MS);
  } catch (thrown) {
    if (isUnusable(thrown, peer)) throw thrown;
    if (offersIt(thrown)) discovered = await stateless.discover(DISCOVER_LATE_MS).catch(() => undefined);
  }
  if (discovered === undefined) return undefined;
  const { capabilities: offers, instructions, serverInfo } = discovered;
  return {
    info: { ...identityOf(serverInfo, name), protocolVersion: STATELESS_REVISION },
    offers,
    instructions: typeof instructions === 'string' ? instructions : undefined,
    stateless,
  };
}

/** Returns true if a refusal of the revision (-32022) lists it nevertheless: then the server is asked once more. */
function offersIt(thrown: unknown): boolean {
  if (!(thrown instanceof UpstreamError) || thrown.rpc.code !== UNSUPPORTED_REVISION) return false;
  const { data } = thrown.rpc;
  return isObject(data) && Array.isArray(data.supported) && data.supported.includes(STATELESS_REVISION);
}

/** Returns true if another request would fail in the same way: the server is gone, or refuses the sign-in. */
function isUnusable(thrown: unknown, { hasEnded }: Peer): boolean {
  if (thrown instanceof UpstreamError) return false;
  const { cause } = asTollgateError(thrown);
  const { code } = (cause ?? {}) as { readonly code?: unknown };
  return hasEnded || code === 401 || code === 403;
}

async function beginSessionFirst(parts: HandshakeParts): Promise<Handshake> {
  try {
    return await beginSession(parts);
  } catch (thrown) {
    const found = thrown instanceof UpstreamError ? await discover(parts) : undefined;
    if (found === undefined) throw thrown;
    return found;
  }
}

/** Begins a session (MCP 2025-11-25 and older, lifecycle). */
async function beginSession({ name, connection, peer, capabilities, fail }: HandshakeParts): Promise<Handshake> {
  const params = JSON.stringify({ protocolVersion: NEWEST, capabilities: capabilities(), clientInfo: CLIENT });
  const { value } = await peer.request({
    method: 'initialize',
    params: () => params,
    timeoutMs: Infinity,
    hardTimeoutMs: Infinity,
  });
  const { protocolVersion, instructions, capabilities: offers, serverInfo } = value;
  if (typeof protocolVersion !== 'string' || !ACCEPTED.includes(protocolVersion)) {
    const answered = typeof protocolVersion === 'string' ? JSON.stringify(protocolVersion.slice(0, 32)) : 'none';
    const accepted = [STATELESS_REVISION, ...ACCEPTED].join(', ');
    throw fail(`answered with protocol revision ${answered}; accepted are ${accepted}`);
  }
  connection.useProtocolVersion(protocolVersion);
  // Over HTTP, the first call could overtake this message if it were not awaited.
  await peer.notify('notifications/initialized');
  return {
    info: { ...identityOf(serverInfo, name), protocolVersion },
    offers: isObject(offers) ? offers : {},
    instructions: typeof instructions === 'string' ? instructions : undefined,
    stateless: undefined,
  };
}

function identityOf(info: unknown, name: string): Omit<ServerInfo, 'protocolVersion'> {
  const said = isObject(info) ? info : {};
  return { name: textOr(said.name, name), version: textOr(said.version, '') };
}

function textOr(value: unknown, fallback: string): string {
  return typeof value === 'string' ? value.slice(0, 256) : fallback;
}
