/**
 * Tells clients which issuer gives tokens for this endpoint (RFC 9728; MCP 2025-11-25, authorization). Nothing of a
 * request is repeated.
 */
import type { JwtConfig } from '../../config/settings/jwt-settings.ts';

const WELL_KNOWN = '/.well-known/oauth-protected-resource';

/**
 * Returns the metadata of an endpoint for a path; undefined for another path. `isDefault`: also for the path that names
 * no resource.
 */
export function resourceMetadata(
  path: string,
  { resource, issuer }: JwtConfig,
  isDefault: boolean,
): string | undefined {
  if (!(isDefault && path === WELL_KNOWN) && path !== metadataUrl(resource).pathname) return undefined;
  return JSON.stringify({
    resource,
    authorization_servers: [issuer],
    bearer_methods_supported: ['header'],
    resource_name: 'Tollgate',
  });
}

/**
 * Returns the WWW-Authenticate header of a refused request. `sent`: whether it had a token, which then is invalid (RFC
 * 6750 §3.1).
 */
export function authenticateHeader(jwt: JwtConfig | undefined, sent: boolean): string {
  const parts = [
    'realm="tollgate"',
    ...(jwt !== undefined && sent ? ['error="invalid_token"'] : []),
    ...(jwt === undefined ? [] : [`resource_metadata="${metadataUrl(jwt.resource).href}"`]),
  ];
  return `Bearer ${parts.join(', ')}`;
}

/** The path of the resource follows the well-known one (RFC 9728 §3.1). */
function metadataUrl(resource: string): URL {
  const url = new URL(resource);
  return new URL(`${WELL_KNOWN}${url.pathname.replace(/\/$/, '')}`, url.origin);
}
