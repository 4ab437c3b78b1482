/** An issuer of JWT access tokens on loopback, with its metadata and keys, and the settings that accept its tokens. */
import { generateKeyPairSync, type KeyObject } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { SignJWT } from 'jose';
import { buildJwt, type JwtConfig } from '../../facade/config/settings/jwt-settings.ts';
import { json, Listener } from '../oauth/issuer.ts';

export const AUDIENCE = 'https://tools.example.org/mcp';

/** A key pair with its id. */
export interface Key {
  readonly kid: string;
  readonly alg: string;
  readonly privateKey: KeyObject;
  readonly publicKey: KeyObject;
}

export function makeKey(kid: string, kind: 'rsa' | 'ec' = 'ec'): Key {
  const pair =
    kind === 'rsa'
      ? generateKeyPairSync('rsa', { modulusLength: 2048 })
      : generateKeyPairSync('ec', { namedCurve: 'P-256' });
  return { kid, alg: kind === 'rsa' ? 'RS256' : 'ES256', ...pair };
}

export class TokenIssuer extends Listener {
  readonly key = makeKey('first');
  /** The published keys. */
  keys: Key[] = [this.key];
  /** Overrides fields of the metadata. */
  says: Record<string, unknown> = {};
  isDown = false;

  protected answer(request: IncomingMessage, response: ServerResponse): void {
    if (this.isDown) return void response.writeHead(503).end();
    if (request.url === '/.well-known/oauth-authorization-server')
      return json(response, 200, { issuer: this.url, jwks_uri: `${this.url}/keys`, ...this.says });
    if (request.url !== '/keys') return void response.writeHead(404).end();
    json(response, 200, {
      keys: this.keys.map(({ kid, alg, publicKey }) => ({
        ...publicKey.export({ format: 'jwk' }),
        kid,
        alg,
        use: 'sig',
      })),
    });
  }

  /** Returns a valid token of ann, with changes. A claim of `undefined` is left out. */
  sign(
    claims: Readonly<Record<string, unknown>> = {},
    { key = this.key, header = {} }: { readonly key?: Key; readonly header?: Readonly<Record<string, unknown>> } = {},
  ): Promise<string> {
    const now = Math.floor(Date.now() / 1000);
    const all = { iss: this.url, aud: AUDIENCE, sub: 'ann', iat: now, exp: now + 300, ...claims };
    return new SignJWT(all)
      .setProtectedHeader({ alg: key.alg, kid: key.kid, typ: 'at+jwt', ...header })
      .sign(key.privateKey);
  }

  /** How often the keys were requested. */
  get reads(): number {
    return this.heard.filter(({ path }) => path === '/keys').length;
  }

  settings(claims: JwtConfig['claims'] | object = {}): JwtConfig {
    const refuse = (): never => {
      throw new Error('wrong settings');
    };
    const report = { refuse } as unknown as Parameters<typeof buildJwt>[1];
    const jwt = buildJwt({ issuer: this.url, audience: AUDIENCE, claims }, report);
    if (jwt === undefined) throw new Error('no settings');
    return jwt;
  }
}
