/** Tests the sessions of a host on several replicas, and events that one process passes to another. */
import { describe, expect, it } from 'vitest';
import type { Gateway } from '../../facade/runtime/gateway.ts';
import { EventFeed } from '../../facade/serve/host/event-feed.ts';
import { HostSessions } from '../../facade/serve/host/host-sessions.ts';
import { SharedSessions } from '../../facade/serve/http/shared-sessions.ts';
import { ALICE } from '../serve/fake-facade.ts';
import { startFleet } from '../serve/fleet-bench.ts';
import { verifies } from '../verifies.ts';

describe('the sessions of a host', () => {
  it('have one id on all replicas, and end on all' + verifies('FL-31'), async () => {
    const { replicas } = await startFleet(2);
    const [one, other] = replicas.map(({ facade, state }) => ({
      facade,
      sessions: new HostSessions({
        gateway: facade as unknown as Gateway,
        listen: { maxSessions: 10, maxSessionsPerPrincipal: 10, idleMs: 600_000 },
        now: () => performance.now(),
        shared: new SharedSessions({ state, idleMs: 600_000, now: Date.now }),
      }),
    }));
    if (one === undefined || other === undefined) throw new Error('there are two replicas');
    const idAt = ({ sessions }: typeof one, tab?: string): Promise<string> =>
      sessions.within({ principal: ALICE, ...(tab !== undefined && { tab }) }, async ({ id }) => id);
    const first = await idAt(one, 'left');
    expect(await idAt(other, 'left')).toBe(first);
    expect(await idAt(other, 'right')).not.toBe(first);
    expect(await idAt(other)).not.toBe(first);
    await one.sessions.endTab('left', undefined);
    expect(one.facade.closed.map(({ id }) => id)).toEqual([first]);
    expect(await idAt(other, 'left')).not.toBe(first);
    expect(other.facade.closed.map(({ id }) => id)).toEqual([first]);
    await one.sessions.close();
    await other.sessions.close();
    expect(other.facade.released).toHaveLength(3);
  });
});

describe('the feed of a worker', () => {
  it('passes its own events on while another worker has a listener, and no others' + verifies('FL-33'), () => {
    const [here, there] = [new EventFeed(() => 1), new EventFeed(() => 2)];
    const passed: string[] = [];
    const changes: boolean[] = [];
    there.onListening = (isListening) => changes.push(isListening);
    const note = (id: string): void =>
      here.note({ event: 'attention.added', id, kind: 'k', rank: 1, title: 't', subject: 's' });
    note('before');
    here.relay((event) => {
      passed.push(event.id);
      there.noteRelayed(event);
    });
    there.relay(() => passed.push('returned'));
    const stop = there.listen(() => undefined);
    note('during');
    stop();
    here.relay(undefined);
    note('after');
    expect([passed, changes]).toEqual([['during'], [true, false]]);
    expect(there.next(0)?.text).toContain('"id":"during"');
    expect(there.next(1)).toBeUndefined();
  });
});
