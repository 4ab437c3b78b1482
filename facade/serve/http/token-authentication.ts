/** Finds the principal of a bearer token, in a time that reveals nothing. Unknown tokens are refused. */
import { hash as digest, timingSafeEqual } from 'node:crypto';
import type { Awaitable } from '../../../catalogs/text/awaitable.ts';
import type { Principal } from '../../../policies/port.ts';
import type { ListenConfig, PrincipalConfig } from '../../config/config.ts';

/**
 * Returns the principal of a request's bearer token (`undefined`: none was sent); undefined if the token is unknown. A
 * token of an issuer may have to wait for its keys. Throws ISSUER_UNAVAILABLE.
 */
export type Authenticate = (token: string | undefined) => Awaitable<Principal | undefined>;

/** What tokens are compared with. */
export interface AuthSources {
  readonly auth: ListenConfig['auth'];
  readonly principals: readonly PrincipalConfig[];
  /** The principal of the access token, and of requests without a token where `auth` is `none`. */
  readonly fallback: PrincipalConfig;
  /** The token of `ensureToken`. */
  readonly accessToken?: string;
}

/** The origin of a caller without a token and without an Origin header. */
const ANONYMOUS = 'anonymous';

/**
 * Returns a principal as the pipeline knows it. The origin is the token's client until a request brings a checked
 * Origin header.
 */
export function asPrincipal(config: PrincipalConfig): Principal {
  const { id, role, groups, profiles, client, owner } = config;
  return Object.freeze({ id, role, groups, profiles, origin: client, owner });
}

/**
 * Compares SHA-256 with SHA-256, against every principal each time, so that the time shows neither the token's length
 * nor its place in the list. With `auth: none` a request without a token is the fallback principal, never as an owner:
 * otherwise everyone who reaches the port, including a page of an allowed origin, could grant itself everything. A
 * wrong token is still refused.
 */
export function createAuthenticator(sources: AuthSources): (token: string | undefined) => Principal | undefined {
  const known: { readonly hash: Buffer; readonly principal: Principal }[] = sources.principals.flatMap((config) =>
    config.tokenHash === undefined
      ? []
      : [{ hash: Buffer.from(config.tokenHash, 'hex'), principal: asPrincipal(config) }],
  );
  const fallback = asPrincipal(sources.fallback);
  const anonymous = Object.freeze({ ...fallback, origin: ANONYMOUS, owner: false });
  if (sources.accessToken !== undefined) known.push({ hash: sha256(sources.accessToken), principal: fallback });
  return (token) => {
    if (token === undefined) return sources.auth === 'none' ? anonymous : undefined;
    const hash = sha256(token);
    let found: Principal | undefined;
    for (const one of known)
      if (one.hash.length === hash.length && timingSafeEqual(one.hash, hash)) found ??= one.principal;
    return found;
  };
}

/**
 * Returns the token of an Authorization header: undefined without a header, `''` (which no token is) for any other
 * scheme.
 */
export function bearerToken(header: string | undefined): string | undefined {
  if (header === undefined) return undefined;
  return /^bearer +([\x21-\x7e]+)$/i.exec(header)?.[1] ?? '';
}

function sha256(text: string): Buffer {
  return digest('sha256', text, 'buffer');
}
