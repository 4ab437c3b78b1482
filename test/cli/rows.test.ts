/** Tests rows with text from outside: deceptive characters are escaped or named, and no text leaves its row. */
import { PassThrough } from 'node:stream';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { json, printable } from '../../facade/cli/print.ts';
import { inRows, letterMarks, marked } from '../../facade/cli/terminal-rows.ts';

const terminal = (columns: number): { isTTY: boolean; out: PassThrough } => ({
  isTTY: true,
  out: Object.assign(new PassThrough(), { columns }),
});

describe('characters that a terminal does not show as they are', () => {
  it.each([
    ['variation selector', '\ufe0f'],
    ['grapheme joiner', '\u034f'],
    ['Hangul filler', '\u3164'],
    ['initial filler', '\u115f'],
    ['medial filler', '\u1160'],
    ['narrow filler', '\uffa0'],
    ['empty Braille', '\u2800'],
    ['no-break space', '\u00a0'],
    ['em space', '\u2003'],
    ['wide space', '\u3000'],
    ['Ogham space', '\u1680'],
    ['tag', '\u{e0041}'],
    ['override', '\u202e'],
    ['Hebrew letter', '\u05d0'],
    ['Arabic letter', '\u0627'],
    ['Adlam letter', '\u{1e900}'],
    ['mark on nothing', '\u0301'],
    ['enclosing mark', '\u20dd'],
    ['escape', '\u001b'],
    ['line end', '\n'],
  ])('are escaped: %s', (_name, letter) => {
    expect(printable(`1${letter}2`)).toBe(`1\\u{${(letter.codePointAt(0) ?? 0).toString(16)}}2`);
  });

  it('include heaps of combining marks, but not single marks on a letter', () => {
    expect(printable('n\u0303 \u00fc \u0e01\u0e35\u0e48')).toBe('n\u0303 \u00fc \u0e01\u0e35\u0e48');
    expect(printable('a\u0301\u0302\u0303')).toBe('a\\u{301}\\u{302}\\u{303}');
  });

  it('are escaped in JSON so that a parser reads the same value', () => {
    const value = { a: '\u3164\u05d0\u{e0041}\u00a0', b: [1] };
    expect(JSON.parse(json(value))).toEqual(value);
    expect(json(value)).toMatch(/^[\n\x20-\x7e]*$/);
  });
});

it('letterMarks names words that mix alphabets, and only mentions other languages', () => {
  expect(letterMarks('plain text')).toEqual([]);
  expect(letterMarks('gr\u00fc\u00dfe \u043c\u0438\u0440')).toEqual(['not all ASCII']);
  expect(letterMarks('a p\u0430yp\u0430l b')).toEqual(['not all ASCII', 'mixes scripts: p\\u{430}yp\\u{430}l']);
  expect(marked('T\u30b7\u30e3\u30c4')).toBe('T\u30b7\u30e3\u30c4  (not all ASCII)');
});

describe('wrapped rows', () => {
  it('are never wider than the terminal, mark their continuation and lose no character', () => {
    fc.assert(
      fc.property(
        fc.string({ unit: 'grapheme', maxLength: 600 }),
        fc.integer({ min: 40, max: 200 }),
        (text, columns) => {
          const row = `  x: ${printable(text)}`;
          const [first = '', ...more] = inRows(terminal(columns), row).split('\n');
          expect(more.every((one) => one.startsWith('    | '))).toBe(true);
          expect([first, ...more].every((one) => [...one].length <= columns)).toBe(true);
          expect([first, ...more.map((one) => one.slice(6))].join('')).toBe(row);
        },
      ),
    );
  });

  it('have a hundred columns without a terminal, and wide letters count twice', () => {
    const io = { isTTY: false, out: new PassThrough() };
    expect(inRows(io, 'x'.repeat(100))).toBe('x'.repeat(100));
    expect(inRows(io, `${'x'.repeat(101)}\nshort`)).toBe(`${'x'.repeat(100)}\n    | x\nshort`);
    expect(inRows(io, '\u6f22'.repeat(51)).split('\n')[0]).toHaveLength(50);
    expect(inRows(terminal(5), 'x'.repeat(41))).toBe(`${'x'.repeat(40)}\n    | x`);
  });
});
