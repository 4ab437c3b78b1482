/** Tests that one server does not affect calls of another: with too few connections, and if one hangs at its start. */

import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, describe, expect, it } from 'vitest';
import { ServerPool } from '../../adapters/supervisor/server-pool.ts';
import { server } from '../cli/terminal.ts';
import { inFull } from '../harness/full-tests.ts';
import { callOf, chaos, FAST, HOST, refusalOf } from '../stdio/misbehaving-server.ts';
import { startFacade, type TestFacade } from '../stories/facade.ts';
import { verifies } from '../verifies.ts';

const pools: ServerPool[] = [];
const facades: TestFacade[] = [];
afterEach(async () => {
  await Promise.all(facades.splice(0).map((one) => one.close()));
  await Promise.all(pools.splice(0).map((pool) => pool.stopAll()));
});

describe('more servers than connections', () => {
  it('answer all calls of a burst: only idle servers are ended for others, and waiting calls are answered' +
    verifies('ST-52'), async () => {
    // As with approved tools, the list of the server is compared before each call.
    const pool = new ServerPool(
      { servers: 7, connections: 5 },
      {
        host: HOST,
        onStderr: () => undefined,
        grace: FAST,
        admits: async (_name, _tool, list) => void (await list()),
      },
    );
    pools.push(pool);
    const servers = ['a', 'b', 'c', 'd', 'e', 'f', 'g'].map((name) =>
      pool.add(chaos('ok', { name, connectTimeoutMs: 60_000 })),
    );
    for (let burst = 0; burst < 6; burst += 1) {
      const calls = servers.flatMap((server, index) =>
        [0, 1].map((turn) => refusalOf(server.call(callOf('slow', { ms: (index * 7 + turn * 13 + burst * 29) % 40 })))),
      );
      expect((await Promise.all(calls)).filter((refusal) => refusal !== 'none')).toEqual([]);
    }
  }, 120_000);
});

describe('an unknown tool while a server hangs at initialize', () => {
  async function facade(connectTimeoutMs: number): Promise<TestFacade> {
    const started = await startFacade(`version: 1
workspace: ./workspace
state: ./state
servers:
  good: ${server(['chaos.mjs'])}
  hung: ${server(['chaos.mjs', 'mute'], `connectTimeoutMs: ${connectTimeoutMs}`)}
principals: [{id: alice, stdio: true}]
profiles:
  default:
    servers: [good, hung]
    expose: {tools: [good.env, {tool: good.echo, name: repeat}, {tool: hung.echo, name: never}]}
rules: [{id: all, outcome: allow, when: {}}]
`);
    facades.push(started);
    return started;
  }

  it(
    'is refused before the server has answered, and tools and aliases of other servers are found' + verifies('ST-54'),
    async () => {
      const one = await facade(60_000);
      const session = one.open('alice');
      let isOver = false;
      const cancel = new AbortController();
      const waiting = one
        .call(session, 'hung_echo', {}, { signal: cancel.signal })
        .then((answer) => ((isOver = true), answer));
      for (const name of ['no_such_tool', 'good_nothing', 'nothing', 'no_such_tool'])
        expect((await one.call(session, name, {})).code, name).toBe('UNKNOWN_TOOL');
      expect((await one.call(session, 'repeat', { n: 1 })).text).toBe('{"n":1}');
      expect(isOver).toBe(false);
      cancel.abort();
      one.assembled.catalog.servers.get('hung')?.adapter.killNow?.();
      await waiting;
    },
  );

  inFull('with the name of the server gets the known failure of the server' + verifies('ST-54'), async () => {
    const one = await facade(1000);
    const session = one.open('alice');
    expect((await one.call(session, 'hung_echo', {})).code).toBe('SERVER_UNAVAILABLE');
    // After five seconds, a call starts it again in the background, and does not wait for it.
    const problem = one.assembled.catalog.problems.get('hung');
    await sleep(5100);
    expect((await one.call(session, 'hung_echo', {})).text).toContain(problem?.message ?? '-');
    await expect.poll(() => one.assembled.catalog.problems.get('hung') === problem, { timeout: 20_000 }).toBe(false);
  });
});
