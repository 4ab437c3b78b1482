/** Owns what a grant is and what it says of a call: a deny wins, order counts for nothing; refuses origins, scopes and tools that are not in their form. */
import { TollgateError } from '../../../catalogs/errors/error-table.ts';

/** Scopes that are enforced here (HB-01). Others of the form `namespace:word.word` are kept for hosts, which check them. */
export const GRANT_SCOPES = [
  'mcp:tools.list',
  'mcp:tools.call',
  'mcp:server.connect',
  'browser:activeTab.read',
] as const;

/** `once` holds until it expires, or until the session or tab that it names has ended; `always` until it is revoked. */
export const GRANT_KINDS = ['once', 'always', 'deny'] as const;

/** A stored permission (HB-02). Times in ms since 1970. It never changes: what replaces it has another id. */
export interface Grant {
  readonly id: string;
  /** Of a page (`https://example.com`), or the client name of a token. */
  readonly origin: string;
  readonly profile: string;
  readonly scope: string;
  readonly kind: (typeof GRANT_KINDS)[number];
  /** `server.tool`, `server.*` or `*`; absent: all that the scope stands for, but no ask is answered by it. */
  readonly tools?: readonly string[];
  readonly expiresAt?: number;
  /** Serves this session alone, and ends with it. */
  readonly session?: string;
  /** Serves calls from this tab alone, and ends with it. */
  readonly tab?: string;
  /** The owner who gave it. */
  readonly by: string;
  readonly at: number;
}

/** What an owner asks for. */
export type NewGrant = Omit<Grant, 'id' | 'by' | 'at'>;

/** Who asks for what. */
export interface GrantQuery {
  readonly profile: string;
  readonly scope: string;
  /** Absent: the scope as a whole. */
  readonly tool?: { readonly server: string; readonly tool: string };
  /** The session that asks, and the tab that it speaks for. */
  readonly from?: { readonly id?: string; readonly tab?: string };
}

/** What grants answer. `none`: nobody has decided; `uncovered`: what was granted does not reach this tool. */
export type GrantAnswer =
  | { readonly kind: 'allow' | 'deny'; readonly grant: Grant }
  | { readonly kind: 'none' | 'uncovered' };

/** How long a `once` lasts that says nothing of its end, ms. */
const ONCE_MS = 10 * 60_000;

const WORD = '[a-z][A-Za-z0-9]{0,31}';
const SCOPE = new RegExp(`^${WORD}:${WORD}\\.${WORD}$`);
const PAGE = /^[a-z][a-z0-9+.-]{0,31}:\/\/[^\s/?#@\\\p{C}A-Z]{1,255}$/u;
const CLIENT = /^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$/;
/** The names that a server may list (catalogs/lint/definition-audit.ts). `read_*` would look like a rule of the policy and reach no tool. */
const TOOLS = /^(\*|[a-z][a-z0-9-]{0,63}\.(\*|[!-)+\--~]{1,128}))$/;
/** Sessions and tabs: words of hosts. */
const WORDS = /^[A-Za-z0-9_.:-]{1,128}$/;

/** The grant as it will be kept. Throws USAGE with the first fault. */
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
      throw fault(`A grant of kind ${kind} outlives every ${name}.`, `Leave ${name} out, or use kind once.`);
  }
  if (expiresAt !== undefined && !(expiresAt > now))
    throw fault('The grant would have expired already.', 'Give a time to come.');
  return kind === 'once' ? { ...wanted, expiresAt: expiresAt ?? now + ONCE_MS } : wanted;
}

/** Throws USAGE. */
export function requireOrigin(origin: string): void {
  if (!PAGE.test(origin) && !CLIENT.test(origin))
    throw fault(
      `${JSON.stringify(origin.slice(0, 80))} is no origin.`,
      'Write scheme://host[:port] in lower case without a path, or the client name of a token.',
    );
}

/** Throws USAGE. */
export function requireScope(scope: string): void {
  const known = `Known are ${GRANT_SCOPES.join(', ')}; another is written namespace:word.word.`;
  if (!SCOPE.test(scope)) throw fault(`${JSON.stringify(scope.slice(0, 80))} is no scope.`, known);
  // A slip in a namespace that is enforced here would give or deny nothing.
  if (/^(mcp|browser):/.test(scope) && !GRANT_SCOPES.some((name) => name === scope))
    throw fault(`${scope} is not known, and the namespaces mcp and browser are Tollgate's own.`, known);
}

function requireTools(scope: string, tools: readonly string[]): void {
  if (scope === 'mcp:tools.list' || scope === 'browser:activeTab.read')
    throw fault(
      `${scope} is not limited to tools.`,
      'Limit mcp:tools.call: what it does not reach is not listed either.',
    );
  if (tools.length === 0) throw fault('The list of tools is empty.', 'Name a tool as server.tool, server.* or *.');
  for (const tool of tools) {
    if (!TOOLS.test(tool))
      throw fault(
        `${JSON.stringify(tool.slice(0, 80))} is no tool.`,
        'Write server.tool, server.* for all of a server, or * for all.',
      );
    if (scope === 'mcp:server.connect' && tool !== '*' && !tool.endsWith('.*'))
      throw fault(`${tool} is a tool, and ${scope} is about servers.`, 'Write server.* instead.');
  }
}

/** Whether the grant counts at `now`; at `expiresAt` itself it does not. */
export function isInForce({ expiresAt }: Pick<Grant, 'expiresAt'>, now: number): boolean {
  return expiresAt === undefined || now < expiresAt;
}

/** Whether a grant that is bound to a session or a tab is bound to this one. */
export function grantAppliesTo({ session, tab }: Pick<Grant, 'session' | 'tab'>, from: GrantQuery['from']): boolean {
  return (session === undefined || session === from?.id) && (tab === undefined || tab === from?.tab);
}

/** What grants say. All are those of one origin and count now; their order has no say. */
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

/** The grant that answers an ask of the policy about this tool: one that names it, its server or all in so many words. */
export function findAnsweringGrant(grants: readonly Grant[], question: GrantQuery): Grant | undefined {
  const weighed = evaluateGrants(
    grants.filter(({ kind, tools }) => kind === 'deny' || tools !== undefined),
    question,
  );
  return weighed.kind === 'allow' ? weighed.grant : undefined;
}

/** Whether a grant's tools hold this one. */
function reaches({ tools }: Grant, { server, tool }: { readonly server: string; readonly tool: string }): boolean {
  return (
    tools === undefined || tools.some((one) => one === '*' || one === `${server}.*` || one === `${server}.${tool}`)
  );
}

/** The same whatever the order was. */
function first(grants: readonly Grant[]): Grant | undefined {
  return grants.reduce<Grant | undefined>(
    (least, grant) => (least === undefined || grant.id < least.id ? grant : least),
    undefined,
  );
}

function fault(detail: string, next: string): TollgateError {
  return new TollgateError('USAGE', { detail, next });
}
