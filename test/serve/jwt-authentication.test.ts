/** Tests access tokens of an issuer: which are accepted, whom they identify, and how often keys are read. */
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { openIssuerKeys } from '../../adapters/oauth/issuer-keys.ts';
import { isSubject, subjectId } from '../../facade/config/settings/jwt-settings.ts';
import { createJwtAuthentication, type JwtAuthentication } from '../../facade/serve/http/jwt-authentication.ts';
import { refusalOf } from '../stdio/misbehaving-server.ts';
import { verifies } from '../verifies.ts';
import { AUDIENCE, makeKey, TokenIssuer } from './token-issuer.ts';

let issuer: TokenIssuer;
/** Milliseconds since the test began; for the keys and for the tokens. */
let passed = 0;
beforeAll(async () => (issuer = await new TokenIssuer().open()));
afterAll(() => issuer.close());
beforeEach(() => {
  [issuer.keys, issuer.says, issuer.isDown, passed] = [[issuer.key], {}, false, 0];
  issuer.heard.length = 0;
});

function authentication(claims: object = {}): JwtAuthentication {
  const jwt = issuer.settings(claims);
  const keys = openIssuerKeys(jwt, { now: () => passed });
  return createJwtAuthentication({ jwt, keys, now: () => Date.now() + passed });
}

describe('the principal of a token', () => {
  it(
    'has an id of issuer and subject, the default role and profile, and is no owner' + verifies('PR-A08'),
    async () => {
      const { identify } = authentication();
      const id = `jwt:${encodeURIComponent(issuer.url)}:ann`;
      const principal = await identify(
        await issuer.sign({ role: 'admin', owner: true, groups: ['g'], profiles: ['p'] }),
      );
      expect(principal).toEqual({ id, role: 'user', groups: [], profiles: ['default'], origin: id, owner: false });
      expect(Object.isFrozen(principal)).toBe(true);
    },
  );

  it('has what the configuration maps, and nothing else' + verifies('PR-A08'), async () => {
    const { identify } = authentication({
      id: 'email',
      role: { claim: 'roles', values: { admins: 'developer', all: 'reader' } },
      groups: { claim: 'groups', values: { 'g-1': 'payments', 'g-2': 'platform' } },
      profiles: { claim: 'scope', values: { 'tools:dev': 'dev', 'tools:ops': 'ops' } },
      owner: { claim: 'groups', values: ['g-9'] },
    });
    const claims = { email: 'ann@example.org', roles: ['all', 'admins'], groups: ['g-2', 'g-7'], scope: 'x tools:ops' };
    expect(await identify(await issuer.sign(claims))).toMatchObject({
      id: expect.stringMatching(/:ann@example\.org$/) as string,
      role: 'developer',
      groups: ['platform'],
      profiles: ['ops'],
      owner: false,
    });
    expect(await identify(await issuer.sign({ ...claims, groups: ['g-9'] }))).toMatchObject({
      owner: true,
      groups: [],
    });
    // A value must be a text: an object or number that prints alike is ignored.
    expect(await identify(await issuer.sign({ ...claims, groups: [['g-9'], { 'g-9': 1 }] }))).toMatchObject({
      owner: false,
    });
    expect(await identify(await issuer.sign({ ...claims, email: undefined }))).toBeUndefined();
  });

  it.each(['', 7, null, ['ann'], 'x'.repeat(256), '\ud800'])('is refused for the subject %j', async (sub) => {
    expect(subjectId('https://login.example.org', sub)).toBeUndefined();
  });

  it('never equals that of another subject, of another issuer or of tollgate.yaml' + verifies('PR-A08'), () => {
    const subjects = ['a', 'A', 'a:b', 'a%3Ab', 'a/b', 'ä', 'a b', 'a\nb', '../a'];
    const issuers = ['https://a', 'https://a:b', 'https://a/b', 'http://a', 'https://a%3Ab'];
    const ids = issuers.flatMap((one) => subjects.map((sub) => subjectId(one, sub) ?? ''));
    expect(new Set(ids).size).toBe(subjects.length * issuers.length);
    for (const id of ids) {
      expect(id).toMatch(/^jwt:[\w.%@-]+:[\w.%@-]+$/);
      expect(id).not.toMatch(/^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$/);
      expect(isSubject({ id })).toBe(true);
    }
  });

  it('is one object for all tokens with the same facts, and is found at once the next time', async () => {
    const { identify } = authentication();
    const token = await issuer.sign();
    const first = await identify(token);
    expect(identify(token)).toBe(first);
    expect(await identify(await issuer.sign({ jti: 'another' }))).toBe(first);
  });

  it('is current until its last token has expired', async () => {
    const { identify, isCurrent } = authentication();
    const principal = await identify(await issuer.sign());
    if (principal === undefined) return expect.fail();
    expect(isCurrent(principal)).toBe(true);
    passed = 331_000;
    expect(isCurrent(principal)).toBe(false);
    expect(isCurrent({ ...principal, id: 'jwt:x:y' })).toBe(false);
  });

  it('may expire and begin by clocks that differ by 30 seconds, and not more' + verifies('PR-A07'), async () => {
    const now = Math.floor(Date.now() / 1000);
    const isAccepted = async (claims: Readonly<Record<string, unknown>>): Promise<boolean> =>
      (await authentication().identify(await issuer.sign(claims))) !== undefined;
    expect(await isAccepted({ exp: now - 20 })).toBe(true);
    expect(await isAccepted({ exp: now - 40 })).toBe(false);
    expect(await isAccepted({ nbf: now + 20 })).toBe(true);
    expect(await isAccepted({ nbf: now + 40 })).toBe(false);
    const { identify } = authentication();
    const token = await issuer.sign({ exp: now + 10 });
    expect(await identify(token)).toBeDefined();
    passed = 45_000;
    expect(await identify(token)).toBeUndefined();
  });
});

describe('the keys of an issuer', () => {
  it('are read with the first token, and again after ten minutes' + verifies('PR-A10'), async () => {
    const { identify } = authentication();
    expect(issuer.reads).toBe(0);
    await Promise.all([identify(await issuer.sign()), identify(await issuer.sign({ jti: '2' }))]);
    expect(issuer.reads).toBe(1);
    issuer.keys = [];
    passed = 599_000;
    expect(await identify(await issuer.sign({ exp: 9e9 }))).toBeDefined();
    passed = 661_000;
    expect(await identify(await issuer.sign({ exp: 9e9 }))).toBeUndefined();
    expect(issuer.reads).toBe(2);
  });

  it('are read again for an unknown key, so that a new one works soon', async () => {
    const { identify } = authentication();
    await identify(await issuer.sign());
    const key = makeKey('second', 'rsa');
    issuer.keys.push(key);
    passed = 31_000;
    expect(await identify(await issuer.sign({}, { key }))).toBeDefined();
  });

  it('attack, tokens with invented key ids: cause one request in 30 seconds' + verifies('PR-A10'), async () => {
    const { identify } = authentication();
    for (let at = 0; at < 50; at += 1) {
      const key = { ...issuer.key, kid: `invented-${at}` };
      expect(await identify(await issuer.sign({}, { key }))).toBeUndefined();
    }
    expect(issuer.reads).toBe(1);
    passed = 31_000;
    await identify(await issuer.sign({}, { key: { ...issuer.key, kid: 'one-more' } }));
    expect(issuer.reads).toBe(2);
  });

  it(
    'that cannot be read refuse every token, with a code of their own and few requests' + verifies('PR-A10'),
    async () => {
      issuer.isDown = true;
      const { identify } = authentication();
      for (let at = 0; at < 5; at += 1)
        expect(await refusalOf(Promise.resolve(identify(await issuer.sign({ jti: `${at}` }))))).toMatch(
          /^ISSUER_UNAVAILABLE/,
        );
      expect(issuer.heard.length).toBeLessThanOrEqual(2);
      issuer.isDown = false;
      passed = 31_000;
      expect(await identify(await issuer.sign())).toBeDefined();
    },
  );

  it.each([
    ['of another issuer', { issuer: 'https://good.example' }],
    ['that lead to an address without https', { jwks_uri: 'http://evil.example/keys' }],
    ['that name no keys', { jwks_uri: undefined }],
  ])('are not taken from metadata %s' + verifies('PR-A10'), async (_what, says) => {
    issuer.says = says;
    expect(await refusalOf(Promise.resolve(authentication().identify(await issuer.sign())))).toMatch(
      /^ISSUER_UNAVAILABLE/,
    );
  });

  it('attack, metadata of a public issuer that lead into a private network (SSRF): are not followed', async () => {
    const lookup = async (): Promise<readonly string[]> => ['93.184.215.14'];
    const keys = openIssuerKeys({ issuer: 'https://login.example.org', jwks: `${issuer.url}/keys` }, { lookup });
    expect(await refusalOf(Promise.resolve(keys({ alg: 'ES256' }, {} as never)))).toMatch(/^ISSUER_UNAVAILABLE/);
    expect(issuer.heard).toEqual([]);
  });
});

describe('the audience', () => {
  it('may be one of several', async () => {
    expect(
      await authentication().identify(await issuer.sign({ aud: ['https://other.example', AUDIENCE] })),
    ).toBeDefined();
  });
});
