/** Tests that every match of a pattern contains one of its required texts, in the policy's own engine. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { ENTRYPOINTS, readLibrary } from '../../policies/engine/policy-library.ts';
import { WasmPolicy } from '../../policies/engine/wasm/wasm-policy.ts';
import { compileArgumentTests } from '../../policies/rules/argument-tests.ts';
import { requiredTexts } from '../../policies/rules/required-texts.ts';
import { roundsOf } from '../harness/slices.ts';
import { verifies } from '../verifies.ts';

const atom = fc.constantFrom(
  ...[
    'ab',
    'rm',
    'drop',
    'a',
    '-',
    ' ',
    '\\.',
    '\\/',
    '\\|',
    '\\{',
    '.',
    '[abc]',
    '[^a]',
    '[]a]',
    '[a\\]]',
    '\\d',
    '\\s',
  ],
);
const quantifier = fc.constantFrom('', '', '', '*', '+', '?', '{0,2}', '{1,2}', '{2}', '*?', '+?', '??');
const patterns = fc.letrec<{ any: string }>((tie) => {
  const piece = fc.oneof(
    { weight: 6, arbitrary: fc.tuple(atom, quantifier).map(([one, many]) => one + many) },
    { weight: 1, arbitrary: fc.tuple(tie('any'), quantifier).map(([inner, many]) => `(${inner})${many}`) },
    { weight: 1, arbitrary: fc.tuple(tie('any'), quantifier).map(([inner, many]) => `(?:${inner})${many}`) },
    { weight: 1, arbitrary: fc.constantFrom('^', '$', '\\b') },
  );
  const sequence = fc.array(piece, { minLength: 1, maxLength: 4 }).map((parts) => parts.join(''));
  return { any: fc.array(sequence, { minLength: 1, maxLength: 2 }).map((all) => all.join('|')) };
}).any;
describe('the required texts of a pattern' + verifies('FP-14'), () => {
  it('change no decision of the engine', () => {
    const library = readLibrary().wasm;
    const refuse = (): void => undefined;
    const some = fc.array(fc.tuple(patterns, fc.boolean()), { minLength: 80, maxLength: 80 });
    const words = fc.constantFrom('ab', 'rm', 'drop', 'a', '-', ' ', '.', '/', '|', '{', 'é', '7', '\n', ']');
    const texts = fc.array(
      fc.array(words, { maxLength: 6 }).map((all) => all.join('')),
      { minLength: 20, maxLength: 20 },
    );
    let looked = 0;
    fc.assert(
      fc.property(some, texts, (all, values) => {
        const list = all
          .filter(([pattern]) => requiredTexts(pattern) !== undefined)
          .slice(0, 20)
          .flatMap(([pattern, strict]) => {
            const [compiled = {}] = compileArgumentTests({ x: { pattern } }, { strict, refuse });
            const plain = { pattern: strict ? pattern : `\\A(?:${pattern})\\z` };
            return [{ call: [compiled] }, { call: [{ ...compiled, tests: [plain] }] }];
          });
        looked += list.length / 2;
        const data = JSON.stringify({ config: { rules: { list } } });
        const wasm = new WasmPolicy(library, data, { entrypoints: [ENTRYPOINTS.fired] });
        const rules = list.map((_, number) => number);
        for (const x of values) {
          const input = JSON.stringify({ rules, effect: { arguments: { x } } });
          const matched = new Set(wasm.evaluate(ENTRYPOINTS.fired, input).matched as number[]);
          for (const number of rules.filter((one) => one % 2 === 0))
            expect({ x, rule: list[number], is: matched.has(number) }).toEqual({
              x,
              rule: list[number],
              is: matched.has(number + 1),
            });
        }
      }),
      { numRuns: Number(process.env.TOLLGATE_PATTERN_ROUNDS ?? roundsOf(60, 15)) },
    );
    expect(looked).toBeGreaterThan(roundsOf(200, 50));
  }, 120_000);

  it.each([
    ['(rm|drop)\\s+-?[a-z]+', ['rm', 'drop']],
    ['^DELETE\\s+FROM', ['DELETE']],
    ['https?://[^/]*\\.internal', ['.internal']],
    ['a+bcd*', ['bc']],
    ['(?:ab|cd)+x', ['ab', 'cd']],
    ['x(ab)?longer', ['longer']],
  ])('of %s are %j', (pattern, texts) => expect(requiredTexts(pattern)).toEqual(texts));

  it.each([
    '(?i)secret\\s',
    '(?P<name>secret)\\s',
    '\\x41bc\\s',
    '\\Qab\\E\\s',
    '\\pLab',
    '[[:alpha:]]ab',
    'ab|.',
    '(ab|)\\d',
    '(ab)*\\d',
    '(ab){0}\\d',
    'a\\d',
    'ab{,2}\\d',
    'éab\\d',
    `${'(ab|cd)\\d|'.repeat(20)}ab`,
    `ab\\d${'x'.repeat(2000)}`,
  ])('are not known: %s', (pattern) => expect(requiredTexts(pattern)).toBeUndefined());
});
