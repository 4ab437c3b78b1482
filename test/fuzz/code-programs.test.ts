/**
 * Tests the sandbox for code with generated texts: whatever a program is, the run ends as the sandbox documents it, and
 * the sandbox runs the next program. `npm run fuzz` makes many more programs.
 */
import fc from 'fast-check';
import { afterAll, expect, it } from 'vitest';
import { ESCAPE_ATTEMPTS } from '../code/escape-attempts.ts';
import { closeShared, runCode, valueOfCode } from '../code/sandbox-runs.ts';
import { verifies } from '../verifies.ts';

afterAll(closeShared);

const RUNS = process.env.TOLLGATE_FUZZ_SEED === undefined ? 25 : 3_000;

/** Words of JavaScript and of the sandbox, which are put together in any order. */
const WORDS =
  `( ) { } [ ] ; , . ... => = == === ! ? : + - * / % ** << & | ^ ~ ?. ?? \` \${ ' " // /* */ \n 0 1 1e9 1n -1 'x' /a+/
  async await function function* yield return throw new class extends static get set this super typeof delete void in of
  instanceof let const var if else for while do switch case default break continue try catch finally with eval import
  export from as type interface enum require print console.log args vars globalThis Object Array Promise Proxy Reflect
  Symbol.iterator Function JSON.stringify JSON.parse __proto__ constructor prototype toJSON then x y z
  'host:tollgate' read read.async(`.split(/\s+/);

const wordPrograms = fc.array(fc.constantFrom(...WORDS), { maxLength: 30 }).map((words) => words.join(' '));
/** Two attempts of the escape suite, cut at any place and joined. */
const splicedPrograms = fc
  .tuple(fc.constantFrom(...ESCAPE_ATTEMPTS), fc.constantFrom(...ESCAPE_ATTEMPTS), fc.nat(100), fc.nat(100))
  .map(([one, two, from, to]) => {
    const at = (code: string, share: number): number => Math.floor((code.length * share) / 100);
    return one.code.slice(0, at(one.code, from)) + two.code.slice(at(two.code, to));
  });

it('every program ends as documented' + verifies('CM-18', 'CM-22'), { timeout: 900_000 }, async () => {
  await fc.assert(
    fc.asyncProperty(fc.oneof(wordPrograms, splicedPrograms, fc.string({ unit: 'binary' })), async (code) => {
      const outcome = await runCode(code, {
        args: '{"a":1}',
        variables: '{}',
        limits: { timeMs: 100, memoryBytes: 12_000_000, outputBytes: 10_000 },
      });
      expect(['returned', 'failed']).toContain(outcome.kind);
      if (outcome.kind === 'failed') {
        expect(outcome.code).toMatch(/^CODE_(?:SYNTAX|FAILED|LIMIT)$/);
        expect(outcome.message).not.toMatch(/node:internal|\/work\/|\.cjs/);
      }
      expect(Buffer.byteLength(outcome.printed)).toBeLessThanOrEqual(10_000);
    }),
    { numRuns: RUNS },
  );
  expect(await valueOfCode('return 1 + 1')).toBe(2);
});
