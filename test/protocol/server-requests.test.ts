/** Tests requests of servers to the client: sampling, elicitation and roots, and messages of servers. */

import { afterEach, describe, expect, it } from 'vitest';
import { inFull } from '../harness/full-tests.ts';
import { tool } from '../properties/raw-facade.ts';
import { verifies } from '../verifies.ts';
import { type ProtocolFacade, type Step, startProtocol } from './protocol-facade.ts';

let facade: ProtocolFacade | undefined;
afterEach(async () => {
  await facade?.close();
  facade = undefined;
});

const ANSWERED = '{"content":[{"type":"text","text":"$ANSWER"}]}';
const SAMPLE = {
  method: 'sampling/createMessage',
  params: { messages: [{ role: 'user', content: { type: 'text', text: 'Say hi.' } }], maxTokens: 10 },
};
const FORM = {
  method: 'elicitation/create',
  params: {
    message: 'Your name?',
    requestedSchema: { type: 'object', properties: { name: { type: 'string' } }, required: ['name'] },
  },
};
const CLIENT = { sampling: {}, elicitation: { form: {}, url: {} }, roots: {} };
const SAMPLED = { role: 'assistant', content: { type: 'text', text: 'hi' }, model: 'm' };
const server = (step: Step, settings: object = { asks: ['sampling', 'elicitation', 'roots'] }) => ({
  capabilities: { tools: {}, logging: {} },
  answers: {
    'logging/setLevel': { raw: '{}' },
    'tools/list': { raw: JSON.stringify({ tools: [tool('act'), tool('slow')] }) },
    'tools/call act': { raw: ANSWERED, ...step },
    'tools/call slow': { raw: ANSWERED, delayMs: 500 },
  },
  settings: { semantics: { act: 'read', slow: 'read' }, ...settings },
});
const PROFILES = { p: { servers: ['s'], expose: { primitives: {}, tools: ['s.*'] } } };
const TOOLS = { id: 'tools', outcome: 'allow', when: { servers: ['s'] } };
const ASKS = { id: 'asks', outcome: 'allow', when: { kind: ['sampling', 'elicitation', 'roots'] } };
const open = (step: Step, more: { rules?: unknown[]; settings?: object; env?: Record<string, string> } = {}) =>
  startProtocol(
    { s: server(step, more.settings) },
    { profiles: PROFILES, rules: more.rules ?? [TOOLS, ASKS] },
    { env: more.env ?? {} },
  );
const CALL = { name: 's_act', arguments: {} };
const text = (message: Readonly<Record<string, unknown>>): string =>
  ((message.result as { content?: { text: string }[] } | undefined)?.content ?? []).map((one) => one.text).join('\n');

describe('a request of a server to the client', () => {
  it('reaches the client of its call, and is recorded with the call as parent' + verifies('PR-10'), async () => {
    facade = await open({ ask: [SAMPLE] });
    const client = await facade.connect({
      capabilities: CLIENT,
      answers: { 'sampling/createMessage': { result: SAMPLED } },
    });
    const other = await facade.connect({ capabilities: CLIENT });
    expect(JSON.parse(text(await client.request('tools/call', CALL)))).toEqual(SAMPLED);
    expect(client.received).toMatchObject([{ method: 'sampling/createMessage', params: SAMPLE.params }]);
    expect(other.received).toEqual([]);
    const records = facade.records();
    const call = records.find(({ tool: name, type }) => name === 'act' && type === 'intent');
    expect(records.slice(-3)).toMatchObject([
      { type: 'intent', kind: 'sampling', parent: call?.id, verb: 'execute', server: 's' },
      { type: 'outcome', kind: 'sampling', parent: call?.id, executed: 'yes' },
      { type: 'outcome', tool: 'act', id: call?.id },
    ]);
    expect(JSON.stringify(records)).not.toContain('Say hi');
  });

  it.each([
    ['the configuration opens none', { settings: {} }],
    ['no rule allows it', { rules: [TOOLS] }],
    ['a rule denies more tokens', { rules: [TOOLS, ASKS, { id: 'few', outcome: 'deny', when: { kind: 'sampling' } }] }],
  ])('is refused and recorded if %s' + verifies('PR-11'), async (_, more) => {
    facade = await open({ ask: [SAMPLE] }, more);
    const client = await facade.connect({ capabilities: CLIENT });
    expect(text(await client.request('tools/call', CALL))).toContain('UPSTREAM_REQUEST_DENIED');
    expect(client.received).toEqual([]);
    const refused = facade.records().filter(({ kind, event }) => kind === 'sampling' || event === 'request.refused');
    expect(refused).toHaveLength(1);
  });

  it('is refused if the client cannot answer it, or answers with an error', async () => {
    facade = await open({ ask: [SAMPLE] });
    const client = await facade.connect();
    expect(text(await client.request('tools/call', CALL))).toContain('UPSTREAM_REQUEST_DENIED');
    const failing = await facade.connect({
      capabilities: CLIENT,
      answers: { 'sampling/createMessage': { error: { code: -1, message: 'User rejected' } } },
    });
    expect(text(await failing.request('tools/call', CALL))).toContain('User rejected');
  });

  it('is refused after ten rounds of one call (attack: sampling loop)' + verifies('PR-12'), async () => {
    facade = await open({ ask: Array.from({ length: 12 }, () => SAMPLE) });
    const client = await facade.connect({
      capabilities: CLIENT,
      answers: { 'sampling/createMessage': { result: SAMPLED } },
    });
    expect(text(await client.request('tools/call', CALL))).toContain('UPSTREAM_REQUEST_DENIED');
    expect(client.received).toHaveLength(10);
  });

  inFull(
    'is refused while calls of several sessions run, because it could belong to either' + verifies('PR-13'),
    async () => {
      facade = await open({ delayMs: 50, ask: [SAMPLE] });
      const client = await facade.connect({
        capabilities: CLIENT,
        answers: { 'sampling/createMessage': { result: SAMPLED } },
      });
      const other = await facade.connect({ capabilities: CLIENT });
      const slow = other.request('tools/call', { name: 's_slow', arguments: {} });
      await expect.poll(() => facade?.got('s').filter(({ method }) => method === 'tools/call').length).toBe(1);
      expect(text(await client.request('tools/call', CALL))).toContain('UPSTREAM_REQUEST_DENIED');
      await slow;
      expect([...client.received, ...other.received]).toEqual([]);
    },
  );

  it('belongs to one client if each session has its own process' + verifies('PR-20'), async () => {
    facade = await open({ delayMs: 50, ask: [SAMPLE] }, { settings: { asks: ['sampling'], process: 'session' } });
    const named = (name: string) => ({
      capabilities: CLIENT,
      answers: { 'sampling/createMessage': { result: { ...SAMPLED, model: name } } },
    });
    const one = await facade.connect(named('one'));
    const two = await facade.connect(named('two'));
    const plain = await facade.connect();
    const [first, second, third] = await Promise.all(
      [one, two, plain].map((client) => client.request('tools/call', CALL)),
    );
    expect([first, second].map((answer) => JSON.parse(text(answer ?? {})).model)).toEqual(['one', 'two']);
    expect(text(third ?? {})).toContain('UPSTREAM_REQUEST_DENIED');
    const declared = facade.got('s').filter(({ method }) => method === 'initialize');
    expect(declared.map(({ params }) => (params as { capabilities: object }).capabilities)).toEqual(
      expect.arrayContaining([{ sampling: {} }, { sampling: {} }, {}]),
    );
  });

  it('loses secrets and hostile characters in both directions' + verifies('PR-14'), async () => {
    const secret = 'top-secret-value';
    const asked = {
      method: 'sampling/createMessage',
      params: { messages: [{ role: 'user', content: { type: 'text', text: `a ${secret} \u202e` } }], maxTokens: 1 },
    };
    facade = await open(
      { ask: [asked] },
      { settings: { asks: ['sampling'], env: { KEY: '${KEY}' } }, env: { KEY: secret } },
    );
    const client = await facade.connect({
      capabilities: CLIENT,
      answers: { 'sampling/createMessage': { result: { ...SAMPLED, content: { type: 'text', text: secret } } } },
    });
    await client.request('tools/call', CALL);
    expect(JSON.stringify(client.received)).not.toContain(secret);
    expect(JSON.stringify(client.received)).not.toContain('\u202e');
    expect(JSON.stringify(facade.got('s'))).not.toContain(secret);
  });

  inFull('must match the template of its server, or gets the fallback' + verifies('CY-28', 'PR-23'), async () => {
    const answers = { 'sampling/createMessage': { result: SAMPLED } };
    const rest = (prompt: object) => ({
      profiles: PROFILES,
      rules: [TOOLS, ASKS],
      prompts: { 's.sampling/createMessage': prompt },
    });
    const ask = async (prompt: object) => {
      facade = await startProtocol({ s: server({ ask: [SAMPLE] }) }, rest(prompt));
      const client = await facade.connect({ capabilities: CLIENT, answers });
      const said = text(await client.request('tools/call', CALL));
      const records = facade.records();
      await facade.close();
      facade = undefined;
      return { said, records, received: client.received };
    };
    expect((await ask({ template: 'Say {{*}}.' })).received).toMatchObject([{ params: SAMPLE.params }]);
    const replaced = await ask({ template: 'Sum up {{*}}.', fallback: 'Sum up.' });
    expect(replaced.received).toMatchObject([{ params: { messages: [{ content: { text: 'Sum up.' } }] } }]);
    const refused = await ask({ template: 'Sum up {{*}}.' });
    expect(refused.received).toEqual([]);
    expect(refused.records.find(({ kind }) => kind === 'sampling')).toMatchObject({ code: 'PROMPT_INVALID' });
  });

  inFull('does not let the wait for a person count as silence of the server' + verifies('PR-15'), async () => {
    facade = await open(
      { ask: [FORM] },
      { settings: { asks: ['elicitation'], timeoutMs: 300, hardTimeoutMs: 20_000 } },
    );
    const client = await facade.connect({ capabilities: CLIENT });
    const done = client.request('tools/call', CALL);
    await expect.poll(() => client.received.length).toBe(1);
    await new Promise((resolve) => setTimeout(resolve, 800));
    const { id } = client.received[0] as { id: number };
    client.answer(id, { action: 'decline' });
    expect(text(await done)).toBe('{"action":"decline"}');
    expect(facade.records().find(({ action }) => action !== undefined)).toMatchObject({
      kind: 'elicitation',
      action: 'decline',
    });
  });
});

describe('a form', () => {
  it('shows which server asks', async () => {
    facade = await open({ ask: [FORM] });
    const client = await facade.connect({
      capabilities: CLIENT,
      answers: { 'elicitation/create': { result: { action: 'accept', content: { name: 'Ann' } } } },
    });
    expect(text(await client.request('tools/call', CALL))).toContain('Ann');
    expect(client.received[0]?.params).toMatchObject({ message: '[s] Your name?' });
  });

  it(
    'that asks for a secret by a field, the title of a field or its message is refused' + verifies('PR-16'),
    async () => {
      facade = await open({ ask: [] });
      const client = await facade.connect({ capabilities: CLIENT });
      // Started before its script changes, because consent covers the files that it is started with.
      await client.request('tools/call', CALL);
      for (const [what, schema, message] of [
        ['a field', { properties: { password: { type: 'string' } } }, 'Sign in'],
        ['the title of a field', { properties: { value: { type: 'string', title: 'API key' } } }, 'Sign in'],
        ['its message', { properties: { value: { type: 'string' } } }, 'Enter your one-time code'],
      ] as const) {
        const requestedSchema = { type: 'object', ...schema };
        facade.rescript('s', server({ ask: [{ method: 'elicitation/create', params: { message, requestedSchema } }] }));
        const before = facade.records().length;
        expect(text(await client.request('tools/call', CALL)), what).toContain('UPSTREAM_REQUEST_DENIED');
        expect(client.received, what).toEqual([]);
        const added = facade.records().slice(before);
        expect(
          added.find(({ kind }) => kind === 'elicitation'),
          what,
        ).toMatchObject({ code: 'FORM_ASKS_SECRET' });
      }
    },
  );
});

describe('addresses that a server wants opened' + verifies('PR-17'), () => {
  const error = JSON.stringify({
    code: -32042,
    message: 'Sign in',
    data: {
      elicitations: [{ mode: 'url', elicitationId: 'e1', url: 'https://login.example.org/x', message: 'Sign in' }],
    },
  });

  it('pass if a rule allows each of them', async () => {
    facade = await open({ error });
    const client = await facade.connect({ capabilities: CLIENT });
    expect((await client.request('tools/call', CALL)).error).toMatchObject({
      code: -32042,
      data: { elicitations: [{ url: 'https://login.example.org/x' }] },
    });
    expect(facade.records().filter(({ kind }) => kind === 'elicitation')).toHaveLength(2);
  });

  it('do not pass if a rule denies one', async () => {
    const hosts = { id: 'hosts', outcome: 'deny', when: { hosts: ['*.example.org'] } };
    facade = await open({ error }, { rules: [TOOLS, ASKS, hosts] });
    const client = await facade.connect({ capabilities: CLIENT });
    expect(JSON.stringify(await client.request('tools/call', CALL))).toContain('URL_ELICITATION_DENIED');
    expect(facade.records().find(({ kind }) => kind === 'elicitation')).toMatchObject({
      type: 'decision',
      outcome: 'deny',
      reasons: [{ id: 'hosts' }],
    });
  });
});

describe('roots', () => {
  it('are told only if the policy allows each as a path' + verifies('PR-24'), async () => {
    const inside = { id: 'inside', outcome: 'deny', when: { kind: 'roots', insideWorkspace: false } };
    facade = await open({ ask: [{ method: 'roots/list' }] }, { rules: [TOOLS, ASKS, inside] });
    const root = { uri: `file://${facade.folder}/workspace`, name: 'w' };
    const client = await facade.connect({
      capabilities: CLIENT,
      answers: { 'roots/list': { result: { roots: [root, { uri: 'file:///etc' }] } } },
    });
    expect(JSON.parse(text(await client.request('tools/call', CALL)))).toEqual({ roots: [root] });
  });
});

describe('messages of a server' + verifies('PR-18'), () => {
  const log = (level: string, data: unknown): string =>
    JSON.stringify({ jsonrpc: '2.0', method: 'notifications/message', params: { level, logger: 'x', data } });

  it('reach the client of the call: redacted, escaped, capped, and counted', async () => {
    const before = [
      log('info', { a: 'top-secret-value \u202e' }),
      log('debug', 'no'),
      log('error', 'x'.repeat(10_000)),
    ];
    facade = await open({ before }, { settings: { env: { KEY: '${KEY}' } }, env: { KEY: 'top-secret-value' } });
    const client = await facade.connect();
    await client.request('tools/call', CALL);
    expect(client.received).toMatchObject([
      { method: 'notifications/message', params: { level: 'info', logger: 's/x' } },
      { params: { level: 'error', data: '[tollgate: a message of 10002 bytes was left out]' } },
    ]);
    expect(JSON.stringify(client.received)).not.toMatch(/top-secret|\u202e/);
    expect(facade.callRecords().at(-1)).toMatchObject({
      logs: { sent: 2, redactions: 1, escaped: 1, cut: 1, dropped: 0 },
    });
  });

  it('are limited in rate, and follow the level of the client', async () => {
    facade = await open({ before: Array.from({ length: 200 }, () => log('debug', 'x')) });
    const client = await facade.connect();
    expect((await client.request('logging/setLevel', { level: 'debug' })).result).toEqual({});
    expect((await client.request('logging/setLevel', { level: 'loud' })).error).toMatchObject({ code: -32602 });
    await client.request('tools/call', CALL);
    expect(facade.got('s').find(({ method }) => method === 'logging/setLevel')?.params).toEqual({ level: 'debug' });
    expect(client.received.length).toBeLessThan(100);
    expect(client.received.length).toBeGreaterThan(40);
  });
});

describe('an unknown method', () => {
  it('is refused and recorded' + verifies('PR-19'), async () => {
    facade = await open({});
    const client = await facade.connect();
    expect((await client.request('tools/destroy', {})).error).toMatchObject({ code: -32601 });
    expect(facade.callRecords().at(-1)).toMatchObject({
      type: 'decision',
      code: 'WIRE_METHOD',
      exposed: 'tools/destroy',
    });
  });
});
