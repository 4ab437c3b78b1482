import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { cleanDescription, escapeHostile, findHostile, toolDescription } from '../../catalogs/text/hostile-text.ts';
import { verifies } from '../verifies.ts';

const LEGAL_TEXTS: readonly (readonly [string, string])[] = [
  ['ASCII', 'a\tb\r\nc\n'],
  ['accents', 'Ünïcödé ﬁ — “x” … 5 €'],
  ['Arabic', 'العربية نص عربي'],
  ['Hebrew', 'עברית'],
  ['Persian with ZWNJ', 'می\u200cخواهم'],
  ['Hindi with ZWJ', 'क्\u200dष'],
  ['Thai with ZWSP', 'ไทย\u200bไทย'],
  ['emoji with VS16', '⚠\ufe0f done ⏱\ufe0f'],
  ['family', '👨\u200d👩\u200d👧\u200d👦'],
  ['flag with ZWJ', '🏳\ufe0f\u200d🌈'],
  ['skin tone', '👩🏽\u200d💻'],
  ['keycap', '1\ufe0f\u20e3'],
  ['Wales', '🏴\u{e0067}\u{e0062}\u{e0077}\u{e006c}\u{e0073}\u{e007f}'],
  ['ideographic selector', '葛\u{e0100}城'],
  ['byte order mark in front', '\ufeffa'],
  ['arrow as text', '↔\ufe0e'],
  ['soft hyphen', 'a\u00adb'],
];

const HOSTILE: readonly (readonly [string, string, number])[] = [
  ['tags', 'ok\u{e0042}\u{e0065}', 2],
  ['tags after a black flag', '🏴\u{e0041}\u{e0042}', 2],
  ['tags long after a flag', `🏴 ${'x'.repeat(30)}\u{e0067}`, 1],
  ['CSI', '\u001b[2J\u001b[H', 2],
  ['OSC 52', '\u001b]52;c;ZXZpbA==\u0007', 2],
  ['C1', '\u009b2J', 1],
  ['bidi', 'user\u202e\u2066 admin\u2069', 3],
  ['zero width binary', 'a\u200b\u200c\u200b', 3],
  ['ZWJ between letters', 'pa\u200dss', 1],
  ['BOM inside', 'a\ufeffb', 1],
  ['NUL and BS', 'a\u0000\b', 2],
  ['invisible operators', 'ig\u2062nore', 1],
  ['selector run', '😀\u{e0132}\u{e0155}', 2],
  ['VS on a letter', 'ignore\ufe01', 1],
  ['VS16 twice', '⚠\ufe0f\ufe0f', 1],
  ['half a pair', 'a\ud83d', 1],
];

describe('escapeHostile', () => {
  it.each(LEGAL_TEXTS)('returns the same string for %s', (_, text) => {
    const result = escapeHostile(text);
    expect(result).toEqual({ text, count: 0 });
    expect(Object.is(result.text, text)).toBe(true);
  });

  it.each(HOSTILE)('writes out and counts %s', (_, text, count) => {
    const result = escapeHostile(text);
    expect(result.count).toBe(count);
    expect(findHostile(result.text)).toEqual([]);
  });

  it('writes the code point', () => {
    expect(escapeHostile('a\u001b[1m\u{e0041}')).toEqual({ text: 'a\\u{1B}[1m\\u{E0041}', count: 2 });
  });

  it('does not change anything else', () => {
    fc.assert(
      fc.property(
        fc.array(
          fc.oneof(fc.string({ unit: 'grapheme-ascii' }), fc.constantFrom('\u202e', '\u001b', '\u{e0041}', '\u2066')),
          { maxLength: 10 },
        ),
        (parts) => {
          const plain = parts.filter((part) => !['\u202e', '\u001b', '\u{e0041}', '\u2066'].includes(part)).join('');
          expect(escapeHostile(parts.join('')).text.replace(/\\u\{(?:202E|1B|E0041|2066)\}/g, '')).toBe(
            plain.replace(/\\u\{(?:202E|1B|E0041|2066)\}/g, ''),
          );
        },
      ),
    );
  });
});

describe('descriptions' + verifies('HA-22'), () => {
  const clean = (text: string, max = 1024): string => cleanDescription(text, { max });

  it('lose whole escape sequences, hidden characters, and the end of a comment', () => {
    expect(clean('a\u001b[31mred\u001b[0m\u001b]8;;http://x\u0007link\u001b]8;;\u0007 \u009b1mz')).toBe('aredlink z');
    expect(clean('x */ y')).toBe('x *\\/ y');
    expect(clean('a\u200bb\u{e0041}\u202ec')).toBe('abc');
    expect(clean('half \ud83d')).toBe('half \ufffd');
  });

  it('lose repeated blanks, carriage returns and empty lines', () => {
    expect(clean('\n  a      b   \r\n\r\n\r\n\r\nc\r')).toBe('a b\n\nc');
    expect(clean(' '.repeat(200_000) + 'x' + ' '.repeat(200_000) + 'y')).toBe('x y');
  });

  it('are cut at whole code points', () => {
    expect(clean('x'.repeat(2000))).toHaveLength(1024);
    expect(clean('😀'.repeat(10), 6)).toBe('😀😀…');
    expect(clean('😀'.repeat(10), 4)).toBe('😀…');
    expect(clean('abc', 1)).toBe('');
  });

  it('stay within the limit and hide nothing, for any input', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary' }), fc.integer({ min: 2, max: 60 }), (text, max) => {
        const once = clean(text, max);
        expect(once.length).toBeLessThanOrEqual(max);
        expect(findHostile(once)).toEqual([]);
      }),
    );
  });

  it('of a tool are never empty, and begin with generated rules, which a cut keeps', () => {
    expect(toolDescription({ name: 'list_all-things' })).toBe('Tool list all things.');
    const text = toolDescription({ name: 'x', description: 'word '.repeat(900), hints: ['give a or b'] });
    expect(text).toMatch(/^Rules: give a or b\.\n/);
    expect(text.length).toBeLessThanOrEqual(1024);
    expect(toolDescription({ name: 'x', description: 'y'.repeat(3000) }, 2000)).toHaveLength(2000);
  });
});
