/** Tests HTTP sessions that several replicas serve over one state: the hop to the home, take-over, release, end. */
import { request as openRequest } from 'node:http';
import { connect as connectTls } from 'node:tls';
import { describe, expect, it } from 'vitest';
import { asking, FORM, headersOf, stateless } from '../modern/stateless-bench.ts';
import { verifies } from '../verifies.ts';
import { initialize, request, until, untilAborted } from './fake-facade.ts';
import { codeOf, cutOff, type Replica, startFleet, wire } from './fleet-bench.ts';
import type { Answered } from './http-bench.ts';

const call = (id: number): unknown => request(id, 'tools/call', { name: 'read', arguments: { id } });
const post = ({ ask }: Replica, id: string, body: unknown, token = 'alice-token'): Promise<Answered> =>
  ask({ headers: { 'mcp-session-id': id, authorization: `Bearer ${token}` }, body });
const end = ({ ask }: Replica, id: string): Promise<Answered> =>
  ask({ method: 'DELETE', headers: { 'mcp-session-id': id } });
const sum = (replicas: readonly Replica[], count: (one: Replica) => number): number =>
  replicas.reduce((total, one) => total + count(one), 0);

/** Opens the stream of a session. `text` returns what has arrived. */
function stream({ port }: Replica, id: string): { text(): string; readonly ended: Promise<void> } {
  let text = '';
  let over = (): void => undefined;
  const ended = new Promise<void>((resolve) => (over = resolve));
  const headers = { authorization: 'Bearer alice-token', accept: 'text/event-stream', 'mcp-session-id': id };
  openRequest({ host: '127.0.0.1', port, path: '/mcp', headers }, (response) => {
    response.setEncoding('utf8').on('data', (chunk: string) => (text += chunk));
    response.on('close', over).on('error', over);
  })
    .on('error', over)
    .end();
  return { text: () => text, ended };
}

describe('a session of several replicas', () => {
  it('is served by any of them, and runs at its home' + verifies('FL-06'), async () => {
    const { replicas } = await startFleet(3);
    const [home, second, third] = replicas as [Replica, Replica, Replica];
    const id = await home.session();
    for (const [number, replica] of [second, third, home].entries()) {
      const answer = await post(replica, id, call(number));
      expect(answer.status).toBe(200);
      expect(answer.headers['content-type']).toBe('application/json');
      expect(answer.text).toContain(`"id":${number}`);
    }
    expect(home.facade.calls).toHaveLength(3);
    expect(sum(replicas, ({ facade }) => facade.opened.length)).toBe(1);
    expect(sum(replicas, ({ faults }) => faults.length)).toBe(0);
  });

  it('moves to the replica that is asked if there is no hop' + verifies('FL-07'), async () => {
    const { replicas } = await startFleet(2, { hops: false });
    const [home, second] = replicas as [Replica, Replica];
    const id = await home.session();
    await post(home, id, request(1, 'logging/setLevel', { level: 'error' }));
    expect((await post(second, id, call(2))).status).toBe(200);
    expect(second.facade.calls[0]?.session).toMatchObject({ id, logLevel: 'error' });
    // Back again: the former home continues it, and does not answer from what it knew.
    await post(second, id, request(3, 'logging/setLevel', { level: 'debug' }));
    expect((await post(home, id, call(4))).status).toBe(200);
    expect(home.facade.calls[0]?.session.logLevel).toBe('debug');
  });

  it(
    'continues after its home cannot be reached, at one of the replicas that race for it' + verifies('FL-07'),
    async () => {
      const { replicas } = await startFleet(4);
      const [home, ...others] = replicas as [Replica, ...Replica[]];
      const id = await home.session();
      await cutOff(home);
      const answers = await Promise.all(
        Array.from({ length: 30 }, (_, number) => post(others[number % 3] as Replica, id, call(number))),
      );
      expect(answers.map(({ status }) => status)).toEqual(answers.map(() => 200));
      expect(sum(others, ({ facade }) => facade.opened.length)).toBe(1);
      expect(sum(others, ({ facade }) => facade.calls.length)).toBe(30);
    },
  );

  it('moves at once if its home is known to be dead, which is then no longer listed' + verifies('FL-07'), async () => {
    const { replicas, state, dead } = await startFleet(2, { idleMs: 3_000 });
    const [home, second] = replicas as [Replica, Replica];
    const id = await home.session();
    const address = state.get('replicas', home.mark) ?? '';
    dead.add(home.mark);
    expect((await post(second, id, call(1))).status).toBe(200);
    expect(second.facade.calls).toHaveLength(1);
    await until(() => state.get('replicas', home.mark) === undefined);
    // It was only silent for some time.
    dead.delete(home.mark);
    await until(() => state.get('replicas', home.mark) === address);
  });

  it('is refused to another principal, and to an unknown token, on every replica' + verifies('FL-08'), async () => {
    const { replicas } = await startFleet(3);
    const id = await (replicas[0] as Replica).session();
    for (const replica of replicas) {
      expect(codeOf(await post(replica, id, call(1), 'bob-token'))).toBe('HTTP_SESSION');
      expect(codeOf(await post(replica, id, call(1), 'no-token'))).toBe('HTTP_AUTH');
    }
    await cutOff(replicas[0] as Replica);
    expect(codeOf(await post(replicas[1] as Replica, id, call(1), 'bob-token'))).toBe('HTTP_SESSION');
    expect(sum(replicas, ({ facade }) => facade.opened.length)).toBe(1);
  });

  it('ends everywhere when its client ends it at any replica' + verifies('FL-06'), async () => {
    const { replicas, state } = await startFleet(3);
    const [home, second, third] = replicas as [Replica, Replica, Replica];
    const ids = [await home.session(), await home.session()] as const;
    expect((await end(second, ids[0])).status).toBe(204);
    await cutOff(home);
    expect((await end(third, ids[1])).status).toBe(204);
    for (const replica of replicas)
      for (const id of ids) expect(codeOf(await post(replica, id, call(1)))).toBe('HTTP_SESSION');
    expect([...state.list('sessions')]).toEqual([]);
  });

  it('has its notifications at any replica, and all lists to read again after a move' + verifies('FL-06'), async () => {
    const { replicas } = await startFleet(3);
    const [home, second, third] = replicas as [Replica, Replica, Replica];
    const id = await home.session();
    const far = stream(second, id);
    await until(() => home.facade.opened.length === 1);
    home.facade.changeTools();
    await until(() => far.text().includes('tools/list_changed'));
    await cutOff(home);
    const next = stream(third, id);
    await until(() => next.text().includes('notifications/prompts/list_changed'));
    expect(next.text()).toContain('notifications/tools/list_changed');
    expect(next.text()).toContain('notifications/resources/list_changed');
  });

  it('keeps the id of a session out of the state', async () => {
    const { replicas, state } = await startFleet(1);
    const id = await (replicas[0] as Replica).session();
    expect([...state.list('sessions')].join()).not.toContain(id);
  });
});

describe('a call whose home ends', () => {
  it('is answered with REPLICA_LOST and not sent again; the next call continues' + verifies('FL-07'), async () => {
    const { replicas } = await startFleet(2);
    const [home, second] = replicas as [Replica, Replica];
    const id = await home.session();
    home.facade.onCall = untilAborted;
    const line = await wire(home);
    const running = post(second, id, call(1));
    await until(() => home.facade.calls.length === 1);
    line.cut();
    const answer = await running;
    expect([answer.status, codeOf(answer)]).toEqual([200, 'REPLICA_LOST']);
    expect(second.facade.lost).toMatchObject([{ principal: { id: 'alice' }, session: id, method: 'tools/call' }]);
    expect(second.facade.calls).toEqual([]);
    expect((await post(second, id, call(2))).text).toContain('"id":2');
  });
});

describe('a replica that stops' + verifies('FL-09'), () => {
  it('is not ready at once, serves on, and then hands its sessions over while a call of them runs', async () => {
    const { replicas } = await startFleet(2, { unreadyMs: 300 });
    const [home, second] = replicas as [Replica, Replica];
    const [busy, idle] = [await home.session(), await home.session()];
    let finish = (): void => undefined;
    const gate = new Promise<void>((resolve) => (finish = resolve));
    const echo = home.facade.onCall;
    home.facade.onCall = (asked, session) => gate.then(() => echo(asked, session));
    const running = post(home, busy, call(1));
    await until(() => home.facade.calls.length === 1);
    const closed = home.server.close();
    const ready = await home.ask({ method: 'GET', path: '/readyz' });
    expect([ready.status, JSON.parse(ready.text)]).toEqual([503, { status: 'failing', failing: ['draining'] }]);
    expect((await home.ask({ body: initialize() })).status).toBe(200);
    await until(() => isReleased(home));
    for (const id of [busy, idle]) expect((await post(second, id, call(2))).status).toBe(200);
    expect(second.facade.calls).toHaveLength(2);
    finish();
    expect((await running).text).toContain('"id":1');
    await closed;
    expect(home.facade.closed).toEqual([]);
  });
});

/** Returns true when the records of a replica have no home. */
function isReleased({ state, mark }: Replica): boolean {
  return ![...state.list('sessions').values()].some((text) => text.includes(mark));
}

describe('the hop' + verifies('FL-08'), () => {
  it('refuses a caller without the key of the state, and one without a valid token', async () => {
    const { replicas, state } = await startFleet(2);
    const [home, second] = replicas as [Replica, Replica];
    const id = await home.session();
    const [host, port] = JSON.parse(state.get('replicas', home.mark) ?? '') as [string, number];
    const attempt = (psk: Buffer, identity: string): Promise<string> =>
      new Promise((resolve) => {
        const socket = connectTls({
          host,
          port,
          ciphers: 'ECDHE-PSK-CHACHA20-POLY1305',
          maxVersion: 'TLSv1.2',
          checkServerIdentity: () => undefined,
          pskCallback: () => ({ psk, identity }),
        });
        socket.once('secureConnect', () => (resolve('open'), socket.destroy()));
        socket.once('error', () => resolve('refused'));
      });
    const { day, key } = await second.facade.seals.secret('replica hop');
    expect(await attempt(key, day)).toBe('open');
    expect(await attempt(Buffer.alloc(32), day)).toBe('refused');
    expect(await attempt(key, String(Number(day) - 1))).toBe('refused');
    expect(await attempt((await second.facade.seals.secret('another purpose')).key, day)).toBe('refused');
    // Without TLS nothing is served.
    const plain = await new Promise<string>((resolve) => {
      openRequest({ host, port, path: '/mcp' }, () => resolve('open'))
        .on('error', () => resolve('refused'))
        .end();
    });
    expect(plain).toBe('refused');
    expect(codeOf(await post(second, id, call(1), 'wrong-token'))).toBe('HTTP_AUTH');
  });
});

describe('a stateless call that asks its client', () => {
  const ask = (replica: Replica, id: number, params: Record<string, unknown> = {}): Promise<Answered> => {
    const body = stateless(id, 'tools/call', { name: 'read', arguments: {}, ...params });
    return replica.ask({ body, headers: headersOf(body) });
  };
  const begin = async (replica: Replica): Promise<Record<string, unknown>> => {
    replica.facade.onCall = (asked) => asking(asked);
    const { result } = JSON.parse((await ask(replica, 1)).text) as {
      result: { requestState: string; inputRequests: Record<string, unknown> };
    };
    expect(JSON.stringify(result.inputRequests)).toContain(FORM.message);
    return {
      requestState: result.requestState,
      inputResponses: { name: { action: 'accept', content: { name: 'Ada' } } },
    };
  };

  it('continues at the replica that has it, from any other one' + verifies('FL-31'), async () => {
    const { replicas } = await startFleet(2);
    const [first, second] = replicas as [Replica, Replica];
    const answers = await begin(first);
    expect((await ask(second, 2, answers)).text).toContain('Ada');
    expect([first.facade.calls.length, second.facade.calls.length]).toEqual([1, 0]);
  });

  it('is refused with REPLICA_LOST if that replica is gone' + verifies('FL-31'), async () => {
    const { replicas } = await startFleet(2);
    const [first, second] = replicas as [Replica, Replica];
    const answers = await begin(first);
    await cutOff(first);
    await ask(second, 2, answers);
    expect(second.facade.calls.map(({ request: { refusal } }) => refusal?.code)).toEqual(['REPLICA_LOST']);
  });

  it('counts by one session on all replicas' + verifies('FL-31'), async () => {
    const { replicas } = await startFleet(3);
    for (const replica of replicas) await ask(replica, 1);
    const ids = new Set(replicas.flatMap(({ facade }) => facade.calls.map(({ session }) => session.id)));
    expect(ids.size).toBe(1);
  });
});
