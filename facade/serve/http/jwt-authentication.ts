/**
 * Finds the principal of a JWT access token (RFC 9068) of the configured issuer. A token that is not exactly what the
 * configuration expects is refused, and no refusal says why.
 */
import { hash as digest } from 'node:crypto';
import type { JWTPayload } from 'jose';
import { LRUCache } from 'lru-cache';
import type { IssuerKeys } from '../../../adapters/port.ts';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import type { Principal } from '../../../policies/port.ts';
import { type JwtConfig, subjectId } from '../../config/settings/jwt-settings.ts';
import { DEFAULTS } from '../../config/written-config.ts';

/** Finds principals of tokens. */
export interface JwtAuthentication {
  /** Returns the principal of a token; undefined if it is refused. Throws ISSUER_UNAVAILABLE. */
  identify(token: string): Principal | undefined | Promise<Principal | undefined>;
  /** Returns false once the last token of a subject has expired. */
  isCurrent(principal: Principal): boolean;
}

/** Whose tokens, and with which keys. `now`: milliseconds since 1970. */
export interface JwtSources {
  readonly jwt: JwtConfig;
  readonly keys: IssuerKeys;
  readonly now?: () => number;
}

/** Three parts of base64url. Longer tokens would not fit into the headers of a request. */
const FORM = /^[\w-]{1,16384}\.[\w-]{1,16384}\.[\w-]{1,4096}$/;
/** Clocks differ. */
const SKEW_SECONDS = 30;
/** A checked token is not checked again for this long, or until it expires. */
const KEEP_MS = 60_000;
const MAX_TOKENS = 10_000;
/** Other kinds of JWTs of an issuer, such as logout tokens and assertions, have another type (RFC 8725 §3.11). */
const TYPES: ReadonlySet<unknown> = new Set([undefined, 'jwt', 'at+jwt', 'application/at+jwt']);

interface Checked {
  readonly principal: Principal;
  readonly until: number;
}

/** Returns what identifies the subjects of an issuer. */
export function createJwtAuthentication({ jwt, keys, now = Date.now }: JwtSources): JwtAuthentication {
  const checked = new LRUCache<string, Checked>({ max: MAX_TOKENS });
  // Later stages cache by principal, so tokens with the same facts share one object.
  const principals = new LRUCache<string, Principal>({ max: MAX_TOKENS });
  const ends = new LRUCache<string, number>({ max: MAX_TOKENS });

  const shared = (principal: Principal): Principal => {
    const facts = JSON.stringify(principal);
    const known = principals.get(facts) ?? Object.freeze(principal);
    principals.set(facts, known);
    return known;
  };

  const check = async (token: string, key: string): Promise<Principal | undefined> => {
    const payload = await verify(token, { jwt, keys, now });
    const principal = payload === undefined ? undefined : principalOf(payload, jwt);
    if (payload === undefined || principal === undefined) return undefined;
    const end = ((payload.exp ?? 0) + SKEW_SECONDS) * 1000;
    ends.set(principal.id, Math.max(end, ends.get(principal.id) ?? 0));
    const found = shared(principal);
    checked.set(key, { principal: found, until: Math.min(end, now() + KEEP_MS) });
    return found;
  };

  return {
    identify: (token) => {
      if (!FORM.test(token)) return undefined;
      const key = digest('sha256', token, 'base64url');
      const known = checked.get(key);
      return known !== undefined && now() < known.until ? known.principal : check(token, key);
    },
    isCurrent: ({ id }) => now() < (ends.get(id) ?? 0),
  };
}

async function verify(token: string, { jwt, keys, now }: Required<JwtSources>): Promise<JWTPayload | undefined> {
  const { jwtVerify } = await import('jose');
  try {
    const { payload, protectedHeader } = await jwtVerify(token, keys, {
      issuer: jwt.issuer,
      audience: jwt.audience,
      algorithms: [...jwt.algorithms],
      requiredClaims: ['exp'],
      clockTolerance: SKEW_SECONDS,
      currentDate: new Date(now()),
    });
    const { typ } = protectedHeader;
    // A token that is bound to a key of its client must not be accepted from anyone who has only the token (RFC 7800).
    return TYPES.has(typ?.toLowerCase()) && payload.cnf === undefined && hasRequired(payload, jwt)
      ? payload
      : undefined;
  } catch (thrown) {
    if (thrown instanceof TollgateError) throw thrown;
    return undefined;
  }
}

/** A list does not count: with two organisations in one claim, a token would be that of two tenants. */
function hasRequired(payload: JWTPayload, jwt: JwtConfig): boolean {
  return Object.entries(jwt.require ?? {}).every(
    ([claim, text]) => Object.hasOwn(payload, claim) && payload[claim] === text,
  );
}

function principalOf(payload: JWTPayload, { issuer, claims }: JwtConfig): Principal | undefined {
  const id = subjectId(issuer, payload[claims.id]);
  if (id === undefined) return undefined;
  const named = (source: ClaimSource | undefined): readonly string[] => {
    if (source === undefined) return [];
    const values = valuesOf(payload, source.claim);
    const entries = Object.entries(source.values).filter(([value]) => values.has(value));
    return [...new Set(entries.map(([, name]) => name))];
  };
  const { owner } = claims;
  const owned = owner === undefined ? new Set<string>() : valuesOf(payload, owner.claim);
  const [role = DEFAULTS.principal.role] = named(claims.role);
  const profiles = named(claims.profiles);
  return {
    id,
    role,
    groups: named(claims.groups),
    profiles: profiles.length === 0 ? ['default'] : profiles,
    origin: id,
    owner: owner?.values.some((value) => owned.has(value)) === true,
  };
}

type ClaimSource = NonNullable<JwtConfig['claims']['role']>;

/** Returns the texts of a claim. A boolean is its word. The words of `scope` are separate texts (RFC 8693 §4.2). */
function valuesOf(payload: JWTPayload, claim: string): ReadonlySet<string> {
  const value = Object.hasOwn(payload, claim) ? payload[claim] : undefined;
  const found = Array.isArray(value) ? (value as readonly unknown[]) : [value];
  const texts = found.flatMap((one) => (typeof one === 'string' || typeof one === 'boolean' ? [String(one)] : []));
  return new Set(claim === 'scope' ? texts.flatMap((text) => text.split(' ')) : texts);
}
