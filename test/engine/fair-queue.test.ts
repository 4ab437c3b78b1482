/** Tests the order of waiting queries: many or slow queries of one caller delay no other caller. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { FairQueue, type QueryOwner } from '../../policies/engine/workers/fair-queue.ts';

/** Serves all with `places` at a time. Returns them in the order in which they were served. */
function serve(turns: FairQueue<string>, places = 1): readonly string[] {
  const [served, running]: [string[], string[]] = [[], []];
  for (;;) {
    const turn = running.length < places ? turns.take() : undefined;
    if (turn !== undefined) {
      served.push(turn.item);
      running.push(turn.principal);
    } else if (running.length === 0) return served;
    else turns.done(running.shift() ?? '');
  }
}

function waiting(...all: readonly (readonly [asker: QueryOwner, item: string])[]): FairQueue<string> {
  const turns = new FairQueue<string>();
  for (const [asker, item] of all) turns.add(asker, item);
  return turns;
}

describe('the fair queue', () => {
  it('serves another principal before the rest of ten queries of one, and another run of the same one', () => {
    const ten = (principal: string) =>
      Array.from({ length: 10 }, (_, number) => [{ principal, run: 'bad' }, `bad ${number}`] as const);
    expect(serve(waiting(...ten('a'), [{ principal: 'b', run: 'good' }, 'good'])).indexOf('good')).toBe(1);
    expect(serve(waiting(...ten('a'), [{ principal: 'a', run: 'good' }, 'good'])).indexOf('good')).toBe(1);
    expect(serve(waiting(...ten('a'), ...ten('b'), [{ principal: 'c' }, 'good']), 2).indexOf('good')).toBe(2);
  });

  it('never serves two queries of one principal at the same time, even with free workers', () => {
    const turns = waiting([{ principal: 'a' }, '1'], [{ principal: 'a', run: 'x' }, '2']);
    expect([turns.take()?.item, turns.take()]).toEqual(['1', undefined]);
    turns.done('a');
    expect(turns.take()?.item).toBe('2');
  });

  it('returns all waiting queries at its end, and none twice', () => {
    const turns = waiting([{ principal: 'a' }, '1'], [{}, '2'], [{ principal: 'a' }, '3']);
    expect(turns.take()?.item).toBe('1');
    expect([turns.clear(), turns.clear(), turns.take()]).toEqual([['2', '3'], [], undefined]);
  });

  it('serves every query once, in order within a run, after at most one turn of each other principal', () => {
    const askers = fc.record({ principal: fc.constantFrom('a', 'b', 'c'), run: fc.constantFrom('x', 'y') });
    fc.assert(
      fc.property(fc.array(askers, { maxLength: 30 }), fc.integer({ min: 1, max: 3 }), (all, places) => {
        const names = all.map(({ principal, run }, number) => `${principal}${run}${number}`);
        const served = serve(waiting(...all.map((asker, number) => [asker, names[number] ?? ''] as const)), places);
        expect([...served].sort()).toEqual([...names].sort());
        for (const key of ['ax', 'ay', 'bx', 'by', 'cx', 'cy'])
          expect(served.filter((name) => name.startsWith(key))).toEqual(names.filter((name) => name.startsWith(key)));
        const firsts = new Set(
          served.slice(0, new Set(all.map(({ principal }) => principal)).size).map((name) => name[0]),
        );
        if (places === 1) expect(firsts.size).toBe(new Set(all.map(({ principal }) => principal)).size);
      }),
    );
  });
});
