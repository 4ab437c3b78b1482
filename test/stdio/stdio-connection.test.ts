/** Tests servers as processes, with a server that misbehaves in every known way. */

import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, describe, expect, it } from 'vitest';
import { ServerPool } from '../../adapters/supervisor/server-pool.ts';
import type { ServerSettings } from '../../adapters/supervisor/server-settings.ts';
import type { AdapterOptions } from '../../adapters/supervisor/supervisor.ts';
import type { UpstreamServer } from '../../adapters/supervisor/upstream-server.ts';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { inFull } from '../harness/full-tests.ts';
import { roundsOf } from '../harness/slices.ts';
import { verifies } from '../verifies.ts';
import {
  type Bench,
  callOf,
  chaos,
  codeOf,
  FAST,
  HOST,
  isGone,
  refusalOf,
  serve,
  startAll,
  temporaryFolder,
  textOf,
} from './misbehaving-server.ts';

const open: ServerPool[] = [];

function start(mode?: string, more?: Partial<ServerSettings>, options?: Partial<AdapterOptions>): Bench {
  const bench = serve(chaos(mode, more), options);
  open.push(bench.pool);
  return bench;
}

async function pidOf({ server }: Bench): Promise<number> {
  return (JSON.parse(await textOf(server, callOf('env'))) as { pid: number }).pid;
}

afterEach(async () => {
  await Promise.all(open.splice(0).map((pool) => pool.stopAll()));
});

describe('the start of a server', () => {
  it('happens once, on the first of several calls' + verifies('HE-01'), async () => {
    const starts = join(temporaryFolder(), 'starts');
    const { server } = start('ok', { env: { CHAOS_STARTS: starts } });
    expect(server.health()).toEqual({ state: 'idle', restarts: 0, badLines: 0 });
    expect(server.info()).toBeUndefined();
    const texts = await Promise.all(['a', 'b', 'c'].map((word) => textOf(server, callOf('echo', { word }))));
    expect(texts).toEqual(['{"word":"a"}', '{"word":"b"}', '{"word":"c"}']);
    expect(await server.start()).toEqual({ name: 'chaos', version: '1.2.3', protocolVersion: '2025-06-18' });
    expect(readFileSync(starts, 'utf8').trim().split('\n')).toHaveLength(1);
    expect(server.health().state).toBe('healthy');
  });

  it('accepts the oldest protocol revision and refuses unknown ones' + verifies('HE-03'), async () => {
    expect((await start('old-version').server.start()).protocolVersion).toBe('2024-10-07');
    expect(await refusalOf(start('wrong-version').server.start())).toMatch(/INIT_FAILED: .*"1999-01-01".*2025-11-25/);
    expect(await refusalOf(start('no-version').server.start())).toMatch(/INIT_FAILED: .*none/);
    expect(await refusalOf(start('refuse').server.start())).toMatch(/INIT_FAILED: .*error -32000/);
  });

  inFull('fails at the connect timeout if the server does not answer, and kills it' + verifies('HA-09'), async () => {
    const starts = join(temporaryFolder(), 'starts');
    const { server } = start('mute', { connectTimeoutMs: 4000, env: { CHAOS_STARTS: starts } });
    expect(await refusalOf(server.start())).toMatch(/INIT_FAILED: Server "chaos" did not answer within 4000 ms/);
    expect(await isGone(Number(readFileSync(starts, 'utf8')))).toBe(true);
    expect(server.health()).toMatchObject({
      state: 'unavailable',
      reason: 'Server "chaos" did not answer within 4000 ms.',
    });
  });

  it('says why it failed, without paths', async () => {
    expect(await refusalOf(start('crash-at-start').server.start())).toMatch(
      /INIT_FAILED: Server "chaos" ended with exit code 7 before it had answered/,
    );
    expect(await refusalOf(start('ok', { command: '/nowhere/at-all' }).server.start())).toMatch(
      /INIT_FAILED: .*command or its folder was not found\. /,
    );
    expect(await refusalOf(start('ok', { args: ['a\0b'] }).server.start())).toMatch(
      /INIT_FAILED: Server "chaos" could not be started\. /,
    );
    expect(await codeOf(start('ok', { command: '/nowhere/at-all' }).server.call(callOf('echo')))).toBe(
      'SERVER_UNAVAILABLE',
    );
  });

  it('continues if one of its callers stops waiting', async () => {
    const { server } = start();
    const controller = new AbortController();
    const first = codeOf(server.start(controller.signal));
    const second = server.start();
    controller.abort();
    expect(await first).toBe('CANCELLED');
    expect((await second).name).toBe('chaos');
    expect(await codeOf(server.listTools(controller.signal))).toBe('CANCELLED');
  });

  it('does not happen without consent, which is checked each time with the settings of this start', async () => {
    const starts = join(temporaryFolder(), 'starts');
    const settings = chaos('ok', { env: { CHAOS_STARTS: starts } });
    const checked: ServerSettings[] = [];
    let refusal: TollgateError | undefined = new TollgateError('SERVER_UNAVAILABLE', {
      detail: 'Nobody has approved it.',
    });
    const { server } = start('ok', settings, {
      consent: (exact) => {
        checked.push(exact);
        return Promise.resolve(refusal);
      },
    });
    expect(await refusalOf(server.call(callOf('echo')))).toMatch(/SERVER_UNAVAILABLE: Nobody has approved it\./);
    expect(server.health()).toMatchObject({
      state: 'disabled',
      reason: expect.stringContaining('Nobody has approved it.') as string,
    });
    expect(await codeOf(server.listTools())).toBe('SERVER_UNAVAILABLE');
    expect([checked, existsSync(starts)]).toEqual([[settings, settings], false]);
    refusal = undefined;
    expect(await textOf(server, callOf('echo'))).toBe('{}');
    expect(server.health().state).toBe('healthy');
  });

  it('does not happen with unusable settings, and needs no consent then', async () => {
    const consent = (): never => expect.unreachable('unusable settings need no consent');
    expect(await refusalOf(start('ok', { unusable: 'it has no command.' }, { consent }).server.start())).toMatch(
      /SERVER_UNAVAILABLE: .*it has no command/,
    );
  });

  it('gives the process its own variables, and only a few of Tollgate', async () => {
    process.env.TOLLGATE_TEST_SECRET = 'hunter2';
    const { server } = start('ok', { env: { OWN: 'yes', HOME: '/somewhere' }, cwd: temporaryFolder() });
    const { env, cwd } = JSON.parse(await textOf(server, callOf('env'))) as {
      env: Record<string, string>;
      cwd: string;
    };
    expect(env).toMatchObject({ OWN: 'yes', HOME: '/somewhere', PATH: process.env.PATH });
    expect(
      Object.keys(env).filter(
        (key) =>
          ![
            'OWN',
            'TOLLGATE_SERVER',
            'PATH',
            'HOME',
            'LANG',
            'LC_ALL',
            'LC_CTYPE',
            'TZ',
            'TMPDIR',
            'USER',
            'LOGNAME',
            'PWD',
            'SHLVL',
            '_',
          ].includes(key),
      ),
    ).toEqual([]);
    expect(cwd).toContain('tollgate-adapters-');
    delete process.env.TOLLGATE_TEST_SECRET;
  });
});

describe('a call', () => {
  it('sends the arguments unchanged, and a progress token only if the caller wants progress', async () => {
    const { server } = start();
    const text = '{ "n": 12345678901234567890, "z": -0, "e": "\\u0061" }';
    expect(await textOf(server, callOf('raw', text))).toContain(`"params":{"name":"raw","arguments":${text}}}`);
    expect(await textOf(server, callOf('raw', text, { meta: { traceparent: 'x' } }))).toContain(
      `"arguments":${text},"_meta":{"traceparent":"x"}}}`,
    );
    expect(await textOf(server, callOf('raw', '{}', { meta: { a: 1 }, onProgress: () => {} }))).toMatch(
      /"_meta":\{"a":1,"progressToken":\d+\}/,
    );
  });

  it('gets its own result among 50 parallel calls', async () => {
    const { server } = start();
    const texts = await Promise.all(
      Array.from({ length: 50 }, (_, n) => textOf(server, callOf(n % 5 === 0 ? 'slow' : 'echo', { n, ms: n }))),
    );
    expect(texts).toEqual(Array.from({ length: 50 }, (_, n) => (n % 5 === 0 ? 'slow' : JSON.stringify({ n, ms: n }))));
  });

  it('can return many megabytes in one line', async () => {
    const { server } = start();
    const bytes = roundsOf(16_000_000, 4_000_000);
    const text = await textOf(server, callOf('big', { bytes }, { timeoutMs: 60_000, hardTimeoutMs: 60_000 }));
    expect(text).toHaveLength(bytes);
  });

  inFull.each([false, true])(
    'fails over the wire limit without affecting the next one (id at the end: %s)',
    async (tail) => {
      const { server } = start();
      const waiting = textOf(server, callOf('slow', { ms: 4000 }, { timeoutMs: 25_000, hardTimeoutMs: 25_000 }));
      expect(await codeOf(server.call(callOf('huge', { tail }, { timeoutMs: 25_000, hardTimeoutMs: 25_000 })))).toBe(
        'UPSTREAM_TOO_LARGE',
      );
      expect(await textOf(server, callOf('echo'))).toBe('{}');
      expect(await waiting).toBe('slow');
    },
  );

  it('delivers progress before the result, even if both arrive in one chunk', async () => {
    const { server } = start();
    const seen: unknown[] = [];
    await server.call(callOf('glued', {}, { onProgress: (params) => seen.push(params) }));
    expect(seen).toEqual([
      { progress: 1, total: 3 },
      { progress: 2, total: 3 },
    ]);
  });

  inFull('extends its timeout at each progress, up to the hard timeout', async () => {
    const { server } = start();
    expect(
      await textOf(
        server,
        callOf('progress', { steps: 14, every: 250 }, { timeoutMs: 3000, hardTimeoutMs: 10_000, onProgress: () => {} }),
      ),
    ).toBe('done');
    expect(
      await codeOf(
        server.call(
          callOf(
            'progress',
            { steps: 50, every: 40, never: true },
            { timeoutMs: 200, hardTimeoutMs: 500, onProgress: () => {} },
          ),
        ),
      ),
    ).toBe('TOOL_TIMEOUT');
  });

  it('is cancelled at the server on timeout and on abort, and ignores late answers', async () => {
    const { server } = start();
    await server.call(callOf('echo'));
    const controller = new AbortController();
    const aborted = codeOf(server.call(callOf('hang', {}, { signal: controller.signal })));
    expect(await codeOf(server.call(callOf('slow', { ms: 150 }, { timeoutMs: 50, hardTimeoutMs: 50 })))).toBe(
      'TOOL_TIMEOUT',
    );
    controller.abort();
    expect(await aborted).toBe('CANCELLED');
    await sleep(200);
    expect(JSON.parse(await textOf(server, callOf('seen')))).toEqual([5, 4]);
    expect(server.health()).toMatchObject({ state: 'healthy', badLines: 0 });
  });

  it.each([
    ['twice', 'first'],
    ['noisy', 'behind noise'],
    ['stranger', 'known'],
    ['last', 'last words'],
  ])('succeeds with a server that answers like "%s"', async (tool, text) => {
    expect(await textOf(start().server, callOf(tool))).toBe(text);
  });

  it.each([
    ['both', 'UPSTREAM_INVALID'],
    ['neither', 'UPSTREAM_INVALID'],
    ['scalar', 'UPSTREAM_INVALID'],
    ['input', 'UPSTREAM_REQUEST_DENIED'],
    ['failing', 'URL_ELICITATION_DENIED'],
    ['unheard-of', 'rpc -32602'],
  ])('refuses an answer like "%s" with %s', async (tool, code) => {
    expect(await codeOf(start().server.call(callOf(tool)))).toBe(code);
  });

  it('does not accept an answer whose id has another type', async () => {
    const { server } = start();
    expect(await codeOf(server.call(callOf('string-id', {}, { timeoutMs: 1500, hardTimeoutMs: 1500 })))).toBe(
      'TOOL_TIMEOUT',
    );
    await expect.poll(() => server.health().badLines).toBe(1);
  });

  it('succeeds with a server that keeps breaking the protocol, and marks it as degraded', async () => {
    const { server } = start();
    expect(await textOf(server, callOf('flood'))).toBe('after the flood');
    expect(server.health()).toMatchObject({
      state: 'degraded',
      reason: expect.stringContaining('20000 times') as string,
      badLines: 20_000,
    });
    expect((await start('noise').server.start()).name).toBe('chaos');
  });

  it('answers the requests of the server, so that nothing hangs', async () => {
    const { server } = start('asks');
    await server.start();
    let answers: { id: string; result?: object; error?: { code: number } }[] = [];
    while (answers.length < 4) answers = JSON.parse(await textOf(server, callOf('asked'))) as typeof answers;
    expect(answers.map(({ id, result, error }) => [id, result ?? error?.code])).toEqual([
      ['q0', {}],
      ['q1', -32601],
      ['q2', -32601],
      ['q3', -32601],
    ]);
  });
});

describe('tools/list', () => {
  it(
    'reads all pages, keeps every key, and caches the list until the server changes it' + verifies('HA-10', 'HE-04'),
    async () => {
      const tools = await start('paging').server.listTools();
      expect(tools).toHaveLength(28);
      expect(tools[24]).toEqual({ name: 'scalar', inputSchema: { type: 'object' }, 'x-kept': true });
      const { server } = start();
      let changes = 0;
      server.onToolsChanged(() => changes++);
      expect((await Promise.all([server.listTools(), server.listTools()])).map((list) => list[0]?.name)).toEqual([
        'listed-1',
        'listed-1',
      ]);
      expect((await server.listTools())[0]?.name).toBe('listed-1');
      const began = performance.now();
      await server.call(callOf('storm', {}, { timeoutMs: 20_000, hardTimeoutMs: 20_000 }));
      await expect.poll(() => changes).toBeGreaterThan(0);
      await sleep(450);
      expect(changes).toBeLessThanOrEqual((performance.now() - began) / 200);
      expect((await server.listTools())[0]?.name).toBe('listed-2');
    },
  );

  it.each([
    ['cursor-loop', 'UPSTREAM_INVALID'],
    ['cursor-endless', 'UPSTREAM_INVALID'],
    ['no-list', 'UPSTREAM_INVALID'],
    ['list-huge', 'UPSTREAM_TOO_LARGE'],
  ])('refuses a list like "%s"', async (mode, code) => {
    const { server } = start(mode);
    expect(await codeOf(server.listTools())).toBe(code);
    expect(await codeOf(server.listTools())).toBe(code);
    expect(await textOf(server, callOf('echo'))).toBe('{}');
  });

  it('leaves out entries that are not tools, and accepts a server without tools', async () => {
    const { server } = start('bad-tools');
    expect(await server.listTools()).toHaveLength(28);
    expect(server.health().unfit?.map(({ tool }) => tool)).toEqual(['#29', '#30', 'x']);
    expect(await start('no-tools').server.listTools()).toEqual([]);
  });
});

describe('a server that ends', () => {
  it('fails each running call once, and starts again on the next call' + verifies('HA-08'), async () => {
    const starts = join(temporaryFolder(), 'starts');
    const { server } = start('ok', { maxRetries: 2, env: { CHAOS_STARTS: starts } });
    await server.listTools();
    let changes = 0;
    server.onToolsChanged(() => changes++);
    const hanging = codeOf(server.call(callOf('hang')));
    expect(await refusalOf(server.call(callOf('crash')))).toMatch(
      /TOOL_CRASHED: Server "chaos" ended with exit code 3 before it had answered/,
    );
    expect(await hanging).toBe('TOOL_CRASHED');
    expect(server.health()).toMatchObject({ state: 'unavailable', reason: 'Server "chaos" ended with exit code 3.' });
    expect(await textOf(server, callOf('echo'))).toBe('{}');
    expect([server.health().state, server.health().restarts, changes]).toEqual(['healthy', 1, 1]);
    expect(await codeOf(server.call(callOf('half')))).toBe('TOOL_CRASHED');
    expect(await codeOf(server.call(callOf('crash')))).toBe('TOOL_CRASHED');
    expect(await refusalOf(server.call(callOf('echo')))).toMatch(
      new RegExp(
        'SERVER_UNAVAILABLE: Server "chaos" was lost 3 times within ten minutes during calls of this session, ' +
          'which may call it again in \\d+ s\\.',
      ),
    );
    expect(readFileSync(starts, 'utf8').trim().split('\n')).toHaveLength(3);
  });

  inFull('counts as ended if it closes its output or its input', async () => {
    expect(await codeOf(start('close-stdout').server.call(callOf('hang')))).toBe('TOOL_CRASHED');
    const { server } = start('stdin-closed', { connectTimeoutMs: 3000 });
    expect(await codeOf(server.start())).toBe('INIT_FAILED');
  });

  it('stops in order and leaves no process behind' + verifies('HA-07'), async () => {
    const bench = start();
    const pid = await pidOf(bench);
    const hanging = codeOf(bench.server.call(callOf('hang')));
    // This answer proves that the server has received the call before.
    await textOf(bench.server, callOf('echo'));
    await Promise.all([bench.server.stop(), bench.server.stop()]);
    expect([await isGone(pid), await hanging]).toEqual([true, 'TOOL_CRASHED']);
    expect(await refusalOf(bench.server.call(callOf('echo')))).toMatch(
      /SERVER_UNAVAILABLE: Server "chaos" was stopped/,
    );
    expect((await bench.server.start()).name).toBe('chaos');
    expect(bench.server.health().restarts).toBe(0);
  });

  it.each(['lingering', 'stubborn'])('in the mode "%s" is ended by force' + verifies('HA-07'), async (mode) => {
    const bench = start(mode);
    const pid = await pidOf(bench);
    await bench.server.stop();
    expect(await isGone(pid)).toBe(true);
  });

  it('takes the processes that it started with it, on a stop and on a crash' + verifies('HA-07'), async () => {
    for (const end of [
      (bench: Bench) => bench.server.stop(),
      (bench: Bench) => codeOf(bench.server.call(callOf('crash'))),
    ]) {
      const bench = start('grandchild');
      await bench.server.start();
      await expect.poll(() => bench.stderr.length).toBeGreaterThan(0);
      const grandchild = Number(/grandchild (\d+)/.exec(bench.stderr.join('\n'))?.[1]);
      expect(grandchild).toBeGreaterThan(0);
      await end(bench);
      expect(await isGone(grandchild)).toBe(true);
    }
  });

  it('can be killed while it starts and while it stops', async () => {
    const bench = start('stubborn');
    const pid = await pidOf(bench);
    const stopping = bench.server.stop();
    bench.pool.killNow();
    expect(await isGone(pid)).toBe(true);
    await stopping;
    const starting = start('mute');
    const failed = codeOf(starting.server.start());
    await sleep(300);
    await starting.pool.stopAll();
    expect(await failed).toBe('INIT_FAILED');
  });

  it('has a limit for its lines on stderr', async () => {
    const { server, stderr } = start('stderr-flood');
    await server.start();
    await expect.poll(() => stderr.length).toBeGreaterThan(10);
    await sleep(200);
    expect(stderr.length).toBeLessThanOrEqual(401);
  });
});

describe('a pool of servers', () => {
  const named = (name: string, mode?: string): ServerSettings => chaos(mode, { name });

  it('refuses more servers than allowed, and two servers of one name' + verifies('HA-05'), () => {
    const pool = new ServerPool({ servers: 2, connections: 5 }, { host: HOST, onStderr: () => {} });
    pool.add(named('a'));
    expect(() => pool.add(named('a'))).toThrow(/named "a"/);
    pool.add(named('b'));
    expect(() => pool.add(named('c'))).toThrow(/exceeds the limit of 2 servers/);
  });

  it(
    'never has more connections than allowed, and ends the one that was idle longest' + verifies('HA-05'),
    async () => {
      const pool = new ServerPool({ servers: 20, connections: 2 }, { host: HOST, onStderr: () => {}, grace: FAST });
      open.push(pool);
      const [a, b, c] = ['a', 'b', 'c'].map((name) => pool.add(named(name)));
      if (a === undefined || b === undefined || c === undefined) throw new Error('no servers');
      await a.listTools();
      await b.call(callOf('echo'));
      await a.call(callOf('echo'));
      await c.call(callOf('echo'));
      expect([a, b, c].map((server) => server.health().state)).toEqual(['healthy', 'idle', 'healthy']);
      expect(await textOf(b, callOf('echo'))).toBe('{}');
      expect(a.health().state).toBe('idle');
      // The cached list stays current until the server changes it.
      expect((await a.listTools())[0]?.name).toBe('listed-1');
      expect(a.health().state).toBe('idle');
    },
  );

  it('makes a start wait while all connections are busy, up to its connect timeout' + verifies('HA-05'), async () => {
    const pool = new ServerPool({ servers: 20, connections: 1 }, { host: HOST, onStderr: () => {}, grace: FAST });
    open.push(pool);
    const busy = pool.add(named('busy'));
    const waiting = pool.add({ ...named('waiting'), connectTimeoutMs: 20_000 });
    const late = pool.add({ ...named('late'), connectTimeoutMs: 100 });
    await busy.start();
    const working = textOf(busy, callOf('slow', { ms: 500 }));
    const next = textOf(waiting, callOf('echo'));
    expect(await refusalOf(late.call(callOf('echo')))).toMatch(/SERVER_UNAVAILABLE: All 1 connections/);
    expect([await working, await next]).toEqual(['slow', '{}']);
  });

  it('starts all servers in parallel, and one failure does not delay the others', async () => {
    const pool = new ServerPool({ servers: 20, connections: 5 }, { host: HOST, onStderr: () => {}, grace: FAST });
    open.push(pool);
    const outcomes = await startAll([
      pool.add(named('a')),
      pool.add(named('b', 'crash-at-start')),
      pool.add(named('c')),
    ]);
    expect([...outcomes].map(([name, error]) => [name, error?.code])).toEqual([
      ['a', undefined],
      ['b', 'INIT_FAILED'],
      ['c', undefined],
    ]);
  });
});

describe('a pool whose list of servers changes', () => {
  const pool = new ServerPool({ servers: 2, connections: 5 }, { host: HOST, onStderr: () => {}, grace: FAST });
  afterEach(() => pool.stopAll());

  it('keeps a server with the same settings, and ends a changed or removed one after its running calls', async () => {
    const [kept, gone] = [chaos('ok', { name: 'kept' }), chaos('ok', { name: 'gone' })];
    const before = pool.sync([kept, gone]);
    const processes = await Promise.all(
      [...before.values()].map(
        async (server) => (JSON.parse(await textOf(server, callOf('env'))) as { pid: number }).pid,
      ),
    );
    const running = before.get('gone')?.call(callOf('slow', { ms: 300 }));
    const after = pool.sync([{ ...kept }, chaos('ok', { name: 'new' })]);
    expect(after.get('kept')).toBe(before.get('kept'));
    expect(after.has('gone')).toBe(false);
    expect((await running)?.value.content?.[0]?.text).toBe('slow');
    expect(await isGone(processes[1] as number)).toBe(true);
    expect(await codeOf((before.get('gone') as UpstreamServer).call(callOf('echo')))).toBe('SERVER_UNAVAILABLE');
    expect((JSON.parse(await textOf(after.get('kept') as UpstreamServer, callOf('env'))) as { pid: number }).pid).toBe(
      processes[0],
    );
  });

  it('refuses a list with too many servers or a repeated name, and changes nothing', () => {
    const before = pool.sync([chaos('ok', { name: 'a' })]);
    expect(() => pool.sync(['b', 'c', 'd'].map((name) => chaos('ok', { name })))).toThrow(
      /exceeds the limit of 2 servers/,
    );
    expect(() => pool.sync(['b', 'b'].map((name) => chaos('ok', { name })))).toThrow(/Two servers/);
    expect(pool.sync([chaos('ok', { name: 'a' })]).get('a')).toBe(before.get('a'));
  });
});
