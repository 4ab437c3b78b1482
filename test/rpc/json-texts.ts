/** Generators of JSON texts and messages with hostile details, and of texts that are nearly JSON. */
import fc from 'fast-check';

const STRINGS = (
  'a id é 漢 😀 \u2028 \u007f \u0085 \u{e0041} \\n \\u0061 \\ud83d\\ude00 \\ud800 \\udc00x \\/ \\\\ \\" \\b \\u0000 \\x \\u12g4 ' +
  `${'x'.repeat(40)} _meta`
).split(' ');
const NUMBERS =
  '0 -0 1 -1 1.5 1e3 1E+2 -0.0 0.1 12345678901234567890 1e400 9007199254740993 01 1. .5 - +1 1e 1e+ -a 0.30000000000000004 ' +
  '123456789012345 1234567890123456 -0e1 0e0 12.330000000000002';
const KEYS = '"a" "b" "\\u0061" "_meta" "name" "arguments" "data" "code" "message" "Name" "ARGUMENTS" "__proto__" "1"';

const space = fc.constantFrom('', '', '', '', ' ', '\t', '\r\n', '\u00a0', '\0');
const word = (words: string) => fc.constantFrom(...words.split(' '));
const string = fc.array(fc.constantFrom(...STRINGS), { maxLength: 3 }).map((parts) => `"${parts.join('')}"`);
const joined = (parts: readonly string[], brackets: string): string =>
  `${brackets.charAt(0)}${parts.join(',')}${brackets.charAt(1)}`;
const tree = fc.letrec<{ value: string; object: string }>((tie) => ({
  value: fc.oneof(
    { depthSize: 'small' },
    string,
    word('1 2 true false null {} [] "x" 1.25'),
    word(NUMBERS),
    word('tru nul True undefined nulll'),
    tie('object'),
    fc.array(fc.tuple(space, tie('value'), space).map((parts) => parts.join(''))).map((items) => joined(items, '[]')),
  ),
  object: fc
    .array(
      fc
        .tuple(space, fc.oneof(word(KEYS), string), space, tie('value'), space)
        .map(([before, key, middle, item, after]) => `${before}${key}${middle}:${item}${after}`),
      { maxLength: 5 },
    )
    .map((members) => joined(members, '{}')),
}));
const { object } = tree;
/** JSON values, and texts that are nearly JSON. */
export const value = tree.value;
const member = (key: string, values: fc.Arbitrary<string>, odds: number) =>
  fc.oneof(
    {
      weight: odds,
      arbitrary: fc.tuple(fc.constant(key), space, values).map((parts) => `"${parts[0]}":${parts[1]}${parts[2]}`),
    },
    { weight: 1, arbitrary: fc.constant('') },
  );
const valid = word('{} {"a":[1,2.5,true,null,"x"]} {"content":[{"type":"text","text":"é\\n"}],"isError":true}');
/** JSON-RPC messages, also with a fault. */
export const message = fc
  .tuple(
    member(
      'jsonrpc',
      fc.oneof({ weight: 20, arbitrary: fc.constant('"2.0"') }, word('"2\\u002e0" "1.0" 2.0 null')),
      30,
    ),
    member('id', fc.oneof(word('1 7 "x" 0'), word('"a\\u00e9" -0 1.0 1e2 null 1.5 12345678901234567890 {} true')), 3),
    fc.oneof(
      member('method', word('"tools/call" "ping" "" 5 "a\\u0062"'), 9).chain((method) =>
        member('params', fc.oneof(object, value, word('{"name":"t","arguments":{"n":1.0}} {"name":"t"} {}')), 2).map(
          (params) => [method, params].filter((part) => part !== '').join(','),
        ),
      ),
      member('result', fc.oneof(valid, object, value), 9),
      member('error', fc.oneof(valid, object, value), 9),
      fc.tuple(member('result', value, 2), member('error', value, 2)).map((both) => both.filter(Boolean).join(',')),
    ),
    fc.oneof({ weight: 8, arbitrary: fc.constant('') }, word('"x":1 "ID":2 "Method":"m" "id":3 "\\u0069d":1 "ſ":1')),
  )
  .chain((members) =>
    fc.shuffledSubarray(
      members.filter((part) => part !== ''),
      { minLength: Math.min(3, members.filter(Boolean).length) },
    ),
  )
  .map((members) => joined(members, '{}'));
const change = fc.record({
  at: fc.nat(400),
  byte: fc.oneof(fc.constantFrom(...Buffer.from('{}[]",:\\u0eE+-.tn \n\t\0\x7f')), fc.nat(255)),
  how: word('set insert cut end'),
});

/** Texts as bytes, with up to three bytes changed in every other one. */
export const bytesOf = (texts: fc.Arbitrary<string>) =>
  fc
    .tuple(texts, fc.oneof(fc.constant([]), fc.constant([]), fc.array(change, { minLength: 1, maxLength: 3 })))
    .map(([text, changes]) =>
      changes.reduce((bytes: Buffer, { at, byte, how }) => {
        const place = at % (bytes.length + 1);
        const [head, tail] = [bytes.subarray(0, place), bytes.subarray(how === 'insert' ? place : place + 1)];
        return how === 'end' ? head : Buffer.concat([head, Buffer.from(how === 'cut' ? [] : [byte]), tail]);
      }, Buffer.from(text)),
    );
