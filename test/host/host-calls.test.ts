/**
 * Tests what a host controls of one call: its own id, its end and time limit, its progress, and an event for every end.
 */

import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import type { Session } from '../../facade/serve/facade-port.ts';
import { inFull } from '../harness/full-tests.ts';
import type { Recorded } from '../stories/facade.ts';
import { verifies } from '../verifies.ts';
import { Listener } from './event-listener.ts';
import {
  type Answered,
  type Asking,
  type HostBench,
  hostConfig,
  PAGE,
  startHost,
  TOKENS,
  until,
} from './host-bench.ts';

const ALICE: Asking = { token: TOKENS.alice };
let bench: HostBench;

beforeEach(async () => {
  bench = await startHost(
    hostConfig({
      rules: `
  - { id: all, outcome: allow, when: {} }
  - { id: never, outcome: deny, when: { tools: [chaos.big] , args: { unit: { in: [no] } } } }
  - { id: person, outcome: ask, when: { tools: [chaos.env] } }`,
    })
      .replace('id: host, profiles: [reach, harbor]', 'id: host, profiles: [reach]')
      .replace('id: alice, profiles: [reach, harbor, own]', 'id: alice, profiles: [reach]')
      .replace('waitMs: 0', 'waitMs: 60000'),
  );
});
afterEach(() => bench.close());

const call = (name: string, more: object = {}, asking?: Asking): Promise<Answered> =>
  bench.ask('POST /calls', { name: `chaos_${name}`, ...more }, asking);
const records = (): readonly Recorded[] => bench.facade.callRecords();
const openAlice = (): Session =>
  bench.facade.assembled.gateway.openSession(
    { id: 'alice', role: 'user', groups: [], profiles: ['reach'], origin: 'cursor', owner: false },
    'http',
  );
/** Waits until the call has reached its server. */
const runs = (tool: string, count = 1): Promise<void> =>
  until(() => records().filter((one) => one.type === 'intent' && one.tool === tool).length >= count);

describe('the id that a caller gives its call', () => {
  it('is in the answer, the records, the events and the log' + verifies('ST-73', 'HE-13'), async () => {
    const listener = await Listener.open(bench);
    const done = await call('echo', { correlation: 'task-7:a' });
    expect(done.value.result._meta['tollgate/correlation']).toBe('task-7:a');
    const refused = await call('big', { correlation: 'task-7:b', arguments: { unit: 'no' } });
    expect(refused.value.error).toMatchObject({ code: 'DENIED', correlation: 'task-7:b' });
    expect((await call('nothing', { correlation: 'task-7:c' })).value.error).toMatchObject({
      code: 'UNKNOWN_TOOL',
      correlation: 'task-7:c',
    });
    expect(records().map(({ type, correlation }) => [type, correlation])).toEqual([
      ['intent', 'task-7:a'],
      ['outcome', 'task-7:a'],
      ['decision', 'task-7:b'],
      ['decision', 'task-7:c'],
    ]);
    await expect
      .poll(() => listener.heard.map(({ correlation }) => correlation).filter((one) => one !== undefined))
      .toEqual(['task-7:a', 'task-7:b', 'task-7:c']);
    listener.stop();
  });

  it('is in the log of the process at level debug' + verifies('ST-73'), async () => {
    vi.stubEnv('TOLLGATE_LOG', 'debug');
    const lines: string[] = [];
    const other = await startHost(
      hostConfig().replace('id: host, profiles: [reach, harbor]', 'id: host, profiles: [reach]'),
      { onLog: (line) => lines.push(line) },
    ).finally(() => vi.unstubAllEnvs());
    await other.ask('POST /calls', {
      name: 'chaos_echo',
      correlation: 'task-8',
      arguments: { say: 'a-word-of-the-call' },
    });
    await other.close();
    expect(lines.filter((line) => line.includes('task-8')).map((line) => JSON.parse(line) as object)).toMatchObject([
      { event: 'tool.completed', correlation: 'task-8', tool: 'echo', msg: 'call' },
    ]);
    expect(lines.join('')).not.toContain('a-word-of-the-call');
  });

  it(
    'comes in _meta over MCP, never goes to the server, and is refused if it is malformed' + verifies('ST-73'),
    async () => {
      const session = openAlice();
      const sent = await bench.facade.call(
        session,
        'chaos_raw',
        {},
        { meta: { 'tollgate/correlation': 'mine', traceparent: '00-1-2-01' } },
      );
      expect(sent.result?._meta?.['tollgate/correlation']).toBe('mine');
      expect(sent.text).toContain('traceparent');
      expect(sent.text).not.toContain('tollgate/correlation');
      for (const wrong of ['', 'a b', 'x'.repeat(129), 5, { a: 1 }])
        expect(
          (await bench.facade.call(session, 'chaos_echo', {}, { meta: { 'tollgate/correlation': wrong } })).code,
        ).toBe('WIRE_PARAMS');
      expect((await call('echo', { correlation: 'a b' })).value.error.code).toBe('WIRE_PARAMS');
      expect((await call('raw')).value.result._meta['tollgate/correlation']).toBeUndefined();
    },
  );
});

describe('a call of a host', () => {
  it(
    'is cancelled by its id, also at the server, and only by its own host or an owner' + verifies('ST-76', 'HE-15'),
    async () => {
      const running = [
        call('hang', { correlation: 'one' }, ALICE),
        call('hang', { correlation: 'one' }, ALICE),
        call('hang', { correlation: 'two' }),
      ] as const;
      await runs('hang', 3);
      expect((await bench.ask('DELETE /calls/two', undefined, ALICE)).value).toEqual({ cancelled: 0 });
      expect((await bench.ask('DELETE /calls/none')).value).toEqual({ cancelled: 0 });
      expect((await bench.ask('DELETE /calls/one', undefined, ALICE)).value).toEqual({ cancelled: 2 });
      for (const one of running.slice(0, 2))
        expect(await one).toMatchObject({
          status: 409,
          value: { error: { code: 'CANCELLED', message: 'The host cancelled the call.' } },
        });
      expect((await bench.ask('DELETE /calls/two')).value).toEqual({ cancelled: 1 });
      expect((await running[2]).value.error.code).toBe('CANCELLED');
      expect(records().filter(({ type }) => type === 'outcome')).toMatchObject([
        { code: 'CANCELLED', executed: 'unknown' },
        { code: 'CANCELLED' },
        { code: 'CANCELLED' },
      ]);
      expect(JSON.parse((await call('seen')).value.result.content[0].text as string)).toHaveLength(3);
    },
  );

  it('ends when its host disconnects' + verifies('ST-76'), async () => {
    const hangUp = new AbortController();
    const left = fetch(`${bench.url}/host/v1/calls`, {
      method: 'POST',
      signal: hangUp.signal,
      headers: { authorization: `Bearer ${TOKENS.host}`, 'content-type': 'application/json' },
      body: JSON.stringify({ name: 'chaos_hang' }),
    });
    await runs('hang');
    hangUp.abort();
    await expect(left).rejects.toThrow();
    await until(() => records().some(({ type, code }) => type === 'outcome' && code === 'CANCELLED'));
  });

  it('has a time limit, at its server and while it waits for a person' + verifies('ST-76', 'HE-15'), async () => {
    // Progress extends the server's limit, but not the host's.
    const late = await call('progress', { timeoutMs: 300, arguments: { steps: 100, every: 50 } });
    expect(late).toMatchObject({
      status: 504,
      value: {
        error: {
          code: 'TOOL_TIMEOUT',
          message: 'The call took longer than the 300 ms that its host allowed, and was cancelled.',
        },
      },
    });
    expect(await call('env', { timeoutMs: 300 })).toMatchObject({
      status: 504,
      value: { error: { code: 'TOOL_TIMEOUT' } },
    });
    expect(records().at(-1)).toMatchObject({ type: 'decision', code: 'TOOL_TIMEOUT' });
    for (const timeoutMs of [0, -1, 1.5, '5', 86_400_001])
      expect((await call('echo', { timeoutMs })).value.error.code).toBe('WIRE_PARAMS');
    expect((await call('echo', { timeoutMs: 60_000 })).status).toBe(200);
  });

  it('never gets more time than the configuration allows' + verifies('ST-76'), async () => {
    await bench.close();
    bench = await startHost(
      hostConfig({ chaos: ', timeoutMs: 200, hardTimeoutMs: 60000' }).replace(
        'id: host, profiles: [reach, harbor]',
        'id: host, profiles: [reach]',
      ),
    );
    expect((await call('hang', { timeoutMs: 60_000 })).value.error).toMatchObject({
      code: 'TOOL_TIMEOUT',
      message: expect.stringContaining('did not answer within 200 ms'),
    });
  });

  inFull(
    'reports its progress to a host that reads a stream, and ends the stream with the answer' + verifies('ST-77'),
    async () => {
      const stream = async (body: object): Promise<readonly unknown[]> => {
        const response = await fetch(`${bench.url}/host/v1/calls`, {
          method: 'POST',
          headers: {
            authorization: `Bearer ${TOKENS.host}`,
            'content-type': 'application/json',
            accept: 'text/event-stream',
          },
          body: JSON.stringify(body),
        });
        const text = await response.text();
        if (response.headers.get('content-type') === 'application/json') return [response.status, JSON.parse(text)];
        return [...text.matchAll(/^data: (.*)$/gm)].map(([, data = '']) => JSON.parse(data) as unknown);
      };
      const told = await stream({ name: 'chaos_progress', arguments: { steps: 3, every: 20 } });
      expect(told).toMatchObject([
        { progress: { progress: 1, total: 3 } },
        { progress: { progress: 2 } },
        { progress: { progress: 3 } },
        { result: { content: [{ text: 'done' }] } },
      ]);
      expect(
        await stream({ name: 'chaos_progress', timeoutMs: 2_000, arguments: { steps: 1, every: 10, never: true } }),
      ).toMatchObject([{ progress: { progress: 1 } }, { error: { code: 'TOOL_TIMEOUT', retryable: false } }]);
      // Without progress the answer is plain JSON.
      expect(await stream({ name: 'chaos_echo' })).toMatchObject([200, { result: {} }]);
      expect(await stream({ name: 'chaos_nothing' })).toMatchObject([404, { error: { code: 'UNKNOWN_TOOL' } }]);
    },
  );
});

describe('the end of a call', () => {
  inFull('is an event with its size, its code, and whether a retry may help' + verifies('ST-74', 'HE-14'), async () => {
    const listener = await Listener.open(bench);
    await call('echo', { arguments: { say: 'a-word-of-the-call' } });
    await call('failing', { arguments: { error: { code: -32000, message: 'words-of-the-server' } } });
    await call('big', { arguments: { unit: 'no' } });
    await call('nothing', {}, ALICE);
    await call('crash');
    await bench.facade.call(openAlice(), 'chaos_echo', {});
    const ends = (): readonly Readonly<Record<string, unknown>>[] =>
      listener.heard.filter(({ event }) => /^tool\./.test(event));
    await expect.poll(() => ends().length).toBe(6);
    const outcomes = records().filter(({ type }) => type !== 'intent');
    expect(ends().map(({ id }) => id)).toEqual(outcomes.map(({ id }) => id));
    const size = (outcomes[0]?.sizes as { sent: number }).sent;
    expect(ends()).toMatchObject([
      {
        event: 'tool.completed',
        server: 'chaos',
        tool: 'echo',
        exposed: 'chaos_echo',
        principal: 'host',
        bytes: size,
        executed: 'yes',
      },
      { event: 'tool.failed', tool: 'failing', code: 'TOOL_FAILED', retryable: false, executed: 'yes' },
      { event: 'tool.refused', tool: 'big', code: 'DENIED', retryable: false, executed: 'no', bytes: 0 },
      { event: 'tool.refused', principal: 'alice', code: 'UNKNOWN_TOOL', executed: 'no' },
      { event: 'tool.failed', tool: 'crash', code: 'TOOL_CRASHED', executed: 'unknown' },
      { event: 'tool.completed', principal: 'alice', tool: 'echo' },
    ]);
    expect(Object.keys(ends()[3] ?? {})).not.toContain('tool');
    expect(JSON.stringify(listener.heard)).not.toMatch(/a-word-of-the-call|words-of-the-server|chaos_nothing/);
    listener.stop();
  });

  it('is an event also for the workspace and the internal servers' + verifies('ST-74'), async () => {
    await bench.close();
    bench = await startHost(
      hostConfig()
        .replace('id: host, profiles: [reach, harbor]', 'id: host, profiles: [reach]')
        .replace(
          'expose: { primitives: {}, tools: [chaos.*] }',
          'expose: { primitives: { read: workspace }, tools: [chaos.*] }',
        ),
    );
    const listener = await Listener.open(bench);
    await bench.ask('POST /calls', { name: 'read', arguments: { path: 'no-such-file' } });
    await expect.poll(() => listener.words).toEqual(['tool.failed']);
    expect(listener.heard).toMatchObject([
      { server: 'workspace', tool: 'read', exposed: 'read', origin: expect.not.stringMatching(PAGE) },
    ]);
    listener.stop();
  });
});
