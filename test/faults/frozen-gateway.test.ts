/** Tests a gateway that is frozen while its calls run: it keeps its slots until it continues or has ended. */

import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { inFull } from '../harness/full-tests.ts';
import { verifies } from '../verifies.ts';
import { callOnce, codeOf, type Gateway, Ground } from './gateway-load.ts';

/** Concurrent calls of all gateways together. */
const SLOTS = 2;
/** An echo waits at most this long for a slot. A frozen call may take longer. */
const RULES = `
  - {id: all, outcome: allow, when: {}}
  - {id: soon, outcome: allow, when: {tools: [a.echo, b.echo]}, obligations: {timeoutMs: 3500}}`;

let ground: Ground;
let frozen: Gateway;
let other: Gateway;
beforeAll(async () => {
  ground = new Ground({ rules: RULES, more: `budgets: [{id: slots, scope: principal, concurrent: ${SLOTS}}]\n` });
  await ground.project.approve();
  [frozen, other] = await Promise.all([ground.gateway(), ground.gateway()]);
});
afterAll(() => ground.remove());

/** Freezes the first gateway at a moment when it does not hold the lock of the database of state. */
async function freeze(): Promise<void> {
  const database = ground.openState();
  const frozenBetweenWrites = (): boolean => {
    frozen.signal('SIGSTOP');
    try {
      database.exec('BEGIN IMMEDIATE; ROLLBACK');
      return true;
    } catch {
      frozen.signal('SIGCONT');
      return false;
    }
  };
  await expect.poll(frozenBetweenWrites).toBe(true);
  database.close();
}

/** Takes all slots with calls of the first gateway, and freezes it while they run. */
async function freezeWith(tool: string, args: object): Promise<readonly Promise<string>[]> {
  const before = ground.ran('a').length;
  const held = Array.from({ length: SLOTS }, async (_, n) =>
    codeOf(await callOnce(frozen, { tool, token: `held-${n}`, args }).catch(() => undefined)),
  );
  await expect.poll(() => ground.ran('a')).toHaveLength(before + SLOTS);
  await freeze();
  return held;
}

const echo = async (token: string): Promise<string> => codeOf(await callOnce(other, { tool: 'b_echo', token }));

describe('the slots of a frozen gateway' + verifies('ST-12'), () => {
  it('are not taken by others, and become free when it continues and its calls end', async () => {
    const held = await freezeWith('a_slow', { ms: 2_500 });
    // These wait longer than its calls take and than its leases are renewed.
    expect(await Promise.all([echo('x1'), echo('x2'), echo('x3')])).toEqual([
      'RATE_LIMITED',
      'RATE_LIMITED',
      'RATE_LIMITED',
    ]);
    expect(ground.ran('b')).toEqual([]);
    frozen.signal('SIGCONT');
    expect(await Promise.all(held)).toEqual(['ok', 'ok']);
    expect([await echo('y1'), await echo('y2'), await echo('y3')]).toEqual(['ok', 'ok', 'ok']);
    expect(ground.ran('b')).toEqual(['y1', 'y2', 'y3']);
  });

  inFull('become free when it is killed', async () => {
    await freezeWith('a_hang', {});
    expect(await echo('x')).toBe('RATE_LIMITED');
    await frozen.kill();
    expect(await echo('y')).toBe('ok');
    await other.end();
    await expect.poll(() => ground.running()).toEqual([]);
  });
});
