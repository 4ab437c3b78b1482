/**
 * Tests the tokens of connections against a real protected server: their use, their renewal, that they are sent nowhere
 * else, and that the caller is told if a person must sign in.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { BearerToken } from '../../adapters/oauth/bearer-token.ts';
import { keepSignIns } from '../../facade/secrets/sign-ins.ts';
import { openState } from '../../facade/state/sqlite-state.ts';
import { callOf, codeOf, refusalOf, textOf } from '../stdio/misbehaving-server.ts';
import { verifies } from '../verifies.ts';
import { json, Listener } from './issuer.ts';
import { Room, settingsOf } from './sign-in-bench.ts';

let room: Room;
beforeEach(async () => (room = await new Room().open()));
afterEach(() => room.close());

const held = async (): Promise<NonNullable<Awaited<ReturnType<Room['desk']['store']['read']>>>> => {
  const found = await room.desk.store.read('remote');
  if (found === undefined) throw new Error('no sign-in');
  return found;
};
const NEEDS = /SERVER_UNAVAILABLE: .* Run `tollgate login remote`, then call again\./;

describe.each(['http', 'sse'] as const)('a server over %s', (transport) => {
  beforeEach(async () => {
    await room.close();
    room = await new Room().open(transport);
  });

  it(
    'is reported to need a sign-in, and gets its token after one; a call never opens a browser' + verifies('HA-30'),
    async () => {
      const { server } = room.bench({ transport });
      expect(await refusalOf(server.call(callOf('echo')))).toMatch(NEEDS);
      expect(room.issuer.heard).toEqual([]);
      await room.signIn({ transport });
      await sleep(5);
      expect(await textOf(server, callOf('echo'))).toBe('ran echo');
      expect(room.grants()).toEqual(['authorization_code']);
      const { access } = await held();
      expect(room.guarded.heard.at(-1)?.authorization).toBe(`Bearer ${access}`);
      expect(room.guarded.heard.every(({ path }) => !path.includes(access))).toBe(true);
    },
  );

  it('gets a renewed token after it refused the old one, and runs the call once', async () => {
    await room.signIn({ transport });
    const { server } = room.bench({ transport });
    expect(await textOf(server, callOf('echo'))).toBe('ran echo');
    room.issuer.tokens.clear();
    expect(await textOf(server, callOf('echo'))).toBe('ran echo');
    expect(room.grants()).toEqual(['authorization_code', 'refresh_token']);
    expect(room.guarded.ran).toEqual(['echo', 'echo']);
  });

  it('is reported to need a sign-in after the issuer refused the refresh token, which is not tried again', async () => {
    await room.signIn({ transport });
    const { server } = room.bench({ transport });
    await server.start();
    room.issuer.tokens.clear();
    room.issuer.refreshes.clear();
    for (let calls = 0; calls < 3; calls++) expect(await refusalOf(server.call(callOf('echo')))).toMatch(NEEDS);
    expect(room.grants()).toEqual(['authorization_code', 'refresh_token']);
    expect((await held()).refresh).toBeUndefined();
    await room.signIn({ transport });
    expect(await textOf(server, callOf('echo'))).toBe('ran echo');
  });
});

describe('a renewal', () => {
  it('happens before the end of a token, once for all calls and all processes' + verifies('HA-30'), async () => {
    room.issuer.lives = 1;
    await room.signIn();
    room.issuer.lives = 3600;
    room.issuer.slowness = 50;
    const servers = [
      room.bench().server,
      room.bench({}, room.desk.second()).server,
      room.bench({}, room.desk.second()).server,
    ];
    const answers = await Promise.all(servers.flatMap((server) => [1, 2, 3].map(() => textOf(server, callOf('echo')))));
    expect(new Set(answers)).toEqual(new Set(['ran echo']));
    expect(room.grants()).toEqual(['authorization_code', 'refresh_token']);
  });

  it('keeps the old refresh token if the issuer gives no new one, and waits for an unreachable issuer', async () => {
    await room.signIn();
    const before = await held();
    const { server } = room.bench();
    await server.start();
    room.issuer.tokens.clear();
    room.issuer.tokenFault = { status: 503, body: 'away' };
    const said = await refusalOf(server.call(callOf('echo')));
    expect(said).toMatch(/SERVER_UNAVAILABLE: The sign-in to server "remote" cannot be renewed at present\./);
    expect((await held()).refresh).toBe(before.refresh);
    room.issuer.tokens.set('kept.token', { resource: room.guarded.mcp, scope: 'read', expires: Date.now() + 60_000 });
    room.issuer.tokenFault = { status: 200, body: { access_token: 'kept.token', token_type: 'bearer' } };
    expect(await textOf(server, callOf('echo'))).toBe('ran echo');
    expect(await held()).toMatchObject({ access: 'kept.token', refresh: before.refresh });
    expect((await held()).expiresAt).toBeUndefined();
  });

  it('that fails leaves a valid token in use', async () => {
    room.issuer.lives = 20;
    await room.signIn();
    room.issuer.tokenFault = { status: 500, body: {} };
    expect(await textOf(room.bench().server, callOf('echo'))).toBe('ran echo');
    expect(room.grants()).toEqual(
      ['authorization_code', ...Array<string>(4).fill('refresh_token')].slice(0, room.grants().length),
    );
  });

  it('is not repeated if the server refuses the new token too', async () => {
    await room.signIn();
    const { server } = room.bench();
    await server.start();
    room.issuer.tokens.clear();
    room.issuer.tokenFault = { status: 200, body: { access_token: 'not-for-you', token_type: 'bearer' } };
    expect(await refusalOf(server.call(callOf('echo')))).toMatch(/The server refuses the new token/);
    expect(room.guarded.heard.filter(({ body }) => body.includes('tools/call'))).toHaveLength(2);
  });

  it('needs no person if the client has credentials of its own', async () => {
    room.issuer.clients.set('robot', { redirects: [], secret: 'sesame-of-robot' });
    room.secrets.set('robot', 'sesame-of-robot');
    const oauth = {
      grant: 'client_credentials',
      issuer: room.issuer.url,
      clientId: 'robot',
      clientSecret: '${secret:robot}',
    } as const;
    const { server } = room.bench({ oauth });
    expect(await textOf(server, callOf('echo'))).toBe('ran echo');
    room.issuer.tokens.clear();
    expect(await textOf(server, callOf('echo'))).toBe('ran echo');
    expect(room.grants()).toEqual(['client_credentials', 'client_credentials']);
    room.issuer.tokens.clear();
    room.issuer.clients.clear();
    expect(await refusalOf(server.call(callOf('echo')))).toMatch(
      /No token could be obtained for server "remote"\. `tollgate login remote` shows why\./,
    );
  });
});

describe('more rights (step-up)', () => {
  it('are requested at the next sign-in, together with those granted before' + verifies('HA-30'), async () => {
    await room.signIn();
    const { server } = room.bench();
    expect(await refusalOf(server.call(callOf('write')))).toMatch(
      /requires more rights than its sign-in has: write\. To grant them, run `tollgate login remote --scope write`/,
    );
    expect(await refusalOf(server.call(callOf('write')))).toMatch(/more rights/);
    expect(room.guarded.ran).toEqual([]);
    await room.signIn();
    expect(room.shown[1]?.scopes).toEqual(['read', 'write']);
    // The existing connection uses the new token.
    expect(await textOf(server, callOf('write'))).toBe('ran write');
    expect(room.guarded.ran).toEqual(['write']);
  });

  it('are not requested beyond those that the owner wrote', async () => {
    const oauth = { grant: 'authorization_code', scopes: ['read'] } as const;
    await room.signIn({ oauth });
    const { server } = room.bench({ oauth });
    expect(await refusalOf(server.call(callOf('write')))).toMatch(/servers\.remote\.oauth\.scopes limits/);
    await room.signIn({ oauth });
    expect(room.shown[1]?.scopes).toEqual(['read']);
  });
});

describe('a token stays with its server', () => {
  it('when the server redirects to another origin', async () => {
    const thief = await new (class extends Listener {
      protected answer(_request: unknown, response: Parameters<typeof json>[0]): void {
        json(response, 401, {});
      }
    })().open();
    const way = await new (class extends Listener {
      protected answer(_request: unknown, response: Parameters<typeof json>[0]): void {
        response.writeHead(307, { location: `${thief.url}/mcp` }).end();
      }
    })().open();
    await room.signIn();
    await room.desk.store.write('remote', { ...(await held()), url: `${way.url}/mcp` });
    expect(await refusalOf(room.bench({ url: `${way.url}/mcp` }).server.start())).toMatch(
      /redirect to another origin, which is not followed/,
    );
    expect(way.heard[0]?.authorization).toMatch(/^Bearer access\./);
    expect(thief.heard).toEqual([]);
    thief.close();
    way.close();
  });

  it('when the configured address has changed', async () => {
    const other = await new Room().open();
    await room.signIn();
    expect(await refusalOf(room.bench({ url: other.guarded.mcp }).server.start())).toMatch(NEEDS);
    expect(other.guarded.heard.every(({ authorization }) => authorization === undefined)).toBe(true);
    await other.close();
  });

  it('and is not sent to another origin, or unencrypted', async () => {
    const { store } = room.desk;
    const bearer = (url: string): BearerToken =>
      new BearerToken({ settings: settingsOf(url), store, secrets: room.secret });
    const one = bearer('https://mcp.example/mcp');
    expect(
      [
        'https://mcp.example/other',
        'https://mcp.example:8443/mcp',
        'http://mcp.example/mcp',
        'https://mcp.example.evil/mcp',
        'https://other.example/',
      ].map((url) => one.covers(url)),
    ).toEqual([true, false, false, false, false]);
    expect(bearer('http://mcp.example/mcp').covers('http://mcp.example/mcp')).toBe(false);
    expect(bearer('http://127.0.0.1:1/mcp').covers('http://127.0.0.1:1/mcp')).toBe(true);
  });

  it('when the owner wrote an Authorization header instead', async () => {
    await room.signIn();
    const { server } = room.bench({ headers: { authorization: 'Bearer of-the-owner' } });
    expect(await refusalOf(server.start())).toMatch(
      /refuses the configured credentials \(HTTP 401\)\. Correct the headers/,
    );
    expect(room.guarded.heard.at(-1)?.authorization).toBe('Bearer of-the-owner');
  });
});

describe('a server without a sign-in', () => {
  it('is reported to refuse its key', async () => {
    const keyed = await new (class extends Listener {
      protected answer(request: { headers: Record<string, unknown> }, response: Parameters<typeof json>[0]): void {
        json(response, request.headers['x-step'] === 'role' ? 403 : 401, {});
      }
    })().open();
    expect(await refusalOf(room.bench({ url: `${keyed.url}/mcp` }).server.start())).toMatch(
      /refuses the configured credentials \(HTTP 401\)\. Correct the headers/,
    );
    expect(
      await refusalOf(room.bench({ url: `${keyed.url}/mcp`, headers: { 'x-step': 'role' } }).server.start()),
    ).toMatch(/HTTP 403/);
    expect(keyed.heard).toHaveLength(2);
    keyed.close();
  });

  it('is not called if the vault, which may hold its sign-in, cannot be read', async () => {
    const broken = {
      ...room.desk.store,
      read: () => Promise.reject(Object.assign(new Error('foreign'), { code: 'EIO' })),
    };
    expect(await codeOf(room.bench({}, broken).server.start())).not.toBe('none');
    expect(room.guarded.heard).toEqual([]);
  });
});

describe('the store of sign-ins', () => {
  it('releases its lock later if the state failed for a moment, and keeps the result of the work', async () => {
    const state = openState(room.desk.folder);
    let failures = 1;
    const settle: typeof state.settle = (held, used) =>
      failures-- > 0 ? Promise.reject(new Error('disk')) : state.settle(held, used);
    const store = keepSignIns({
      vault: { get: async () => undefined } as never,
      redactor: room.desk.redactor,
      state: { ...state, settle },
    });
    expect(await store.withLock('remote', async () => 'renewed')).toBe('renewed');
    expect(await store.withLock('remote', async () => 'again')).toBe('again');
    await state.close();
  });

  it('lets one process work at a time, and stops waiting after a limit', async () => {
    const state = openState(room.desk.folder);
    const impatient = keepSignIns({
      vault: { get: async () => undefined } as never,
      redactor: room.desk.redactor,
      state,
      waitMs: 60,
    });
    const order: string[] = [];
    let begin = (): void => undefined;
    let finish = (): void => undefined;
    const began = new Promise<void>((resolve) => (begin = resolve));
    const over = new Promise<void>((resolve) => (finish = resolve));
    const first = room.desk.store.withLock('remote', async () => {
      order.push('first');
      begin();
      await over;
      order.push('first ends');
    });
    await began;
    expect(await refusalOf(impatient.withLock('remote', async () => void order.push('never')))).toMatch(
      /SERVER_UNAVAILABLE: Another process has been renewing/,
    );
    await impatient.withLock('another', async () => void order.push('another'));
    const second = room.desk.second().withLock('remote', async () => void order.push('second'));
    finish();
    await Promise.all([first, second]);
    expect(order).toEqual(['first', 'another', 'first ends', 'second']);
    await expect(room.desk.store.withLock('remote', () => Promise.reject(new Error('fault')))).rejects.toThrow('fault');
    await room.desk.store.withLock('remote', async () => void order.push('free again'));
    expect(order.at(-1)).toBe('free again');
    await state.close();
  });
});
