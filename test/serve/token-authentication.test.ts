/** Tests bearer tokens and the access token file: whose they are, and which are refused. */
import { createHash } from 'node:crypto';
import {
  chmodSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { PrincipalConfig } from '../../facade/config/config.ts';
import { ensureToken } from '../../facade/serve/http/access-token.ts';
import { asPrincipal, bearerToken, createAuthenticator } from '../../facade/serve/http/token-authentication.ts';
import { verifies } from '../verifies.ts';

const hash = (token: string): string => createHash('sha256').update(token).digest('hex');
const person = (id: string, tokenHash?: string): PrincipalConfig => ({
  id,
  role: 'user',
  groups: ['g'],
  profiles: ['p'],
  client: `${id}-client`,
  owner: false,
  registers: [],
  ...(tokenHash === undefined ? {} : { tokenHash }),
});

describe('bearer tokens', () => {
  const principals = [
    person('alice', hash('alice-token')),
    person('bob', hash('bob-token')),
    person('carol'),
    person('broken', 'abcd'),
  ];
  const fallback = person('owner');

  it.each([
    ['alice-token', 'alice'],
    ['bob-token', 'bob'],
    ['access', 'owner'],
    ['alice-toke', undefined],
    ['alice-token ', undefined],
    ['', undefined],
    [hash('alice-token'), undefined],
    [undefined, undefined],
  ])('identify: %j is %s', (token, id) => {
    const authenticate = createAuthenticator({ auth: 'token', principals, fallback, accessToken: 'access' });
    expect(authenticate(token)?.id).toBe(id);
  });

  it('do not identify the fallback principal without an access token', () => {
    const authenticate = createAuthenticator({ auth: 'token', principals: [], fallback });
    expect([authenticate('access'), authenticate(''), authenticate(undefined)]).toEqual([
      undefined,
      undefined,
      undefined,
    ]);
  });

  it('may be missing with auth none, but not wrong', () => {
    const authenticate = createAuthenticator({ auth: 'none', principals, fallback: { ...fallback, owner: true } });
    expect(authenticate(undefined)?.id).toBe('owner');
    expect(authenticate(undefined)).toMatchObject({ origin: 'anonymous', owner: false });
    expect(authenticate('bob-token')?.id).toBe('bob');
    expect(authenticate('wrong')).toBeUndefined();
  });

  it('of two principals identify the first', () => {
    const authenticate = createAuthenticator({
      auth: 'token',
      principals: [person('a', hash('t')), person('b', hash('t'))],
      fallback,
    });
    expect(authenticate('t')?.id).toBe('a');
  });

  it('make a frozen principal whose origin is the client of the token', () => {
    const principal = asPrincipal(person('alice'));
    expect(principal).toEqual({
      id: 'alice',
      role: 'user',
      groups: ['g'],
      profiles: ['p'],
      origin: 'alice-client',
      owner: false,
    });
    expect(Object.isFrozen(principal)).toBe(true);
  });
});

describe('the Authorization header', () => {
  it.each([
    [undefined, undefined],
    ['Bearer abc', 'abc'],
    ['bearer   abc', 'abc'],
    ['Basic YTpi', ''],
    ['Bearer', ''],
    ['Bearer ', ''],
    ['Bearer a b', ''],
    ['Bearer a\u0000b', ''],
    ['abc', ''],
    ['', ''],
  ])('%j contains the token %j', (header, token) => {
    expect(bearerToken(header)).toBe(token);
  });
});

describe('the access token file', () => {
  let folder: string;
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'tollgate-token-'));
  });
  afterEach(() => rmSync(folder, { recursive: true, force: true }));

  it('is created once, with mode 0600 in a folder of 0700, and leaves no other file' + verifies('HA-02'), () => {
    const state = join(folder, 'deep', 'state');
    const token = ensureToken(state);
    expect(token).toMatch(/^[A-Za-z0-9_-]{43}$/);
    expect(ensureToken(state)).toBe(token);
    expect(statSync(join(state, 'token')).mode & 0o777).toBe(0o600);
    expect(statSync(state).mode & 0o777).toBe(0o700);
    expect(readdirSync(state)).toEqual(['token']);
    expect(readFileSync(join(state, 'token'), 'utf8')).toBe(`${token}\n`);
  });

  it('differs in another folder', () => {
    expect(ensureToken(join(folder, 'a'))).not.toBe(ensureToken(join(folder, 'b')));
  });

  it('is refused if others can read it', () => {
    ensureToken(folder);
    chmodSync(join(folder, 'token'), 0o644);
    expect(() => ensureToken(folder)).toThrow(
      expect.objectContaining({ code: 'STATE_FAILED', message: expect.stringContaining('other users') as string }),
    );
  });

  it.each(['', 'short', 'a'.repeat(44), `${'a'.repeat(42)} `])('is refused if it contains %j', (text) => {
    writeFileSync(join(folder, 'token'), text, { mode: 0o600 });
    expect(() => ensureToken(folder)).toThrow(expect.objectContaining({ code: 'STATE_FAILED' }));
  });

  it("is refused if it is a link to another user's file", () => {
    writeFileSync(join(folder, 'known'), 'a'.repeat(43), { mode: 0o600 });
    symlinkSync(join(folder, 'known'), join(folder, 'token'));
    expect(() => ensureToken(folder)).toThrow(expect.objectContaining({ code: 'STATE_FAILED' }));
  });

  it('does not reveal paths if the folder cannot be created', () => {
    writeFileSync(join(folder, 'file'), '');
    expect(() => ensureToken(join(folder, 'file', 'state'))).toThrow(
      expect.objectContaining({ code: 'STATE_FAILED', message: 'The access token cannot be read or made.' }),
    );
    mkdirSync(join(folder, 'token'));
    expect(() => ensureToken(folder)).toThrow(expect.objectContaining({ code: 'STATE_FAILED' }));
  });
});
