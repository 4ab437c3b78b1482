/** Tests who the caller over stdio is, and how tokens of the configuration become hashes. */
import { createHash } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { principalForStdio } from '../../facade/config/stdio-identity.ts';
import { createAuthenticator } from '../../facade/serve/http/token-authentication.ts';
import { withProject } from './project.ts';

const YAML = `
principals:
  - {id: alice, role: developer, groups: [a], profiles: [default, harbor]}
  - {id: bob, token: '\${env:BOB}', client: cursor}
  - {id: ci, token: 'sha256:${'a'.repeat(64)}', stdio: false}
  - {id: kiosk, token: 'sha256:${'b'.repeat(64)}', stdio: true}
`;
const ENV = { BOB: 'token-of-bob-0123456789' };

describe('over stdio', () => {
  it.each([
    [{ user: 'alice' }, 'alice'],
    [{ user: 'bob' }, 'bob'],
    [{ user: 'bob', as: 'alice' }, 'alice'],
    [{ user: 'root', as: 'kiosk' }, 'kiosk'],
    [{ user: 'alice', as: 'kiosk' }, 'kiosk'],
  ])('%j is %s', (caller, id) => {
    withProject((project) => {
      const principal = principalForStdio(project.config(YAML, ENV), caller);
      expect(principal.id).toBe(id);
      expect(Object.isFrozen(principal)).toBe(true);
    });
  });

  it.each([
    ['an unknown user with several to choose from', { user: 'mallory' }, 'Use --as with one of: alice, kiosk.'],
    ['a principal that does not exist', { user: 'alice', as: 'eve' }, 'Use --as with one of: alice, kiosk.'],
    ['the holder of a token, by name alone', { user: 'mallory', as: 'bob' }, 'alice, kiosk'],
    ['one that is closed over stdio, even to a user of its name', { user: 'ci' }, 'alice, kiosk'],
    ['a name of a prototype', { user: 'constructor', as: '__proto__' }, 'alice, kiosk'],
  ])('refuses %s', (_what, caller, next) => {
    withProject((project) => {
      expect(() => principalForStdio(project.config(YAML, ENV), caller)).toThrowError(
        expect.objectContaining({ code: 'IDENTITY', next: expect.stringContaining(next) as string }) as Error,
      );
    });
  });

  it('says what to add when nobody may', () => {
    withProject((project) => {
      const config = project.config(`principals: [{id: ci, token: 'sha256:${'a'.repeat(64)}'}]`);
      expect(() => principalForStdio(config, { user: 'x' })).toThrowError(
        expect.objectContaining({ next: 'Add a principal with `stdio: true` to tollgate.yaml.' }) as Error,
      );
    });
  });

  it('without principals in the file, whoever starts it is `local`', () => {
    withProject((project) => {
      expect(principalForStdio(project.config(''), { user: 'anyone' })).toEqual({
        id: 'local',
        role: 'user',
        groups: [],
        profiles: ['default'],
        origin: 'local',
        owner: true,
      });
    });
  });
});

describe('tokens', () => {
  it('are kept as hashes; the one of a variable and its hash open the same door', () => {
    withProject((project) => {
      const { principals } = project.config(YAML, ENV);
      const hash = createHash('sha256').update(ENV.BOB).digest('hex');
      expect(principals[1]).toEqual({
        id: 'bob',
        role: 'user',
        groups: [],
        profiles: ['default'],
        client: 'cursor',
        owner: false,
        registers: [],
        tokenHash: hash,
      });
      expect(project.config(YAML, { BOB: `sha256:${hash.toUpperCase()}` }).principals[1]?.tokenHash).toBe(hash);
      const [fallback] = principals;
      if (fallback === undefined) throw new Error('no principal');
      const authenticate = createAuthenticator({ auth: 'token', principals, fallback });
      expect(authenticate(ENV.BOB)).toMatchObject({ id: 'bob', origin: 'cursor' });
      expect(authenticate('token-of-eve-0123456789')).toBeUndefined();
    });
  });
});
