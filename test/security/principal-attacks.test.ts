/**
 * Tests attacks between principals: shed labels and budgets, use up all sessions, and read data of another principal.
 * Covers: facade/call, facade/serve.
 */
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { createAccess } from '../../facade/cli/serving/client-access.ts';
import { Spills } from '../../facade/output/spills.ts';
import type { Session } from '../../facade/serve/facade-port.ts';
import { openHostEndpoint } from '../../facade/serve/host/host-endpoint.ts';
import { serveHttp } from '../../facade/serve/http/http-listener.ts';
import { type Answer, cli } from '../cli/terminal.ts';
import type { Project } from '../config/project.ts';
import { ACT, allow, type RawFacade, startRaw, tool } from '../properties/raw-facade.ts';
import { initialize } from '../serve/fake-facade.ts';
import { startFacade } from '../stories/facade.ts';
import { verifies } from '../verifies.ts';

const MAIN = path.join(import.meta.dirname, '..', '..', 'dist', 'facade', 'main.js');
const closers: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close();
});

async function start(...parts: Parameters<typeof startRaw>): Promise<RawFacade> {
  const facade = await startRaw(...parts);
  closers.push(() => facade.close());
  return facade;
}

const TOKENS = {
  ann: 'ann-token-0123456789abcdef',
  ben: 'ben-token-0123456789abcdef',
  boss: 'boss-token-0123456789abcdef',
} as const;
const PEOPLE = (['ann', 'ben', 'boss'] as const).map((id) => ({
  id,
  profiles: id === 'boss' ? ['all', 'more'] : ['all'],
  stdio: true,
  token: `\${env:${id.toUpperCase()}}`,
  owner: id === 'boss',
  client: `app-${id}`,
}));
const ENV = Object.fromEntries(Object.entries(TOKENS).map(([id, token]) => [id.toUpperCase(), token]));
const PROFILES = {
  all: { servers: ['web', 'files'], expose: { primitives: {}, tools: ['web.*', 'files.*'] } },
  more: { servers: ['vault'], expose: { primitives: {}, tools: ['vault.*'] } },
};
const SERVERS = {
  web: { tools: [tool('page'), ACT], settings: { labels: ['untrusted'] } },
  files: { tools: [tool('put')], settings: { semantics: { put: { verb: 'write' } } } },
  vault: { tools: [tool('open')] },
};
/** A rule that denies writes after untrusted data was read. */
const FLOW = {
  principals: PEOPLE,
  profiles: PROFILES,
  rules: [
    allow('web', 'files', 'vault'),
    { id: 'flow', outcome: 'deny', message: 'No.', when: { labels: ['untrusted'], servers: ['files'] } },
  ],
};

const named = (run: string): { readonly meta: Record<string, unknown> } => ({ meta: { 'tollgate/run': run } });

/** Opens the facade behind its real listener. */
async function listen(
  facade: RawFacade,
): Promise<
  (
    method: string,
    path: string,
    asked?: { token?: string | undefined; body?: object; session?: string },
  ) => Promise<{ status: number; text: string; session: string | null }>
> {
  const { assembled } = facade;
  const { listen: at } = assembled.config;
  const onFault = (thrown: unknown): never => {
    throw thrown;
  };
  const host = openHostEndpoint(assembled, {
    listen: at,
    now: () => performance.now(),
    onFault,
    reload: async () => undefined,
  });
  const server = await serveHttp({
    facade: assembled.gateway,
    listen: at,
    ...createAccess(() => assembled.config, at),
    host,
    onFault,
    drainMs: 100,
  });
  closers.push(() => server.close());
  return async (method, path, { token, body, session } = {}) => {
    const headers = {
      accept: 'application/json, text/event-stream',
      ...(token !== undefined && { authorization: `Bearer ${token}` }),
      ...(body !== undefined && { 'content-type': 'application/json' }),
      ...(session !== undefined && { 'mcp-session-id': session }),
    };
    const response = await fetch(new URL(path, server.url), {
      method,
      headers,
      ...(body !== undefined && { body: JSON.stringify(body) }),
    });
    return { status: response.status, text: await response.text(), session: response.headers.get('mcp-session-id') };
  };
}

describe('a run named to shed labels', () => {
  it('keeps the labels of its session, whatever runs the client names' + verifies('TR-60'), async () => {
    const facade = await start(SERVERS, FLOW, ENV);
    const session = facade.open('ann');
    expect((await facade.call(session, 'files_put', {}, named('a'))).code).toBe('');
    expect((await facade.call(session, 'web_page', {}, named('a'))).code).toBe('');
    for (const more of [named('a'), named('b'), {}, named(session.id), named('host_x')])
      expect((await facade.call(session, 'files_put', {}, more)).code, JSON.stringify(more)).toBe('DENIED');
    // The labels of the run in other sessions apply too.
    const other = facade.open('ann');
    expect([
      (await facade.call(other, 'files_put', {})).code,
      (await facade.call(other, 'files_put', {}, named('a'))).code,
    ]).toEqual(['', 'DENIED']);
  });

  it(
    'keeps them in a run that a principal without owner rights opens over the host API' + verifies('TR-60', 'TR-61'),
    async () => {
      const facade = await start(
        SERVERS,
        { ...FLOW, listen: { port: 0 }, budgets: [{ id: 'few', scope: 'run', calls: 3 }] },
        ENV,
      );
      const ask = await listen(facade);
      const open = async (token: string, body: object = {}): Promise<string> =>
        (JSON.parse((await ask('POST', '/host/v1/runs', { token, body })).text) as { run: { name: string } }).run.name;
      const session = facade.open('ann');
      expect((await facade.call(session, 'web_page', {})).code).toBe('');
      for (const _ of [1, 2])
        expect((await facade.call(session, 'files_put', {}, named(await open(TOKENS.ann)))).code).toBe('DENIED');
      expect([
        (await facade.call(session, 'web_page', {}, named(await open(TOKENS.ann)))).code,
        (await facade.call(session, 'web_page', {}, named(await open(TOKENS.ann)))).code,
      ]).toEqual(['', '']);
      expect((await facade.call(session, 'web_page', {}, named(await open(TOKENS.ann)))).code).toBe('BUDGET_EXCEEDED');
    },
  );

  it('is not like a run of an owner, which has its own labels and budgets' + verifies('TR-60', 'HB-05'), async () => {
    const facade = await start(SERVERS, { ...FLOW, budgets: [{ id: 'two', scope: 'run', calls: 2 }] }, ENV);
    const { runs } = facade.assembled.deps;
    const session = facade.open('ann');
    const [one, two] = await Promise.all(
      [1, 2].map(() => runs.open({ principal: 'ann', origin: 'app-ann', owned: true })),
    );
    expect((await facade.call(session, 'web_page', {}, named(one?.name ?? ''))).code).toBe('');
    expect((await facade.call(session, 'files_put', {}, named(one?.name ?? ''))).code).toBe('DENIED');
    expect((await facade.call(session, 'files_put', {}, named(two?.name ?? ''))).code).toBe('');
    // Outside this run, the session has the labels of what it has read.
    expect((await facade.call(session, 'files_put', {})).code).toBe('DENIED');
  });
});

describe('a run named for a new budget', () => {
  it('counts with the other runs of its session' + verifies('TR-61'), async () => {
    const facade = await start(SERVERS, { ...FLOW, budgets: [{ id: 'three', scope: 'run', calls: 3 }] }, ENV);
    const session = facade.open('ann');
    const codes: string[] = [];
    for (const run of ['a', 'b', 'c', 'd']) codes.push((await facade.call(session, 'web_page', {}, named(run))).code);
    codes.push((await facade.call(session, 'web_page', {})).code);
    expect(codes).toEqual(['', '', '', 'BUDGET_EXCEEDED', 'BUDGET_EXCEEDED']);
    expect(facade.calls('web')).toHaveLength(3);
  });
});

describe('counts its spills together under many names of runs', () => {
  it('are limited for each principal: its oldest are removed, and none of others' + verifies('TR-68'), () => {
    const folder = mkdtempSync(path.join(tmpdir(), 'tollgate-spills-'));
    const spills = new Spills(folder, { most: { files: 5, bytes: 1_000 } });
    const effect = { verb: 'read' as const, server: 'web', tool: 'page', paths: [], urls: [] };
    const put = (principal: string, run: string, size: number): string =>
      spills.put('x'.repeat(size), { principal, run }, { effect, labels: [], maxBytes: 10_000 }).handle;
    const isKept = (handle: string, principal: string, run: string): boolean => {
      try {
        return spills.source(handle, { principal, run }).effect.spill === true;
      } catch {
        return false;
      }
    };
    const ben = put('ben', 'ben/a', 900);
    const many = Array.from({ length: 12 }, (_, n) => put('ann', `ann/${n}`, 10));
    expect(many.map((handle, n) => isKept(handle, 'ann', `ann/${n}`))).toEqual([
      ...Array<boolean>(7).fill(false),
      ...Array<boolean>(5).fill(true),
    ]);
    const large = [put('ann', 'ann/x', 600), put('ann', 'ann/y', 600)];
    expect([
      ...large.map((handle, n) => isKept(handle, 'ann', ['ann/x', 'ann/y'][n] ?? '')),
      isKept(ben, 'ben', 'ben/a'),
    ]).toEqual([false, true, true]);
    spills.close();
    rmSync(folder, { recursive: true });
  });
});

describe('errors of a server for a budget of bytes', () => {
  it('count as results do' + verifies('TR-69'), async () => {
    const facade = await start(
      SERVERS,
      { ...FLOW, budgets: [{ id: 'bytes', scope: 'principal', window: 3600, outputBytes: 60_000 }] },
      ENV,
    );
    const session = facade.open('ann');
    const codes: string[] = [];
    for (let n = 0; n < 5; n += 1)
      codes.push(
        (
          await facade.call(session, 'web_act', {
            error: JSON.stringify({ code: -5, message: 'no', data: 'x'.repeat(25_000) }),
          })
        ).code,
      );
    expect(codes.slice(-2)).toEqual(['BUDGET_EXCEEDED', 'BUDGET_EXCEEDED']);
  });
});

describe('new sessions for a new budget', () => {
  it(
    'share the counter of their principal, across processes too, and no other principal pays' + verifies('TR-62'),
    async () => {
      const facade = await start(SERVERS, { ...FLOW, budgets: [{ id: 'three', scope: 'session', calls: 3 }] }, ENV);
      const codes: string[] = [];
      for (let n = 0; n < 5; n += 1) {
        const session = facade.open('ann');
        codes.push((await facade.call(session, 'web_page', {})).code);
        await facade.assembled.gateway.closeSession(session);
      }
      expect(codes).toEqual(['', '', '', 'BUDGET_EXCEEDED', 'BUDGET_EXCEEDED']);
      expect((await facade.call(facade.open('ann'), 'web_page', {})).text).toMatch(
        /Budget "three" allows 3 calls per hour per principal; 0 left\.\nThe next is possible in /,
      );
      expect(
        facade
          .records()
          .filter(({ type }) => type === 'budget')
          .at(-1),
      ).toMatchObject({ budget: 'three', scope: 'principal' });
      expect((await facade.call(facade.open('ben'), 'web_page', {})).code).toBe('');
    },
  );

  it('count in another process too' + verifies('TR-62'), async () => {
    const facade = await start(SERVERS, { ...FLOW, budgets: [{ id: 'three', scope: 'session', calls: 3 }] }, ENV);
    const second = await startFacade(readFileSync(path.join(facade.folder, 'tollgate.yaml'), 'utf8'), {
      folder: facade.folder,
      env: ENV,
    });
    closers.push(() => second.close());
    const answers = await Promise.all(
      Array.from({ length: 12 }, (_, n) => {
        const one = n % 2 === 0 ? facade : second;
        return one.call(one.open('ann'), 'web_page', {});
      }),
    );
    expect(answers.filter(({ code }) => code === '')).toHaveLength(3);
    expect(facade.calls('web')).toHaveLength(3);
  });

  it('never exceed the limit, however many run at the same time' + verifies('TR-62'), async () => {
    const facade = await start(SERVERS, { ...FLOW, budgets: [{ id: 'ten', scope: 'session', calls: 10 }] }, ENV);
    const sessions = Array.from({ length: 8 }, () => facade.open('ann'));
    const answers = await Promise.all(
      Array.from({ length: 64 }, (_, n) => facade.call(sessions[n % 8] as Session, 'web_page', {})),
    );
    expect(answers.filter(({ code }) => code === '')).toHaveLength(10);
    expect(facade.calls('web')).toHaveLength(10);
  });

  it('do not multiply over time: after the window, the budget is available again' + verifies('TR-62'), async () => {
    const facade = await start(
      SERVERS,
      { ...FLOW, budgets: [{ id: 'one', scope: 'session', calls: 1, window: 5 }] },
      ENV,
    );
    // The server starts before the window opens, because its start may take longer than the window.
    expect((await facade.call(facade.open('boss'), 'web_page', {})).code).toBe('');
    expect((await facade.call(facade.open('ann'), 'web_page', {})).code).toBe('');
    expect((await facade.call(facade.open('ann'), 'web_page', {})).code).toBe('BUDGET_EXCEEDED');
    await new Promise((resolve) => setTimeout(resolve, 5_050));
    expect((await facade.call(facade.open('ann'), 'web_page', {})).code).toBe('');
  });
});

describe('new sessions to shed labels', () => {
  const STICKY = { ...FLOW, labels: { sticky: ['untrusted'] } };

  it('have a sticky label, in every run of the principal and of no other' + verifies('TR-63'), async () => {
    const facade = await start(SERVERS, STICKY, ENV);
    expect((await facade.call(facade.open('ann'), 'web_page', {})).code).toBe('');
    const run = await facade.assembled.deps.runs.open({ principal: 'ann', origin: 'app-ann', owned: true });
    for (const more of [{}, named('a'), named(run.name)])
      expect((await facade.call(facade.open('ann'), 'files_put', {}, more)).code).toBe('DENIED');
    expect((await facade.call(facade.open('ben'), 'files_put', {})).code).toBe('');
  });

  it('have it in another process, and after a restart, until an owner clears it' + verifies('TR-63'), async () => {
    const facade = await start(SERVERS, STICKY, ENV);
    const session = facade.open('ann');
    expect((await facade.call(session, 'web_page', {})).code).toBe('');
    const second = await startFacade(readFileSync(path.join(facade.folder, 'tollgate.yaml'), 'utf8'), {
      folder: facade.folder,
      env: ENV,
    });
    closers.push(() => second.close());
    const other = second.open('ann');
    expect((await second.call(other, 'files_put', {})).code).toBe('DENIED');
    const project = { folder: facade.folder, home: facade.folder } as Project;
    const labels = (...words: readonly string[]): Promise<Answer> => cli(project, ['labels', ...words], { env: ENV });
    for (const words of [['list'], ['clear', 'ann']])
      expect(await labels(...words, '--as', 'ann')).toMatchObject({
        code: 4,
        out: '',
        err: expect.stringContaining('is no owner') as string,
      });
    expect((await facade.call(session, 'files_put', {})).code).toBe('DENIED');
    expect(JSON.parse((await labels('list', '--json', '--as', 'boss')).out)).toEqual({
      labels: [{ principal: 'ann', label: 'untrusted', since: expect.any(Number) as number }],
    });
    expect((await labels('list', '--as', 'boss')).out).toMatch(/^ann +untrusted +\d{4}-/m);
    expect(await labels('clear', 'ann', 'untrustd', '--as', 'boss')).toMatchObject({
      code: 2,
      err: expect.stringContaining('did you mean "untrusted"?') as string,
    });
    expect(await labels('clear', 'ben', '--as', 'boss')).toMatchObject({
      code: 2,
      err: expect.stringContaining('"ben" has no sticky label.') as string,
    });
    // Only this command runs as a process of its own: its effect reaches the two facades of this one.
    const config = path.join(facade.folder, 'tollgate.yaml');
    expect(
      spawnSync(process.execPath, [MAIN, 'labels', 'clear', 'ann', '--as', 'boss', '--config', config], {
        encoding: 'utf8',
        env: { ...process.env, ...ENV },
      }),
    ).toMatchObject({
      status: 0,
      stderr: expect.stringContaining('Cleared for ann: untrusted.') as string,
    });
    // In open sessions too, because only the principal had the label.
    expect([
      (await facade.call(session, 'files_put', {})).code,
      (await second.call(other, 'files_put', {})).code,
    ]).toEqual(['', '']);
    expect(facade.records().filter(({ event }) => event === 'label-cleared')).toMatchObject([
      { type: 'approval', id: 'untrusted', by: 'boss', user: expect.any(String) as string, principal: { id: 'ann' } },
    ]);
    expect(await labels('list', '--as', 'boss')).toMatchObject({
      code: 0,
      out: '',
      err: 'No principal has a sticky label.\n',
    });
    expect((await facade.call(session, 'web_page', {})).code).toBe('');
    expect((await second.call(other, 'files_put', {})).code).toBe('DENIED');
  });
});

describe('a queue of one principal', () => {
  it('does not starve another: calls that wait for a budget take turns' + verifies('TR-66'), async () => {
    const facade = await start(
      SERVERS,
      { ...FLOW, budgets: [{ id: 'one-at-a-time', scope: 'server', concurrent: 1, when: { server: 'web' } }] },
      ENV,
    );
    const ended: string[] = [];
    const call = async (session: Session, who: string): Promise<void> => {
      expect((await facade.call(session, 'web_act', { delayMs: 30 })).code).toBe('');
      ended.push(who);
    };
    const [ann, ben, boss] = [facade.open('ann'), facade.open('ben'), facade.open('boss')];
    const queued = Array.from({ length: 10 }, () => call(ann, 'ann'));
    await new Promise((resolve) => setTimeout(resolve, 20));
    const before = ended.length;
    const others = [call(ben, 'ben'), call(ben, 'ben'), call(boss, 'boss'), call(boss, 'boss')];
    await Promise.all(others);
    // Two calls of each of three principals, and those of ann that were running when the others came.
    expect(ended.length - before).toBeLessThanOrEqual(8);
    await Promise.all(queued);
    expect(ended.filter((who) => who === 'ann')).toHaveLength(10);
  });
});

describe('all sessions for one principal', () => {
  it(
    'end at its quota, over MCP and over the host API, and do not affect those of others' + verifies('TR-64', 'ST-24'),
    async () => {
      const facade = await start(
        SERVERS,
        { ...FLOW, listen: { port: 0, maxSessions: 6, maxSessionsPerPrincipal: 2 } },
        ENV,
      );
      const ask = await listen(facade);
      const events = (who: string): readonly unknown[] =>
        facade
          .records()
          .filter(
            (record) =>
              record.type === 'session' && (record as unknown as { principal: { id: string } }).principal.id === who,
          )
          .map((record) => (record as unknown as { event: string }).event);
      const open = async (token: string): Promise<number> =>
        (await ask('POST', '/mcp', { token, body: initialize() })).status;
      expect([await open(TOKENS.ben), await open(TOKENS.ann), await open(TOKENS.ann), await open(TOKENS.ann)]).toEqual([
        200, 200, 200, 200,
      ]);
      await expect.poll(() => events('ann')).toEqual(['opened', 'opened', 'opened', 'closed']);
      expect(events('ben')).toEqual(['opened']);
      const list = async (token: string, tab: string, more = ''): Promise<number> =>
        (await ask('GET', `/host/v1/tools?tab=${tab}${more}`, { token })).status;
      expect([
        await list(TOKENS.ben, '1'),
        await list(TOKENS.ann, '1'),
        await list(TOKENS.ann, '2'),
        await list(TOKENS.ann, '3'),
      ]).toEqual([200, 200, 200, 200]);
      expect([events('ann').filter((event) => event === 'closed').length, events('ben')]).toEqual([
        2,
        ['opened', 'opened'],
      ]);
      // An owner's host can serve as many pages as the listener accepts.
      for (const tab of ['1', '2', '3']) expect(await list(TOKENS.boss, tab, '&origin=https://page.example')).toBe(200);
      expect(events('ben')).not.toContain('closed');
    },
  );
});

describe('metrics of another principal', () => {
  it('are visible to an owner only: calls, times, servers and what waits' + verifies('TR-65'), async () => {
    const facade = await start(SERVERS, { ...FLOW, listen: { port: 0 } }, ENV);
    const ask = await listen(facade);
    for (const [who, name] of [
      ['ann', 'web_page'],
      ['ben', 'files_put'],
      ['boss', 'vault_open'],
    ] as const)
      expect((await facade.call(facade.open(who), name, {})).code).toBe('');
    const page = async (token: string): Promise<string> => (await ask('GET', '/metrics', { token })).text;
    const ann = await page(TOKENS.ann);
    expect(ann).toContain('tollgate_calls_total{tool="web_page",origin="app-ann",outcome="ok"} 1');
    expect(ann).toMatch(/^mcp_client_operation_duration_seconds_count\{[^}]*,tollgate_server="web"\} 1$/m);
    expect(ann).toContain('tollgate_server_state{server="web"');
    expect(ann).not.toMatch(/ben|boss|files_put|vault|restarts|events_total|waiting|unsettled/);
    const boss = await page(TOKENS.boss);
    for (const seen of [
      'origin="app-ann"',
      'origin="app-ben"',
      'tool="vault_open"',
      'server="vault"',
      'tollgate_approvals_waiting 0',
      'tollgate_budget_unsettled 0',
    ])
      expect(boss).toContain(seen);
    expect((await ask('GET', '/metrics')).status).toBe(401);
  });

  it('do not show its servers: /healthz names them to those who may use them' + verifies('TR-65'), async () => {
    const facade = await start(SERVERS, { ...FLOW, listen: { port: 0 } }, ENV);
    const ask = await listen(facade);
    const names = async (token?: string): Promise<unknown> =>
      Object.keys((JSON.parse((await ask('GET', '/healthz', { token })).text) as { servers?: object }).servers ?? {});
    expect([await names(), await names(TOKENS.ann), await names(TOKENS.boss)]).toEqual([
      [],
      ['web', 'files'],
      expect.arrayContaining(['web', 'files', 'vault']),
    ]);
    expect((await ask('GET', '/healthz', { token: 'wrong' })).status).toBe(401);
  });

  it('do not show its runs, statistics and events over the host API' + verifies('TR-65'), async () => {
    const facade = await start(SERVERS, { ...FLOW, listen: { port: 0 } }, ENV);
    const ask = await listen(facade);
    const { run } = JSON.parse((await ask('POST', '/host/v1/runs', { token: TOKENS.ben, body: {} })).text) as {
      run: { name: string };
    };
    for (const [method, at] of [
      ['GET', `runs/${run.name}`],
      ['DELETE', `runs/${run.name}`],
      ['GET', 'statistics'],
      ['GET', 'events'],
    ] as const) {
      const { status, text } = await ask(method, `/host/v1/${at}`, { token: TOKENS.ann });
      expect([at, status, text.includes('ben')]).toEqual([at, 403, false]);
    }
  });
});
