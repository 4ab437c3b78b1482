/** Tests the wait of a call for a person: what ends it, what it uses, and what the client hears. */

import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { readMessage } from '../../adapters/rpc/message-parser.ts';
import { joinText } from '../../adapters/rpc/wire-message.ts';
import { loadConfig } from '../../facade/config/load-config.ts';
import type { Session } from '../../facade/serve/facade-port.ts';
import { openDispatch } from '../../facade/serve/session-dispatch.ts';
import { ACT, allow, type RawFacade, startRaw, tool } from '../properties/raw-facade.ts';
import type { Answer } from '../stories/facade.ts';
import { verifies } from '../verifies.ts';
import { ApprovalOwner } from './owner-context.ts';

const RULES = [
  allow('one'),
  { id: 'put-asks', outcome: 'ask', when: { tools: ['one.put'] } },
  { id: 'fold-asks', outcome: 'ask', approval: 'group', when: { tools: ['one.fold'] } },
];

let facade: RawFacade;
let owner: ApprovalOwner;
let me: Session;

const start = async (approvals: object = { waitMs: 60_000 }, more: object = {}): Promise<void> => {
  facade = await startRaw(
    { one: { tools: [ACT, tool('put'), tool('fold'), tool('free')] } },
    { approvals, rules: RULES, ...more },
  );
  owner = new ApprovalOwner(facade.assembled.config.state);
  me = facade.open('me');
};
const put = (
  args: unknown = { n: 1 },
  more: { session?: Session; signal?: AbortSignal; name?: string } = {},
): Promise<Answer> =>
  facade.call(
    more.session ?? me,
    more.name ?? 'one_put',
    args,
    more.signal === undefined ? {} : { signal: more.signal },
  );
const asked = (count = 1): Promise<void> =>
  expect.poll(() => owner.all('pending'), { interval: 10 }).toHaveLength(count) as unknown as Promise<void>;
const waiting = (): number =>
  Number(
    /tollgate_approvals_waiting (\d+)/.exec(facade.assembled.gateway.metrics({ ...me.principal, owner: true }))?.[1],
  );
const sent = (): readonly string[] => facade.calls('one').map(({ args }) => args);

beforeEach(() => start());
afterEach(async () => {
  await owner.close();
  await facade.close();
});

describe('a call that waits for approval', () => {
  it('runs when it is approved' + verifies('PF-08'), async () => {
    const answer = put();
    await asked();
    expect(waiting()).toBe(1);
    const { id } = await owner.approve();
    expect((await answer).code).toBe('');
    expect([sent(), waiting(), await owner.all()]).toEqual([['{"n":1}'], 0, []]);
    expect(facade.records().filter(({ type }) => type === 'intent')).toMatchObject([
      { consent: id, reasons: [{ id: 'put-asks' }] },
    ]);
  });

  it('is refused with the reason when it is denied' + verifies('PF-08'), async () => {
    const answer = put();
    await asked();
    await owner.deny('No.');
    expect(await answer).toMatchObject({
      code: 'DENIED',
      text: expect.stringContaining('olga has denied this call: No.'),
    });
    expect(sent()).toEqual([]);
  });

  it('is answered after the wait time, and runs when it is repeated after the approval', async () => {
    await owner.close();
    await facade.close();
    await start({ waitMs: 300 });
    const began = performance.now();
    const answer = await put();
    expect([answer.code, answer.result?._meta?.['tollgate/approval']]).toEqual([
      'APPROVAL_REQUIRED',
      (await owner.open()).item.id,
    ]);
    expect(performance.now() - began).toBeGreaterThan(290);
    await owner.approve();
    expect((await put()).code).toBe('');
  });

  it('runs under a wider approval that was given meanwhile', async () => {
    const both = [put({ n: 1 }, { name: 'one_fold' }), put({ n: 2 }, { name: 'one_fold' })];
    await asked(2);
    const [first] = await owner.all('pending');
    for (const stored of await owner.all('pending'))
      if (stored !== first && stored.key !== first?.key) await owner.store.take(stored);
    await owner.approve('group');
    expect((await Promise.all(both)).map(({ code }) => code)).toEqual(['', '']);
  });

  it('uses one approval: of two equal calls one runs, and the other asks again', async () => {
    const both = [put(), put()];
    await expect.poll(waiting, { interval: 10 }).toBe(2);
    await asked(1);
    const { id } = await owner.approve();
    await expect
      .poll(async () => (await owner.all('pending')).map(({ item }) => item.id), { interval: 20 })
      .toEqual([expect.not.stringMatching(id)]);
    await expect.poll(sent, { interval: 10 }).toHaveLength(1);
    await owner.approve();
    expect((await Promise.all(both)).map(({ code }) => code)).toEqual(['', '']);
    expect(sent()).toHaveLength(2);
  });

  it('ends when its client cancels it, and its request stays open for the next call', async () => {
    const stop = new AbortController();
    const answer = put({ n: 1 }, { signal: stop.signal });
    await asked();
    stop.abort();
    expect((await answer).code).toBe('CANCELLED');
    await owner.approve();
    expect((await put()).code).toBe('');
    expect(sent()).toHaveLength(1);
  });

  it('ends with its session, and with a new configuration', async () => {
    const [one, other] = [put({ n: 1 }), put({ n: 2 }, { session: facade.open('me') })];
    await asked(2);
    await facade.assembled.gateway.closeSession(me);
    expect((await one).code).not.toBe('');
    await facade.assembled.reload(
      () => loadConfig(facade.assembled.config.file, { env: process.env, home: '/home/nobody-at-all' }),
      false,
    );
    expect(await other).toMatchObject({
      code: 'APPROVAL_REQUIRED',
      text: expect.stringContaining('The configuration changed while this call waited'),
      // Repeating the call needs no person, unlike the call of a request that is still open.
      result: { _meta: { 'tollgate/retryable': true } },
    });
    // A new configuration withdraws the request. The request of a client that left stays until it expires.
    expect((await owner.all('pending')).map(({ item }) => item.argsText)).toEqual(['{"n":1}']);
    await expect.poll(() => facade.assembled.gateway.snapshotCount).toBe(1);
  });

  it('does not run if the tool was redefined meanwhile (rug pull)', async () => {
    const answer = put();
    await asked();
    facade.redefine('one', { tools: [ACT, tool('put', { description: 'Another.' }), tool('fold'), tool('free')] });
    const other = facade.open('me');
    const shown = await facade.list(other);
    await facade.call(other, 'one_act', { notify: true });
    await expect.poll(() => facade.list(other), { interval: 20 }).not.toEqual(shown);
    expect((await answer).code).toBe('PIN_MISMATCH');
    expect(sent().filter((args) => args === '{"n":1}')).toEqual([]);
  });

  it('is decided again after the wait, with the labels that the run got meanwhile', async () => {
    await owner.close();
    await facade.close();
    await start(
      { waitMs: 60_000 },
      {
        rules: [
          ...RULES,
          {
            id: 'tainted',
            outcome: 'deny',
            message: 'The run has read secrets.',
            when: { tools: ['one.put'], labels: ['secret'] },
          },
        ],
      },
    );
    const answer = put();
    await asked();
    await facade.assembled.deps.labels.join(me as never, me.id, ['secret']);
    await owner.approve();
    expect(await answer).toMatchObject({ code: 'DENIED', text: expect.stringContaining('The run has read secrets.') });
    expect(sent()).toEqual([]);
  });

  it('uses no slot and no budget', async () => {
    await owner.close();
    await facade.close();
    await start({ waitMs: 60_000 }, { caps: { concurrent: 1 }, budgets: [{ id: 'two', scope: 'session', calls: 2 }] });
    const answer = put();
    await asked();
    expect([
      (await put({}, { name: 'one_free' })).code,
      (await put({}, { name: 'one_free' })).code,
      (await put({}, { name: 'one_free' })).code,
    ]).toEqual(['', '', 'BUDGET_EXCEEDED']);
    await owner.approve();
    expect((await answer).code).toBe('BUDGET_EXCEEDED');
  });

  it('is one of at most sixteen in its session: the next is refused, and no person is asked', async () => {
    const many = Array.from({ length: 16 }, (_, n) => put({ n }));
    await asked(16);
    const next = await put({ n: 16 });
    expect([next.code, next.text]).toEqual([
      'APPROVAL_REQUIRED',
      expect.stringContaining('No one was asked: 16 calls of this session wait for approval already'),
    ]);
    expect((await put({ n: 3 })).text).toContain('Approval id');
    expect(await owner.all()).toHaveLength(16);
    await facade.assembled.gateway.closeSession(me);
    await Promise.all(many);
  });
});

describe('the client of a call that waits for approval', () => {
  const open = (): {
    send: (id: number, method: string, params: object) => Promise<string | undefined>;
    heard: string[];
    close: () => Promise<void>;
  } => {
    const heard: string[] = [];
    const wire = openDispatch('legacy', {
      facade: facade.assembled.gateway,
      session: facade.open('me'),
      notify: () => undefined,
      onFault: (thrown) => {
        throw thrown;
      },
    });
    const send = async (id: number, method: string, params: object): Promise<string | undefined> => {
      const reply = await wire.handle(
        readMessage(Buffer.from(JSON.stringify({ jsonrpc: '2.0', id, method, params })), 'client'),
        (text) => void heard.push(text),
      );
      return reply && joinText(reply);
    };
    return {
      send,
      heard,
      close: async () => {
        await wire.drain();
        await wire.close('The test ended.');
      },
    };
  };

  it('gets progress messages that count the seconds from zero', async () => {
    const { send, heard } = open();
    await send(1, 'initialize', {
      protocolVersion: '2025-11-25',
      capabilities: {},
      clientInfo: { name: 't', version: '1' },
    });
    const answer = send(2, 'tools/call', { name: 'one_put', arguments: { n: 1 }, _meta: { progressToken: 'p' } });
    await asked();
    const { item } = await owner.open();
    await owner.approve();
    await answer;
    const told = heard.map((text) => JSON.parse(text) as { params: { progress: number } });
    expect(told[0]).toEqual({
      jsonrpc: '2.0',
      method: 'notifications/progress',
      params: {
        progressToken: 'p',
        progress: expect.any(Number),
        total: 60,
        message: `Waiting for a person to approve this call (${item.id}).`,
      },
    });
    const seconds = told.map(({ params }) => params.progress);
    // Zero, unless the machine is busy. Each later number is greater.
    expect(seconds[0]).toBeLessThan(5);
    expect(seconds).toEqual([...new Set(seconds)].sort((x, y) => x - y));
  });

  it('gets its answer at once when it has ended its input, so that no wait delays the end', async () => {
    const { send, close } = open();
    await send(1, 'initialize', {
      protocolVersion: '2025-11-25',
      capabilities: {},
      clientInfo: { name: 't', version: '1' },
    });
    const answer = send(2, 'tools/call', { name: 'one_put', arguments: { n: 1 } });
    await asked();
    const closed = close();
    expect(await answer).toContain('Approval id');
    await closed;
  });
});
