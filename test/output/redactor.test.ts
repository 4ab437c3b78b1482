/** Tests facade/output/redactor.ts: a registered secret never leaves in any common encoding. */

import { createHash, randomBytes } from 'node:crypto';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { MAX_INPUT_BYTES } from '../../catalogs/text/time-slices.ts';
import { unescapeBytes } from '../../facade/output/escaped-bytes.ts';
import { MultiStringSearch, viewOf } from '../../facade/output/multi-string-search.ts';
import { Redactor } from '../../facade/output/redactor.ts';
import { cpuMs, limitNow, THREE_ATTEMPTS } from '../bench/growth.ts';
import { inFull } from '../harness/full-tests.ts';
import { verifies } from '../verifies.ts';

describe('the redactor', () => {
  it('replaces a secret in plain, base64, base64url, percent-encoded and JSON form' + verifies('HA-02'), () => {
    const secret = 'p@ss "word"/+~ü';
    const redactor = new Redactor();
    expect(redactor.register(secret)).toBe(true);
    const base64 = Buffer.from(secret).toString('base64');
    for (const form of [
      secret,
      base64,
      Buffer.from(secret).toString('base64url'),
      encodeURIComponent(secret),
      JSON.stringify(secret),
    ]) {
      const { value, count } = redactor.redact(`before ${form} after`);
      expect(value).toContain('[redacted]');
      expect(value).not.toContain(form.replaceAll('"', '').replaceAll('=', '').slice(2, -2));
      expect(count).toBe(1);
    }
  });

  it('refuses a value that is too short, because it would match ordinary text', () => {
    const redactor = new Redactor();
    expect(redactor.register('abc')).toBe(false);
    expect(redactor.redact('abc').value).toBe('abc');
    expect(redactor.touches('abc')).toBe(false);
  });

  it(
    "reads the largest message in less than half of the watchdog's limit, with any number of secrets" +
      verifies('TR-44'),
    THREE_ATTEMPTS,
    () => {
      const redactor = new Redactor();
      for (let line = 0; line < 200; line += 1) redactor.register(randomBytes(48).toString('base64'));
      for (const text of [' '.repeat(MAX_INPUT_BYTES), randomBytes(MAX_INPUT_BYTES * 0.75).toString('base64')]) {
        const began = cpuMs();
        expect(redactor.touches(text)).toBe(false);
        expect(redactor.redact(text).count).toBe(0);
        const took = cpuMs() - began;
        expect(took).toBeLessThan(limitNow(took, 1_000));
      }
    },
  );

  it('finds the same places as a regular expression that tries the longest forms first', () => {
    const letters = fc.stringMatching(/^[ab\u00e9]{6,9}$/);
    fc.assert(
      fc.property(
        fc.array(letters, { minLength: 1, maxLength: 6 }),
        fc.stringMatching(/^[ab\u00e9]{0,60}$/),
        (forms, text) => {
          const search = new MultiStringSearch(forms);
          const found: string[] = [];
          const bytes = Buffer.from(text);
          const view = viewOf(bytes);
          for (let next = search.next(view, 0); next !== undefined; next = search.next(view, next.end))
            found.push(
              `${bytes.toString('utf8', 0, next.start).length} ${bytes.toString('utf8', next.start, next.end)}`,
            );
          const pattern = new RegExp([...forms].sort((one, other) => other.length - one.length).join('|'), 'g');
          expect(found).toEqual([...text.matchAll(pattern)].map(({ index, 0: form }) => `${index} ${form}`));
        },
      ),
    );
  });

  it('visits as many places of a text for 1,000 secrets as for one' + verifies('FP-15'), () => {
    // The counts are the same in each run. A secret has about twelve forms.
    const bytes = (size: number): Buffer => createHash('shake256', { outputLength: size }).update(`${size}`).digest();
    const all = bytes(180_000);
    const strings = Array.from({ length: 12_000 }, (_, at) => all.toString('base64url', at * 15, at * 15 + 15));
    const one = new MultiStringSearch(strings.slice(0, 1));
    const many = new MultiStringSearch(strings);
    const words = 'the build failed: see "src/app.ts", line 7 and expected true\\n of module'.split(' ');
    const prose = Array.from(bytes(50_000), (byte) => words[byte % words.length]).join(' ');
    for (const text of [prose, bytes(200_000).toString('base64'), bytes(130_000).toString('hex')]) {
      const places = (search: MultiStringSearch): number => {
        const view = new CountingView(Buffer.from(text));
        expect(search.next(view, 0)).toBe(undefined);
        return view.places;
      };
      expect(places(one)).toBeLessThan((1.05 * text.length) / 3);
      expect(places(many)).toBeLessThan(1.2 * places(one));
    }
  });

  it('finds a secret behind any escapes of a JSON text without parsing it' + verifies('FP-15'), () => {
    const redactor = new Redactor();
    const secret = 'p@ss "word"/+~ü\n😀';
    redactor.register(secret);
    const written = (char: string): fc.Arbitrary<string> => {
      const short = JSON.stringify(char).slice(1, -1);
      const hex = [...Array(char.length).keys()].map((at) => char.charCodeAt(at).toString(16).padStart(4, '0'));
      return fc.constantFrom(short, hex.map((unit) => `\\u${unit}`).join(''), char === '/' ? '\\/' : short);
    };
    const around = fc.array(fc.constantFrom('x', 'é', '\\n', '\\\\', '\\u00e9', '\\ud83d\\ude00', '\\"', '\\ud800'), {
      maxLength: 50,
    });
    const spelled = fc.tuple(...[...secret].map(written)).map((parts) => parts.join(''));
    fc.assert(
      fc.property(around, spelled, around, (before, middle, after) => {
        const text = `{"a":"${before.join('')}${middle}${after.join('')}"}`;
        expect(redactor.touches(text)).toBe(true);
        expect(redactor.touches(text.replace(middle, 'nothing'))).toBe(false);
      }),
    );
  });

  it('decodes escapes as JSON.parse does', () => {
    const part = fc.constantFrom(
      'x',
      'é😀',
      '\\n',
      '\\b',
      '\\/',
      '\\\\',
      '\\"',
      '\\u0041',
      '\\ud83d\\ude00',
      '\\udc00',
      'y'.repeat(70),
    );
    fc.assert(
      fc.property(fc.array(part, { maxLength: 30 }), (parts) => {
        const text = `"${parts.join('')}"`;
        expect(unescapeBytes(Buffer.from(text)).toString()).toBe(
          Buffer.from(`"${JSON.parse(text) as string}"`).toString(),
        );
      }),
    );
  });

  inFull('leaves no registered secret in any text, whatever its characters mean in a pattern', () => {
    const secrets = fc.array(
      fc.string({ unit: 'binary', minLength: 6, maxLength: 20 }).filter((secret) => !'[redacted]'.includes(secret)),
      { minLength: 1, maxLength: 5 },
    );
    fc.assert(
      fc.property(secrets, fc.array(fc.string(), { maxLength: 6 }), (values, around) => {
        const redactor = new Redactor();
        for (const value of values) redactor.register(value);
        const text = around.flatMap((part, index) => [part, values[index % values.length] ?? '']).join(' ');
        const { value } = redactor.redact(text);
        for (const secret of values)
          if (!secret.includes('redacted')) expect(value.replaceAll('[redacted]', '\u0000')).not.toContain(secret);
      }),
    );
  });
});

/** Counts the blocks of bytes that are read. */
class CountingView extends DataView<ArrayBufferLike> {
  places = 0;

  constructor(bytes: Buffer) {
    super(bytes.buffer, bytes.byteOffset, bytes.length);
  }

  override getInt32(at: number): number {
    this.places += 1;
    return super.getInt32(at);
  }
}
