/**
 * Generates JSON texts for property tests, with unusual white space, escapes and numbers, and without duplicate keys.
 */
import fc from 'fast-check';

/** Numbers that a parser could change: minus zero, more digits than a double has, out of range, other spellings. */
const NUMBERS = [
  '0',
  '-0',
  '-0.0',
  '1.0',
  '0.10',
  '1E+2',
  '1e-7',
  '12345678901234567890',
  '-9007199254740993',
  '0.1234567890123456789',
  '1e400',
  '-1e400',
  '5e-400',
  '9007199254740991',
] as const;
const GAPS = ['', '', '', ' ', '\t', '  '] as const;

/** What the texts may contain. */
export interface TextOptions {
  /** Raw and escaped control, bidi, tag and zero-width characters, and lone surrogates: what a facade makes visible. */
  readonly hostile?: boolean;
  /** Spellings of numbers. By default some that a double cannot hold. */
  readonly numbers?: readonly string[];
  readonly depth?: number;
}

const HOSTILE = ['\\u001b[2J', '\\u0007', '\u200b', '\u202e', '\\ud800', '\u{e0041}', '\u009b', '\\u0000'];

/** Generates a JSON string with its quotes. */
export function stringText({ hostile = false }: TextOptions = {}): fc.Arbitrary<string> {
  const plain = fc
    .string({ unit: 'grapheme', maxLength: 6 })
    .filter((text) => !/\p{Cc}|\p{Cf}|\p{Cs}|\p{M}|\p{Me}/u.test(text))
    .map((text) => JSON.stringify(text).slice(1, -1));
  const escaped = fc.constantFrom(
    '\\/',
    '/',
    '\\n',
    '\\t',
    '\\"',
    '\\\\',
    '\\u00e9',
    '\\u0041',
    '\\ud83d\\ude00',
    'é',
    '😀',
    '中',
    '__proto__',
    'constructor',
  );
  const pieces = hostile ? fc.oneof(plain, escaped, fc.constantFrom(...HOSTILE)) : fc.oneof(plain, escaped);
  return fc.array(pieces, { maxLength: 4 }).map((all) => `"${all.join('')}"`);
}

/** Generates the text of one JSON value. */
export function valueText(options: TextOptions = {}): fc.Arbitrary<string> {
  const { numbers = NUMBERS, depth = 3 } = options;
  const { value } = fc.letrec<{ value: string; object: string; array: string; leaf: string }>((tie) => ({
    leaf: fc.oneof(
      stringText(options),
      fc.constantFrom(...numbers),
      fc.constantFrom('true', 'false', 'null'),
      fc.integer().map(String),
    ),
    object: objectText(tie('value'), options),
    array: fc
      .tuple(fc.array(fc.tuple(tie('value'), gap), { maxLength: 4 }), gap)
      .map(([items, space]) => `[${space}${items.map(([item, after]) => item + after).join(',')}]`),
    value: fc.oneof({ maxDepth: depth }, tie('leaf'), tie('object'), tie('array')),
  }));
  return value;
}

const gap = fc.constantFrom(...GAPS);

/** Generates the text of an object of such values. */
export function objectText(values: fc.Arbitrary<string>, options: TextOptions = {}): fc.Arbitrary<string> {
  const member = fc.tuple(stringText(options), gap, gap, values, gap);
  return fc
    .tuple(gap, fc.uniqueArray(member, { maxLength: 5, selector: ([key]) => JSON.parse(key) as string }))
    .map(
      ([open, all]) =>
        `{${open}${all.map(([key, before, after, value, end]) => `${key}${before}:${after}${value}${end}`).join(',')}}`,
    );
}
