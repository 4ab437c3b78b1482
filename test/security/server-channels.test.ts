/** Tests attacks of a server in progress, notifications, requests and errors. */

import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text as readText } from 'node:stream/consumers';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { parseJsonDoc, readMessage } from '../../adapters/rpc/message-parser.ts';
import { joinText } from '../../adapters/rpc/wire-message.ts';
import { Redactor } from '../../facade/output/redactor.ts';
import { ServerProgress } from '../../facade/output/server-progress.ts';
import type { Reply, Session } from '../../facade/serve/facade-port.ts';
import { openDispatch } from '../../facade/serve/session-dispatch.ts';
import { ACT, type Act, allow, type RawFacade, startRaw, tool } from '../properties/raw-facade.ts';
import { startFacade, type TestFacade } from '../stories/facade.ts';
import { verifies } from '../verifies.ts';

const KEY = 'channel-key-97531';
let facade: RawFacade;
let session: Session;

beforeAll(async () => {
  facade = await startRaw(
    { one: { tools: [ACT, tool('open')], settings: { env: { KEY: '${CHANNEL_KEY}' } } } },
    {
      profiles: { all: { servers: ['one'], expose: { tools: ['one.*'] } } },
      rules: [allow('one', 'workspace')],
    },
    { CHANNEL_KEY: KEY },
  );
  session = facade.open('me');
  await facade.list(session);
});
afterAll(() => facade.close());

type Params = Readonly<Record<string, unknown>>;
const progress = (params: string): string =>
  `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":$ID,${params}}}`;

/** Makes one call with progress, through the dispatch of stdio and HTTP. Returns what is sent besides the reply. */
async function heard(
  act: Act,
): Promise<{ readonly sent: readonly string[]; readonly params: readonly Params[]; readonly reply: string }> {
  const sent: string[] = [];
  const dispatch = openDispatch('legacy', {
    facade: facade.assembled.gateway,
    session: facade.open('me'),
    notify: (text) => void sent.push(text),
    onFault: (thrown) => {
      throw thrown;
    },
  });
  const ask = async (text: string): Promise<string> =>
    joinText((await dispatch.handle(readMessage(Buffer.from(text), 'client'), (line) => void sent.push(line))) ?? '');
  await ask(
    '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25",' +
      '"capabilities":{},"clientInfo":{"name":"c","version":"1"}}}',
  );
  await ask('{"jsonrpc":"2.0","id":2,"method":"tools/list"}');
  const reply = await ask(
    '{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"one_act",' +
      `"arguments":${JSON.stringify(act)},"_meta":{"progressToken":"t"}}}`,
  );
  await dispatch.close('The test ended.');
  return { sent, reply, params: sent.map((line) => (JSON.parse(line) as { params: Params }).params) };
}

const outcome = (): Readonly<Record<string, unknown>> | undefined =>
  facade
    .records()
    .filter(({ type }) => type === 'outcome')
    .at(-1);
const serverRecords = (): readonly Readonly<Record<string, unknown>>[] =>
  facade.records().filter(({ type, event }) => type === 'server' && event === 'request.refused');

describe('attack, progress of a server' + verifies('TR-80'), () => {
  it('passes its three fields only: no _meta, no other member, no wrong type', async () => {
    const { params } = await heard({
      before: [
        progress(
          '"progress":1,"total":2,"message":"half",' +
            '"_meta":{"tollgate/code":"DENIED","Tollgate/Decision":"x"},"extra":{"a":1}',
        ),
        progress('"progress":2,"total":"2","message":{"a":1}'),
      ],
    });
    expect(params).toEqual([
      { progress: 1, total: 2, message: 'half', progressToken: 't' },
      { progress: 2, progressToken: 't' },
    ]);
  });

  it('is redacted, escaped and cut, and its counts are in the outcome record', async () => {
    const { sent, params } = await heard({
      before: [
        progress(`"progress":1,"message":"key ${KEY}"`),
        progress('"progress":2,"message":"\\u001b[31m\\u202eevil\\u200b"'),
        progress(`"progress":3,"message":"${'😀'.repeat(1000)}"`),
        progress(`"progress":4,"message":"${'x'.repeat(200_000)}"`),
      ],
    });
    expect(params.map(({ message }) => message)).toEqual([
      'key [redacted]',
      '\\u{1B}[31m\\u{202E}evil\\u{200B}',
      expect.stringMatching(/^(😀){127}…$/u),
      '[tollgate: a message of 200000 characters was left out]',
    ]);
    for (const line of sent) expect(Buffer.byteLength(line)).toBeLessThan(700);
    expect(outcome()?.progress).toEqual({ sent: 4, coalesced: 0, refused: 0, redactions: 1, escaped: 3, cut: 2 });
  });

  it('only grows, and a number that a double cannot hold does not pass rounded', async () => {
    const { params } = await heard({
      before: ['1', '1', '0', '9007199254740993', '1e400', '"5"', '1E1', '0.1000000000000000055', '11.5'].map((value) =>
        progress(`"progress":${value}`),
      ),
    });
    expect(params.map((one) => one.progress)).toEqual([1, 10, 11.5]);
  });

  it('passes the newest of a flood, at most twenty at once and ten a second, all before the reply', async () => {
    const { params } = await heard({
      before: Array.from({ length: 1500 }, (_, index) => progress(`"progress":${index}`)),
    });
    expect(params.length).toBeGreaterThanOrEqual(21);
    expect(params.length).toBeLessThan(60);
    expect(params.at(-1)).toMatchObject({ progress: 1499 });
    expect(outcome()?.progress).toMatchObject({ sent: params.length, coalesced: 1500 - params.length });
  });

  it('does not pass after its call has ended, and holds no timer', () => {
    const sent: Params[] = [];
    const guard = new ServerProgress((params) => void sent.push(params), new Redactor());
    for (let value = 0; value < 30; value++) guard.take({ progress: value });
    guard.end();
    guard.take({ progress: 99 });
    expect([sent.length, sent.at(-1)]).toEqual([21, { progress: 29 }]);
  });
});

describe('attack, notifications of a server' + verifies('TR-81'), () => {
  it.each([
    ['a changed resource', 'notifications/resources/updated', '{"uri":"javascript:alert(1)"}'],
    ['changed resources', 'notifications/resources/list_changed', '{}'],
    ['changed prompts', 'notifications/prompts/list_changed', '{}'],
    ['an elicitation that ended', 'notifications/elicitation/complete', '{"elicitationId":"x"}'],
    ['the state of a task', 'notifications/tasks/status', '{"taskId":"x","status":"working","statusMessage":"evil"}'],
    ['a cancellation', 'notifications/cancelled', '{"requestId":3,"reason":"evil"}'],
    ['a made-up method', 'notifications/evil', '{"a":1}'],
  ])('do not pass: %s', async (_name, method, params) => {
    const { sent, reply } = await heard({ before: [`{"jsonrpc":"2.0","method":"${method}","params":${params}}`] });
    expect(sent).toEqual([]);
    expect(JSON.parse(reply)).toMatchObject({ id: 3, result: { content: [{ text: 'ok' }] } });
  });

  it('pass redacted, with the name of the server, if they are log messages', async () => {
    const params = `{"level":"error","logger":"${KEY}","data":"${KEY}","_meta":{"x":"${KEY}"}}`;
    const { sent } = await heard({ before: [`{"jsonrpc":"2.0","method":"notifications/message","params":${params}}`] });
    expect(sent.map((line) => JSON.parse(line).params)).toEqual([
      { level: 'error', logger: 'one/[redacted]', data: '[redacted]' },
    ]);
  });

  it("do not appear in list_changed, which is Tollgate's own notification", async () => {
    const { sent } = await heard({
      before: [`{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"x":"${KEY}"}}}`],
      delayMs: 600,
    });
    for (const line of sent) expect(line).toBe('{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}');
  });
});

describe('attack, requests of a server' + verifies('TR-82'), () => {
  const request = (method: string, id = 'r1'): string =>
    `{"jsonrpc":"2.0","id":"${id}","method":"${method}","params":{"message":"${KEY}"}}`;

  it('are refused and recorded with server, method, session and call, and the count of a storm', async () => {
    const known = ['sampling/createMessage', 'elicitation/create', 'roots/list'];
    const { sent } = await heard({ before: [...known, `evil/${KEY}`].map((method) => request(method)) });
    expect(sent).toEqual([]);
    const { id, session: of } = outcome() ?? {};
    expect(
      serverRecords().map(({ server, method, count, code, outcome: how, call, session: where }) => ({
        server,
        method,
        count,
        code,
        how,
        call,
        where,
      })),
    ).toEqual(
      [...known, 'other'].map((method) => ({
        server: 'one',
        method,
        count: 1,
        code: 'UPSTREAM_REQUEST_DENIED',
        how: 'deny',
        call: id,
        where: of,
      })),
    );
    expect(JSON.stringify(facade.records())).not.toContain(KEY);
    // The server may answer the call before it reads the refusals.
    await expect
      .poll(
        () =>
          facade.lines('one').filter((line) => line.includes('"id":"r1"') && line.includes('UPSTREAM_REQUEST_DENIED')),
        { timeout: 20_000 },
      )
      .toHaveLength(4);
    await heard({ before: Array.from({ length: 1000 }, (_, index) => request('roots/list', `s${index}`)) });
    expect(serverRecords()).toHaveLength(4);
  });

  it('do not reach a client as the error -32042: its addresses are withheld, and the refusal is recorded', async () => {
    const data = {
      elicitations: [{ mode: 'url', elicitationId: 'e', url: 'https://evil.example/?k=1', message: 'Sign in' }],
    };
    const { reply } = await heard({
      error: JSON.stringify({ code: -32042, message: 'Open https://evil.example/', data }),
    });
    expect(reply).not.toContain('evil');
    expect(JSON.parse(reply)).toMatchObject({
      result: { isError: true, _meta: { 'tollgate/code': 'URL_ELICITATION_DENIED' } },
    });
    expect(outcome()).toMatchObject({ code: 'URL_ELICITATION_DENIED', executed: 'yes', outcome: 'error' });
    expect(serverRecords().at(-1)).toMatchObject({ method: 'elicitation/url', count: 1, call: outcome()?.id });
  });

  it('are refused and recorded as a result that asks the client (input_required)', async () => {
    await heard({ raw: '{"resultType":"input_required","inputRequests":{"a":{"method":"elicitation/create"}}}' });
    const { id, session: of } = outcome() ?? {};
    expect(serverRecords().at(-1)).toMatchObject({ method: 'input_required', count: 1, call: id, session: of });
  });
});

describe('attack, numbers that a double cannot hold' + verifies('TR-84'), () => {
  const NUMBERS = '[9007199254740993,1e400,0.1000000000000000055,-0,-9007199254740993.5]';
  const call = async (act: Act): Promise<Reply> =>
    facade.assembled.gateway.perform(session, {
      name: 'one_act',
      args: parseJsonDoc(JSON.stringify(act)),
      signal: new AbortController().signal,
    });

  it('stay as written in error.data, next to a secret and a hostile character', async () => {
    const { reply } = await heard({
      error:
        `{"code":-32055,"message":"no","data":{"n":${NUMBERS},"k":"${KEY}",` +
        `"u":"https://x.example/?k=${KEY}\\u202e"}}`,
    });
    expect(reply).toBe(
      `{"jsonrpc":"2.0","id":3,"error":{"code":-32055,"message":"no","data":{"n":${NUMBERS},` +
        '"k":"[redacted]","u":"https://x.example/?k=[redacted]\\\\u{202E}"}}}',
    );
  });

  it('stay as written in content, structuredContent and _meta, if a part is redacted', async () => {
    const { reply } = await heard({
      raw:
        `{"content":[{"type":"text","text":"${KEY} 9007199254740993"},{"type":"x","n":${NUMBERS}}],` +
        `"structuredContent":{"k":"${KEY}","n":${NUMBERS}},"_meta":{"k":"${KEY}","n":${NUMBERS}}}`,
    });
    expect(reply.split(NUMBERS)).toHaveLength(4);
    expect(reply).toContain('[redacted] 9007199254740993');
    expect(reply).not.toContain('number-');
  });

  it('stay as written in what is cut and spilled', async () => {
    const reply = await call({
      raw: `{"content":[],"structuredContent":{"n":${NUMBERS},"rows":[${`${NUMBERS},`.repeat(2000)}0]}}`,
    });
    const text = reply.kind === 'result' ? joinText(reply.text) : '';
    const spill = /spill:\/\/[0-9a-f]{32}/.exec(text)?.[0] ?? '';
    expect(spill).not.toBe('');
    expect(text).not.toContain('9007199254740992');
    expect(text).not.toContain('null');
  });
});

describe('attack, a spill that no one can read' + verifies('TR-83'), () => {
  it.each([
    ['without read', { primitives: {}, tools: ['one.*'] }, ['one'], 'read_spill'],
    ['with read', { tools: ['one.*'] }, ['one'], 'read'],
  ])(
    'does not exist: at the smallest cap, %s, the calls that the notes name reach its end',
    async (_name, expose, servers, reader) => {
      const small = await startRaw(
        { one: { tools: [ACT] } },
        { caps: { bytes: 1024 }, profiles: { all: { servers, expose } }, rules: [allow('one', 'workspace')] },
      );
      try {
        const own = small.open('me');
        expect((await small.list(own)).map(({ name }) => name)).not.toContain('read_spill');
        const whole = '\u{1F600}'.repeat(1500) + '\n' + 'x\n'.repeat(400);
        const first = await small.call(own, 'one_act', {
          raw: JSON.stringify({ content: [{ type: 'text', text: whole }] }),
        });
        expect((await small.list(own)).some(({ name }) => name === 'read_spill')).toBe(reader === 'read_spill');
        const next = /Next: (\w+) path="(spill:[^"]+)" offset=(\d+)\]$/.exec(first.text);
        expect(next?.[1]).toBe(reader);
        let text = '';
        for (let offset: number | undefined = 1, turns = 0; offset !== undefined && turns < 500; turns++) {
          const page: Awaited<ReturnType<typeof small.call>> = await small.call(own, reader, {
            path: next?.[2],
            offset,
          });
          expect(page.code).toBe('');
          const footer: string = page.result?.content?.at(-1)?.text ?? '';
          text += page.result?.content?.[0]?.text ?? '';
          offset =
            /Next: \w+ path="[^"]+" offset=(\d+)\]$/.exec(footer)?.[1] === undefined
              ? undefined
              : Number(/offset=(\d+)\]$/.exec(footer)?.[1]);
        }
        expect(text).toBe(whole);
        if (reader === 'read') return;
        const refused = [
          { path: 'a.txt' },
          { path: '/etc/passwd' },
          { path: 'spill://../../etc/passwd' },
          { path: `spill://${'0'.repeat(32)}` },
          { path: next?.[2], action: 'list' },
          { path: 'tollgate.yaml', file_path: next?.[2] },
        ];
        for (const args of refused) expect((await small.call(own, 'read_spill', args)).code).toBe('ARGS_INVALID');
        expect((await small.call(small.open('me'), 'read_spill', { path: next?.[2] })).code).toBe('ARGS_INVALID');
      } finally {
        await small.close();
      }
    },
  );
});

/** Starts a real HTTP server whose answers to calls are given as text. */
describe.each([
  ['JSON answers', 'application/json', 'http'],
  ['event streams', 'text/event-stream', 'http'],
  ['event streams with CR', 'text/event-stream; charset=utf-8', 'cr'],
  ['SSE', 'text/event-stream', 'sse'],
])('numbers of a remote server with %s' + verifies('TR-84'), (_name, kind, way) => {
  const NUMBERS = '[9007199254740993,1e400,0.1000000000000000055,-0,1E2]';
  const TYPED = {
    name: 'typed',
    inputSchema: { type: 'object' },
    outputSchema: { type: 'object', properties: { n: { type: 'integer', maximum: 9007199254740992 } } },
  };
  const ANSWERS: Readonly<Record<string, string>> = {
    numbers:
      `"result":{"content":[{"type":"x","n":${NUMBERS}}],` +
      `"structuredContent":{"n":${NUMBERS}},"_meta":{"n":${NUMBERS}}}`,
    error: `"error":{"code":-32055,"message":"no","data":{"n":${NUMBERS}}}`,
    twice: '"result":{"content":[],"content":[{"type":"text","text":"evil"}]}',
    typed: '"result":{"content":[],"structuredContent":{"n":9007199254740993}}',
  };
  const sending = (text: string): string => {
    if (kind === 'application/json') return text;
    return way === 'cr'
      ? `: hello\rid: 1\rdata: ${text}\r\r`
      : `event: other\ndata: {}\n\nevent: message\r\ndata: ${text.slice(0, 1)}\ndata: ${text.slice(1)}\n\n`;
  };
  let server: Server;
  let far: TestFacade;
  let own: Session;

  beforeAll(async () => {
    let stream: { write(text: string): void } | undefined;
    server = createServer((request, response) => {
      void (async () => {
        if (request.method === 'GET' && way !== 'sse') return response.writeHead(405).end();
        if (request.method === 'GET') {
          response.writeHead(200, { 'content-type': kind }).write('event: endpoint\ndata: /mcp\n\n');
          stream = response;
          return;
        }
        const { id, method, params } = JSON.parse(await readText(request)) as {
          id?: number;
          method: string;
          params: { name: string; protocolVersion: string };
        };
        if (id === undefined) return response.writeHead(202).end();
        const init =
          `"result":{"protocolVersion":"${params?.protocolVersion}","capabilities":{"tools":{}},` +
          '"serverInfo":{"name":"far","version":"1\\u202e"}}';
        const tools = [...['numbers', 'error', 'twice'].map((name) => tool(name)), TYPED];
        const list = `"result":{"tools":${JSON.stringify(tools)}}`;
        const answer = method === 'initialize' ? init : method === 'tools/list' ? list : ANSWERS[params.name];
        const body = `{"jsonrpc":"2.0","id":${id},${answer}}`;
        if (way !== 'sse') return response.writeHead(200, { 'content-type': kind }).end(sending(body));
        response.writeHead(202).end();
        // In two writes, divided inside the message.
        const text = sending(body);
        stream?.write(text.slice(0, 40));
        setTimeout(() => stream?.write(text.slice(40)), 5);
      })();
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/mcp`;
    far = await startFacade(
      JSON.stringify({
        version: 1,
        workspace: './workspace',
        state: './state',
        servers: { far: { url, transport: way === 'sse' ? 'sse' : 'http' } },
        caps: { validateOutput: 'strict' },
        principals: [{ id: 'me', profiles: ['all'], stdio: true }],
        profiles: { all: { servers: ['far'], expose: { primitives: {}, tools: ['far.*'] } } },
        bash: { isolation: 'direct' },
        rules: [allow('far')],
      }),
    );
    own = far.open('me');
    await far.list(own);
  });
  afterAll(async () => {
    await far.close();
    server.closeAllConnections();
    server.close();
  });
  const ask = (name: string): Promise<Reply> =>
    far.assembled.gateway.perform(own, {
      name: `far_${name}`,
      args: parseJsonDoc('{}'),
      signal: new AbortController().signal,
    });

  it('stay as written in content, structuredContent, _meta and error.data', async () => {
    const result = await ask('numbers');
    expect((result as { text: string }).text.split(NUMBERS)).toHaveLength(4);
    expect(await ask('error')).toMatchObject({
      error: { code: -32055, text: expect.stringContaining(`{"n":${NUMBERS}}`) },
    });
  });

  it('with a duplicate key are refused, and output validation does not judge a rounded number', async () => {
    expect(JSON.stringify(await ask('twice'))).toContain('UPSTREAM_INVALID');
    expect(JSON.stringify(await ask('typed'))).toContain('OUTPUT_INVALID');
  });

  it('attack, the version of a server: it is escaped in the provenance', async () => {
    expect(((await ask('numbers')) as { text: string }).text).toContain('"version":"1\\\\u{202E}"');
  });
});
