/** Tests the table of sessions with its own clock, and event streams to a client that does not read. */
import { createServer, get, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it, onTestFinished } from 'vitest';
import { EventStream } from '../../facade/serve/http/client-event-stream.ts';
import { type SessionOptions, SessionTable } from '../../facade/serve/http/http-sessions.ts';
import { SharedSessions } from '../../facade/serve/http/shared-sessions.ts';
import { followState } from '../../facade/state/state-follower.ts';
import { temporaryFolder } from '../state/temporary-folder.ts';
import { verifies } from '../verifies.ts';
import { ALICE, BOB, FakeFacade, initialize, message, request, until, untilAborted } from './fake-facade.ts';

function table(limits: Partial<Pick<SessionOptions, 'maxSessions' | 'maxPerPrincipal' | 'idleMs' | 'shared'>> = {}): {
  readonly facade: FakeFacade;
  readonly sessions: SessionTable;
  readonly faults: unknown[];
  pass(ms: number): void;
} {
  const facade = new FakeFacade();
  const faults: unknown[] = [];
  let now = 0;
  const sessions = new SessionTable({
    facade,
    maxSessions: 10,
    maxPerPrincipal: 10,
    idleMs: 1000,
    now: () => now,
    onFault: (thrown) => faults.push(thrown),
    ...limits,
  });
  return { facade, sessions, faults, pass: (ms) => void (now += ms) };
}

/** Returns a real response whose client does not read until it is told to. */
async function response(): Promise<{
  readonly response: ServerResponse;
  readonly client: IncomingMessage;
  end(): void;
}> {
  let serve: (given: ServerResponse) => void = () => undefined;
  const given = new Promise<ServerResponse>((resolve) => (serve = resolve));
  const server = createServer((_request, made) => serve(made));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const incoming = new Promise<IncomingMessage>((resolve) =>
    get({ host: '127.0.0.1', port: (server.address() as AddressInfo).port }, resolve),
  );
  const made = await given;
  made.flushHeaders();
  const client = await incoming;
  client.pause();
  client.on('error', () => undefined);
  return { response: made, client, end: () => (server.closeAllConnections(), void server.close()) };
}

describe('the table of HTTP sessions', () => {
  it('keeps a session in use and ends an unused one, at its time and not earlier', async () => {
    const { facade, sessions, pass } = table();
    const [kept, idle] = [sessions.open('legacy', ALICE), sessions.open('legacy', ALICE)];
    pass(1000);
    expect(sessions.find(kept.session.id, ALICE)).toBe(kept);
    sessions.tick();
    expect(sessions.size).toBe(2);
    pass(1);
    sessions.tick();
    expect(sessions.size).toBe(1);
    expect(sessions.find(idle.session.id, ALICE)).toBeUndefined();
    await until(() => facade.closed.length === 1);
    expect(facade.closed).toEqual([idle.session]);
  });

  it('tells other replicas of a used session a few times in its idle time, not at each tick', async () => {
    const state = await followState(temporaryFolder());
    onTestFinished(async () => void (await state.close()));
    const shared = new SharedSessions({ state, idleMs: 1000, now: Date.now });
    const { sessions, faults, pass } = table({ shared });
    const held = sessions.open('legacy', ALICE);
    await sessions.save(held);
    const written = new Set<string>();
    for (let ms = 0; ms < 1000; ms += 10) {
      pass(10);
      expect(sessions.find(held.session.id, ALICE)).toBe(held);
      sessions.tick();
      await sleep(2);
      written.add([...state.list('sessions').values()].join());
    }
    expect(written.size).toBeGreaterThan(1);
    expect(written.size).toBeLessThanOrEqual(11);
    expect(faults).toEqual([]);
  });

  it('does not count a session as idle while one of its calls runs', async () => {
    const { facade, sessions, pass } = table();
    const held = sessions.open('legacy', ALICE);
    facade.onCall = untilAborted;
    await held.dispatch.handle(message(initialize()), () => undefined);
    const call = held.dispatch.handle(message(request(1, 'tools/call', { name: 'a' })), () => undefined);
    pass(5000);
    sessions.tick();
    expect(sessions.size).toBe(1);
    await sessions.endAll('It ended.');
    expect(await call).toContain('"id":1');
    expect(sessions.size).toBe(0);
  });

  it(
    'ends the idle session that was unused longest to make room, for a full quota one of the same principal' +
      verifies('TR-64', 'ST-24'),
    async () => {
      const { facade, sessions, pass } = table({ maxSessions: 3, maxPerPrincipal: 2 });
      const [first, second, other] = [
        sessions.open('legacy', ALICE),
        sessions.open('legacy', ALICE),
        sessions.open('legacy', BOB),
      ];
      pass(1);
      sessions.find(first.session.id, ALICE);
      pass(1);
      const third = sessions.open('legacy', ALICE);
      expect([
        sessions.find(second.session.id, ALICE),
        sessions.find(other.session.id, BOB),
        sessions.size,
        sessions.evicted,
      ]).toEqual([undefined, other, 3, 1]);
      facade.onCall = untilAborted;
      for (const busy of [first, third]) {
        await busy.dispatch.handle(message(initialize()), () => undefined);
        void busy.dispatch.handle(message(request(1, 'tools/call', { name: 'a' })), () => undefined);
      }
      expect(() => sessions.open('legacy', ALICE)).toThrow(expect.objectContaining({ code: 'HTTP_SESSIONS_QUOTA' }));
      const next = sessions.open('legacy', BOB);
      void next.dispatch.handle(message(initialize()), () => undefined);
      expect([sessions.open('legacy', BOB).session.principal, sessions.evicted]).toEqual([BOB, 3]);
      await sessions.endAll('The test ended.');
    },
  );

  it('counts an open stream as use, for at most the idle time of a session' + verifies('ST-24'), async () => {
    const { sessions, pass } = table({ maxSessions: 2, idleMs: 1000 });
    const [one, other] = [sessions.open('legacy', ALICE), sessions.open('legacy', BOB)];
    const [first, second] = [await response(), await response()];
    one.attach(first.response, () => 0);
    other.attach(second.response, () => 0);
    pass(900);
    sessions.find(other.session.id, BOB);
    pass(200);
    sessions.tick();
    // The session stays while no one needs its place. After that, its client may have vanished.
    expect(sessions.size).toBe(2);
    sessions.open('legacy', BOB);
    expect([sessions.find(one.session.id, ALICE), sessions.find(other.session.id, BOB)]).toEqual([undefined, other]);
    await sessions.endAll('The test ended.');
    first.end();
    second.end();
  });

  it(
    'session-hijack: identifies a session by its principal, its origin and whether it is an owner' + verifies('TR-88'),
    () => {
      const { sessions } = table();
      const { session } = sessions.open('legacy', { ...ALICE, owner: true });
      for (const other of [BOB, { ...ALICE, origin: 'another', owner: true }, { ...ALICE, owner: false }])
        expect(sessions.find(session.id, other)).toBeUndefined();
      expect(sessions.find(session.id, { ...ALICE, owner: true })).toBeDefined();
    },
  );

  it('reports a facade that cannot close a session', async () => {
    const { facade, sessions, faults, pass } = table();
    facade.closeSession = () => Promise.reject(new Error('disk'));
    sessions.open('legacy', ALICE);
    pass(2000);
    sessions.tick();
    await until(() => faults.length === 1);
    expect(sessions.size).toBe(0);
  });
});

describe('an event stream', () => {
  it('sends nothing more to a client that does not read, except the last message', async () => {
    const { response: made, client, end } = await response();
    const stream = new EventStream(made);
    const text = JSON.stringify({ s: 'x'.repeat(100_000) });
    let sent = 0;
    while (stream.send(text)) {
      sent++;
      await new Promise((resolve) => setImmediate(resolve));
    }
    expect(sent * text.length).toBeLessThan(64 << 20);
    const held = made.writableLength;
    stream.comment('keep-alive');
    expect(stream.send(text)).toBe(false);
    expect(made.writableLength).toBe(held);
    stream.end('{"last":true}');
    expect(stream.send(text)).toBe(false);
    stream.end('{"again":true}');
    let seen = '';
    client.on('data', (chunk: Buffer) => (seen += chunk.toString()));
    client.resume();
    await until(() => client.complete);
    expect(seen.endsWith('data: {"last":true}\n\n')).toBe(true);
    end();
  });

  it('sends nothing once its client has disconnected', async () => {
    const { response: made, client, end } = await response();
    client.destroy();
    await until(() => made.destroyed);
    const stream = new EventStream(made);
    stream.open();
    stream.comment('x');
    stream.end('{}');
    expect(stream.send('{}')).toBe(false);
    end();
  });
});
