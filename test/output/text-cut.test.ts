/** Tests facade/output/text-cut.ts and catalogs/text/text-segments.ts. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { SEGMENT_CHARS, segmentEnds } from '../../catalogs/text/text-segments.ts';
import { cutText, fitsCap } from '../../facade/output/text-cut.ts';
import { roundsOf } from '../harness/slices.ts';
import { verifies } from '../verifies.ts';

const texts = fc.oneof(
  fc.string({ unit: 'grapheme', maxLength: 400 }),
  fc.array(fc.string({ unit: 'binary', maxLength: 60 }), { maxLength: 80 }).map((lines) => lines.join('\n')),
  fc.nat({ max: 9000 }).map((length) => '😀x'.repeat(length)),
);

describe('the segments of a text', () => {
  it('are lines, and parts of lines that are too long', () => {
    expect([...segmentEnds('a\nbb\n')]).toEqual([2, 5]);
    expect([...segmentEnds('')]).toEqual([]);
    expect([...segmentEnds(`${'x'.repeat(SEGMENT_CHARS * 2 + 5)}`)]).toEqual([
      SEGMENT_CHARS,
      SEGMENT_CHARS * 2,
      SEGMENT_CHARS * 2 + 5,
    ]);
  });

  it('joined are the text, and none splits a character', () => {
    fc.assert(
      fc.property(texts, (text) => {
        let start = 0;
        const parts = [...segmentEnds(text)].map((end) => {
          const part = text.slice(start, end);
          start = end;
          return part;
        });
        expect(parts.join('')).toBe(text);
        for (const part of parts) expect(part.length).toBeLessThanOrEqual(SEGMENT_CHARS + 1);
        if (isWellFormed(text)) for (const part of parts) expect(isWellFormed(part)).toBe(true);
      }),
    );
  });
});

describe('cutText', () => {
  it('returns head, gap and tail that join to the text, within the cap' + verifies('HA-11', 'CY-19'), () => {
    fc.assert(
      fc.property(
        texts,
        fc.integer({ min: 1, max: 5000 }),
        fc.integer({ min: 1, max: 50 }),
        fc.constantFrom(1, 0.3),
        (text, bytes, lines, share) => {
          const cap = { bytes, lines };
          fc.pre(!fitsCap(text, cap));
          const cut = cutText(text, cap, share);
          const ends = segmentEnds(text);
          const gap = text.slice(ends[cut.gap.first - 2] ?? 0, ends[cut.gap.last - 1]);
          expect(cut.head + gap + cut.tail).toBe(text);
          expect(Buffer.byteLength(gap)).toBe(cut.gap.bytes);
          expect(Buffer.byteLength(cut.head) + Buffer.byteLength(cut.tail)).toBeLessThanOrEqual(bytes);
          expect(segmentEnds(cut.head).length + segmentEnds(cut.tail).length).toBeLessThanOrEqual(lines);
          expect(cut.gap.bytes).toBeGreaterThan(0);
        },
      ),
      { numRuns: roundsOf(500, 100) },
    );
  });

  it('gives three tenths of the cap to the head of command output, and the rest to the tail', () => {
    const text = Array.from({ length: 100 }, (_, index) => `line ${index + 1}`).join('\n');
    const cut = cutText(text, { bytes: 10_000, lines: 10 }, 0.3);
    expect(cut.head.split('\n')).toEqual(['line 1', 'line 2', 'line 3', '']);
    expect(cut.tail.startsWith('line 94\n')).toBe(true);
    expect(cut.gap).toMatchObject({ first: 4, last: 93 });
  });
});

/** Returns true if no surrogate is alone. */
function isWellFormed(text: string): boolean {
  return !/[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/.test(text);
}
