/** Tests that a long line is scanned while it arrives, with the same result and in linear time. */

import { PassThrough } from 'node:stream';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { PART_BYTES } from '../../adapters/rpc/framing.ts';
import {
  type JsonScan,
  MAX_JSON_VALUES,
  type PartialScan,
  type ScanLevel,
  scanJson,
  startScan,
} from '../../adapters/rpc/json-scan.ts';
import { readMessage, type WireMessage } from '../../adapters/rpc/message-parser.ts';
import { MessageReader, readNoisyLine } from '../../adapters/rpc/message-reader.ts';
import { ownEventLoopTurn } from '../../catalogs/text/time-slices.ts';
import { inFull } from '../harness/full-tests.ts';
import { partOf, roundsOf } from '../harness/slices.ts';
import { verifies } from '../verifies.ts';
import { bytesOf, message, value } from './json-texts.ts';

const WORDS =
  '{ } [ ] " : , \\ \\\\ \\" \\u00e9 \\ud83d\\ude00 \\ud800 \\udc00 \\n \\/ \\u \\x true false null tru é 漢 😀 ' +
  '\u2028 {"a":1} "_meta": "uri": "data": "blob": 0 -0 1 12 1.5 1e5 1E+ - . e 99999999999999999999 [[ {"a":{"b": }}';
const soup = fc
  .array(fc.oneof(fc.constantFrom(...WORDS.split(' ')), fc.constantFrom(' ', '\t', '\r', '\n', '\0')))
  .map((words) => words.join(''));
/** Each part of the number is longer than what a part of the text leaves out. */
const NUMBERS = ['', '+', '-'].map((sign) => `[-${'1'.repeat(20)}.${'2'.repeat(20)}e${sign}${'3'.repeat(20)},-1]`);
const digits = fc.tuple(fc.constantFrom(...'0123456789'), fc.nat(40)).map(([digit, count]) => digit.repeat(count));
const numbers = fc
  .array(fc.oneof(digits, fc.constantFrom(...'-+.eE'), fc.constantFrom('e-', '.0', '1,')), { maxLength: 12 })
  .chain((parts) => fc.constantFrom('', '[', '{"a":').map((start) => `${start}${parts.join('')}`));
const deep = fc
  .tuple(fc.nat(700), fc.constantFrom('[', '{"k":', '[{"k":[], "k":'), fc.nat(700))
  .map(([opened, start, closed]) => `${start.repeat(opened)}1${(start === '[' ? ']' : '}').repeat(closed)}`);
const keys = fc
  .tuple(fc.array(fc.nat(40), { maxLength: 60 }), fc.constantFrom('k', '\\u006b', 'é'), fc.nat(40))
  .map(([names, start, more]) => `{"a":{${names.map((name) => `"k${name}":{"k1":1}`).join(',')},"${start}${more}":2}}`);
const filler = fc.constantFrom('x', 'é', '漢', '😀', '\\n', '\\"', '\\\\', '\\ud83d\\ude00', '1', '\u007f', '\t');
const long = fc
  .tuple(fc.nat(2_100), filler, fc.nat(9), filler, value)
  .map(([count, one, few, other, item]) => `{"a":{"b":"${'y'.repeat(few)}${one.repeat(count)}${other}","c":${item}}}`);
const bytes = fc.oneof(
  { weight: 4, arbitrary: bytesOf(message) },
  { weight: 2, arbitrary: bytesOf(value) },
  { weight: 2, arbitrary: bytesOf(long) },
  bytesOf(soup),
  bytesOf(numbers),
  bytesOf(deep),
  bytesOf(keys),
  fc.uint8Array({ maxLength: 200 }).map((array) => Buffer.from(array)),
);
const level = fc.constantFrom<ScanLevel>(1, 2);
const cuts = fc.oneof(
  fc.array(fc.nat(5_000), { maxLength: 12 }),
  fc.array(fc.nat(5_000), { minLength: 1, maxLength: 2 }),
);
const example = fc.record({ bytes, level, cuts });
type Example = typeof example extends fc.Arbitrary<infer T> ? T : never;

/** All that a scan says. */
function facts(scan: JsonScan): JsonScan {
  const { isValid, members, hasDuplicate, values, depth, exact, hasLoneSurrogate, strings } = scan;
  return { isValid, members, hasDuplicate, values, depth, exact, hasLoneSurrogate, strings };
}

/** Returns the first bytes in memory of their own, as after the growth of a block. */
const copyOf = (whole: Buffer, end: number): Buffer => Buffer.from(whole.subarray(0, end));

/** A text that arrives in parts. */
class ArrivingText {
  private readonly bytes: Buffer;
  private readonly ends: number[];
  private readonly scan: PartialScan;

  constructor({ bytes: whole, level: base, cuts: places }: Example) {
    this.bytes = whole;
    this.ends = places.map((place) => place % (whole.length + 1)).sort((one, other) => one - other);
    this.scan = startScan(base);
  }

  /** Scans the next part, if there is one. */
  step(): boolean {
    const end = this.ends.shift();
    if (end !== undefined) this.scan.advance(copyOf(this.bytes, end));
    return end !== undefined;
  }

  finish(): JsonScan {
    while (this.step());
    return facts(this.scan.finish(copyOf(this.bytes, this.bytes.length)));
  }
}

let counter: ReadCounter;
beforeEach(() => {
  counter = new ReadCounter();
  counter.start();
});
afterEach(() => counter.stop());

describe('a text that is scanned in parts' + verifies('FP-16'), () => {
  it('has the same facts as in one go, wherever it is cut', () => {
    let valid = 0;
    fc.assert(
      fc.property(example, (one) => {
        const whole = facts(scanJson(one.bytes, one.level));
        expect(new ArrivingText(one).finish()).toEqual(whole);
        if (whole.isValid) valid += 1;
      }),
      { numRuns: roundsOf(4_000, 400) },
    );
    expect(valid).toBeGreaterThan(roundsOf(800, 80));
  });

  it('has the same facts if each byte is a part, and if it is cut once at any place', () => {
    fc.assert(
      fc.property(bytes, level, (text, base) => {
        const whole = facts(scanJson(text, base));
        const places = Array.from({ length: text.length + 1 }, (_, at) => at);
        expect(new ArrivingText({ bytes: text, level: base, cuts: places }).finish()).toEqual(whole);
        if (text.length > 300) return;
        for (const place of places)
          expect(new ArrivingText({ bytes: text, level: base, cuts: [place] }).finish()).toEqual(whole);
      }),
      { numRuns: roundsOf(150, 50), examples: NUMBERS.map((text): [Buffer, ScanLevel] => [Buffer.from(text), 1]) },
    );
  });

  it('has the same facts if other texts are scanned between its parts', () => {
    fc.assert(
      fc.property(fc.tuple(example, example), bytes, fc.array(fc.nat(2)), ([one, other], small, order) => {
        const [first, second] = [new ArrivingText(one), new ArrivingText(other)];
        for (const turn of order) {
          if (turn === 0) scanJson(small, 2);
          else (turn === 1 ? first : second).step();
        }
        expect(first.finish()).toEqual(facts(scanJson(one.bytes, one.level)));
        expect(second.finish()).toEqual(facts(scanJson(other.bytes, other.level)));
      }),
      { numRuns: roundsOf(1_200, 150) },
    );
  });
});

/** As many parts as 16 MiB in chunks of 64 KiB have. They are smaller, because the counter is slow. */
const PARTS = roundsOf(256, 64);
const SIZE = PARTS * 2_048;

describe('a large text that arrives in many parts', () => {
  const filled = (start: string, unit: string, end = ''): [string, string] => [
    `${start}${unit}${end}`,
    `${start}${unit.repeat(SIZE / unit.length)}${end}`,
  ];
  const texts = [
    filled('{"a":"', 'x', '"}'),
    filled('{"a":"', 'é', '"}'),
    filled('{"a":"', '7', '"}'),
    filled('{"a":', '7', '}'),
    filled('', '-'),
    filled('[', '1e', ']'),
    filled('[', '1234567,', '1]'),
    filled('["', '\\\\', '"]'),
    filled('["', '\\ud83d', '"]'),
    filled('', '\\'),
    filled('', '"'),
    filled('["', '\\"', '"]'),
    filled('', '['),
    filled('[', 'true,', '1]'),
    filled('', ' '),
  ];

  it.each(partOf(texts, 4))('is read at most twice as often as in one go: %s', (_name, text) => {
    const whole = Buffer.from(text);
    const inOneGo = facts(scanJson(counter.of(whole), 2));
    const once = counter.take();
    const scan = startScan(2);
    for (let end = 0; end < whole.length; end += whole.length / PARTS) scan.advance(counter.of(whole.subarray(0, end)));
    expect(facts(scan.finish(counter.of(whole)))).toEqual(inOneGo);
    expect(counter.take()).toBeLessThan(2 * once + 1_000);
  });
});

describe('a text with too many values', () => {
  it('is not scanned further before its end, so that it holds little memory while it arrives', () => {
    const whole = Buffer.from(`{${'"a":1,'.repeat(2 * MAX_JSON_VALUES)}"id":7}`);
    const scan = startScan(2);
    scan.advance(whole.subarray(0, 0.6 * whole.length));
    counter.take();
    scan.advance(counter.of(whole.subarray(0, 0.8 * whole.length)));
    expect(counter.take()).toBe(0);
    expect(facts(scan.finish(whole))).toEqual(facts(scanJson(whole, 2)));
  });
});

/** Sends bytes of a server in chunks of these sizes, in turn. */
function send(stream: PassThrough, all: Buffer, sizes: readonly number[]): void {
  for (let at = 0, turn = 0; at < all.length; turn += 1) {
    const size = sizes[turn % sizes.length] ?? 1;
    stream.emit('data', all.subarray(at, at + size));
    at += size;
  }
}

/** Starts a reader of messages. Returns its stream, and a list of what it reports. */
function startReader(): { readonly stream: PassThrough; readonly reports: unknown[] } {
  const stream = new PassThrough();
  const reports: unknown[] = [];
  new MessageReader(stream, {
    onMessage: (read) => reports.push(plain(read)),
    onBad: () => reports.push('noise'),
    onTooLarge: () => reports.push('too large'),
    onFailed: () => undefined,
    onClosed: () => undefined,
  });
  return { stream, reports };
}

/** Returns the same text for messages that are equal. */
function plain(read: WireMessage): string {
  if (read.kind === 'invalid') return `${read.id} ${read.error.code} ${read.error.message}`;
  if (read.kind === 'error') return JSON.stringify(read);
  const doc = read.kind === 'result' ? read.result : read.params;
  return JSON.stringify({ ...read, text: doc?.text, value: doc?.value, exact: doc?.exact });
}

describe('a long line of a server', () => {
  it('has been scanned before its newline comes, except the last bytes' + verifies('FP-16'), async () => {
    const text = `{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"${'x'.repeat(1_048_576)}"}]}}`;
    const expected = plain(readMessage(Buffer.from(text), 'server'));
    const { stream, reports } = startReader();
    counter.take();
    send(stream, Buffer.from(text), [10_000]);
    expect(counter.take()).toBeGreaterThan(text.length - 2 * PART_BYTES);
    stream.emit('data', Buffer.from('\n'));
    await ownEventLoopTurn();
    expect(reports).toEqual([expected]);
    expect(counter.take()).toBeLessThan(2 * PART_BYTES);
  });

  inFull('gives the same message as in one chunk, with its neighbors', async () => {
    const text = fc.tuple(filler, fc.integer({ min: 1, max: 3 })).map(([unit, times]) => {
      const one = `,"text":"${unit.repeat((times * 70_000) / unit.length)}"`;
      return `{"jsonrpc":"2.0","id":1,"result":{"_meta":{"a":[1,{}]}${one}}}`;
    });
    const start = fc.constantFrom('', '', '', 'log: ', '{"id" ', ' ');
    const line = fc.oneof(
      fc.tuple(start, bytesOf(text)).map(([noise, one]) => Buffer.concat([Buffer.from(noise), one])),
      bytesOf(message),
    );
    const oneLine = line.map((one) => Buffer.from(one.map((byte) => (byte === 10 || byte === 13 ? 32 : byte))));
    const sizes = fc.array(fc.oneof(fc.integer({ min: 900, max: 20_000 }), fc.constant(65_536)), {
      minLength: 1,
      maxLength: 5,
    });
    const end = fc.constantFrom('\n', '\r\n');
    await fc.assert(
      fc.asyncProperty(fc.array(oneLine, { minLength: 1, maxLength: 5 }), sizes, end, async (lines, cut, newline) => {
        const expected = lines.filter((one) => one.length > 0).flatMap(reportsOf);
        const { stream, reports } = startReader();
        send(stream, Buffer.concat(lines.flatMap((one) => [one, Buffer.from(newline)])), cut);
        await ownEventLoopTurn();
        await ownEventLoopTurn();
        expect(reports).toEqual(expected);
      }),
      { numRuns: roundsOf(100, 15) },
    );
  });
});

function reportsOf(line: Buffer): readonly string[] {
  const { message: read, noisy } = readNoisyLine(line);
  if (!noisy) return [plain(read)];
  return read.kind === 'invalid' ? ['noise'] : ['noise', plain(read)];
}

/** Counts how often bytes are read: by their places, of those that `of` has returned, and in words, of all. */
class ReadCounter {
  private reads = 0;
  private readonly original = DataView.prototype.getInt32;

  start(): void {
    const read = (view: DataView, at: number, isLittle: boolean | undefined): number => {
      this.reads += 4;
      return this.original.call(view, at, isLittle);
    };
    DataView.prototype.getInt32 = function (this: DataView, at: number, isLittle?: boolean): number {
      return read(this, at, isLittle);
    };
  }

  stop(): void {
    DataView.prototype.getInt32 = this.original;
  }

  /** Returns the number of reads since the last one of these calls. */
  take(): number {
    const { reads } = this;
    this.reads = 0;
    return reads;
  }

  of(bytes: Buffer): Buffer {
    return new Proxy(bytes, {
      get: (target, key) => {
        const first = typeof key === 'string' ? key.charCodeAt(0) : 0;
        if (first >= 48 && first <= 57) this.reads += 1;
        const found = Reflect.get(target, key, target) as unknown;
        return typeof found === 'function' ? (found.bind(target) as unknown) : found;
      },
    });
  }
}
