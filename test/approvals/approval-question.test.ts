/** Tests approvals by the person at the caller's own client: what the form shows, what its answer decides, and attacks. */

import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { loadConfig } from '../../facade/config/load-config.ts';
import { approvalText } from '../../facade/consent/approvals/approval-text.ts';
import { Redactor } from '../../facade/output/redactor.ts';
import { inFull } from '../harness/full-tests.ts';
import { tool } from '../properties/raw-facade.ts';
import { type ProtocolFacade, type Step, startProtocol, type WireClient } from '../protocol/protocol-facade.ts';
import { verifies } from '../verifies.ts';
import { ApprovalOwner } from './owner-context.ts';

type Json = Readonly<Record<string, unknown>>;
interface Question {
  readonly id: number;
  readonly method: string;
  readonly params: {
    readonly message: string;
    readonly requestedSchema: { readonly properties: { readonly decision: { readonly enum: readonly string[] } } };
  };
}

let facade: ProtocolFacade;
let owner: ApprovalOwner;
afterEach(async () => {
  await owner.close();
  await facade.close();
});

const DONE = '{"content":[{"type":"text","text":"done"}]}';
const SEMANTICS = { put: 'write', get: 'read', wipe: 'destructive', run: { verb: 'execute' }, act: 'read' };
const FORMS = { elicitation: {} };
const server = (steps: Readonly<Record<string, Step>> = {}, settings: object = {}) => ({
  answers: {
    'tools/list': { raw: JSON.stringify({ tools: Object.keys(SEMANTICS).map((name) => tool(name)) }) },
    'tools/call': { raw: DONE },
    ...steps,
  },
  settings: { semantics: SEMANTICS, ...settings },
});
const config = (more: Json = {}): Json => ({
  approvals: { waitMs: 20_000 },
  profiles: { p: { servers: ['s'], expose: { primitives: {}, tools: ['s.*'] }, approvals: 'caller' } },
  rules: [{ id: 'asks', outcome: 'ask', message: 'A person must look.', when: { servers: ['s'] } }],
  ...more,
});
const start = async (more: Json = {}, one = server()): Promise<void> => {
  facade = await startProtocol({ s: one }, config(more), { env: { KEY: 'one-key-7654321' } });
  owner = new ApprovalOwner(facade.assembled.config.state);
};

const questions = (client: WireClient): readonly Question[] =>
  client.received.filter(({ method }) => method === 'elicitation/create') as unknown as readonly Question[];
const asked = async (client: WireClient, count = 1): Promise<Question> => {
  await expect.poll(() => questions(client).length, { interval: 10, timeout: 10_000 }).toBe(count);
  return questions(client)[count - 1] as Question;
};
const approveWord = ({ params }: Question): string => params.requestedSchema.properties.decision.enum[1] ?? '';
const approving = (question: Question): unknown => ({
  action: 'accept',
  content: { decision: approveWord(question) },
});
const call = (client: WireClient, name = 's_put', args: unknown = { to: 'ann', n: 7 }): Promise<Json> =>
  client.request('tools/call', { name, arguments: args });
const codeOf = ({ result, error }: Json): unknown =>
  error === undefined
    ? ((result as { _meta?: Json })._meta?.['tollgate/code'] ?? '')
    : (error as { data?: { code?: unknown } }).data?.code;
const sent = (): readonly unknown[] =>
  facade
    .got('s')
    .filter(({ method }) => method === 'tools/call')
    .map(({ params }) => (params as { arguments: unknown }).arguments);
const records = (...events: readonly string[]): readonly Json[] =>
  facade.records().filter(({ type, event }) => type === 'approval' && events.includes(String(event)));

describe('a rule that asks, with approvals: caller', () => {
  it(
    'shows the person what `tollgate approvals show` shows, and runs the approved call, once' + verifies('PR-T03'),
    async () => {
      await start();
      const client = await facade.connect({ capabilities: FORMS });
      const answer = call(client);
      const question = await asked(client);
      const { item } = await owner.open();
      const text = approvalText(item, { redactor: new Redactor(), now: item.asked, isWhole: true });
      expect(question.params.message).toContain(text);
      expect(text).toContain('to: "ann"');
      expect(approveWord(question)).toBe(`approve ${item.hash.slice(0, 12)}`);
      client.answer(question.id, approving(question));
      expect(codeOf(await answer)).toBe('');
      expect(sent()).toEqual([{ to: 'ann', n: 7 }]);
      expect(facade.records().filter(({ type }) => type === 'approval')).toMatchObject([
        { event: 'asked', outcome: 'ask' },
        { event: 'questioned', outcome: 'ask', id: item.id, call: item.call },
        { event: 'approved', by: 'me', form: 'accept', covers: 'call', binding: item.hash.slice(0, 12) },
        { event: 'used', by: 'me', form: 'accept', uses: 1 },
      ]);
      expect(await owner.all()).toEqual([]);
    },
  );

  it.each([
    ['declined', { action: 'decline' }, 'decline', 'refused in the form'],
    ['closed', { action: 'cancel' }, 'cancel', 'refused in the form'],
    ['denied', { action: 'accept', content: { decision: 'deny' } }, 'accept', 'refused in the form'],
    ['no answer of the protocol', { ok: true }, 'none', 'refused in the form'],
  ])('is refused as a denial when the form is %s, also when the call is repeated', async (_, given, form, reason) => {
    await start();
    const client = await facade.connect({ capabilities: FORMS });
    const answer = call(client);
    client.answer((await asked(client)).id, given);
    const refused = await answer;
    expect([codeOf(refused), JSON.stringify(refused)]).toEqual(['DENIED', expect.stringContaining(reason)]);
    expect(codeOf(await call(client))).toBe('DENIED');
    expect(records('denied')).toMatchObject([{ by: 'me', form, outcome: 'deny' }]);
    expect([sent(), questions(client).length]).toEqual([[], 1]);
  });

  inFull('is refused as a denial when there is no answer in time, and the question is withdrawn', async () => {
    await start({ approvals: { waitMs: 2_000 } });
    const client = await facade.connect({ capabilities: FORMS });
    // The time counts from the start of the call, so the server is started before it.
    await client.request('tools/list');
    expect(codeOf(await call(client))).toBe('DENIED');
    expect(records('denied')).toMatchObject([{ form: 'none' }]);
    const [{ id }] = questions(client) as [Question];
    await expect
      .poll(() => client.received.find(({ method }) => method === 'notifications/cancelled'))
      .toMatchObject({ params: { requestId: id } });
  });

  it('can be decided by an owner meanwhile; the first decision counts' + verifies('PR-T04'), async () => {
    await start();
    const client = await facade.connect({ capabilities: FORMS });
    const first = call(client);
    const question = await asked(client);
    await owner.deny('No.');
    expect(JSON.stringify(await first)).toContain('olga has denied this call: No.');
    client.answer(question.id, approving(question));
    expect(codeOf(await call(client))).toBe('DENIED');
    expect([sent(), records('approved')]).toEqual([[], []]);
    const second = call(client, 's_get', {});
    const other = await asked(client, 2);
    await owner.approve();
    expect(codeOf(await second)).toBe('');
    client.answer(other.id, { action: 'decline' });
    expect(sent()).toEqual([{}]);
  });

  it.each([
    [
      'another profile of the principal does not say so',
      { principals: [{ id: 'me', profiles: ['p', 'q'], stdio: true }] },
      FORMS,
    ],
    ['the client declares no forms', {}, { elicitation: { url: {} } }],
    ['the client declares no elicitation', {}, {}],
  ])('waits for an owner if %s' + verifies('PR-T05'), async (_, more, capabilities) => {
    const { profiles } = config() as { profiles: Json };
    await start({ profiles: { ...profiles, q: {} }, ...more });
    const client = await facade.connect({ capabilities });
    const answer = call(client);
    await expect.poll(() => owner.all('pending')).toHaveLength(1);
    await owner.approve();
    expect([codeOf(await answer), questions(client)]).toEqual(['', []]);
  });

  it('waits for an owner if the client answers with an error, which is recorded', async () => {
    await start();
    const client = await facade.connect({
      capabilities: FORMS,
      answers: { 'elicitation/create': { error: { code: -32601, message: 'no forms' } } },
    });
    const answer = call(client);
    await expect.poll(() => records('unanswered')).toHaveLength(1);
    await owner.approve();
    expect(codeOf(await answer)).toBe('');
  });

  it('is not asked in a form that no one would read to its end', async () => {
    await start();
    const client = await facade.connect({ capabilities: FORMS });
    const answer = call(client, 's_put', { text: 'x'.repeat(20_000) });
    await expect.poll(() => owner.all('pending')).toHaveLength(1);
    await owner.approve();
    expect([codeOf(await answer), questions(client), records('questioned')]).toEqual(['', [], []]);
  });

  it('shows no secret in the form', async () => {
    await start({}, server({}, { env: { KEY: '${KEY}' } }));
    const client = await facade.connect({ capabilities: FORMS });
    const answer = call(client, 's_put', { to: 'one-key-7654321' });
    const question = await asked(client);
    expect(question.params.message).toContain('to: "***"');
    expect(JSON.stringify(question)).not.toContain('7654321');
    client.answer(question.id, { action: 'decline' });
    await answer;
  });

  it('asks once for equal calls, and lets one of them run', async () => {
    await start();
    const client = await facade.connect({ capabilities: FORMS });
    const both = [call(client), call(client)];
    const first = await asked(client);
    await expect.poll(() => owner.state.list('waiting')).toHaveLength(2);
    client.answer(first.id, approving(first));
    const second = await asked(client, 2);
    expect([sent().length, second.params.message === first.params.message]).toEqual([1, false]);
    client.answer(second.id, { action: 'decline' });
    expect((await Promise.all(both)).map(codeOf).sort()).toEqual(['', 'DENIED']);
  });
});

describe('an answer of the caller, under attack' + verifies('PR-T04', 'PR-T05'), () => {
  it('for other bytes: the answer to another question approves nothing', async () => {
    await start();
    const client = await facade.connect({ capabilities: FORMS });
    const harmless = call(client, 's_put', { to: 'ann' });
    const shown = await asked(client);
    const harmful = call(client, 's_put', { to: 'eve' });
    const hidden = await asked(client, 2);
    client.answer(hidden.id, approving(shown));
    expect(codeOf(await harmful)).toBe('DENIED');
    client.answer(shown.id, approving(shown));
    expect(codeOf(await harmless)).toBe('');
    expect(sent()).toEqual([{ to: 'ann' }]);
  });

  it('for other bytes: accept without a decision, as of a client that fills in nothing', async () => {
    await start();
    const client = await facade.connect({
      capabilities: FORMS,
      answers: { 'elicitation/create': { result: { action: 'accept', content: {} } } },
    });
    expect([codeOf(await call(client)), sent()]).toEqual(['DENIED', []]);
  });

  it('used a second time: the same call asks again', async () => {
    await start();
    const client = await facade.connect({ capabilities: FORMS });
    const first = call(client);
    const question = await asked(client);
    client.answer(question.id, approving(question));
    await first;
    const again = call(client);
    const second = await asked(client, 2);
    client.answer(question.id, approving(question));
    client.answer(second.id, { action: 'decline' });
    expect([codeOf(await again), sent().length]).toEqual(['DENIED', 1]);
  });

  inFull.each([['s_wipe'], ['s_run']])(
    'by a client that accepts everything by itself: %s is never asked',
    async (name) => {
      await start();
      const client = await facade.connect({ capabilities: FORMS });
      const answer = call(client, name);
      await expect.poll(() => owner.all('pending')).toHaveLength(1);
      await owner.deny();
      expect([codeOf(await answer), questions(client), sent()]).toEqual(['DENIED', [], []]);
    },
  );

  it('by the client that a server asks: a request of the server waits for an owner', async () => {
    const form = { message: 'Name?', requestedSchema: { type: 'object', properties: { name: { type: 'string' } } } };
    await start(
      {
        rules: [
          { id: 'tools', outcome: 'allow', when: { servers: ['s'], kind: 'tool' } },
          { id: 'asks', outcome: 'ask', when: { kind: 'elicitation' } },
        ],
      },
      server(
        {
          'tools/call act': {
            raw: '{"content":[{"type":"text","text":"$ANSWER"}]}',
            ask: [{ method: 'elicitation/create', params: form }],
          },
        },
        { asks: ['elicitation'] },
      ),
    );
    const client = await facade.connect({ capabilities: FORMS });
    const answer = call(client, 's_act');
    await expect.poll(() => owner.all('pending')).toHaveLength(1);
    expect(questions(client)).toEqual([]);
    await owner.deny();
    expect(JSON.stringify(await answer)).toContain('UPSTREAM_REQUEST_DENIED');
  });

  it('after the policy changed: it has no effect, and the call is refused', async () => {
    await start();
    const client = await facade.connect({ capabilities: FORMS });
    const answer = call(client);
    const question = await asked(client);
    const file = path.join(facade.folder, 'tollgate.yaml');
    const rules = [{ id: 'none', outcome: 'deny', when: { servers: ['s'] } }];
    writeFileSync(file, JSON.stringify({ ...written(file), rules }));
    await facade.assembled.reload(
      () => loadConfig(file, { env: { ...process.env, KEY: 'one-key-7654321' }, home: '/home/nobody-at-all' }),
      false,
    );
    client.answer(question.id, approving(question));
    expect(codeOf(await answer)).toBe('APPROVAL_REQUIRED');
    expect(codeOf(await call(client))).toBe('UNKNOWN_TOOL');
    expect([sent(), records('approved', 'used'), await owner.all()]).toEqual([[], [], []]);
  });

  it('of another process: two facades on one state use one approval once', async () => {
    await start();
    const client = await facade.connect({ capabilities: FORMS });
    const answer = call(client);
    const question = await asked(client);
    const stored = await owner.open();
    // The other process takes what the answer approved before this one runs the call.
    client.answer(question.id, approving(question));
    await expect.poll(async () => (await owner.store.find(stored.key))?.item.state ?? 'gone').not.toBe('pending');
    const taken = await owner.store.find(stored.key);
    const isTaken = taken !== undefined && (await owner.store.take(taken));
    if (isTaken) client.answer((await asked(client, 2)).id, { action: 'decline' });
    expect([codeOf(await answer), sent().length]).toEqual(isTaken ? ['DENIED', 0] : ['', 1]);
  });
});

describe('a client of revision 2026-07-28' + verifies('PR-T03', 'PR-T04'), () => {
  const ask = async (client: Pick<WireClient, 'request'>): Promise<{ key: string; state: unknown; word: string }> => {
    const { result } = await client.request('tools/call', { name: 's_put', arguments: { to: 'ann' } });
    const { inputRequests, requestState } = result as { inputRequests: Json; requestState: unknown };
    const [[key = '', question] = []] = Object.entries(inputRequests);
    return { key, state: requestState, word: approveWord(question as Question) };
  };
  const retry = (
    client: Pick<WireClient, 'request'>,
    { key, state, word }: { key: string; state: unknown; word: string },
    to: string,
  ): Promise<Json> =>
    client.request('tools/call', {
      name: 's_put',
      arguments: { to },
      requestState: state,
      inputResponses: { [key]: { action: 'accept', content: { decision: word } } },
    });

  it('gets the question as a result, and its answer is for the same bytes, once', async () => {
    await start();
    const client = facade.connectStateless({ elicitation: { form: {} } });
    const question = await ask(client);
    expect((await retry(client, question, 'eve')).error).toBeDefined();
    expect(sent()).toEqual([]);
    expect(codeOf(await retry(client, question, 'ann'))).toBe('');
    expect((await retry(client, question, 'ann')).error).toBeDefined();
    expect(sent()).toEqual([{ to: 'ann' }]);
    expect(records('approved', 'used')).toMatchObject([{ by: 'me', form: 'accept' }, { event: 'used' }]);
  });
});

function written(file: string): Json {
  return JSON.parse(readFileSync(file, 'utf8')) as Json;
}
