/** Attacks that would keep the process busy: one call must not block the others, whatever a client or a server sends. */
import { describe, expect, it } from 'vitest';
import { applyEdit, type EditArgs } from '../../adapters/internal/edit.ts';
import { tooFast } from '../growth.ts';
import { verifies } from '../verifies.ts';
import { makeBench } from '../workspace/harness.ts';

describe('an edit with many matches' + verifies('TR-40'), () => {
  const lines = (size: number): string => 'a\n'.repeat(size);
  const attacks: readonly (readonly [string, (size: number) => readonly [string, EditArgs]])[] = [
    ['all of them replaced', (size: number) => [lines(size), { old_string: 'a', new_string: 'bc', replace_all: true }]],
    ['none chosen', (size: number) => [lines(size), { old_string: 'a', new_string: 'b' }]],
    ['one chosen by its line', (size: number) => [lines(size), { old_string: 'a', new_string: 'b', line: 3 }]],
    ['other line ends', (size: number) => ['a\r\n'.repeat(size), { old_string: 'a\na', new_string: 'b', replace_all: true }]],
    ['two replacements, the second before the first', (size: number) => ['ab\n'.repeat(size), { old_string: 'b', new_string: 'c', replace_all: true, edits: [{ old_string: 'a', new_string: 'aa', replace_all: true }] }]],
    ['a long text that nearly occurs everywhere', (size: number) => ['a'.repeat(size * 8), { old_string: `${'a'.repeat(size)}b${'a'.repeat(size)}`, new_string: 'b' }]],
    ['places that overlap', (size: number) => ['a'.repeat(size * 2), { old_string: 'a'.repeat(size), new_string: 'b' }]],
  ];
  it.each(attacks)('takes linear time: %s', async (_name, make) => {
    expect(await tooFast({ make, run: ([text, args]) => applyEdit(text, args), from: 4_096, to: 65_536 })).toBeUndefined();
  });

  it('is answered at once for a file of a megabyte, with the number of places', async () => {
    const bench = makeBench({ 'a.txt': 'a\n'.repeat(500_000) });
    const began = process.cpuUsage();
    const answer = await bench.text('edit', { path: 'a.txt', old_string: 'a', new_string: 'b', replace_all: true });
    const { user, system } = process.cpuUsage(began);
    expect(answer).toContain('(500000 places)');
    expect(user + system).toBeLessThan(5_000_000);
  });

  it('lets others have their turn between many edits, and ends with its call', async () => {
    const text = Array.from({ length: 2_000 }, (_, at) => `${at};${'x'.repeat(500)}`).join('\n');
    const edits = Array.from({ length: 1_999 }, (_, at) => ({ old_string: `\n${at + 1};`, new_string: `\n${at + 1}:` }));
    let turns = 0;
    const ticking = setInterval(() => (turns += 1), 1);
    const done = await applyEdit(text, { old_string: '0;', new_string: '0:', edits: edits.slice(0, 300), line: 1 });
    clearInterval(ticking);
    expect(done).toMatchObject({ count: 301 });
    expect(turns).toBeGreaterThan(3);
    await expect(applyEdit(text, { old_string: '0;', new_string: '0:', edits, line: 1 }, AbortSignal.timeout(20))).rejects.toThrow();
  });

  it('refuses what would need more memory than a file may have', async () => {
    expect(await applyEdit('a'.repeat(1_000_000), { old_string: 'a', new_string: 'b'.repeat(1_000), replace_all: true })).toMatchObject({ refusal: { what: expect.stringContaining('would have 1000000000 characters') } });
    expect(await applyEdit('a'.repeat(1_000_001), { old_string: 'a', new_string: 'b', replace_all: true })).toMatchObject({ refusal: { what: expect.stringContaining('more than 1000000 times') } });
  });
});
