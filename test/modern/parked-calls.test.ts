/** Tests calls whose server asks the client: questions as results, answers with the next request, and what ends a call. */
import { describe, expect, it, vi } from 'vitest';
import type { TollgateError } from '../../catalogs/errors/error-table.ts';
import type { CallRequest, Reply } from '../../facade/serve/facade-port.ts';
import { until } from '../serve/fake-facade.ts';
import { verifies } from '../verifies.ts';
import {
  ALL,
  type Answer,
  asking,
  FORM,
  type ModernBench,
  metaOf,
  modernBench,
  refusing,
  stateless,
} from './stateless-bench.ts';

const call = (id: number, params: Readonly<Record<string, unknown>> = {}): Record<string, unknown> =>
  stateless(id, 'tools/call', { name: 'ask', arguments: {}, ...params });
const retry = (
  id: number,
  { result }: Answer | { readonly result?: undefined },
  responses: unknown,
): Record<string, unknown> => call(id, { requestState: result?.requestState, inputResponses: responses });
const answered = (name: string): unknown => ({ action: 'accept', content: { name } });
const textOf = (answer: Answer | undefined): unknown =>
  (answer?.result?.content as readonly { readonly text: string }[] | undefined)?.[0]?.text;
const none: Answer = { id: 0 };

function open(work: (request: CallRequest) => Promise<Reply> = asking): ModernBench {
  const bench = modernBench();
  bench.facade.onCall = async (request) => refusing(request) ?? work(request);
  return bench;
}

describe('a question of a server' + verifies('PR-M09'), () => {
  it('is the result of the request, and its answer comes with the next one', async () => {
    const { ask, facade } = open();
    const first = (await ask(call(1))) ?? none;
    expect(first.result).toMatchObject({
      resultType: 'input_required',
      inputRequests: { name: { method: 'elicitation/create', params: FORM } },
      requestState: expect.stringMatching(/^[\w-]{80,}$/),
      _meta: { 'io.modelcontextprotocol/serverInfo': { name: 'tollgate' } },
    });
    const second = await ask(retry(2, first, { name: answered('Ann') }));
    expect(second).toMatchObject({ id: 2, result: { resultType: 'complete' } });
    expect(JSON.parse(String(textOf(second)))).toEqual([answered('Ann')]);
    expect(facade.calls).toHaveLength(1);
  });

  it('asks for several things at once, asks again for what is missing, and ignores the rest', async () => {
    const { ask } = open((request) => asking(request, ['a', 'b', 'c']));
    const first = (await ask(call(1))) ?? none;
    expect(Object.keys(first.result?.inputRequests as object)).toEqual(['a', 'b', 'c']);
    const second = (await ask(retry(2, first, { a: answered('A'), c: 'no object', d: answered('D') }))) ?? none;
    expect(Object.keys(second.result?.inputRequests as object)).toEqual(['b', 'c']);
    expect(second.result?.requestState).not.toBe(first.result?.requestState);
    const third = await ask(retry(3, second, { b: answered('B'), c: answered('C') }));
    expect(JSON.parse(String(textOf(third)))).toEqual([answered('A'), answered('B'), answered('C')]);
  });

  it('can follow another one, and keys of servers that are no plain names are replaced', async () => {
    const { ask } = open(async (request) => {
      await asking(request, ['__proto__ "x']);
      return asking(request, ['two']);
    });
    const first = (await ask(call(1))) ?? none;
    const [key = ''] = Object.keys(first.result?.inputRequests as object);
    expect(key).toMatch(/^q-[0-9a-f]{12}$/);
    const second = (await ask(retry(2, first, { [key]: answered('x') }))) ?? none;
    expect(Object.keys(second.result?.inputRequests as object)).toEqual(['two']);
    expect(await ask(retry(3, second, { two: answered('y') }))).toHaveProperty('result.resultType', 'complete');
  });

  it('keeps the text of an answer, and uses answers by key that come with the first request', async () => {
    const texts: unknown[] = [];
    const { dispatch, ask, facade } = open(async (request) => {
      const limits = { signal: request.signal, timeoutMs: 10_000, server: 'one', key: 'n' };
      texts.push(await request.ask?.('elicitation/create', '{}', limits));
      return { kind: 'result', text: '{"content":[]}' };
    });
    const given = await ask(call(9, { inputResponses: { n: answered('x'), other: {} } }));
    expect(given?.result?.resultType).toBe('complete');
    expect(texts.splice(0)).toMatchObject([{ value: answered('x') }]);
    const first = (await ask(call(1))) ?? none;
    expect(first.result?.resultType).toBe('input_required');
    const line = JSON.stringify(retry(2, first, { n: 'HERE' })).replace('"HERE"', '{"n": 12345678901234567890}');
    const { readMessage } = await import('../../adapters/rpc/message-parser.ts');
    await dispatch.handle(readMessage(Buffer.from(line), 'client'), () => undefined);
    expect(texts).toEqual([{ text: '{"n": 12345678901234567890}', value: { n: 12345678901234567000 }, exact: false }]);
    expect(facade.calls).toHaveLength(2);
  });

  it('is answered at once if the first request has an answer for its key', async () => {
    const { ask } = open((request) => asking(request, ['a', 'b']));
    const first = (await ask(call(1, { inputResponses: { a: answered('A'), c: answered('C') } }))) ?? none;
    expect(Object.keys(first.result?.inputRequests as object)).toEqual(['b']);
    const second = await ask(retry(2, first, { b: answered('B') }));
    expect(JSON.parse(String(textOf(second)))).toEqual([answered('A'), answered('B')]);
  });

  it('is asked by tools/call, prompts/get and resources/read alone', async () => {
    const { ask, facade } = open(async () => ({ kind: 'result', text: '{}' }));
    await ask(stateless(1, 'completion/complete', { ref: {}, argument: {} }));
    await ask(stateless(2, 'prompts/get', { name: 'p' }));
    await ask(stateless(3, 'resources/read', { uri: 'a:b' }));
    expect(facade.calls.map(({ request }) => request.ask !== undefined)).toEqual([false, true, true]);
  });

  it('is put to the request that waits: its progress and its cancellation' + verifies('PR-M06'), async () => {
    const { ask, sent, facade } = open(async (request) => {
      await asking(request);
      request.onProgress?.({ progress: 1 });
      return asking(request, ['again']);
    });
    const first = (await ask(call(1, { _meta: metaOf(ALL, { progressToken: 'one' }) }))) ?? none;
    const next = {
      ...(retry(2, first, { name: answered('x') }).params as object),
      _meta: metaOf(ALL, { progressToken: 'two' }),
    };
    const second = (await ask(stateless(2, 'tools/call', next))) ?? none;
    expect(sent).toMatchObject([{ params: { progress: 1, progressToken: 'two' } }]);
    expect(second.result?.resultType).toBe('input_required');
    expect(facade.calls[0]?.request.signal.aborted).toBe(false);
  });
});

describe('an error of a server that asks the user to open addresses' + verifies('PR-M10'), () => {
  const error = {
    code: -32042,
    message: 'open',
    data: { elicitations: [{ mode: 'url', elicitationId: 'x', url: 'https://a.example/', message: 'Sign in.' }] },
  };
  const once = (): ((request: CallRequest) => Promise<Reply>) => {
    let opened = false;
    return async () => {
      if (opened) return { kind: 'result', text: '{"content":[]}' };
      opened = true;
      return { kind: 'error', error, upstream: 'd1' };
    };
  };

  it('becomes a question, and the call is made again when the user has opened them', async () => {
    const { ask, facade } = open(once());
    const first = (await ask(call(1))) ?? none;
    const [[key, question] = ['', {}]] = Object.entries(first.result?.inputRequests as object);
    expect(question).toEqual({
      method: 'elicitation/create',
      params: { mode: 'url', message: 'Sign in.', url: 'https://a.example/' },
    });
    expect(await ask(retry(2, first, { [key]: { action: 'accept' } }))).toHaveProperty('result.resultType', 'complete');
    expect(facade.calls).toHaveLength(2);
  });

  it('ends the call if the user did not open them', async () => {
    const { ask, facade } = open(once());
    const first = (await ask(call(1))) ?? none;
    const [key = ''] = Object.keys(first.result?.inputRequests as object);
    const second = await ask(retry(2, first, { [key]: { action: 'decline' } }));
    expect(second?.error?.data.code).toBe('URL_ELICITATION_DENIED');
    expect(facade.calls[1]?.request.refusal?.code).toBe('URL_ELICITATION_DENIED');
  });
});

describe('attack, a requestState' + verifies('PR-M11'), () => {
  const isRefused = (answer: Answer | undefined, { facade }: ModernBench): void => {
    expect(answer?.error).toMatchObject({ code: -32602, data: { code: 'INPUT_STATE' } });
    // The facade records the refusal.
    expect(facade.calls.at(-1)?.request.refusal?.code).toBe('INPUT_STATE');
  };
  const accept = { name: answered('x') };

  it('that is used again is refused, also at the same time', async () => {
    const bench = open();
    const first = (await bench.ask(call(1))) ?? none;
    const both = await Promise.all([bench.ask(retry(2, first, accept)), bench.ask(retry(3, first, accept))]);
    expect(both.filter((one) => one?.result !== undefined)).toHaveLength(1);
    expect(both.filter((one) => one?.error?.data.code === 'INPUT_STATE')).toHaveLength(1);
    isRefused(await bench.ask(retry(4, first, accept)), bench);
  });

  it('of an earlier round is refused', async () => {
    const bench = open((request) => asking(request, ['name', 'more']));
    const first = (await bench.ask(call(1))) ?? none;
    const second = (await bench.ask(retry(2, first, accept))) ?? none;
    expect(second.result?.resultType).toBe('input_required');
    isRefused(await bench.ask(retry(3, first, { more: answered('x') })), bench);
    expect(await bench.ask(retry(4, second, { more: answered('x') }))).toHaveProperty('result.resultType', 'complete');
  });

  it('that is altered, cut or made up is refused, and the call still waits for its own', async () => {
    const bench = open();
    const first = (await bench.ask(call(1))) ?? none;
    const state = String(first.result?.requestState);
    const flipped = [0, 6, 20, 40, state.length - 1].map(
      (at) => state.slice(0, at) + (state[at] === 'A' ? 'B' : 'A') + state.slice(at + 1),
    );
    for (const bad of [...flipped, state.slice(0, -4), `${state}AAAA`, `${state}=`, ` ${state}`, '', 'x', 7, null, {}])
      isRefused(await bench.ask(call(2, { requestState: bad, inputResponses: accept })), bench);
    expect(await bench.ask(retry(3, first, accept))).toHaveProperty('result.resultType', 'complete');
  });

  it('of another principal or session is refused, though one key seals all', async () => {
    const [mine, foreign] = [open(), open()];
    Object.assign(foreign.facade, { seals: mine.facade.seals });
    const first = (await mine.ask(call(1))) ?? none;
    isRefused(await foreign.ask(retry(2, first, accept)), foreign);
    expect(await mine.ask(retry(3, first, accept))).toHaveProperty('result.resultType', 'complete');
  });

  it.each<[string, Readonly<Record<string, unknown>>, string?]>([
    ['arguments', { arguments: { all: true } }],
    ['arguments in another spelling', { arguments: { a: 1, b: 2 } }],
    ['name', { name: 'other' }],
    ['run', { _meta: metaOf(ALL, { 'tollgate/run': 'other' }) }],
    ['method', {}, 'prompts/get'],
  ])('with another %s is refused', async (_what, change, method = 'tools/call') => {
    const bench = open();
    const first = (await bench.ask(call(1))) ?? none;
    const params = { ...(retry(2, first, accept).params as object), ...change };
    isRefused(await bench.ask(stateless(2, method, params)), bench);
  });

  it('of a resource is bound to its URI', async () => {
    const bench = open();
    const read = (id: number, uri: string, more: object = {}): Record<string, unknown> =>
      stateless(id, 'resources/read', { uri, ...more });
    const { result } = (await bench.ask(read(1, 'a:b'))) ?? none;
    const more = { requestState: result?.requestState, inputResponses: accept };
    isRefused(await bench.ask(read(2, 'a:c', more)), bench);
    expect(await bench.ask(read(3, 'a:b', more))).toHaveProperty('result.resultType', 'complete');
  });

  it('is refused after the policy has changed, and its call ends', async () => {
    const bench = open();
    const first = (await bench.ask(call(1))) ?? none;
    bench.facade.policyRevision = 'policy-2';
    isRefused(await bench.ask(retry(2, first, accept)), bench);
    expect(bench.facade.calls[0]?.request.signal.reason).toMatchObject({ code: 'CANCELLED' });
    bench.facade.policyRevision = 'policy-1';
    isRefused(await bench.ask(retry(3, first, accept)), bench);
  });

  it('expires after 5 minutes, and its call ends', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'Date'] });
    try {
      const bench = open();
      const first = (await bench.ask(call(1))) ?? none;
      expect(bench.dispatch.running).toBe(1);
      vi.advanceTimersByTime(300_000);
      expect(bench.facade.calls[0]?.request.signal.reason).toMatchObject({ code: 'CANCELLED' });
      isRefused(await bench.ask(retry(2, first, accept)), bench);
      expect(bench.dispatch.running).toBe(0);
    } finally {
      vi.useRealTimers();
    }
  });
});

describe('parked calls' + verifies('PR-M12'), () => {
  it('are at most 16 for one session: the next question is refused', async () => {
    const { ask, dispatch } = open();
    for (let id = 1; id <= 16; id += 1)
      expect(await ask(call(id))).toHaveProperty('result.resultType', 'input_required');
    expect(await ask(call(17))).toMatchObject({ error: { message: 'RATE_LIMITED' } });
    expect(dispatch.running).toBe(16);
    await dispatch.close('It ended.');
  });

  it('of a client that leaves questions open end after 20 rounds', async () => {
    const { ask } = open(async (request) => {
      for (let round = 0; ; round += 1) {
        const reply = await asking(request, [`r${round}`]);
        if (reply.kind === 'error') return reply;
      }
    });
    let last = (await ask(call(1))) ?? none;
    let rounds = 1;
    for (; last.result?.resultType === 'input_required' && rounds < 50; rounds += 1) {
      const [key = ''] = Object.keys(last.result.inputRequests as object);
      last = (await ask(retry(rounds + 1, last, { [key]: answered('x') }))) ?? none;
    }
    expect([last.error?.message, rounds]).toEqual(['RATE_LIMITED', 21]);
  });

  it('end when Tollgate stops, and no client is asked any more', async () => {
    const { ask, dispatch, facade } = open();
    await ask(call(1));
    await dispatch.drain();
    expect(facade.calls[0]?.request.signal.reason).toMatchObject({ code: 'INTERRUPTED' });
    expect(dispatch.running).toBe(0);
    expect(await ask(call(2))).toMatchObject({ error: { data: { code: 'SHUTTING_DOWN' } } });
  });

  it('end when the server gives up, and the next request gets their answer', async () => {
    const { ask } = open(async ({ ask: question, signal }) => {
      const limits = { signal, timeoutMs: 20, server: 'one', key: 'name' };
      const end = await question?.('elicitation/create', '{}', limits).catch((thrown: TollgateError) => thrown.code);
      return { kind: 'result', text: JSON.stringify({ content: [{ type: 'text', text: end }] }) };
    });
    const first = (await ask(call(1))) ?? none;
    await new Promise((resolve) => setTimeout(resolve, 50));
    expect(textOf(await ask(retry(2, first, { name: answered('late') })))).toBe('TOOL_TIMEOUT');
  });

  it('end with the request that waits for them', async () => {
    const { post, facade } = open(async (request) => {
      await new Promise((resolve) => setTimeout(resolve, 20));
      return asking(request);
    });
    const { answer, close } = post(call(1));
    await until(() => facade.calls.length === 1);
    close();
    expect(await answer).toBeUndefined();
    expect(facade.calls[0]?.request.signal.aborted).toBe(true);
  });
});
