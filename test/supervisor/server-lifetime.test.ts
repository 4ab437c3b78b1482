/** Tests the lifetime of one supervised server with real processes: its restarts, its ends, and its events. */

import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, describe, expect, it } from 'vitest';
import type { ServerEvent } from '../../adapters/port.ts';
import { MARK_VARIABLE } from '../../adapters/stdio/orphans.ts';
import { ServerPool } from '../../adapters/supervisor/server-pool.ts';
import type { ServerSettings } from '../../adapters/supervisor/server-settings.ts';
import type { AdapterOptions } from '../../adapters/supervisor/supervisor.ts';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { inFull } from '../harness/full-tests.ts';
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
} from '../stdio/misbehaving-server.ts';
import { verifies } from '../verifies.ts';

const open: Bench[] = [];

afterEach(async () => {
  await Promise.all(open.splice(0).map(({ pool }) => pool.stopAll()));
});

function start(mode: string, settings: Partial<ServerSettings> = {}, options: Partial<AdapterOptions> = {}): Bench {
  const bench = serve(chaos(mode, settings), options);
  open.push(bench);
  return bench;
}

async function pidOf({ server }: Bench): Promise<number> {
  return (JSON.parse(await textOf(server, callOf('env'))) as { pid: number }).pid;
}

const wordsOf = ({ events }: Bench): readonly string[] => events.map(({ event }) => event);
const eventOf = <T extends ServerEvent['event']>(
  { events }: Bench,
  word: T,
): (ServerEvent & { event: T }) | undefined =>
  events.find((one): one is ServerEvent & { event: T } => one.event === word);

describe('a keep-alive server', () => {
  it(
    'comes back by itself after a crash, is listed again, and refuses calls meanwhile' +
      verifies('PF-14', 'HE-09', 'HB-09', 'ST-80'),
    async () => {
      const bench = start('ok', { lifetime: 'keep-alive' });
      let told = 0;
      await bench.server.listTools();
      bench.server.onToolsChanged(() => told++);
      expect(await codeOf(bench.server.call(callOf('crash')))).toBe('TOOL_CRASHED');
      expect(await refusalOf(bench.server.call(callOf('echo')))).toMatch(
        /^SERVER_UNAVAILABLE: Server "chaos" ended with exit code 3\. The next attempt is possible in 1 s\./,
      );
      expect(await codeOf(bench.server.listTools())).toBe('SERVER_UNAVAILABLE');
      // Refused immediately, before the next attempt.
      expect(wordsOf(bench)).not.toContain('restarted');
      expect([told, bench.server.health().state]).toEqual([1, 'unavailable']);
      await expect.poll(() => wordsOf(bench).at(-1), { timeout: 20_000 }).toBe('tools.refreshed');
      expect(await textOf(bench.server, callOf('echo', { again: 1 }))).toBe('{"again":1}');
      expect(wordsOf(bench)).toEqual(['started', 'tools.discovered', 'crashed', 'restarted', 'tools.refreshed']);
      expect(eventOf(bench, 'crashed')).toMatchObject({ exit: 3, inMs: 1000, attempt: 1, maxAttempts: 3 });
      expect(eventOf(bench, 'restarted')).toMatchObject({ attempt: 1 });
      expect(eventOf(bench, 'restarted')?.ms).toBeGreaterThan(0);
      expect(bench.server.health()).toMatchObject({ state: 'healthy', restarts: 1 });
    },
  );

  it('waits longer after each failed start, until it is stopped' + verifies('HE-10'), async () => {
    const starts = join(temporaryFolder(), 'starts');
    const bench = start('crash-at-start', { lifetime: 'keep-alive', env: { CHAOS_STARTS: starts } });
    bench.pool.warmUp(['chaos']);
    await expect.poll(() => wordsOf(bench).length, { timeout: 20_000 }).toBe(2);
    expect(bench.events).toMatchObject([{ event: 'start.failed', code: 'INIT_FAILED' }, { event: 'start.failed' }]);
    expect(await refusalOf(bench.server.call(callOf('echo')))).toMatch(/next attempt is possible in 5 s/);
    await bench.server.stop();
    await sleep(200);
    // The first start is repeated at once with `initialize`, because the server may have ended at another first message.
    expect(readFileSync(starts, 'utf8').trim().split('\n')).toHaveLength(3);
  });

  it('keeps its connection although another server needs one', async () => {
    const bench = serve(chaos('ok', { name: 'kept', lifetime: 'keep-alive' }), {});
    open.push(bench);
    const { pool } = bench;
    const servers = ['a', 'b', 'c', 'd', 'e'].map((name) => pool.add(chaos('ok', { name })));
    await bench.server.start();
    const outcomes = await startAll([bench.server, ...servers]);
    expect([...outcomes.values()].filter((error) => error !== undefined)).toEqual([]);
    expect(bench.server.health().state).toBe('healthy');
  });
});

describe('a server that holds state of sessions', () => {
  it('keeps its connection although another server needs one' + verifies('HA-05'), async () => {
    const pool = new ServerPool({ servers: 3, connections: 1 }, { host: HOST, onStderr: () => undefined, grace: FAST });
    const [kept, hasty, other] = [
      pool.add(chaos('ok', { name: 'kept' })),
      pool.add(chaos('ok', { name: 'hasty', connectTimeoutMs: 200 })),
      pool.add(chaos('ok', { name: 'other' })),
    ];
    let holds = true;
    kept.holdWhile?.(() => holds);
    await kept.start();
    expect(await codeOf(hasty.start())).toBe('SERVER_UNAVAILABLE');
    expect(kept.health().state).toBe('healthy');
    holds = false;
    await other.start();
    expect(kept.health().state).toBe('idle');
    await pool.stopAll();
  });
});

describe('an eager server', () => {
  it('starts with the facade, a lazy one with its first use' + verifies('HA-06'), async () => {
    const bench = start('ok');
    const lazy = bench.pool.add(chaos('ok', { name: 'lazy' }));
    bench.pool.warmUp(['chaos']);
    await expect.poll(() => wordsOf(bench), { timeout: 20_000 }).toEqual(['started', 'tools.discovered']);
    expect([bench.server.health().state, lazy.health().state]).toEqual(['healthy', 'idle']);
  });
});

describe('an ephemeral server', () => {
  it('ends after its idle time, and starts again with the next call' + verifies('CY-23'), async () => {
    const bench = start('ok', { lifetime: 'ephemeral' }, { idleMs: 150 });
    const pid = await pidOf(bench);
    expect(await isGone(pid)).toBe(true);
    expect(bench.server.health().state).toBe('idle');
    expect(await pidOf(bench)).not.toBe(pid);
    // Tollgate ended it, so this is no crash and does not count against its restarts.
    expect(wordsOf(bench)).toEqual(['started', 'stopped', 'started']);
  });

  it('ends with the last session that used it' + verifies('CY-23'), async () => {
    const bench = start('ok', { lifetime: 'ephemeral' });
    const pid = await pidOf(bench);
    await textOf(bench.server, callOf('echo', {}, { scope: 'other' }));
    await bench.server.endScope?.('s');
    expect(await pidOf({ ...bench })).toBe(pid);
    await bench.server.endScope?.('other');
    await bench.server.endScope?.('s');
    expect(await isGone(pid)).toBe(true);
  });

  it('stays while a session demands keep-alive' + verifies('CY-23'), async () => {
    const bench = start('ok', { lifetime: 'ephemeral' }, { idleMs: 100 });
    bench.server.demand?.({ scope: 'a' }, 'keep-alive');
    bench.server.demand?.({ scope: 'b' });
    const pid = await pidOf(bench);
    await sleep(300);
    expect(await pidOf(bench)).toBe(pid);
    await bench.server.endScope?.('a');
    await textOf(bench.server, callOf('echo'));
    expect(await isGone(pid)).toBe(true);
  });

  it('ends after a timeout if no other session uses it' + verifies('HE-07'), async () => {
    const bench = start('ok', { lifetime: 'ephemeral' });
    const pid = await pidOf(bench);
    expect(await codeOf(bench.server.call(callOf('hang', {}, { timeoutMs: 100, hardTimeoutMs: 100 })))).toBe(
      'TOOL_TIMEOUT',
    );
    expect(await isGone(pid)).toBe(true);
  });
});

describe('a timeout', () => {
  inFull('cancels the call and keeps a server that still reacts' + verifies('HE-07'), async () => {
    const bench = start('ok', {}, { livenessMs: 4000 });
    const pid = await pidOf(bench);
    expect(await codeOf(bench.server.call(callOf('hang', {}, { timeoutMs: 100, hardTimeoutMs: 100 })))).toBe(
      'TOOL_TIMEOUT',
    );
    await sleep(4300);
    expect(await pidOf(bench)).toBe(pid);
    expect(JSON.parse(await textOf(bench.server, callOf('seen')))).toHaveLength(1);
  });

  it(
    'ends a server that reacts neither to the cancellation nor to a ping, and tells its calls why' + verifies('HE-07'),
    async () => {
      const bench = start('deaf', {}, { livenessMs: 200 });
      const pid = await pidOf(bench);
      const other = refusalOf(bench.server.call(callOf('hang')));
      expect(await codeOf(bench.server.call(callOf('hang', {}, { timeoutMs: 100, hardTimeoutMs: 100 })))).toBe(
        'TOOL_TIMEOUT',
      );
      expect(await other).toMatch(
        /^TOOL_CRASHED: Server "chaos" was stopped, because it did not react to a cancelled call or to a ping/,
      );
      expect(await isGone(pid)).toBe(true);
      expect(bench.server.health()).toMatchObject({
        state: 'unavailable',
        reason: 'Server "chaos" was stopped, because it did not react to a cancelled call or to a ping.',
      });
      expect(await textOf(bench.server, callOf('echo'))).toBe('{}');
    },
  );
});

describe('the end of a server', () => {
  it('also ends processes that left its group and their parent' + verifies('HA-07', 'PF-15'), async () => {
    for (const end of [
      (bench: Bench) => bench.server.stop(),
      (bench: Bench) => codeOf(bench.server.call(callOf('crash'))),
      async (bench: Bench) => bench.pool.killNow(),
    ]) {
      const bench = start('stray', {}, { owner: 'test-life' });
      await bench.server.start();
      const strays = async (): Promise<readonly number[]> => marked(await markOf(bench));
      await expect.poll(async () => (await strays()).length, { timeout: 20_000 }).toBeGreaterThanOrEqual(2);
      const pids = await strays();
      await end(bench);
      for (const pid of pids) expect(await isGone(pid)).toBe(true);
    }
  });
});

describe('events' + verifies('HE-05'), () => {
  it('name their connection, and for a refused request the decision of its call', async () => {
    const bench = start('ok');
    await bench.server.listTools();
    await bench.server.call(callOf('echo', {}, { id: 'decision-1' }));
    await codeOf(bench.server.call(callOf('failing', {}, { id: 'decision-2' })));
    await bench.server.call(callOf('storm', {}, { id: 'decision-3' }));
    await sleep(300);
    await bench.server.listTools();
    await bench.server.stop();
    expect(wordsOf(bench)).toEqual(['started', 'tools.discovered', 'request.refused', 'tools.refreshed', 'stopped']);
    const [connection] = bench.events;
    expect(new Set(bench.events.map(({ id }) => id))).toEqual(new Set([connection?.id]));
    expect(eventOf(bench, 'request.refused')).toMatchObject({ call: 'decision-2' });
    expect(eventOf(bench, 'tools.discovered')?.tools).toHaveLength(29);
    // The fixture lists its first entry under another name each time.
    expect(eventOf(bench, 'tools.refreshed')).toMatchObject({
      added: ['listed-2'],
      removed: ['listed-1'],
      changed: [],
      unchanged: 28,
    });
  });

  it('report that a server is given up', async () => {
    const bench = start('ok', { maxRetries: 0 });
    expect(await codeOf(bench.server.call(callOf('crash')))).toBe('TOOL_CRASHED');
    expect(bench.events.slice(-2)).toMatchObject([
      { event: 'crashed', exit: 3, attempt: 1, maxAttempts: 0 },
      { event: 'failed', tries: 1 },
    ]);
    expect(await refusalOf(bench.server.call(callOf('echo', {}, { scope: 'another' })))).toMatch(
      /It was lost once within ten minutes\. The next attempt is possible in \d+ s\./,
    );
  });
});

describe('the kill switch', () => {
  const refusal = new TollgateError('SERVER_UNAVAILABLE', {
    detail: 'Stopped by the kill switch.',
    data: { killed: true },
  });

  it('ends a server and its calls immediately, and refuses starts until it is lifted', async () => {
    // An orderly stop would take longer than `isGone` waits.
    const bench = start('stubborn', {}, { grace: { closeMs: 60_000, termMs: 60_000 } });
    const pid = await pidOf(bench);
    const hanging = refusalOf(bench.server.call(callOf('hang')));
    await textOf(bench.server, callOf('echo'));
    bench.pool.halt(() => refusal);
    expect(await hanging).toMatch(
      /^TOOL_CRASHED: Server "chaos" was stopped by the kill switch before it had answered/,
    );
    expect(await isGone(pid)).toBe(true);
    expect(await refusalOf(bench.server.call(callOf('echo')))).toMatch(
      /^SERVER_UNAVAILABLE: Stopped by the kill switch/,
    );
    expect(await codeOf(bench.server.listTools())).toBe('SERVER_UNAVAILABLE');
    expect(bench.server.health().state).toBe('killed');
    bench.pool.halt(() => refusal);
    bench.pool.halt(() => undefined);
    expect(await textOf(bench.server, callOf('echo'))).toBe('{}');
    expect(wordsOf(bench).filter((word) => word === 'killed')).toHaveLength(1);
    bench.pool.killNow();
  });

  it('is not named if a server ends because its consent was withdrawn', async () => {
    const bench = start('ok');
    const pid = await pidOf(bench);
    const hanging = refusalOf(bench.server.call(callOf('hang')));
    await textOf(bench.server, callOf('echo'));
    bench.pool.halt(() => new TollgateError('SERVER_UNAVAILABLE', { detail: 'Nobody has approved it.' }));
    expect(await hanging).toMatch(/^TOOL_CRASHED: Server "chaos" was stopped, because it may not run any more/);
    expect(await isGone(pid)).toBe(true);
    expect(await refusalOf(bench.server.call(callOf('echo')))).toMatch(/^SERVER_UNAVAILABLE: Nobody has approved it/);
  });

  it('applies from the next call on, whichever process set it', async () => {
    let thrown = false;
    const bench = start('ok', {}, { halted: () => (thrown ? refusal : undefined) });
    const pid = await pidOf(bench);
    thrown = true;
    expect(await refusalOf(bench.server.call(callOf('echo')))).toMatch(/^SERVER_UNAVAILABLE: Stopped/);
    expect(await isGone(pid)).toBe(true);
    const never = serve(chaos(), { halted: () => refusal });
    open.push(never);
    expect(await codeOf(never.server.listTools())).toBe('SERVER_UNAVAILABLE');
    expect(wordsOf(never)).toEqual([]);
  });

  it('ends a start in progress', async () => {
    const bench = start('mute');
    const starting = codeOf(bench.server.start());
    await sleep(300);
    bench.pool.halt(() => refusal);
    expect(await starting).toBe('INIT_FAILED');
  });
});

async function markOf(bench: Bench): Promise<string> {
  const { env } = JSON.parse(await textOf(bench.server, callOf('env'))) as { env: Record<string, string> };
  return env[MARK_VARIABLE] ?? 'none';
}

/** Returns the running processes with this mark. */
function marked(mark: string): readonly number[] {
  return readdirSync('/proc')
    .map(Number)
    .filter((pid) => {
      try {
        return readFileSync(`/proc/${pid}/environ`, 'utf8').split('\0').includes(`${MARK_VARIABLE}=${mark}`);
      } catch {
        return false;
      }
    });
}
