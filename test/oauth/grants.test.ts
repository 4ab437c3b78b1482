/**
 * Tests how clients prove themselves, sign-ins that need no person, and refusals for missing scopes, which a server may
 * use to get more than the owner consented to.
 */
import { generateKeyPairSync, type KeyObject } from 'node:crypto';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { wrapMessage } from '../../facade/cli/terminal-rows.ts';
import { callOf, refusalOf, textOf } from '../stdio/misbehaving-server.ts';
import { verifies } from '../verifies.ts';
import { IdentityProvider, Issuer } from './issuer.ts';
import { Room } from './sign-in-bench.ts';

let room: Room;
beforeEach(async () => (room = await new Room().open()));
afterEach(() => room.close());

const pem = (key: KeyObject): string => key.export({ type: 'pkcs8', format: 'pem' }) as string;
const lastToken = (): URLSearchParams =>
  new URLSearchParams(room.issuer.heard.findLast(({ path }) => path === '/token')?.body);

describe('a client that registers itself', () => {
  it(
    'says that it is a native application, because the browser returns to this machine' + verifies('PR-A01'),
    async () => {
      await room.signIn();
      const sent = JSON.parse(room.issuer.heard.find(({ path }) => path === '/register')?.body ?? '{}') as object;
      expect(sent).toMatchObject({ application_type: 'native', token_endpoint_auth_method: 'none' });
    },
  );
});

describe('the address of a client’s metadata (CIMD)', () => {
  const port = 21_000 + (process.pid % 20_000);
  const id = 'https://tools.example.org/tollgate.json';
  const oauth = { grant: 'authorization_code', clientId: id, callbackPort: port } as const;

  it('is the client where the issuer reads such addresses' + verifies('PR-A04'), async () => {
    room.issuer.says = { client_id_metadata_document_supported: true };
    room.issuer.clients.set(id, { redirects: [`http://127.0.0.1:${port}/callback`] });
    await room.signIn({ oauth });
    expect(room.issuer.heard.some(({ path }) => path === '/register')).toBe(false);
    expect((await room.desk.store.read('remote'))?.client).toEqual({ id });
  });

  it('is not sent to another issuer: there Tollgate registers a client, also for renewals', async () => {
    await room.signIn({ oauth });
    expect(room.issuer.heard.some(({ path }) => path === '/register')).toBe(true);
    expect((await room.desk.store.read('remote'))?.client.id).toMatch(/^client-/);
    room.issuer.tokens.clear();
    const { server } = room.bench({ oauth });
    expect(await textOf(server, callOf('echo'))).toBe('ran echo');
    expect(lastToken().get('grant_type')).toBe('refresh_token');
    expect(lastToken().get('client_id')).toMatch(/^client-/);
  });
});

describe('client credentials', () => {
  const rsa = generateKeyPairSync('rsa', { modulusLength: 2048 });
  const oauth = () =>
    ({ grant: 'client_credentials', issuer: room.issuer.url, clientId: 'robot', scopes: ['read'] }) as const;

  it.each(['client_secret_basic', 'client_secret_post'])(
    'prove the client by %s' + verifies('PR-A05'),
    async (method) => {
      room.issuer.says = { token_endpoint_auth_methods_supported: [method] };
      room.issuer.clients.set('robot', { redirects: [], secret: 'sesame-of-robot' });
      room.secrets.set('robot', 'sesame-of-robot');
      await room.signIn({ oauth: { ...oauth(), clientSecret: '${secret:robot}' } });
      expect(lastToken().has('client_secret')).toBe(method === 'client_secret_post');
      expect(lastToken().get('resource')).toBe(room.guarded.mcp);
    },
  );

  it.each([
    ['RSA, PEM', rsa, (key: KeyObject) => pem(key), { alg: 'RS256' }],
    ['P-256, PEM', generateKeyPairSync('ec', { namedCurve: 'P-256' }), (key: KeyObject) => pem(key), { alg: 'ES256' }],
    ['P-384, PEM', generateKeyPairSync('ec', { namedCurve: 'P-384' }), (key: KeyObject) => pem(key), { alg: 'ES384' }],
    ['Ed25519, PEM', generateKeyPairSync('ed25519'), (key: KeyObject) => pem(key), { alg: 'EdDSA' }],
    [
      'RSA, JWK with its algorithm and id',
      rsa,
      (key: KeyObject) => JSON.stringify({ ...key.export({ format: 'jwk' }), alg: 'PS256', kid: 'k1' }),
      { alg: 'PS256', kid: 'k1' },
    ],
  ])(
    'prove the client by a signed assertion for its issuer only: %s' + verifies('PR-A05'),
    async (_kind, keys, write, header) => {
      room.issuer.says = { token_endpoint_auth_methods_supported: ['private_key_jwt'] };
      room.issuer.clients.set('robot', { redirects: [], publicKey: keys.publicKey });
      room.secrets.set('key', write(keys.privateKey));
      await room.signIn({ oauth: { ...oauth(), privateKey: '${secret:key}' } });
      const [head, claims] = (lastToken().get('client_assertion') ?? '')
        .split('.', 2)
        .map((part) => JSON.parse(Buffer.from(part, 'base64url').toString() || '{}') as Record<string, unknown>);
      expect(head).toEqual(header);
      expect(claims).toMatchObject({ iss: 'robot', sub: 'robot', aud: room.issuer.url });
      expect(Number(claims?.exp) - Number(claims?.iat)).toBeLessThanOrEqual(120);
      expect(JSON.stringify(await room.desk.store.read('remote'))).not.toContain('PRIVATE KEY');
    },
  );

  it.each(['no key at all, but secret', '{"kty":"oct","k":"c2VzYW1l"}', '{"kty":'])(
    'are refused without showing the key: %j',
    async (text) => {
      room.secrets.set('key', text);
      const refusal = await refusalOf(room.signIn({ oauth: { ...oauth(), privateKey: '${secret:key}' } }));
      expect(refusal).toMatch(/^LOGIN_FAILED: The private key of client "robot" cannot be used\./);
      expect(refusal).not.toContain(text);
    },
  );
});

describe('the grant of an enterprise', () => {
  const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const provider = new IdentityProvider(privateKey);
  beforeEach(async () => {
    await provider.open();
    provider.says = {};
    provider.heard.length = 0;
    provider.users.set('id.token.of-ann', 'ann');
    room.issuer.trusts = { issuer: provider.url, key: publicKey };
    room.issuer.clients.set('team', { redirects: [], secret: 'sesame-of-team' });
    room.secrets.set('team', 'sesame-of-team').set('corp', 'sesame-of-corp').set('me', 'id.token.of-ann');
  });
  afterEach(() => provider.close());
  const oauth = (issuer = room.issuer.url) =>
    ({
      grant: 'enterprise',
      issuer,
      clientId: 'team',
      clientSecret: '${secret:team}',
      enterprise: {
        issuer: provider.url,
        clientId: 'corp',
        clientSecret: '${secret:corp}',
        idToken: '${secret:me}',
      },
    }) as const;

  it(
    'exchanges the ID token at the identity provider, and its assertion at the issuer' + verifies('PR-A06'),
    async () => {
      const { server } = room.bench({ oauth: oauth() });
      expect(await textOf(server, callOf('echo'))).toBe('ran echo');
      expect(room.shown).toEqual([]);
      const exchanged = new URLSearchParams(provider.heard.find(({ path }) => path === '/token')?.body);
      expect(exchanged.get('audience')).toBe(room.issuer.url);
      expect(exchanged.get('resource')).toBe(room.guarded.mcp);
      expect(lastToken().get('resource')).toBe(room.guarded.mcp);
      const everything = JSON.stringify([room.issuer.heard, room.guarded.heard]);
      for (const text of ['id.token.of-ann', 'sesame-of-corp']) expect(everything).not.toContain(text);
      expect(JSON.stringify(provider.heard)).not.toContain('sesame-of-team');
      // The ID token may have changed since, so each renewal reads it again.
      room.issuer.tokens.clear();
      room.secrets.set('me', 'another.id.token');
      provider.users.set('another.id.token', 'ann');
      expect(await textOf(server, callOf('echo'))).toBe('ran echo');
    },
  );

  it(
    'sends nothing to an issuer that the server names instead (attack: stolen assertion)' + verifies('PR-A06'),
    async () => {
      room.guarded.says = { authorization_servers: [room.issuer.url] };
      expect(await refusalOf(room.signIn({ oauth: oauth('https://login.example.org') }))).toMatch(
        /not to the issuer in/,
      );
      expect([room.issuer.heard, provider.heard]).toEqual([[], []]);
    },
  );

  it('is refused if the identity provider does not know the user, or gives another kind of token', async () => {
    provider.says = { issued_token_type: 'urn:ietf:params:oauth:token-type:access_token' };
    expect(await refusalOf(room.signIn({ oauth: oauth() }))).toMatch(/gave a token of another kind/);
    provider.users.clear();
    expect(await refusalOf(room.signIn({ oauth: oauth() }))).toMatch(/gave no grant for server "remote"\. .*idToken/);
    expect(room.grants()).toEqual([]);
  });
});

describe('a server that requires more scopes', () => {
  it('is answered by the scopes and the command that grants them, at any request' + verifies('PR-A02'), async () => {
    await room.signIn();
    const { server } = room.bench();
    expect(await refusalOf(server.call(callOf('write')))).toMatch(
      /requires more rights than its sign-in has: write\. To grant them, run `tollgate login remote --scope write`/,
    );
    await room.signIn({}, { addScopes: ['write', 'admin'] });
    expect(room.shown[1]?.scopes).toEqual(['read', 'write', 'admin']);
    expect(await textOf(server, callOf('write'))).toBe('ran write');
  });

  it('with a list of scopes in tollgate.yaml, gets no other ones', async () => {
    const oauth = { grant: 'authorization_code', scopes: ['read'] } as const;
    expect(await refusalOf(room.signIn({ oauth }, { addScopes: ['write'] }))).toMatch(
      /servers\.remote\.oauth\.scopes does not list write/,
    );
    expect(room.shown).toEqual([]);
  });

  it(
    'attack, step-up to another issuer: is refused before the person sees an address' + verifies('PR-A03'),
    async () => {
      await room.signIn();
      const { server } = room.bench();
      await refusalOf(server.call(callOf('write')));
      const other = await new Issuer().open();
      room.guarded.says = { authorization_servers: [other.url] };
      for (const parts of [{}, { addScopes: ['write'] }])
        expect(await refusalOf(room.signIn({}, parts))).toMatch(
          /now sends the sign-in to 127\.0\.0\.1:\d+\. You consented to 127\.0\.0\.1:\d+\. .*tollgate logout remote/,
        );
      expect(other.heard.every(({ method, path }) => method === 'GET' && path.startsWith('/.well-known/'))).toBe(true);
      expect(room.shown).toHaveLength(1);
      expect((await room.desk.store.read('remote'))?.issuer).toBe(room.issuer.url);
      other.close();
    },
  );

  it('attack, a step-up without end: causes one request per call, and no sign-in' + verifies('PR-A03'), async () => {
    await room.signIn();
    const { server } = room.bench();
    room.guarded.demands = 'read';
    const calls = (): number => room.guarded.heard.filter(({ body }) => body.includes('tools/call')).length;
    for (let at = 1; at <= 4; at += 1) {
      expect(await refusalOf(server.call(callOf('write')))).toMatch(
        /refuses a request for its scopes, although its sign-in has read\. Another sign-in does not help/,
      );
      expect(calls()).toBe(at);
    }
    expect(room.grants()).toEqual(['authorization_code']);
  });

  it('attack, words for a shell or a model as scopes: are not shown' + verifies('PR-A02'), async () => {
    await room.signIn();
    const { server } = room.bench();
    room.guarded.demands = `$(evil) --no-browser ;rm ${'x'.repeat(150)} ok:1`;
    const refusal = await refusalOf(server.call(callOf('write')));
    expect(refusal).toMatch(
      /has: ok:1, 4 that cannot be shown\. To grant them, run `tollgate login remote --scope ok:1`/,
    );
    expect(refusal).not.toMatch(/evil|no-browser|rm|xxx/);
  });

  it('and protects only what follows initialize, is found by the sign-in' + verifies('PR-A02'), async () => {
    room.guarded.isLate = true;
    room.guarded.place = '/elsewhere';
    expect(await room.signIn()).toMatchObject({ issuer: room.issuer.url, scopes: ['read'] });
  });
});

describe('the address of a sign-in on the screen', () => {
  it('stays in one line, however long it is', () => {
    const line = `  https://login.example.org/authorize?${'x'.repeat(300)}`;
    expect(wrapMessage(`Consent:\n\n${line}\n\n`, 100, ['tollgate'])).toBe(`Consent:\n\n${line}\n\n`);
  });
});
