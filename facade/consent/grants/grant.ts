/**
 * A grant, and the answer of grants to a call: a deny wins, and order does not matter. Malformed origins, scopes and
 * tools are refused.
 */
import { TollgateError } from '../../../catalogs/errors/error-table.ts';

/**
 * The scopes that Tollgate enforces (HB-01). Other scopes of the form `namespace:word.word` are stored, and hosts check
 * them.
 */
export const GRANT_SCOPES = [
  'mcp:tools.list',
  'mcp:tools.call',
  'mcp:server.connect',
  'browser:activeTab.read',
] as const;

/** `once` is valid until it expires, or until its session or tab ends. `always` is valid until it is revoked. */
export const GRANT_KINDS = ['once', 'always', 'deny'] as const;

/** A stored permission (HB-02). Times in ms since 1970. A grant never changes: a replacement has a new id. */
export interface Grant {
  readonly id: string;
  /** The origin of a page (`https://example.com`), or the client name of a token. */
  readonly origin: string;
  readonly profile: string;
  readonly scope: string;
  readonly kind: (typeof GRANT_KINDS)[number];
  /**
   * `server.tool`, `server.*` or `*`. If absent, the grant is for the whole scope, but does not answer an ask of a
   * rule.
   */
  readonly tools?: readonly string[];
  readonly expiresAt?: number;
  /** If present, the grant is for this session only and ends with it. */
  readonly session?: string;
  /** If present, the grant is for calls from this tab only and ends with it. */
  readonly tab?: string;
  /** The owner who granted it. */
  readonly by: string;
  readonly at: number;
}

/** A grant as an owner requests it. */
export type NewGrant = Omit<Grant, 'id' | 'by' | 'at'>;

/** The caller, and the scope that it needs. */
export interface GrantQuery {
  readonly profile: string;
  readonly scope: string;
  /** If absent, the query is about the whole scope. */
  readonly tool?: { readonly server: string; readonly tool: string };
  /** The session that asks, and its tab. */
  readonly from?: { readonly id?: string; readonly tab?: string };
}

/** The answer of grants. `none`: no one has decided; `uncovered`: the grants do not cover this tool. */
export type GrantAnswer =
  | { readonly kind: 'allow' | 'deny'; readonly grant: Grant }
  | { readonly kind: 'none' | 'uncovered' };

/** Milliseconds that a `once` grant without an end lasts. */
const ONCE_MS = 10 * 60_000;

const WORD = '[a-z][A-Za-z0-9]{0,31}';
const SCOPE = new RegExp(`^${WORD}:${WORD}\\.${WORD}$`);
const PAGE = /^[a-z][a-z0-9+.-]{0,31}:\/\/[^\s/?#@\\\p{C}A-Z]{1,255}$/u;
const CLIENT = /^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$/;
/**
 * The form of tool names (catalogs/lint/definition-audit.ts). `read_*` is not accepted: it would seem a pattern but
 * match no tool.
 */
const TOOLS = /^(\*|[a-z][a-z0-9-]{0,63}\.(\*|[!-)+\--~]{1,128}))$/;
/** The ids of sessions and tabs. Hosts choose them. */
const WORDS = /^[A-Za-z0-9_.:-]{1,128}$/;

/** Returns the grant as it will be stored. Throws USAGE with the first fault. */
export function completeGrant(wanted: NewGrant, now: number): NewGrant {
  const { origin, scope, kind, tools, expiresAt, session, tab } = wanted;
  requireOrigin(origin);
  requireScope(scope);
  if (tools !== undefined) requireTools(scope, tools);
  for (const [name, value] of Object.entries({ session, tab })) {
    if (value === undefined) continue;
    if (!WORDS.test(value))
      throw fault(
        `${name} is not a name of 1 to 128 letters, digits, _ . : -`,
        `Give the id of the ${name} as the host knows it.`,
      );
    if (kind !== 'once')
      throw fault(`A grant of kind ${kind} outlives every ${name}.`, `Omit ${name}, or use kind once.`);
  }
  if (expiresAt !== undefined && !(expiresAt > now))
    throw fault('The grant would have expired already.', 'Give a time in the future.');
  return kind === 'once' ? { ...wanted, expiresAt: expiresAt ?? now + ONCE_MS } : wanted;
}

/** Checks an origin. Throws USAGE. */
export function requireOrigin(origin: string): void {
  if (!PAGE.test(origin) && !CLIENT.test(origin))
    throw fault(
      `${JSON.stringify(origin.slice(0, 80))} is not an origin.`,
      'Write scheme://host[:port] in lower case without a path, or the client name of a token.',
    );
}

/** Checks a scope. Throws USAGE. */
export function requireScope(scope: string): void {
  const known = `The scopes are ${GRANT_SCOPES.join(', ')}; any other is written namespace:word.word.`;
  if (!SCOPE.test(scope)) throw fault(`${JSON.stringify(scope.slice(0, 80))} is not a scope.`, known);
  // A typing error in an enforced namespace would grant or deny nothing.
  if (/^(mcp|browser):/.test(scope) && !GRANT_SCOPES.some((name) => name === scope))
    throw fault(`${scope} is not known, and the namespaces mcp and browser are Tollgate's own.`, known);
}

function requireTools(scope: string, tools: readonly string[]): void {
  if (scope === 'mcp:tools.list' || scope === 'browser:activeTab.read')
    throw fault(
      `${scope} is not limited to tools.`,
      'Limit mcp:tools.call instead: tools that it does not cover are not listed either.',
    );
  if (tools.length === 0) throw fault('The list of tools is empty.', 'Name a tool as server.tool, server.* or *.');
  for (const tool of tools) {
    if (!TOOLS.test(tool))
      throw fault(
        `${JSON.stringify(tool.slice(0, 80))} is not a tool.`,
        'Write server.tool, server.* for all tools of a server, or * for all.',
      );
    if (scope === 'mcp:server.connect' && tool !== '*' && !tool.endsWith('.*'))
      throw fault(`${tool} is a tool, and ${scope} is about servers.`, 'Write server.* instead.');
  }
}

/** Returns whether the grant is valid at `now`. It is not valid at `expiresAt` itself. */
export function isInForce({ expiresAt }: Pick<Grant, 'expiresAt'>, now: number): boolean {
  return expiresAt === undefined || now < expiresAt;
}

/** Returns whether a grant for a session or a tab is for this one. */
export function grantAppliesTo({ session, tab }: Pick<Grant, 'session' | 'tab'>, from: GrantQuery['from']): boolean {
  return (session === undefined || session === from?.id) && (tab === undefined || tab === from?.tab);
}

/** Returns the answer of grants, whatever their order. All of them are valid and have the same origin. */
export function evaluateGrants(grants: readonly Grant[], { profile, scope, tool, from }: GrantQuery): GrantAnswer {
  const about = grants.filter(
    (grant) => grant.profile === profile && grant.scope === scope && grantAppliesTo(grant, from),
  );
  const denying = first(
    about.filter(
      (grant) => grant.kind === 'deny' && (tool === undefined ? grant.tools === undefined : reaches(grant, tool)),
    ),
  );
  if (denying !== undefined) return { kind: 'deny', grant: denying };
  const allowing = about.filter(({ kind }) => kind !== 'deny');
  const covering = first(allowing.filter((grant) => tool === undefined || reaches(grant, tool)));
  if (covering !== undefined) return { kind: 'allow', grant: covering };
  return { kind: allowing.length === 0 ? 'none' : 'uncovered' };
}

/** Returns the grant that answers an ask of the policy about this tool. It must name the tool, its server, or `*`. */
export function findAnsweringGrant(grants: readonly Grant[], question: GrantQuery): Grant | undefined {
  const weighed = evaluateGrants(
    grants.filter(({ kind, tools }) => kind === 'deny' || tools !== undefined),
    question,
  );
  return weighed.kind === 'allow' ? weighed.grant : undefined;
}

/** Returns whether a grant's tools include this one. */
function reaches({ tools }: Grant, { server, tool }: { readonly server: string; readonly tool: string }): boolean {
  return (
    tools === undefined || tools.some((one) => one === '*' || one === `${server}.*` || one === `${server}.${tool}`)
  );
}

/** Returns one of the grants, the same for any order. */
function first(grants: readonly Grant[]): Grant | undefined {
  return grants.reduce<Grant | undefined>(
    (least, grant) => (least === undefined || grant.id < least.id ? grant : least),
    undefined,
  );
}

function fault(detail: string, next: string): TollgateError {
  return new TollgateError('USAGE', { detail, next });
}
