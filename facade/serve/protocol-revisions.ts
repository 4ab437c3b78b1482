/** The supported protocol revisions, and the era of each. */
import { STATELESS_REVISION } from '../../adapters/rpc/connection.ts';
import { isObject, type WireMessage } from '../../adapters/rpc/wire-message.ts';

/**
 * Revisions of one era share how a client begins (MCP 2026-07-28, basic/versioning). `legacy` begins with `initialize`
 * and has a session. In the `modern` era each request says everything about itself.
 */
export type Era = 'legacy' | 'modern';

/** The revision that Tollgate offers for `initialize`, if it does not know the requested one. */
const OURS = '2025-11-25';

const REVISIONS: ReadonlyMap<string, Era> = new Map([
  [STATELESS_REVISION, 'modern'],
  [OURS, 'legacy'],
  ['2025-06-18', 'legacy'],
  ['2025-03-26', 'legacy'],
  ['2024-11-05', 'legacy'],
]);

/** All of them, the newest first. */
export const SUPPORTED_REVISIONS: readonly string[] = [...REVISIONS.keys()];

/** The key of `_meta` with which a request names its revision. */
export const REVISION_KEY = 'io.modelcontextprotocol/protocolVersion';

/** Methods that only the modern era has. Without its `_meta`, such a request is refused there. */
const MODERN_METHODS: ReadonlySet<string> = new Set(['server/discover', 'subscriptions/listen']);

/** Returns the era of a revision that a client names; a client that names none is legacy. Undefined: not supported. */
export function eraOf(revision: string | undefined): Era | undefined {
  return revision === undefined ? 'legacy' : REVISIONS.get(revision);
}

/**
 * Returns the era of one message. `initialize` begins a session, also after modern requests on the same connection:
 * some clients send it after `server/discover`. With the `_meta` of the modern era it is an unknown method. `header`:
 * the value of MCP-Protocol-Version, over HTTP.
 */
export function eraOfMessage(message: WireMessage, header?: string): Era {
  if (message.kind !== 'request') return eraOf(header) ?? 'legacy';
  const { method, params } = message;
  const meta = params?.value._meta;
  const isModern = (isObject(meta) && Object.hasOwn(meta, REVISION_KEY)) || MODERN_METHODS.has(method);
  if (method === 'initialize' && !isModern) return 'legacy';
  return isModern ? 'modern' : (eraOf(header) ?? 'legacy');
}

/**
 * Returns the revision for the answer to `initialize`: the requested one if it begins with `initialize`, else
 * Tollgate's, never an error (MCP, lifecycle, version negotiation).
 */
export function negotiate(asked: unknown): string {
  return typeof asked === 'string' && REVISIONS.get(asked) === 'legacy' ? asked : OURS;
}
