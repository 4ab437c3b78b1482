/** Tests texts that are sealed with the key of a state folder. */
import { describe, expect, it } from 'vitest';
import { createSeals } from '../../facade/state/state-seals.ts';
import { FakeValues } from '../serve/fake-facade.ts';
import { verifies } from '../verifies.ts';

const DAY = 86_400_000;

describe('a sealed text' + verifies('PR-M11'), () => {
  it('opens in every process of the state, with the same binding only', async () => {
    const state = new FakeValues();
    const [one, other] = [createSeals(state, () => DAY), createSeals(state, () => DAY)];
    const sealed = await one.seal('{"round":1}', 'alice');
    expect(sealed).not.toContain('round');
    expect(await other.open(sealed, 'alice')).toBe('{"round":1}');
    expect(await other.open(sealed, 'bob')).toBeUndefined();
    expect(await createSeals(new FakeValues(), () => DAY).open(sealed, 'alice')).toBeUndefined();
    expect(await one.seal('{"round":1}', 'alice')).not.toBe(sealed);
  });

  it('does not open if any byte of it differs', async () => {
    const seals = createSeals(new FakeValues(), () => DAY);
    const bytes = Buffer.from(await seals.seal('text', 'a'), 'base64url');
    for (let at = 0; at < bytes.length; at += 1) {
      const changed = Buffer.from(bytes);
      changed[at] = (changed[at] ?? 0) ^ 1;
      expect(await seals.open(changed.toString('base64url'), 'a')).toBeUndefined();
    }
    for (const other of ['', 'AA', 'not base64!', bytes.toString('base64')])
      if (other !== bytes.toString('base64url')) expect(await seals.open(other, 'a')).toBeUndefined();
  });

  it('has a new key each day; that of the day before still opens, and older ones are removed', async () => {
    const state = new FakeValues();
    let now = 5 * DAY;
    const seals = createSeals(state, () => now);
    const sealed = await seals.seal('text', 'a');
    now += DAY;
    await seals.seal('next', 'a');
    expect(await seals.open(sealed, 'a')).toBe('text');
    now += DAY;
    await seals.seal('last', 'a');
    expect(await seals.open(sealed, 'a')).toBeUndefined();
    expect([...state.list('seal-keys').keys()]).toEqual(['6', '7']);
  });
});
