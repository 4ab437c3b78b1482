/** A write that is answered after the connection was lost does not hide that all values must be read. */
import { expect, it, onTestFinished } from 'vitest';
import { openSharedState } from '../../facade/state/shared/shared-state.ts';
import type { SharedStore } from '../../facade/state/shared/shared-store.ts';
import { verifies } from '../verifies.ts';
import { temporaryFolder } from './temporary-folder.ts';

it(`a copy forgets what a restored store has lost, also after a write${verifies('FL-04')}`, async () => {
  let lose = (): void => undefined;
  let isRestored = false;
  // A store that was restored: it has other changes with the same and larger numbers.
  const store = {
    timeoutMs: 2000,
    news: async (from: number | undefined) => ({
      now: Date.now(),
      alive: [],
      all: from === undefined,
      to: isRestored ? 9 : 5,
      changes: from === undefined && !isRestored ? [{ space: 'grants', key: 'lost', value: 'x' }] : [],
    }),
    write: async () => {
      isRestored = true;
      lose();
      return { result: '1', news: { all: false, to: 9, changes: [] } };
    },
    listen: ({ onLost }: { onLost: () => void }) => void (lose = onLost),
    leave: async () => undefined,
    close: async () => undefined,
  } as unknown as SharedStore;
  const state = await openSharedState({ folder: temporaryFolder(), store });
  onTestFinished(() => state.close());
  expect(state.get('grants', 'lost')).toBe('x');
  await state.put('other', 'key', 'value');
  await state.refresh();
  expect(state.get('grants', 'lost')).toBeUndefined();
});
