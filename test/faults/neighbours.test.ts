/** Tests that the want of a connection costs nobody a call: only idle servers are ended for others. */
import { afterEach, describe, expect, it } from 'vitest';
import { ServerPool } from '../../adapters/pool.ts';
import { callOf, chaos, FAST, HOST, refusalOf } from '../adapters/servers.ts';
import { verifies } from '../verifies.ts';

const pools: ServerPool[] = [];
afterEach(async () => {
  await Promise.all(pools.splice(0).map((pool) => pool.stopAll()));
});

describe('more servers than connections', () => {
  it('bursts of calls all get through: only an idle server is ended for another, and a call that waits is served' + verifies('ST-52'), async () => {
    // As where tools are approved: what a server lists now is compared before each call.
    const pool = new ServerPool({ servers: 7, connections: 5 }, { host: HOST, onStderr: () => undefined, grace: FAST, admits: async (_name, _tool, list) => void (await list()) });
    pools.push(pool);
    const servers = ['a', 'b', 'c', 'd', 'e', 'f', 'g'].map((name) => pool.add(chaos('ok', { name, connectTimeoutMs: 60_000 })));
    for (let burst = 0; burst < 6; burst += 1) {
      const calls = servers.flatMap((server, index) => [0, 1].map((turn) => refusalOf(server.call(callOf('slow', { ms: (index * 7 + turn * 13 + burst * 29) % 40 })))));
      expect((await Promise.all(calls)).filter((refusal) => refusal !== 'none')).toEqual([]);
    }
  }, 120_000);
});
