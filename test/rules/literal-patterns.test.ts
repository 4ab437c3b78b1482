/** Tests that a pattern which lists texts matches the same values as its regular expression, in the policy's own engine. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { ENTRYPOINTS, readLibrary } from '../../policies/engine/policy-library.ts';
import { WasmPolicy } from '../../policies/engine/wasm/wasm-policy.ts';
import { compileArgumentTests, type RuleCondition } from '../../policies/rules/argument-tests.ts';
import { literalForms } from '../../policies/rules/literal-patterns.ts';
import { roundsOf } from '../harness/slices.ts';
import { verifies } from '../verifies.ts';

const LIBRARY = readLibrary().wasm;

/** Returns the rules that match when the argument has this value, each with one condition. */
function matching(conditions: readonly RuleCondition[]): (value: unknown) => readonly number[] {
  const list = conditions.map((condition) => ({ call: [condition] }));
  const wasm = new WasmPolicy(LIBRARY, JSON.stringify({ config: { rules: { list } } }), {
    entrypoints: [ENTRYPOINTS.fired],
  });
  const rules = list.map((_, number) => number);
  return (x) =>
    wasm.evaluate(ENTRYPOINTS.fired, JSON.stringify({ rules, effect: { arguments: { x } } })).matched as number[];
}

/** The condition on `x` as the rule compiler makes it, and the same with a regular expression. */
function bothForms(pattern: string, strict: boolean): readonly RuleCondition[] {
  const refuse = (): void => undefined;
  const [compiled = {}] = compileArgumentTests({ x: { pattern } }, { strict, refuse });
  return [compiled, { ...compiled, tests: [{ pattern: strict ? pattern : `\\A(?:${pattern})\\z` }] }];
}

const words = fc.constantFrom(
  'a',
  'b',
  'ab',
  'A',
  'é',
  '\u{1F600}',
  '\0',
  '\ufffd',
  ' ',
  '\n',
  '_',
  '-',
  '/',
  '#',
  '"',
);
const escaped = fc.constantFrom(
  '\\.',
  '\\/',
  '\\-',
  '\\*',
  '\\\\',
  '\\|',
  '\\(',
  '\\$',
  '\\^',
  '\\ ',
  '\\d',
  '\\n',
  '\\_',
);
const syntax = fc.constantFrom('.', '*', '+', '?', '{2}', '[ab]', ']', '}', '(?i)', '(?:', '(', ')', '(?m)');
const anchors = fc.constantFrom('^', '$');
const patterns = fc.letrec<{ any: string }>((tie) => {
  const piece = fc.oneof(
    { weight: 12, arbitrary: words },
    { weight: 2, arbitrary: escaped },
    { weight: 2, arbitrary: anchors },
    { weight: 1, arbitrary: syntax },
    { weight: 2, arbitrary: tie('any').map((inner) => `(${inner})`) },
    { weight: 1, arbitrary: tie('any').map((inner) => `(?:${inner})`) },
  );
  const sequence = fc.array(piece, { maxLength: 4 }).map((parts) => parts.join(''));
  const wrapped = fc.oneof(
    { weight: 3, arbitrary: sequence },
    { weight: 1, arbitrary: sequence.map((text) => `^${text}`) },
    { weight: 1, arbitrary: sequence.map((text) => `${text}$`) },
    { weight: 1, arbitrary: sequence.map((text) => `^${text}$`) },
  );
  return { any: fc.array(wrapped, { minLength: 1, maxLength: 3 }).map((all) => all.join('|')) };
}).any;
const texts = fc.oneof(
  fc
    .array(fc.oneof(words, fc.constantFrom('.', '*', '\\', '|', '(', '$', '^', 'd')), { maxLength: 5 })
    .map((all) => all.join('')),
  fc.constantFrom<unknown>(1, null, true, ['ab', 'b'], { a: 'b' }, ''),
);

describe('a pattern that lists texts', () => {
  it('matches the same values as its regular expression, for random patterns and values' + verifies('FP-14'), () => {
    // With a hundred patterns, the engine's cache of them is broken; see dropCache.
    const some = fc.array(fc.tuple(patterns, fc.boolean()), { minLength: 40, maxLength: 40 });
    let literal = 0;
    fc.assert(
      fc.property(some, fc.array(texts, { minLength: 25, maxLength: 25 }), (all, values) => {
        const read = all.filter(([pattern, strict]) => literalForms(pattern, !strict) !== undefined);
        literal += read.length;
        const matched = matching(read.flatMap(([pattern, strict]) => bothForms(pattern, strict)));
        for (const value of values) {
          const numbers = new Set(matched(value));
          for (const [number, one] of read.entries())
            expect({ value, one, matches: numbers.has(2 * number) }).toEqual({
              value,
              one,
              matches: numbers.has(2 * number + 1),
            });
        }
      }),
      { numRuns: Number(process.env.TOLLGATE_PATTERN_ROUNDS ?? roundsOf(60, 15)) },
    );
    expect(literal).toBeGreaterThan(roundsOf(400, 100));
  }, 120_000);

  it.each([
    ['forbidden|secret', { contain: ['forbidden', 'secret'] }],
    ['^/etc/|\\.pem$|^x$', { prefix: ['/etc/'], suffix: ['.pem'], equal: { x: true } }],
    ['^(?:get|set)_(a|b)$', { equal: { get_a: true, get_b: true, set_a: true, set_b: true } }],
    ['^__proto__$', { equal: JSON.parse('{"__proto__":true}') as object }],
  ])('needs no regular expression: %s', (pattern, forms) => {
    expect({ ...literalForms(pattern, false) }).toEqual(forms);
  });

  it.each([
    'a.b',
    'a|',
    '',
    '^',
    '(?i)secret',
    'a+',
    'a{2}',
    'a*|b',
    '(ab)?',
    '[ab]',
    '\\d',
    'a\\',
    'a)',
    '(a',
    'a^b',
    'a$b',
    `a${'|a'.repeat(200)}`,
    '(a|b)'.repeat(20),
  ])('does not stand for another pattern: %s', (pattern) => {
    expect(literalForms(pattern, false)).toBeUndefined();
  });
});
