/** Tests stops and revocations while a call waits for a slot, or without a database: no call runs after them. */

import { rmSync } from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { KillSwitch } from '../../facade/consent/switch/kill-switch.ts';
import type { Session } from '../../facade/serve/facade-port.ts';
import { Stops } from '../../facade/state/stop-file.ts';
import { withConsents } from '../consent/consent-facade.ts';
import { partOf } from '../harness/slices.ts';
import { ACT, type RawFacade, startRaw, tool } from '../properties/raw-facade.ts';
import { verifies } from '../verifies.ts';

const NOW = { since: '2026-11-23T00:00:00.000Z', by: 'boss' };

let facade: RawFacade;
let me: Session;
const folder = (): string => facade.assembled.config.state;

/** Uses the kill switch as a command in another process does. */
function kill(server?: string): void {
  const stops = new Stops(folder());
  new KillSwitch({ stops }).throw({ ...(server !== undefined && { server }), ...NOW });
  stops.close();
}

beforeEach(async () => {
  facade = await startRaw({ one: { tools: [ACT, tool('put')] } }, { caps: { concurrent: 1 } });
  me = facade.open('me');
  await facade.list(me);
});
afterEach(() => facade.close().catch(() => undefined));

describe('a call that waits for a slot' + verifies('ST-03'), () => {
  const STOPS: readonly (readonly [name: string, stop: () => unknown, code: string])[] = [
    ['off', () => kill(), 'SWITCHED_OFF'],
    ['kill', () => kill('one'), 'SERVER_UNAVAILABLE'],
    ['revoke', () => withConsents(facade.assembled.config, (consents) => consents.revoke('one')), 'SERVER_UNAVAILABLE'],
    [
      'a grant that denies',
      () =>
        facade.assembled.deps.grants.add(
          { origin: me.principal.origin, profile: 'all', scope: 'mcp:tools.call', kind: 'deny' } as never,
          'olga',
        ),
      'DENIED',
    ],
  ];

  it.each(partOf(STOPS, 2))('does not run after %s', async (_name, stop, code) => {
    const slow = facade.call(me, 'one_act', { delayMs: 3_000 });
    await expect.poll(() => facade.calls('one')).toHaveLength(1);
    const waiting = facade.call(me, 'one_put', {});
    await stop();
    const refusal = await waiting;
    await slow;
    expect(refusal.code).toBe(code);
    expect(facade.calls('one').map((call) => call.name)).toEqual(['act']);
  });
});

it('a killed server ends even if the database was removed' + verifies('ST-04'), async () => {
  const { adapter } = facade.assembled.catalog.servers.get('one')!;
  expect((await facade.call(me, 'one_put', {})).code).toBe('');
  for (const part of ['', '-wal', '-shm']) rmSync(path.join(folder(), `state.db${part}`), { force: true });
  kill('one');
  await expect.poll(() => adapter.health().state, { timeout: 20_000 }).toBe('killed');
});
