/** Tests line framing, and the search for frames after noise. */

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { KEPT_LINE_BYTES, LineReader, PART_BYTES } from '../../adapters/rpc/framing.ts';
import { readNoisyLine } from '../../adapters/rpc/message-reader.ts';
import { inFull } from '../harness/full-tests.ts';
import { roundsOf } from '../harness/slices.ts';

function reader(maxBytes = 1024): { push(chunk: Buffer | string): void; end(): void; lines: string[]; bad: string[] } {
  const lines: string[] = [];
  const bad: string[] = [];
  const inner = new LineReader({
    maxBytes,
    onLine: (line) => lines.push(line.toString('utf8')),
    onBad: (_reason, edges) => bad.push(edges),
  });
  return { push: (chunk) => inner.push(Buffer.from(chunk as string)), end: () => inner.end(), lines, bad };
}

/** Reads lines, and checks what is reported of them while they arrive. */
class PartsOfLines {
  readonly lines: Buffer[] = [];
  readonly faults: string[] = [];
  tooLarge = 0;
  readonly reader: LineReader;
  private part = Buffer.alloc(0);

  constructor(maxBytes: number) {
    this.reader = new LineReader({
      maxBytes,
      onPart: (bytes) => this.add(bytes),
      onLine: (line) => this.end(line),
      onBad: () => {
        this.tooLarge += 1;
        if (this.part.length > 0) this.faults.push('a line over the limit is not forgotten');
      },
    });
  }

  private add(bytes: Buffer | undefined): void {
    const { length } = this.part;
    if (bytes !== undefined && (bytes.length <= KEPT_LINE_BYTES || bytes.length < length + PART_BYTES))
      this.faults.push(`${bytes.length} bytes after ${length}`);
    if (bytes?.subarray(0, length).equals(this.part) === false) this.faults.push('other bytes than before');
    this.part = bytes === undefined ? Buffer.alloc(0) : Buffer.from(bytes);
  }

  private end(line: Buffer): void {
    if (!line.subarray(0, this.part.length).equals(this.part)) this.faults.push('another line than reported');
    this.part = Buffer.alloc(0);
    this.lines.push(line.length > KEPT_LINE_BYTES ? line : Buffer.from(line));
  }
}

describe('LineReader', () => {
  it('splits lines, accepts CRLF, ignores empty lines and delivers the last line at the end', () => {
    const { push, end, lines } = reader();
    push('a\nb\r\n\n\r\nc');
    expect(lines).toEqual(['a', 'b']);
    end();
    end();
    expect(lines).toEqual(['a', 'b', 'c']);
  });

  it('gives the same lines however the bytes are cut, also within characters', () => {
    const line = fc
      .string({ unit: 'grapheme' })
      .map((text) => text.replace(/[\r\n]/g, ''))
      .filter((text) => text !== '');
    fc.assert(
      fc.property(fc.array(line), fc.array(fc.integer({ min: 1, max: 7 })), (wanted, sizes) => {
        const bytes = Buffer.from(wanted.map((text) => `${text}\n`).join(''));
        const { push, lines } = reader();
        for (let at = 0, turn = 0; at < bytes.length; turn++) {
          const size = sizes[turn % sizes.length] ?? 1;
          push(bytes.subarray(at, at + size));
          at += size;
        }
        expect(lines).toEqual(wanted);
      }),
    );
  });

  it('keeps the bytes of a line over 64 KiB, whatever sizes its chunks have', () => {
    const sizes = fc.array(fc.oneof(fc.integer({ min: 1, max: 300 }), fc.integer({ min: 8_000, max: 70_000 })), {
      minLength: 1,
      maxLength: 6,
    });
    fc.assert(
      fc.property(
        fc.array(fc.integer({ min: 65_537, max: 200_000 }), { minLength: 1, maxLength: 4 }),
        sizes,
        (lengths, cuts) => {
          const wanted = lengths.map((length, at) => Buffer.alloc(length, 97 + at));
          const bytes = Buffer.concat(wanted.flatMap((line) => [line, Buffer.from('\nshort\n')]));
          const lines: Buffer[] = [];
          const inner = new LineReader({
            maxBytes: 1 << 20,
            onLine: (line) => line.length > KEPT_LINE_BYTES && lines.push(line),
            onBad: () => undefined,
          });
          for (let at = 0, turn = 0; at < bytes.length; turn += 1) {
            const size = cuts[turn % cuts.length] ?? 1;
            inner.push(bytes.subarray(at, at + size));
            at += size;
          }
          expect(lines.map((line, at) => line.equals(wanted[at] ?? line.subarray(1)))).toEqual(wanted.map(() => true));
        },
      ),
      { numRuns: roundsOf(50, 20) },
    );
  });

  inFull('reports a long line while it arrives, and forgets it if it exceeds the limit', () => {
    const limit = 3 * 1_048_576;
    const length = fc.oneof(
      { weight: 4, arbitrary: fc.nat(300_000) },
      fc.integer({ min: KEPT_LINE_BYTES - 2, max: KEPT_LINE_BYTES + 2 }),
      fc.integer({ min: 2_000_000, max: limit + 3 }),
      fc.integer({ min: limit - 2, max: limit + 200_000 }),
    );
    const sizes = fc.array(fc.integer({ min: 700, max: 90_000 }), { minLength: 1, maxLength: 5 });
    fc.assert(
      fc.property(fc.array(length, { maxLength: 5 }), sizes, fc.constantFrom('\n', '\r\n'), (lengths, cuts, end) => {
        const wanted = lengths.map((size) => Buffer.from(`${size} `.repeat(size / 4 + 1)).subarray(0, size));
        const parts = new PartsOfLines(limit);
        const all = Buffer.concat(wanted.flatMap((line) => [line, Buffer.from(end)]));
        for (let at = 0, turn = 0; at < all.length; turn += 1) {
          const size = cuts[turn % cuts.length] ?? 1;
          parts.reader.push(all.subarray(at, at + size));
          at += size;
        }
        const isLegal = ({ length: size }: Buffer): boolean => size + end.length - 1 <= limit;
        const legal = wanted.filter((line) => line.length > 0 && isLegal(line));
        // A comparison of large buffers by `toEqual` takes seconds.
        expect(parts.lines.map((line, at) => line.equals(legal[at] ?? Buffer.alloc(0)))).toEqual(legal.map(() => true));
        expect(parts.tooLarge).toBe(wanted.filter((line) => !isLegal(line)).length);
        expect(parts.faults).toEqual([]);
      }),
      { numRuns: roundsOf(60, 30) },
    );
  });

  it('drops a line over the limit, reports its edges, and continues with the next', () => {
    const { push, lines, bad } = reader(600);
    push(`HEAD${'x'.repeat(400)}`);
    push('y'.repeat(400));
    push(`${'z'.repeat(300)}TAIL\nnext\n`);
    expect(lines).toEqual(['next']);
    expect(bad).toHaveLength(1);
    expect(bad[0]?.startsWith('HEAD')).toBe(true);
    expect(bad[0]?.endsWith('TAIL')).toBe(true);
    push(`${'q'.repeat(601)}\nafter\n${'r'.repeat(600)}\n`);
    expect(bad).toHaveLength(2);
    expect(lines.slice(1)).toEqual(['after', 'r'.repeat(600)]);
  });

  it('reports an endless line when the stream ends', () => {
    const { push, end, bad, lines } = reader(10);
    push('x'.repeat(50));
    expect(bad).toEqual([]);
    end();
    expect([bad.length, lines.length]).toEqual([1, 0]);
  });

  inFull('reads 60 MB in one line, in chunks and in slices of one byte', () => {
    const size = 60 * 1024 * 1024;
    let got = 0;
    const inner = new LineReader({
      maxBytes: 64 * 1024 * 1024,
      onLine: (line) => (got = line.length),
      onBad: () => (got = -1),
    });
    const chunk = Buffer.alloc(65_536, 120);
    for (let sent = 0; sent < size; sent += chunk.length) inner.push(chunk);
    inner.push(Buffer.from('\n'));
    expect(got).toBe(size);
    const one = Buffer.from('y');
    for (let sent = 0; sent < 3 * 1024 * 1024; sent++) inner.push(one);
    inner.push(Buffer.from('\n'));
    expect(got).toBe(3 * 1024 * 1024);
  });
});

describe('readNoisyLine', () => {
  const frame = '{"result":{"a":1},"jsonrpc":"2.0","id":4}';

  it('reads a clean frame', () => {
    expect(readNoisyLine(Buffer.from(frame))).toMatchObject({ noisy: false, message: { kind: 'result', id: 4 } });
  });

  it.each(['starting... ', '{"half": ', '\u001b[31m{"jsonrpc" is fun ', 'é', '[1,2'])(
    'finds the frame after %j',
    (noise) => {
      expect(readNoisyLine(Buffer.from(noise + frame))).toMatchObject({
        noisy: true,
        message: { kind: 'result', id: 4 },
      });
    },
  );

  it('finds the frame after bytes that are not UTF-8', () => {
    expect(readNoisyLine(Buffer.concat([Buffer.from([0xff, 0xfe]), Buffer.from(frame)]))).toMatchObject({
      noisy: true,
      message: { kind: 'result' },
    });
  });

  it('does not search for frames inside an invalid frame', () => {
    const wrong = '{"jsonrpc":"2.0","id":1,"result":5,"x":{"jsonrpc":"2.0","id":2,"result":{}}}';
    expect(readNoisyLine(Buffer.from(wrong))).toMatchObject({ noisy: false, message: { kind: 'invalid', id: 1 } });
  });

  it('gives up after a few attempts', () => {
    expect(readNoisyLine(Buffer.from('{"id" '.repeat(50) + frame))).toMatchObject({
      noisy: true,
      message: { kind: 'invalid' },
    });
    expect(readNoisyLine(Buffer.from('only words'))).toMatchObject({ noisy: true, message: { kind: 'invalid' } });
  });
});
