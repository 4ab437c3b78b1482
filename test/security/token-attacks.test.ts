/**
 * Attacks by tokens at the HTTP listener: forged, stolen, expired or meant for others. They run through the real
 * listener, and no answer says why a token was refused.
 */
import { createHmac, randomUUID } from 'node:crypto';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { openIssuerKeys } from '../../adapters/oauth/issuer-keys.ts';
import { createAccess } from '../../facade/cli/serving/client-access.ts';
import { serveHttp } from '../../facade/serve/http/http-listener.ts';
import { start } from '../cli/terminal.ts';
import { ACT, allow, type RawFacade, startRaw, tool } from '../properties/raw-facade.ts';
import { initialize, request } from '../serve/fake-facade.ts';
import { AUDIENCE, type Key, makeKey, TokenIssuer } from '../serve/token-issuer.ts';
import { verifies } from '../verifies.ts';

type Ask = (
  path: string,
  asked?: { readonly token?: string; readonly body?: object; readonly session?: string },
) => Promise<{ readonly status: number; readonly text: string; readonly headers: Headers }>;

let issuer: TokenIssuer;
let facade: RawFacade;
let ask: Ask;
const closers: (() => unknown)[] = [];

const CLAIMS = {
  groups: { claim: 'groups', values: { team: 'payments' } },
  owner: { claim: 'tollgate_owner', values: ['yes'] },
};

beforeEach(async () => {
  issuer = await new TokenIssuer().open();
  facade = await startRaw(
    { web: { tools: [tool('page'), ACT] } },
    {
      listen: { port: 0, jwt: { issuer: issuer.url, audience: AUDIENCE, claims: CLAIMS } },
      principals: [{ id: 'me', stdio: true, owner: true }],
      profiles: { default: { servers: ['web'], expose: { primitives: {}, tools: ['web.*'] } } },
      rules: [
        allow('web'),
        { id: 'team', outcome: 'deny', message: 'No.', when: { groups: ['payments'], tools: ['web.page'] } },
      ],
    },
  );
  const { assembled } = facade;
  const { listen } = assembled.config;
  const server = await serveHttp({
    facade: assembled.gateway,
    listen,
    ...createAccess(() => assembled.config, listen, openIssuerKeys),
    onFault: (thrown) => {
      throw thrown;
    },
    drainMs: 100,
  });
  closers.push(
    () => issuer.close(),
    () => facade.close(),
    () => server.close(),
  );
  ask = async (path, { token, body, session } = {}) => {
    const response = await fetch(new URL(path, server.url), {
      method: body === undefined ? 'GET' : 'POST',
      headers: {
        accept: 'application/json, text/event-stream',
        ...(token !== undefined && { authorization: `Bearer ${token}` }),
        ...(body !== undefined && { 'content-type': 'application/json' }),
        ...(session !== undefined && { 'mcp-session-id': session }),
      },
      ...(body !== undefined && { body: JSON.stringify(body) }),
    });
    return { status: response.status, text: await response.text(), headers: response.headers };
  };
});
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close();
});

const open = (token: string): ReturnType<Ask> => ask('/mcp', { token, body: initialize() });
const sessionOf = async (token: string): Promise<string> => (await open(token)).headers.get('mcp-session-id') ?? '';
const call = (token: string, session: string, name = 'web_page', args: object = {}): ReturnType<Ask> =>
  ask('/mcp', { token, session, body: request(1, 'tools/call', { name, arguments: args }) });

/** Returns a token with any header, and a signature by `sign`. */
function forge(header: object, claims: object, sign: (text: string) => string): string {
  const text = [header, claims].map((part) => Buffer.from(JSON.stringify(part)).toString('base64url')).join('.');
  return `${text}.${sign(text)}`;
}

const hmac = (secret: string) => (text: string) => createHmac('sha256', secret).update(text).digest('base64url');
const pem = ({ publicKey }: Key): string => publicKey.export({ type: 'spki', format: 'pem' }) as string;
const jwk = ({ publicKey }: Key): object => publicKey.export({ format: 'jwk' });
const now = (): number => Math.floor(Date.now() / 1000);
const good = (): object => ({ iss: issuer.url, aud: AUDIENCE, sub: 'ann', iat: now(), exp: now() + 300 });

/** Each attack, and the token that it sends. */
const FORGERIES: readonly (readonly [string, () => string | Promise<string>])[] = [
  ['the audience of another server', () => issuer.sign({ aud: 'https://other.example.org/mcp' })],
  ['an audience that begins alike', () => issuer.sign({ aud: `${AUDIENCE}/more` })],
  ['no audience', () => issuer.sign({ aud: undefined })],
  ['another issuer', () => issuer.sign({ iss: 'https://login.example.org' })],
  ['an issuer with another spelling', () => issuer.sign({ iss: `${issuer.url}/` })],
  ['no issuer', () => issuer.sign({ iss: undefined })],
  ['algorithm none', () => forge({ alg: 'none', typ: 'at+jwt' }, good(), () => '')],
  ['algorithm nOnE and a signature', () => forge({ alg: 'nOnE', kid: 'first' }, good(), () => 'x')],
  [
    'HS256 with the public key as the secret (PEM)',
    () => forge({ alg: 'HS256', kid: 'first' }, good(), hmac(pem(issuer.key))),
  ],
  [
    'HS256 with the public key as the secret (JWK)',
    () => forge({ alg: 'HS256', kid: 'first' }, good(), hmac(JSON.stringify(jwk(issuer.key)))),
  ],
  ['a key in its own header (jwk)', () => signedBy(makeKey('first'), (key) => ({ jwk: jwk(key) }))],
  [
    'an address of keys in its own header (jku)',
    () => signedBy(makeKey('first'), () => ({ jku: `${issuer.url}/keys` })),
  ],
  ['the signature of another key under a known id', () => signedBy(makeKey('first'), () => ({}))],
  ['a changed subject', async () => changed(await issuer.sign(), { ...good(), sub: 'boss' })],
  ['an expired token', () => issuer.sign({ exp: now() - 60 })],
  ['no expiry', () => issuer.sign({ exp: undefined })],
  ['a token that is not valid yet', () => issuer.sign({ nbf: now() + 60 })],
  ['an algorithm that is not accepted', () => issuer.sign({}, { key: { ...makeKey('first', 'rsa'), alg: 'RS512' } })],
  ['another kind of token (logout)', () => issuer.sign({}, { header: { typ: 'logout+jwt' } })],
  ['another kind of token (assertion)', () => issuer.sign({}, { header: { typ: 'oauth-id-jag+jwt' } })],
  ['a token bound to a key of its client', () => issuer.sign({ cnf: { jkt: 'x' } })],
  ['an unknown critical header', () => forge({ alg: 'ES256', kid: 'first', crit: ['x'], x: 1 }, good(), () => 'x')],
  ['no subject', () => issuer.sign({ sub: undefined })],
  ['a token of two parts', () => 'a.b'],
  ['a long token', () => `${'a'.repeat(9000)}.b.c`],
];

function signedBy(key: Key, header: (key: Key) => object): Promise<string> {
  return issuer.sign({}, { key, header: { ...header(key) } });
}

function changed(token: string, claims: object): string {
  const [head = '', , signature = ''] = token.split('.');
  return [head, Buffer.from(JSON.stringify(claims)).toString('base64url'), signature].join('.');
}

describe('a token of an issuer', () => {
  it('opens a session, and its calls pass the policy' + verifies('PR-A07'), async () => {
    const token = await issuer.sign();
    const session = await sessionOf(token);
    expect(session).toMatch(/^[0-9a-f]{32}$/);
    expect((await call(token, session)).text).not.toContain('isError":true');
    const member = await issuer.sign({ sub: 'ben', groups: ['team'] });
    expect((await call(member, await sessionOf(member))).text).toContain('UNKNOWN_TOOL');
  });

  it.each(FORGERIES)(
    'attack, %s: is refused like any other, and opens nothing' + verifies('PR-A07'),
    async (_what, forged) => {
      const { status, text, headers } = await open(await forged());
      const { text: unknown } = await open('no-such-token');
      expect(status).toBe(401);
      expect(text).toBe(unknown);
      expect(headers.get('www-authenticate')).toBe(
        'Bearer realm="tollgate", error="invalid_token", ' +
          'resource_metadata="https://tools.example.org/.well-known/oauth-protected-resource/mcp"',
      );
    },
  );

  it('attack, a key that the issuer has withdrawn: is refused', async () => {
    const old = makeKey('old');
    issuer.keys = [issuer.key];
    expect((await open(await issuer.sign({}, { key: old }))).status).toBe(401);
  });

  it('attack, the session of another subject: is as unknown as a missing one' + verifies('PR-A09'), async () => {
    const session = await sessionOf(await issuer.sign());
    for (const token of [await issuer.sign({ sub: 'ben' }), await issuer.sign({ iss: issuer.url, sub: 'ANN' })])
      expect((await call(token, session)).status).toBe(404);
  });

  it('attack, rights that a newer token no longer gives: end with the session' + verifies('PR-A09'), async () => {
    const free = await issuer.sign();
    const session = await sessionOf(free);
    const bound = await issuer.sign({ groups: ['team'] });
    expect((await call(bound, session)).status).toBe(404);
    expect((await call(await issuer.sign({ jti: randomUUID() }), session)).status).toBe(200);
    const owner = await issuer.sign({ tollgate_owner: 'yes' });
    expect((await call(free, await sessionOf(owner))).status).toBe(404);
  });

  it('attack, ownership by other claims: gives none' + verifies('PR-A08'), async () => {
    const metrics = async (claims: Readonly<Record<string, unknown>>): Promise<boolean> =>
      (await ask('/metrics', { token: await issuer.sign(claims) })).text.includes('tollgate_http_connections');
    for (const claims of [
      { owner: true },
      { role: 'owner' },
      { tollgate_owner: true },
      { tollgate_owner: 'no' },
      { tollgate_owner: { yes: true } },
      { sub: 'me' },
    ])
      expect(await metrics(claims), JSON.stringify(claims)).toBe(false);
    expect(await metrics({ tollgate_owner: ['yes'] })).toBe(true);
  });

  it('is never sent to a server (token passthrough)' + verifies('PR-A11'), async () => {
    const token = await issuer.sign();
    const session = await sessionOf(token);
    await call(token, session, 'web_act', { raw: '{"content":[]}' });
    expect(facade.calls('web')).toHaveLength(1);
    expect(facade.lines('web').join('\n')).not.toContain(token.split('.')[1]);
  });

  it('is refused as soon as tollgate.yaml accepts others, and its sessions end' + verifies('PR-A12'), async () => {
    const token = await issuer.sign();
    const session = await sessionOf(token);
    expect((await call(token, session)).status).toBe(200);
    const { config } = facade.assembled;
    const { jwt = expect.fail() } = config.listen;
    const listen = { ...config.listen, jwt: { ...jwt, audience: 'https://new.example.org/mcp' } };
    await facade.assembled.reload(() => ({ ...config, listen }), true);
    expect((await call(token, session)).status).toBe(401);
    expect((await call(await issuer.sign({ aud: listen.jwt.audience }), session)).status).toBe(404);
  });
});

describe('an owner who stops what a subject may do', () => {
  const command = (...argv: readonly string[]) => start({ home: facade.folder, folder: facade.folder }, argv).ended;

  it.each([
    ['off', ['off'], ['on'], 'SWITCHED_OFF'],
    ['kill', ['kill', 'web'], ['kill', '--lift', 'web'], 'SERVER_UNAVAILABLE'],
    ['revoke', ['revoke', 'web'], undefined, 'SERVER_UNAVAILABLE'],
  ])('stops the next call of each session: %s' + verifies('PR-A12'), async (_name, stop, undo, code) => {
    const token = await issuer.sign();
    const session = await sessionOf(token);
    const codeOf = async (): Promise<string> => (await call(token, session)).text;
    expect(await codeOf()).not.toContain(code);
    expect(await command(...stop)).toMatchObject({ code: 0 });
    await expect.poll(codeOf, { timeout: 20_000 }).toContain(code);
    if (undo === undefined) return;
    expect(await command(...undo)).toMatchObject({ code: 0 });
    await expect.poll(codeOf, { timeout: 20_000 }).not.toContain(code);
  });
});

describe('the metadata of the listener (RFC 9728)', () => {
  it.each(['/.well-known/oauth-protected-resource', '/.well-known/oauth-protected-resource/mcp'])(
    'name the issuer at %s, without a token' + verifies('PR-A13'),
    async (path) => {
      const { status, text } = await ask(path);
      expect(status).toBe(200);
      expect(JSON.parse(text)).toEqual({
        resource: AUDIENCE,
        authorization_servers: [issuer.url],
        bearer_methods_supported: ['header'],
        resource_name: 'Tollgate',
      });
    },
  );

  it(
    'are named by a refusal, which says that a token is wrong only if there was one' + verifies('PR-A13'),
    async () => {
      const { status, headers } = await ask('/mcp', { body: initialize() });
      expect([status, headers.get('www-authenticate')]).toEqual([
        401,
        'Bearer realm="tollgate", resource_metadata="https://tools.example.org/.well-known/oauth-protected-resource/mcp"',
      ]);
      for (const path of ['/.well-known/oauth-protected-resource/other', '/.well-known/oauth-authorization-server'])
        expect((await ask(path)).status).toBe(404);
      expect((await ask('/.well-known/oauth-protected-resource', { body: {} })).status).toBe(405);
    },
  );
});
