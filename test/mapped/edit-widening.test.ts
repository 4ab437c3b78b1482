/** Tests that a place can be widened until it is unique without changing the meaning of the edit. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { widenUntilUnique } from '../../adapters/primitives/mapped/mapped-edit.ts';
import { applyEdit } from '../../adapters/primitives/workspace/text-edit.ts';

describe('a widened place', () => {
  const text = fc
    .array(fc.constantFrom('a', 'b', '\n', '\n\n'), { minLength: 1, maxLength: 12 })
    .map((pieces) => pieces.join(''));

  it('occurs once, and replacing it gives the edited text', async () => {
    await fc.assert(
      fc.asyncProperty(
        text,
        fc.constantFrom('a', 'b', '\n', 'ab'),
        fc.constantFrom('', 'c', 'a\n'),
        fc.integer({ min: 1, max: 6 }),
        async (before, old_string, new_string, line) => {
          const outcome = await applyEdit(before, { old_string, new_string, line });
          if ('refusal' in outcome) return;
          const [place] = outcome.places;
          if (!place) throw new Error('no place');
          const { old, new: fresh } = widenUntilUnique(before, outcome.text, place);
          expect(before.indexOf(old)).toBe(before.lastIndexOf(old));
          expect(before.replace(old, () => fresh)).toBe(outcome.text);
        },
      ),
      { numRuns: 500 },
    );
  });

  it('is found in a text of line ends only', () => {
    expect(widenUntilUnique('\n\n\n', '\na\n', { start: 1, end: 2 })).toEqual({ old: '\n\n\n', new: '\na\n' });
    expect(widenUntilUnique('\n\n\n', '\n\na\n', { start: 2, end: 3 })).toEqual({ old: '\n\n\n', new: '\n\na\n' });
  });
});
