/** Tests the host API: who may do what, the effect of a grant, runs and their budgets, and each attack by its name. */
import { connect } from 'node:net';
import { afterEach, describe, expect, it } from 'vitest';
import { Grants } from '../../facade/consent/grants/grant-store.ts';
import { openState } from '../../facade/state/sqlite-state.ts';
import { verifies } from '../verifies.ts';
import { type Answered, type Asking, type HostBench, hostConfig, PAGE, startHost, TOKENS } from './host-bench.ts';

const AT_PAGE = { origin: PAGE, profile: 'harbor' } as const;
const ALICE: Asking = { token: TOKENS.alice };
const SCOPES = ['mcp:tools.list', 'mcp:tools.call', 'mcp:server.connect'];
let host: HostBench | undefined;

afterEach(async () => {
  await host?.close();
  host = undefined;
});

const start = async (config = hostConfig()): Promise<HostBench> => (host = await startHost(config));
const grant = (bench: HostBench, more: object, asking?: Asking): Promise<Answered> =>
  bench.ask('POST /grants', { ...AT_PAGE, scope: 'mcp:tools.call', kind: 'always', ...more }, asking);
const allow = async (bench: HostBench, at: object = AT_PAGE): Promise<string[]> =>
  Promise.all(SCOPES.map(async (scope) => (await grant(bench, { ...at, scope })).value.grant.id as string));
const call = (bench: HostBench, more: object = {}, asking?: Asking): Promise<Answered> =>
  bench.ask('POST /calls', { ...AT_PAGE, name: 'chaos_echo', ...more }, asking);
const codeOf = ({ value, status }: Answered): unknown =>
  status < 400 ? 'ok' : (value.error.code ?? value.error.data?.code);

describe('grants over the host API', () => {
  it(
    'are added, listed, checked and revoked by an owner, and recorded' + verifies('HB-11', 'HB-01', 'HB-02'),
    async () => {
      const bench = await start();
      expect(
        (await bench.ask('POST /grants/check', { ...AT_PAGE, scope: 'mcp:tools.call', tool: 'chaos.echo' })).value,
      ).toEqual({ granted: false, code: 'APPROVAL_REQUIRED' });
      const given = (await grant(bench, { tools: ['chaos.echo'] })).value.grant;
      expect(given).toMatchObject({ ...AT_PAGE, by: 'host', kind: 'always', tools: ['chaos.echo'] });
      const check = async (tool: string): Promise<unknown> =>
        (await bench.ask('POST /grants/check', { ...AT_PAGE, scope: 'mcp:tools.call', tool })).value;
      expect(await check('chaos.echo')).toEqual({ granted: true, grant: given });
      expect(await check('chaos.crash')).toEqual({ granted: false, code: 'DENIED' });
      expect((await bench.ask(`GET /grants?origin=${PAGE}`)).value).toEqual({ grants: [given] });
      expect((await bench.ask(`GET /grants?origin=${PAGE}&profile=reach`)).value).toEqual({ grants: [] });
      expect((await bench.ask(`DELETE /grants/${given.id}`)).value).toEqual({ grant: given });
      expect(codeOf(await bench.ask(`DELETE /grants/${given.id}`))).toBe('WIRE_PARAMS');
      expect(bench.facade.records().filter(({ type }) => type === 'grant')).toMatchObject([
        {
          event: 'added',
          id: given.id,
          outcome: 'allow',
          by: 'host',
          scope: 'mcp:tools.call',
          kind: 'always',
          principal: { profiles: ['harbor'], origin: PAGE },
        },
        { event: 'revoked', id: given.id, outcome: 'deny', by: 'host' },
      ]);
    },
  );

  it("of a host's own scope are stored and checked for it" + verifies('HB-01'), async () => {
    const bench = await start();
    await grant(bench, { scope: 'browser:activeTab.read', kind: 'once', tab: '3' });
    await grant(bench, { scope: 'shop:cart.read' });
    const check = async (scope: string, more: object = {}): Promise<unknown> =>
      (await bench.ask('POST /grants/check', { ...AT_PAGE, scope, ...more })).value.granted;
    expect([
      await check('browser:activeTab.read', { tab: '3' }),
      await check('browser:activeTab.read'),
      await check('shop:cart.read'),
      await check('shop:cart.write'),
    ]).toEqual([true, false, true, false]);
    expect(codeOf(await grant(bench, { scope: 'mcp:tools.delete' }))).toBe('WIRE_PARAMS');
  });

  it('attack, an invalid token: are given by an owner only' + verifies('HB-11'), async () => {
    const bench = await start();
    const [id = ''] = await allow(bench);
    for (const [what, body] of [
      ['POST /grants', { ...AT_PAGE, scope: 'mcp:tools.call', kind: 'always' }],
      ['POST /grants', { origin: 'cursor', profile: 'harbor', scope: 'mcp:tools.call', kind: 'always' }],
      [`DELETE /grants/${id}`],
      ['POST /grants/expire', { tab: '1' }],
      ['GET /statistics'],
    ] as [string, object?][]) {
      const answer = await bench.ask(what, body, ALICE);
      expect([what, answer.status, answer.value.error?.code]).toEqual([what, 403, 'IDENTITY']);
    }
    // She sees only her own counts.
    await grant(bench, { origin: 'cursor', profile: 'own', scope: 'shop:cart.read' });
    expect(
      ((await bench.ask('GET /grants', undefined, ALICE)).value.grants as { origin: string }[]).map(
        ({ origin }) => origin,
      ),
    ).toEqual(['cursor']);
    expect((await bench.ask('POST /grants/check', { scope: 'shop:cart.read' }, ALICE)).value.granted).toBe(false);
  });

  it('attack, auth none: cannot be given by an allowed page, or by anyone who reaches the port', async () => {
    const bench = await start(
      hostConfig()
        .replace('listen: { port: 0,', 'listen: { port: 0, auth: none,')
        .replace('principals:', 'principals:\n  - { id: me, profiles: [reach], owner: true }'),
    );
    for (const headers of [{}, { origin: 'https://page.example' }] as Readonly<Record<string, string>>[]) {
      const answer = await bench.ask(
        'POST /grants',
        { ...AT_PAGE, scope: 'mcp:tools.call', kind: 'always' },
        { token: null, headers },
      );
      expect([answer.status, answer.value.error?.code]).toEqual([403, 'IDENTITY']);
      expect((await bench.ask('GET /statistics', undefined, { token: null, headers })).status).toBe(403);
    }
    expect((await bench.ask('GET /statistics')).status).toBe(200);
  });

  it('for some tools hide the others, whose calls are refused as not allowed' + verifies('HB-02'), async () => {
    const bench = await start();
    for (const scope of ['mcp:tools.list', 'mcp:server.connect']) await grant(bench, { scope });
    await grant(bench, { tools: ['chaos.echo', 'chaos.env'] });
    expect(
      ((await bench.ask(`GET /tools?origin=${PAGE}&profile=harbor`)).value.tools as { name: string }[]).map(
        ({ name }) => name,
      ),
    ).toEqual(['chaos_echo', 'chaos_env']);
    expect((await call(bench)).status).toBe(200);
    const refused = await call(bench, { name: 'chaos_big' });
    expect(refused).toMatchObject({ status: 403, value: { error: { code: 'DENIED' } } });
    expect(refused.value.error.message).toContain('does not apply');
  });

  it('of kind deny win over all others, hide the tool, and close a running server', async () => {
    const bench = await start();
    await allow(bench);
    expect((await call(bench)).status).toBe(200);
    await grant(bench, { kind: 'deny', tools: ['chaos.echo'] });
    expect(codeOf(await call(bench))).toBe('DENIED');
    const names = ((await bench.ask(`GET /tools?origin=${PAGE}&profile=harbor`)).value.tools as { name: string }[]).map(
      ({ name }) => name,
    );
    expect([names.includes('chaos_echo'), names.includes('chaos_env')]).toEqual([false, true]);
    await grant(bench, { kind: 'deny', scope: 'mcp:server.connect', tools: ['chaos.*'] });
    expect((await call(bench, { name: 'chaos_env' })).value.error).toMatchObject({
      code: 'DENIED',
      message: `mcp:server.connect is denied to ${PAGE} for chaos.*.`,
    });
    await grant(bench, { kind: 'deny', scope: 'mcp:tools.list' });
    expect(codeOf(await bench.ask(`GET /tools?origin=${PAGE}&profile=harbor`))).toBe('DENIED');
  });

  it('end with their tab at the next call' + verifies('HB-03', 'HB-11'), async () => {
    const bench = await start();
    for (const scope of SCOPES) await grant(bench, { scope, kind: 'once', tab: '12' });
    expect((await call(bench, { tab: '12' })).status).toBe(200);
    // It does not cover another tab of the same page, or a call that names no tab.
    for (const more of [{ tab: '13' }, {}]) expect(codeOf(await call(bench, more))).toBe('APPROVAL_REQUIRED');
    expect((await bench.ask('POST /grants/expire', { tab: '12' })).value).toEqual({ expired: 3 });
    // Attack, tab id reuse: a new page in a tab with this id has no grant.
    expect(codeOf(await call(bench, { tab: '12' }))).toBe('APPROVAL_REQUIRED');
    expect(bench.facade.records().filter(({ type, event }) => type === 'grant' && event === 'expired')).toHaveLength(3);
  });

  it('end with the session that they name' + verifies('HB-03'), async () => {
    const bench = await start();
    const { gateway, deps, config } = bench.facade.assembled;
    const alice = config.principals.find(({ id }) => id === 'alice');
    const session = gateway.openSession(
      {
        id: 'alice',
        role: alice?.role ?? '',
        groups: [],
        profiles: alice?.profiles ?? [],
        origin: 'cursor',
        owner: false,
      },
      'http',
    );
    for (const scope of SCOPES) await grant(bench, { origin: 'cursor', scope, kind: 'once', session: session.id });
    expect((await bench.facade.call(session, 'chaos_echo', {})).code).toBe('');
    const other = gateway.openSession(session.principal, 'http');
    expect((await bench.facade.call(other, 'chaos_echo', {})).code).toBe('APPROVAL_REQUIRED');
    await gateway.closeSession(session);
    expect(await deps.grants.of('cursor')).toEqual([]);
  });
});

describe('the effect of a grant', () => {
  const ask = `
  - { id: look, outcome: allow, when: { tools: [chaos.env, chaos.big] } }
  - { id: ask-echo, outcome: ask, when: { tools: [chaos.echo] } }
  - { id: never, outcome: deny, when: { tools: [chaos.big], args: { why: { in: [x] } } } }`;

  it('is the answer to an ask, named in the record, and never to a deny' + verifies('HB-02'), async () => {
    const bench = await start(hostConfig({ rules: ask }));
    await allow(bench);
    // A grant of everything, without the name of a tool, does not answer an ask of a rule.
    expect(codeOf(await call(bench))).toBe('APPROVAL_REQUIRED');
    const { id } = (await grant(bench, { tools: ['chaos.echo', 'chaos.big'] })).value.grant as { id: string };
    expect((await call(bench)).status).toBe(200);
    expect(
      bench.facade
        .records()
        .filter(({ type }) => type === 'intent')
        .at(-1),
    ).toMatchObject({ tool: 'echo', consent: id });
    expect(codeOf(await call(bench, { name: 'chaos_big', arguments: { why: 'x' } }))).toBe('DENIED');
    await bench.ask(`DELETE /grants/${id}`);
    expect(codeOf(await call(bench))).toBe('APPROVAL_REQUIRED');
  });

  it('in a profile that requires no grants is to answer an ask or to deny, and nothing else', async () => {
    const bench = await start(
      hostConfig({ rules: ask }).replace('[reach, harbor]', '[reach]').replace('[reach, harbor, own]', '[reach]'),
    );
    const at = { origin: PAGE, profile: 'reach' };
    // Two principals have the profile, and the host's own one is used.
    const once = (name: string): Promise<Answered> => bench.ask('POST /calls', { ...at, name });
    expect(codeOf(await once('chaos_env'))).toBe('ok');
    expect(codeOf(await once('chaos_echo'))).toBe('APPROVAL_REQUIRED');
    await grant(bench, { ...at, tools: ['*'] });
    expect(codeOf(await once('chaos_echo'))).toBe('ok');
    await grant(bench, { ...at, kind: 'deny', tools: ['chaos.env'] });
    expect(codeOf(await once('chaos_env'))).toBe('DENIED');
  });

  it('never reaches another origin or profile' + verifies('HB-02'), async () => {
    const bench = await start();
    await allow(bench);
    await allow(bench, { ...AT_PAGE, profile: 'reach', origin: 'https://b.example' });
    expect((await call(bench)).status).toBe(200);
    for (const origin of ['https://b.example', 'https://app.example.evil', 'http://app.example', 'cursor'])
      expect([origin, codeOf(await call(bench, { origin }))]).not.toEqual([origin, 'ok']);
  });

  it('attack, replay after revoke: ends at the next call after a revoke in another process', async () => {
    const bench = await start();
    const [, id = ''] = await allow(bench);
    expect((await call(bench)).status).toBe(200);
    const state = openState(bench.facade.assembled.config.state);
    await new Grants({ state, now: Date.now, append: () => undefined }).revoke(id, 'host');
    await state.close();
    expect(codeOf(await call(bench))).toBe('APPROVAL_REQUIRED');
    expect(codeOf(await bench.ask(`DELETE /grants/${id}`))).toBe('WIRE_PARAMS');
  });

  it('does not make an owner of the page that a host speaks for', async () => {
    const bench = await start(hostConfig({ rules: '[{ id: owners, outcome: allow, when: { owner: true } }]' }));
    await allow(bench);
    await allow(bench, { ...AT_PAGE, origin: 'host' });
    expect(codeOf(await call(bench))).toBe('UNKNOWN_TOOL');
    expect(codeOf(await bench.ask('POST /calls', { name: 'chaos_echo' }))).toBe('ok');
  });
});

describe('runs of a host', () => {
  it('have their own budget and cannot continue after their end' + verifies('HB-11', 'HB-05'), async () => {
    const bench = await start();
    await allow(bench);
    const { run } = (await bench.ask('POST /runs', { ...AT_PAGE, maxCalls: 2, conversation: 'c-1', turn: 't:2' }))
      .value;
    expect(run).toMatchObject({ principal: 'host', origin: PAGE, conversation: 'c-1', turn: 't:2', maxCalls: 2 });
    const left = async (): Promise<unknown> => (await bench.ask(`GET /runs/${run.name}`)).value.left;
    expect(await left()).toBe(2);
    for (let count = 0; count < 2; count += 1) expect((await call(bench, { run: run.name })).status).toBe(200);
    expect(await call(bench, { run: run.name })).toMatchObject({
      status: 429,
      value: { error: { code: 'BUDGET_EXCEEDED' } },
    });
    expect(await left()).toBe(0);
    expect((await bench.ask(`DELETE /runs/${run.name}`)).value).toEqual({ run, left: 0 });
    for (const what of [
      call(bench, { run: run.name }),
      bench.ask(`GET /runs/${run.name}`),
      bench.ask(`DELETE /runs/${run.name}`),
    ])
      expect(codeOf(await what)).toBe('IDENTITY');
  });

  it('do not widen what the policy allows a run', async () => {
    const bench = await start();
    await allow(bench);
    const { run } = (await bench.ask('POST /runs', { ...AT_PAGE, maxCalls: 100 })).value;
    const codes: unknown[] = [];
    for (let count = 0; count < 6; count += 1) codes.push(codeOf(await call(bench, { run: run.name })));
    expect(codes).toEqual(['ok', 'ok', 'ok', 'ok', 'ok', 'BUDGET_EXCEEDED']);
  });

  it('attack, the run of another principal: belong to their principal and origin', async () => {
    const bench = await start();
    await allow(bench);
    await allow(bench, { origin: 'https://b.example', profile: 'harbor' });
    const { run } = (await bench.ask('POST /runs', AT_PAGE)).value;
    expect(codeOf(await call(bench, { run: run.name, origin: 'https://b.example' }))).toBe('IDENTITY');
    expect(codeOf(await bench.ask(`GET /runs/${run.name}`, undefined, ALICE))).toBe('IDENTITY');
    expect(codeOf(await bench.ask(`DELETE /runs/${run.name}`, undefined, ALICE))).toBe('IDENTITY');
    const { gateway } = bench.facade.assembled;
    const alice = gateway.openSession(
      { id: 'alice', role: 'user', groups: [], profiles: [], origin: 'cursor' },
      'http',
    );
    await allow(bench, { origin: 'cursor', profile: 'harbor' });
    expect((await bench.facade.call(alice, 'chaos_echo', {}, { meta: { 'tollgate/run': run.name } })).code).toBe(
      'IDENTITY',
    );
    // A run that she opened with her token can be named over MCP.
    const own = (await bench.ask('POST /runs', { maxCalls: 1, conversation: 'mine' }, ALICE)).value.run;
    expect((await bench.facade.call(alice, 'chaos_echo', {}, { meta: { 'tollgate/run': own.name } })).code).toBe('');
    expect((await bench.facade.call(alice, 'chaos_echo', {}, { meta: { 'tollgate/run': own.name } })).code).toBe(
      'BUDGET_EXCEEDED',
    );
    const { runs } = bench.facade.assembled.deps;
    expect(await runs.scopeOf(alice.principal, `alice/${own.name}`)).toEqual({
      user: 'alice',
      space: 'alice',
      conversation: 'mine',
      turn: `alice/${own.name}`,
    });
    expect(await runs.scopeOf(alice.principal, `host/${own.name}`)).toMatchObject({
      user: 'alice',
      conversation: `host/${own.name}`,
    });
  });
});

describe('the host API under attack', () => {
  it("origin spoofing: takes an origin from an owner's request only, whatever clients claim", async () => {
    const bench = await start();
    await allow(bench);
    for (const more of [{ origin: PAGE }, { profile: 'harbor' }]) {
      for (const what of ['POST /calls', 'POST /runs', 'POST /grants/check'])
        expect([
          what,
          codeOf(
            await bench.ask(
              what,
              {
                ...more,
                ...(what === 'POST /calls' && { name: 'chaos_echo' }),
                ...(what === 'POST /grants/check' && { scope: 'mcp:tools.call' }),
              },
              ALICE,
            ),
          ),
        ]).toEqual([what, 'IDENTITY']);
    }
    expect(codeOf(await bench.ask(`GET /tools?origin=${PAGE}`, undefined, ALICE))).toBe('IDENTITY');
    const { gateway } = bench.facade.assembled;
    const alice = gateway.openSession(
      { id: 'alice', role: 'user', groups: [], profiles: [], origin: 'cursor' },
      'http',
    );
    const meta = {
      origin: PAGE,
      'tollgate/origin': PAGE,
      clientInfo: { name: PAGE },
      'tollgate/grant': 'x',
      'tollgate/tab': '1',
    };
    expect((await bench.facade.call(alice, 'chaos_echo', {}, { meta })).code).not.toBe('');
    expect(
      (await call(bench, { arguments: { origin: PAGE, _meta: meta }, origin: 'https://b.example' })).status,
    ).not.toBe(200);
  });

  it('refuses a foreign page before its token is checked, and does not let it read the answer', async () => {
    const bench = await start();
    for (const origin of ['https://evil.example', 'null', PAGE]) {
      const response = await fetch(`${bench.url}/host/v1/grants`, {
        headers: { origin, authorization: `Bearer ${TOKENS.host}` },
      });
      expect([response.status, response.headers.get('access-control-allow-origin')]).toEqual([403, null]);
    }
    // A page that tollgate.yaml lists has its own origin, in any spelling.
    await allow(bench, { origin: 'https://page.example', profile: 'harbor' });
    const listed = await fetch(`${bench.url}/host/v1/grants`, {
      headers: { origin: 'HTTPS://page.example', authorization: `Bearer ${TOKENS.alice}` },
    });
    expect(((await listed.json()) as { grants: { origin: string }[] }).grants.map(({ origin }) => origin)).toEqual(
      Array(3).fill('https://page.example'),
    );
  });

  it('refuses another host name, and a request without a token', async () => {
    const bench = await start();
    const port = Number(new URL(bench.url).port);
    const rebound = await new Promise<string>((resolve) => {
      let seen = '';
      const socket = connect(port, '127.0.0.1', () =>
        socket.write(
          [
            'GET /host/v1/grants HTTP/1.1',
            `Host: evil.example:${port}`,
            `Authorization: Bearer ${TOKENS.host}`,
            'Connection: close\r\n\r\n',
          ].join('\r\n'),
        ),
      );
      socket.on('data', (chunk: Buffer) => (seen += chunk.toString())).on('close', () => resolve(seen));
    });
    expect(rebound).toContain('HTTP_HOST');
    expect(await bench.ask('GET /grants', undefined, { token: null })).toMatchObject({
      status: 401,
      value: { error: { code: 'HTTP_AUTH' } },
    });
    expect((await bench.ask('GET /openapi.json', undefined, { token: 'wrong-token-0123456789' })).status).toBe(401);
  });

  it('refuses paths in ids, decoded or not', async () => {
    const bench = await start();
    await allow(bench);
    for (const id of ['..%2f..%2fstate', '%2e%2e', 'grant_x', `grant_${'0'.repeat(32)}%00`, 'host_1']) {
      for (const kind of ['grants', 'runs'])
        expect([kind, id, [400, 404].includes((await bench.ask(`DELETE /${kind}/${id}`)).status)]).toEqual([
          kind,
          id,
          true,
        ]);
    }
    for (const at of ['/nothing', '/grants/', '/grants/a/b', '/', '/../v2/grants'])
      expect(
        (await fetch(`${bench.url}/host/v1${at}`, { headers: { authorization: `Bearer ${TOKENS.host}` } })).status,
      ).toBe(404);
    expect(((await bench.ask('GET /grants')).value.grants as unknown[]).length).toBe(3);
    expect((await bench.ask('GET /nothing')).value).toMatchObject({ error: { code: 'HTTP_PATH' } });
    expect(await bench.ask('DELETE /grants')).toMatchObject({
      status: 405,
      value: { error: { code: 'HTTP_METHOD', next: 'Use GET or POST or DELETE /host/v1/grants/{id}.' } },
    });
  });

  it('refuses repeated keys, unknown keys, wrong types, and bodies that are too large or missing', async () => {
    const bench = await start(hostConfig().replace('listen: {', 'listen: { maxBodyBytes: 4096,'));
    const grantText = (more: string): Asking => ({
      text: `{"origin":"${PAGE}","profile":"harbor","scope":"mcp:tools.call","kind":"always"${more}}`,
    });
    const send = async (asking: Asking, what = 'POST /grants'): Promise<unknown> =>
      codeOf(await bench.ask(what, undefined, asking));
    expect(await send(grantText(',"kind":"deny"'))).toBe('WIRE_DUPLICATE_KEY');
    expect(await send(grantText(',"\\u006bind":"deny"'))).toBe('WIRE_DUPLICATE_KEY');
    expect(await send({ text: '{"name":"chaos_echo","arguments":{"a":1,"a":2}}' }, 'POST /calls')).toBe(
      'WIRE_DUPLICATE_KEY',
    );
    for (const more of [
      ',"owner":true',
      ',"by":"me"',
      ',"id":"grant_1"',
      ',"__proto__":{}',
      ',"tools":"*"',
      ',"tools":[1]',
      ',"expiresAt":"9"',
      ',"tab":"../x"',
    ])
      expect([more, await send(grantText(more))]).toEqual([more, 'WIRE_PARAMS']);
    for (const text of ['[]', 'null', '"x"']) expect(await send({ text })).toBe('WIRE_PARAMS');
    for (const text of ['', '{', '\ufeff{}', '{"a":1}{}'])
      expect([text, await send({ text })]).toEqual([text, 'WIRE_PARSE']);
    expect(await bench.ask('POST /grants', undefined, { text: '{' })).toMatchObject({
      value: {
        error: {
          message: 'The body is not JSON.',
          next: 'Send one JSON object as the body, UTF-8, without a byte order mark.',
        },
      },
    });
    expect(await send({ text: '{"origin":"\\ud800"}' })).toBe('WIRE_LONE_SURROGATE');
    expect(await send({ text: `{"origin":"${'x'.repeat(5000)}"}` })).toBe('HTTP_BODY_TOO_LARGE');
    expect(
      await bench.ask('POST /grants', undefined, { text: '{}', headers: { 'content-type': 'text/plain' } }),
    ).toMatchObject({ status: 415 });
    expect(codeOf(await bench.ask('GET /grants?profile=harbor&profile=reach'))).toBe('WIRE_DUPLICATE_KEY');
    expect(codeOf(await bench.ask('GET /grants?by=host'))).toBe('WIRE_PARAMS');
    expect(codeOf(await bench.ask('POST /runs?origin=x', {}))).toBe('WIRE_PARAMS');
    expect((await bench.ask('GET /grants')).value).toEqual({ grants: [] });
  });

  it('names the methods of a path when another method is used', async () => {
    const bench = await start();
    const response = await fetch(`${bench.url}/host/v1/grants`, {
      method: 'PUT',
      headers: { authorization: `Bearer ${TOKENS.host}` },
    });
    expect([response.status, response.headers.get('allow')]).toEqual([405, 'GET, POST']);
  });

  it('refuses a profile that no principal or several principals have', async () => {
    const bench = await start(
      hostConfig().replace(
        '{ id: host, profiles: [reach, harbor]',
        '{ id: other, profiles: [own] }\n  - { id: host, profiles: [reach, harbor]',
      ),
    );
    for (const profile of ['nobody', 'own'])
      expect([profile, codeOf(await call(bench, { profile }))]).toEqual([profile, 'IDENTITY']);
    expect(codeOf(await grant(bench, { profile: 'nobody' }))).toBe('WIRE_PARAMS');
  });
});

interface CountedCalls {
  readonly calls: { readonly count: number };
}

describe('lists, calls and statistics of the host API', () => {
  it(
    "come from the same facade: exact numbers, a tool's own error, statistics" + verifies('HB-06', 'HB-11', 'CM-54'),
    async () => {
      const bench = await start();
      await allow(bench);
      const run = async (): Promise<string> => (await bench.ask('POST /runs', AT_PAGE)).value.run.name as string;
      const sent = await bench.ask('POST /calls', undefined, {
        text: `{"origin":"${PAGE}","profile":"harbor","run":"${await run()}",
          "name":"chaos_echo","arguments":{"n":12345678901234567890}}`,
      });
      expect(JSON.stringify(sent.value.result)).toContain('12345678901234567890'.slice(0, 15));
      expect((await call(bench, { name: 'chaos_nothing', run: await run() })).status).toBe(404);
      const { value } = await bench.ask('GET /statistics');
      expect(value).toMatchObject({
        calls: 2,
        succeeded: 1,
        failed: 1,
        byTool: { chaos_echo: 1, unknown: 1 },
        byOrigin: { [PAGE]: 2 },
        byOutcome: { ok: 1, UNKNOWN_TOOL: 1 },
      });
      expect(value.averageMs).toBeGreaterThanOrEqual(0);
      expect(value.context.total).toMatchObject({ calls: { count: 2 }, results: { count: 2 } });
      expect(value.context.sessions.reduce((sum: number, { calls }: CountedCalls) => sum + calls.count, 0)).toBe(2);
    },
  );

  it('follow the new configuration after a reload', async () => {
    const bench = await start();
    await allow(bench);
    expect((await call(bench)).status).toBe(200);
    const { assembled } = bench.facade;
    const next = {
      ...assembled.config,
      principals: assembled.config.principals.map((one) =>
        one.id === 'host' ? { ...one, profiles: ['harbor'] } : one,
      ),
    };
    await assembled.reload(() => next, true);
    expect(codeOf(await call(bench))).toBe('UNKNOWN_TOOL');
  });
});

describe('the host API when the listener closes', () => {
  it('answers and records a running call, which may have run' + verifies('ST-21'), async () => {
    const bench = await start();
    await allow(bench);
    const running = call(bench, { name: 'chaos_hang' });
    await expect
      .poll(() => bench.facade.records().filter(({ type }) => type === 'intent').length, { timeout: 20_000 })
      .toBe(1);
    await bench.stop();
    expect([(await running).status, codeOf(await running)]).toEqual([502, 'INTERRUPTED']);
    expect(bench.facade.records().filter(({ type }) => type === 'outcome')).toEqual([
      expect.objectContaining({ code: 'INTERRUPTED', executed: 'unknown' }),
    ]);
  });
});
