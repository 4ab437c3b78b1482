/** Tests that the limits of a turn hold for any number of parallel questions in any number of processes. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { fixturePath } from '../state/temporary-folder.ts';
import { verifies } from '../verifies.ts';
import { document, openTestStore, scope, type TestStore } from './sample-store.ts';

const ASKER = fixturePath('knowledge-asker.ts');
let test: TestStore;
beforeEach(() => {
  test = openTestStore();
});
afterEach(() => test.close());

interface Asked {
  readonly answered: number;
  readonly bytes: number;
  readonly hits: number;
  readonly faults: readonly string[];
}

/** Starts processes that all begin their questions at the same time. */
async function askTogether(processes: number, words: readonly string[]): Promise<readonly Asked[]> {
  const children = Array.from({ length: processes }, () =>
    spawn(process.execPath, [ASKER, test.folder, ...words], { stdio: ['pipe', 'pipe', 'inherit'] }),
  );
  const said = children.map(() => '');
  for (const [at, child] of children.entries())
    child.stdout.setEncoding('utf8').on('data', (text: string) => void (said[at] += text));
  const ended = children.map((child) => once(child, 'close'));
  await Promise.all(
    children.map(async (child, at) => {
      while (!said[at]?.includes('ready'))
        await Promise.race([
          once(child.stdout, 'data'),
          ended[at]?.then(() => expect.fail('the process ended before its first question')),
        ]);
    }),
  );
  for (const child of children) child.stdin.write('go\n');
  await Promise.all(ended);
  return said.map((text) => JSON.parse(text.split('\n')[1] ?? '') as Asked);
}

const sum = (all: readonly Asked[], pick: (one: Asked) => number): number =>
  all.reduce((total, one) => total + pick(one), 0);

describe('the limits of the knowledge server for one turn', () => {
  it('hold for 50 parallel questions in two processes' + verifies('CY-10'), async () => {
    test.keep(document('The harbour opens at nine.'));
    const all = await askTogether(2, ['25', '8', '32768']);
    expect(all.flatMap(({ faults }) => faults)).toEqual([]);
    expect([sum(all, ({ answered }) => answered), sum(all, ({ hits }) => hits)]).toEqual([8, 8]);
  }, 60_000);

  it('never give the same bytes to two questions', async () => {
    for (let at = 0; at < 5; at += 1) test.keep(document(`harbour ${'x'.repeat(90)}`, { name: `n${at}` }));
    const all = await askTogether(2, ['25', '1000', '2000']);
    expect(all.flatMap(({ faults }) => faults)).toEqual([]);
    expect(sum(all, ({ bytes }) => bytes)).toBeLessThanOrEqual(2000);
    expect(sum(all, ({ bytes }) => bytes)).toBeGreaterThan(1500);
  }, 60_000);

  it('are counted for one turn of one conversation of one user and space, and never exceed the setting', () => {
    const turns = fc.record({
      user: fc.constantFrom('alice', 'bob'),
      space: fc.constantFrom('team', 'other'),
      conversation: fc.constantFrom('a', 'b'),
      turn: fc.constantFrom('1', '2'),
    });
    const use = fc.record({ bytes: fc.integer({ min: 0, max: 60 }), candidates: fc.integer({ min: 0, max: 4 }) });
    fc.assert(
      fc.property(fc.array(fc.tuple(turns, use), { maxLength: 60 }), (asks) => {
        const own = openTestStore();
        const caps = { requests: 4, bytes: 100, candidates: 6 };
        const had = new Map<string, { requests: number; bytes: number; candidates: number }>();
        try {
          for (const [where, wish] of asks) {
            const key = JSON.stringify(where);
            const before = had.get(key) ?? { requests: 0, bytes: 0, candidates: 0 };
            const take = (): unknown =>
              own.store.within({ scope: where, caps, now: 1 }, (left) => ({
                bytes: Math.min(wish.bytes, left.bytes),
                candidates: Math.min(wish.candidates, left.candidates),
              }));
            if (before.requests >= caps.requests || before.bytes >= caps.bytes || before.candidates >= caps.candidates)
              expect(take).toThrow(/This turn has used its/);
            else {
              const got = take() as { bytes: number; candidates: number };
              had.set(key, {
                requests: before.requests + 1,
                bytes: before.bytes + got.bytes,
                candidates: before.candidates + got.candidates,
              });
            }
          }
          for (const one of had.values())
            for (const cap of ['requests', 'bytes', 'candidates'] as const)
              expect(one[cap]).toBeLessThanOrEqual(caps[cap]);
        } finally {
          own.close();
        }
      }),
      { numRuns: 30 },
    );
  });

  it('are not reduced by a question that failed', () => {
    const turn = { scope: scope(), caps: { requests: 1, bytes: 100, candidates: 5 }, now: 1 };
    expect(() =>
      test.store.within(turn, () => {
        throw new Error('fault');
      }),
    ).toThrow();
    expect(test.store.within(turn, () => ({ bytes: 1, candidates: 1 }))).toEqual({ bytes: 1, candidates: 1 });
    expect(() => test.store.within(turn, () => ({ bytes: 1, candidates: 1 }))).toThrow(/1 requests/);
  });
});
