/** Every reader of bytes from outside gets growing inputs: four times the input may cost six times the processor time. No reader throws anything but its error type. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { TollgateError } from '../../catalogs/errors.ts';
import { MOST_GROWTH, tooFast } from '../growth.ts';
import { verifies } from '../verifies.ts';
import { CORPUS, grow, shapes, type Shape } from './shapes.ts';
import { SLOW_TARGETS, TARGETS, type Target } from './targets.ts';

/** The gate runs the corpus over the fast rows; by hand (npm run fuzz) all rows get it, and new shapes. */
const BY_HAND = process.env['TOLLGATE_FUZZ_SEED'] !== undefined;
const ROWS = (BY_HAND ? [...TARGETS, ...SLOW_TARGETS] : TARGETS).map((target) => [target.name, target] as const);
/** Shapes made anew for each reader; more when run by hand (npm run fuzz). */
const RUNS = Number(process.env['TOLLGATE_FUZZ_SHAPES'] ?? 3);
/** A first look is at this many characters. A reader that takes no longer, ms, is not quadratic. */
const [GLANCE_CHARS, GLANCE_MS] = [32_768, 5];
const FROM_CHARS = 16_384;

async function guarded(run: () => unknown): Promise<void> {
  try {
    await run();
  } catch (thrown) {
    if (!(thrown instanceof TollgateError)) throw thrown;
  }
}

async function timed(run: () => unknown): Promise<number> {
  const began = process.cpuUsage();
  await guarded(run);
  const { user, system } = process.cpuUsage(began);
  return (user + system) / 1_000;
}

/** Looks once, again when that was slow (code that was not compiled yet), then at four times the size, and measures what is left. */
async function judge({ run }: Target, shape: Shape): Promise<void> {
  for (const size of [1, 100]) await guarded(() => run(grow(shape, size)));
  const [small, large] = [grow(shape, GLANCE_CHARS), grow(shape, GLANCE_CHARS * 4)];
  if ((await timed(() => run(small))) <= GLANCE_MS) return;
  const again = await timed(() => run(small));
  if (again <= GLANCE_MS || (await timed(() => run(large))) <= again * MOST_GROWTH) return;
  expect(await tooFast({ make: (size) => grow(shape, size), run: (grown) => guarded(() => run(grown)), from: FROM_CHARS }), JSON.stringify(shape)).toBeUndefined();
}

describe('four times the input costs at most six times the time' + verifies('TR-40', 'TR-41'), () => {
  it.each(ROWS)('%s: the corpus', async (_name, target) => {
    for (const shape of CORPUS) await judge(target, shape);
  }, 120_000);

  it.each(BY_HAND ? ROWS : [])('%s: new shapes', async (_name, target) => {
    await fc.assert(fc.asyncProperty(shapes, (shape) => judge(target, shape)), { numRuns: RUNS, endOnFailure: true });
  }, 120_000);
});

describe('the measure itself', () => {
  it('finds a quadratic reader and passes a linear one', async () => {
    const quadratic = (text: string): number => { let found = 0; for (let at = 0; at < text.length; at += 64) found += text.slice(at).split('a').length; return found; };
    expect(await tooFast({ make: (size) => 'a'.repeat(size), run: quadratic })).toContain('ms for 4096 units');
    expect(await tooFast({ make: (size) => 'a'.repeat(size), run: (text) => text.split('a').length })).toBeUndefined();
  });
});
