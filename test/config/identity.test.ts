/** Tests which principal a caller over stdio is, and that tokens are stored as hashes. */
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

describe('principalForStdio', () => {
  it.each([
    [{ user: 'alice' }, 'alice'],
    [{ user: 'bob' }, 'bob'],
    [{ user: 'bob', as: 'alice' }, 'alice'],
    [{ user: 'root', as: 'kiosk' }, 'kiosk'],
    [{ user: 'alice', as: 'kiosk' }, 'kiosk'],
  ])('identifies %j as %s', (caller, id) => {
    withProject((project) => {
      const principal = principalForStdio(project.config(YAML, ENV), caller);
      expect(principal.id).toBe(id);
      expect(Object.isFrozen(principal)).toBe(true);
    });
  });

  it.each([
    [
      'an unknown user who can choose among several principals',
      { user: 'mallory' },
      'Use --as with one of: alice, kiosk.',
    ],
    ['a principal that does not exist', { user: 'alice', as: 'eve' }, 'Use --as with one of: alice, kiosk.'],
    ['a principal with a token to another user', { user: 'mallory', as: 'bob' }, 'alice, kiosk'],
    ['a principal with `stdio: false`, even to a user of its name', { user: 'ci' }, 'alice, kiosk'],
    ['a name of an object prototype', { user: 'constructor', as: '__proto__' }, 'alice, kiosk'],
  ])('refuses %s', (_what, caller, next) => {
    withProject((project) => {
      expect(() => principalForStdio(project.config(YAML, ENV), caller)).toThrowError(
        expect.objectContaining({ code: 'IDENTITY', next: expect.stringContaining(next) as string }) as Error,
      );
    });
  });

  it('says what to add if no principal is available', () => {
    withProject((project) => {
      const config = project.config(`principals: [{id: ci, token: 'sha256:${'a'.repeat(64)}'}]`);
      expect(() => principalForStdio(config, { user: 'x' })).toThrowError(
        expect.objectContaining({ next: 'Add a principal with `stdio: true` to tollgate.yaml.' }) as Error,
      );
    });
  });

  it('identifies every user as `local` if the file has no principals', () => {
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
  it('are stored as hashes; a token and its hash in a variable are equivalent', () => {
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
