/**
 * Tests attacks of callers (threat rows 27, 30, 32, 44, 54, 59, 60) on hidden tools, on data of others and on limits.
 */

import { existsSync, mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { createServer, type IncomingHttpHeaders, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import path from 'node:path';
import { text as readText } from 'node:stream/consumers';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { readMessage } from '../../adapters/rpc/message-parser.ts';
import { joinText } from '../../adapters/rpc/wire-message.ts';
import { openAccess } from '../../facade/cli/serving/client-access.ts';
import type { Session } from '../../facade/serve/facade-port.ts';
import { serveHttp } from '../../facade/serve/http/http-listener.ts';
import type { Dispatch } from '../../facade/serve/legacy-dispatch.ts';
import { openDispatch } from '../../facade/serve/session-dispatch.ts';
import { ACT, allow, type RawFacade, startRaw, tool } from '../properties/raw-facade.ts';
import { type Answer, startFacade, type TestFacade } from '../stories/facade.ts';
import { verifies } from '../verifies.ts';

const closers: (() => unknown)[] = [];
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close();
});

async function start(...parts: Parameters<typeof startRaw>): Promise<RawFacade> {
  const facade = await startRaw(...parts);
  closers.push(() => facade.close());
  return facade;
}

const TWO = [
  { id: 'ann', profiles: ['all'], stdio: true },
  { id: 'ben', role: 'guest', profiles: ['all'], stdio: true },
];

describe('hidden-tool probing', () => {
  it(
    'gets the same error, record and work for a hidden tool as for an unknown one' + verifies('CY-16', 'CY-11'),
    async () => {
      const facade = await start(
        { one: { tools: [tool('open'), tool('vault')] } },
        { rules: [allow('one'), { id: 'no', outcome: 'deny', message: 'Never.', when: { tools: ['one.vault'] } }] },
      );
      const session = facade.open('me');
      expect((await facade.list(session)).map(({ name }) => name)).toEqual(['one_open']);
      const { deps, catalog } = facade.assembled;
      const decide = vi.spyOn(deps.policy(), 'call');
      const refresh = vi.spyOn(catalog, 'refresh');
      const seen: unknown[] = [];
      for (const name of ['one_vault', 'one_vaulx', 'one-vault', 'vault', 'one.vault']) {
        for (const args of [{}, { path: 1 }]) {
          const [asked, listed, lines] = [
            decide.mock.calls.length,
            refresh.mock.calls.length,
            facade.lines('one').length,
          ];
          const { error, result } = await facade.call(session, name, args);
          const { decision: _, ...data } = error?.data as Record<string, unknown>;
          const { type, outcome, code } = facade.callRecords().at(-1) ?? {};
          seen.push({
            result,
            error: { ...error, data },
            type,
            outcome,
            code,
            decided: decide.mock.calls.length - asked,
            listed: refresh.mock.calls.length - listed,
            sent: facade.lines('one').length - lines,
          });
        }
      }
      expect(new Set(seen.map((one) => JSON.stringify(one))).size).toBe(1);
      expect(seen[0]).toMatchObject({ code: 'UNKNOWN_TOOL', decided: 0, sent: 0, error: { code: -32602 } });
    },
  );

  it('does not ask a server outside the profile for its tools', async () => {
    const facade = await start(
      { one: { tools: [tool('open')] }, two: { tools: [tool('open')] } },
      {
        profiles: { all: { servers: ['one'], expose: { primitives: {}, tools: ['one.*'] } } },
        rules: [allow('one', 'two')],
      },
    );
    expect((await facade.call(facade.open('me'), 'two_open', {})).code).toBe('UNKNOWN_TOOL');
    expect(facade.lines('two')).toEqual([]);
  });
});

describe('a spill', () => {
  it('of another principal, run or session gets the same answer as an unknown one' + verifies('HA-11'), async () => {
    const facade = await start(
      { one: { tools: [ACT] } },
      {
        principals: TWO,
        profiles: { all: { servers: ['one'], expose: { tools: ['one.act'] } } },
        rules: [allow('one', 'workspace')],
        caps: { bytes: 9000 },
      },
    );
    const [ann, other, ben] = [facade.open('ann'), facade.open('ann'), facade.open('ben')];
    const long = { raw: JSON.stringify({ content: [{ type: 'text', text: 'line\n'.repeat(5000) }] }) };
    const cut = await facade.call(ann, 'one_act', long, { meta: { 'tollgate/run': 'r' } });
    const handle = /spill:\/\/[0-9a-f]{32}/.exec(cut.text)?.[0] ?? '';
    const ask = (session: Session, spill: string, run?: string): Promise<Answer> =>
      facade.call(session, 'read', { path: spill }, run === undefined ? {} : { meta: { 'tollgate/run': run } });
    expect((await ask(ann, handle, 'r')).text).toContain('line\n');
    const never = await ask(ben, `spill://${'0'.repeat(32)}`, 'r');
    expect(never.code).toBe('ARGS_INVALID');
    // A run belongs to its principal, so only other sessions of the same principal may name it.
    for (const [session, run] of [
      [ben, 'r'],
      [ann, undefined],
      [ann, 's'],
      [other, undefined],
    ] as const)
      expect((await ask(session, handle, run)).text).toBe(never.text.replace(`spill://${'0'.repeat(32)}`, handle));
    expect((await ask(ben, handle, 'ann/r')).code).toBe('IDENTITY');
    for (const spelling of [
      handle.toUpperCase(),
      `${handle}/`,
      `${handle}/../${handle.slice(8)}`,
      ` ${handle}`,
      handle.replace('//', '/'),
      'spill://../../audit/key',
      `spill://${'a'.repeat(31)}`,
    ]) {
      expect((await ask(ann, spelling, 'r')).text, spelling).not.toContain('line\n');
    }
    await facade.assembled.gateway.closeSession(other);
    expect((await ask(ann, handle, 'r')).code).toBe('');
  });
});

describe('two parallel sessions', () => {
  /** Opens a client that chooses its own ids. */
  async function client(facade: RawFacade, principal: string): Promise<Dispatch> {
    const dispatch = openDispatch('legacy', {
      facade: facade.assembled.gateway,
      session: facade.open(principal),
      notify: () => undefined,
      onFault: (thrown) => {
        throw thrown;
      },
    });
    await dispatch.handle(
      message(
        '{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25",' +
          '"capabilities":{},"clientInfo":{"name":"x","version":"1"}}}',
      ),
      () => undefined,
    );
    return dispatch;
  }
  const message = (line: string) => readMessage(Buffer.from(line), 'client');
  const call = (id: number, args: unknown) =>
    message(JSON.stringify({ jsonrpc: '2.0', id, method: 'tools/call', params: { name: 'one_act', arguments: args } }));

  it('id collision: 4 clients use the same ids on one server, and each gets its own answers', async () => {
    const facade = await start({ one: { tools: [ACT] } }, { principals: TWO });
    const clients = await Promise.all(['ann', 'ben', 'ann', 'ben'].map((who) => client(facade, who)));
    const jobs = clients.flatMap((dispatch, who) => Array.from({ length: 12 }, (_, n) => ({ dispatch, who, n })));
    const answers = await Promise.all(
      jobs.map(({ dispatch, who, n }) =>
        dispatch.handle(
          call(n + 1, {
            delayMs: (who * 7 + n * 5) % 23,
            raw: JSON.stringify({ content: [{ type: 'text', text: `for ${who}/${n}` }] }),
          }),
          () => undefined,
        ),
      ),
    );
    for (const [index, { who, n }] of jobs.entries())
      expect(JSON.parse(joinText(answers[index] ?? ''))).toMatchObject({
        id: n + 1,
        result: { content: [{ text: `for ${who}/${n}` }] },
      });
    expect(new Set(facade.calls('one').map(({ id }) => id)).size).toBe(jobs.length);
  });

  it('do not mix cancels: the server gets its own id, and the same id of another client continues', async () => {
    const facade = await start({ one: { tools: [ACT] } }, { principals: TWO });
    const [ann, ben] = [await client(facade, 'ann'), await client(facade, 'ben')];
    const text = (said: string) => JSON.stringify({ content: [{ type: 'text', text: said }] });
    const first = ann.handle(call(7, { delayMs: 60_000, raw: text('ann') }), () => undefined);
    const second = ben.handle(call(7, { delayMs: 400, raw: text('ben') }), () => undefined);
    await vi.waitFor(() => expect(facade.calls('one')).toHaveLength(2), { timeout: 20_000 });
    await ann.handle(
      message('{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}'),
      () => undefined,
    );
    expect(await first).toBeUndefined();
    expect(JSON.parse(joinText((await second) ?? ''))).toMatchObject({ id: 7, result: { content: [{ text: 'ben' }] } });
    const own = facade.calls('one').find(({ args }) => args.includes('ann'))?.id;
    await expect
      .poll(() =>
        facade
          .lines('one')
          .map((line) => JSON.parse(line) as { method: string; params?: { requestId?: number } })
          .filter(({ method }) => method === 'notifications/cancelled')
          .map(({ params }) => params?.requestId),
      )
      .toEqual([own]);
    expect(own).not.toBe(7);
  });
});

describe('call storm', () => {
  it('of many unknown names starts nothing again, and a budget stops the rest' + verifies('CY-17'), async () => {
    const facade = await start(
      { one: { tools: [tool('open')] } },
      { budgets: [{ id: 'five', scope: 'principal', calls: 5 }] },
    );
    const session = facade.open('me');
    await facade.list(session);
    const answers = await Promise.all(
      Array.from({ length: 300 }, (_, n) => facade.call(session, n % 3 === 0 ? 'one_open' : `one_${n}`, {})),
    );
    expect(answers.filter(({ code }) => code === '')).toHaveLength(5);
    expect(answers.filter(({ code }) => code === 'BUDGET_EXCEEDED')).toHaveLength(95);
    expect(facade.lines('one').filter((line) => line.includes('tools/list'))).toHaveLength(1);
    expect(facade.calls('one')).toHaveLength(5);
  });
});

describe('symlink out of the workspace', () => {
  it('is judged by its target, under every spelling, for tools of servers too' + verifies('CY-18'), async () => {
    const facade = await start(
      {
        one: {
          tools: [
            tool('open', {
              inputSchema: {
                type: 'object',
                properties: { path: { type: 'string' }, paths: { type: 'array', items: { type: 'string' } } },
              },
            }),
          ],
          settings: { semantics: { open: { verb: 'read', paths: ['path', 'paths'] } } },
        },
      },
      {
        rules: [
          { id: 'inside', outcome: 'allow', when: { insideWorkspace: true } },
          { id: 'out', outcome: 'deny', message: 'Outside.', when: { insideWorkspace: false } },
        ],
      },
    );
    const root = path.join(facade.folder, 'workspace');
    mkdirSync(path.join(root, 'in'));
    writeFileSync(path.join(root, 'in', 'a.txt'), 'a');
    symlinkSync('/etc', path.join(root, 'etc'));
    symlinkSync('etc', path.join(root, 'again'));
    symlinkSync('/nowhere/at/all', path.join(root, 'dangling'));
    symlinkSync('in', path.join(root, 'fine'));
    const session = facade.open('me');
    for (const bad of [
      'etc/passwd',
      './etc/../etc/passwd',
      'again/passwd',
      path.join(root, 'etc/passwd'),
      'dangling',
      'in/../again/passwd',
      'file:///etc/passwd',
      `file://${root}/etc/passwd`,
    ]) {
      for (const args of [{ path: bad }, { paths: ['in/a.txt', bad] }])
        expect((await facade.call(session, 'one_open', args)).code, bad).toBe('DENIED');
    }
    expect(facade.calls('one')).toEqual([]);
    for (const good of ['in/a.txt', 'fine/a.txt', path.join(root, 'in/a.txt'), 'new.txt'])
      expect((await facade.call(session, 'one_open', { path: good })).code, good).toBe('');
  });
});

describe('token passthrough', () => {
  /** A remote server that stores every header and body. */
  async function capture(): Promise<{ url: string; headers: IncomingHttpHeaders[]; bodies: string[] }> {
    const headers: IncomingHttpHeaders[] = [];
    const bodies: string[] = [];
    const server: Server = createServer(
      (request, response) =>
        void readText(request).then((body) => {
          headers.push(request.headers);
          bodies.push(body);
          const { id, method, params } = JSON.parse(body || '{}') as {
            id?: number;
            method?: string;
            params?: { protocolVersion?: string };
          };
          if (id === undefined) return response.writeHead(request.method === 'POST' ? 202 : 405).end();
          const result =
            method === 'initialize'
              ? {
                  protocolVersion: params?.protocolVersion,
                  capabilities: { tools: {} },
                  serverInfo: { name: 'r', version: '1' },
                }
              : method === 'tools/list'
                ? { tools: [tool('open')] }
                : { content: [] };
          return response
            .writeHead(200, { 'content-type': 'application/json' })
            .end(JSON.stringify({ jsonrpc: '2.0', id, result }));
        }),
    );
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    closers.push(() => {
      server.closeAllConnections();
      server.close();
    });
    return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/mcp`, headers, bodies };
  }

  it(
    'never sends the token, session id, cookies or headers of a client to a server, only its configured ones' +
      verifies('HA-02'),
    async () => {
      const remote = await capture();
      const facade: TestFacade = await startFacade(
        JSON.stringify({
          version: 1,
          workspace: './workspace',
          state: './state',
          listen: { port: 0 },
          servers: { far: { transport: 'http', url: remote.url, headers: { authorization: 'Bearer ${FAR_TOKEN}' } } },
          principals: [{ id: 'me', profiles: ['all'], stdio: true }],
          profiles: { all: { servers: ['far'], expose: { primitives: {}, tools: ['far.*'] } } },
          rules: [allow('far')],
        }),
        { env: { FAR_TOKEN: 'far-token-of-the-server' } },
      );
      closers.push(() => facade.close());
      const { config, gateway } = facade.assembled;
      const access = openAccess(config, config.listen);
      const front = await serveHttp({
        facade: gateway,
        listen: config.listen,
        authenticate: access.authenticate,
        drainMs: 2000,
        onFault: () => undefined,
      });
      closers.push(() => front.close());
      const post = (body: unknown, headers: Record<string, string>) =>
        fetch(front.url, {
          method: 'POST',
          body: JSON.stringify(body),
          headers: {
            'content-type': 'application/json',
            accept: 'application/json, text/event-stream',
            authorization: `Bearer ${access.token ?? ''}`,
            cookie: 'c=client-cookie',
            'x-client': 'client-header',
            traceparent: 'client-trace',
            ...headers,
          },
        });
      const hello = await post(
        {
          jsonrpc: '2.0',
          id: 1,
          method: 'initialize',
          params: { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 'x', version: '1' } },
        },
        {},
      );
      const session = hello.headers.get('mcp-session-id') ?? '';
      const called = await post(
        { jsonrpc: '2.0', id: 2, method: 'tools/call', params: { name: 'far_open', arguments: { a: 1 } } },
        { 'mcp-session-id': session },
      );
      expect(await called.json()).toMatchObject({ id: 2, result: { content: [] } });
      expect(remote.bodies.some((body) => body.includes('"tools/call"'))).toBe(true);
      const all = JSON.stringify([remote.headers, remote.bodies]);
      for (const own of [access.token ?? '?', session, 'client-cookie', 'client-header', 'client-trace'])
        expect(all).not.toContain(own);
      for (const headers of remote.headers) expect(headers.authorization).toBe('Bearer far-token-of-the-server');
      expect(existsSync(path.join(facade.folder, 'state'))).toBe(true);
    },
  );
});
