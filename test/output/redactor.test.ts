/** Tests facade/output/redactor.ts: a registered secret never leaves in any common encoding. */
import { randomBytes } from 'node:crypto';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { MAX_INPUT_BYTES } from '../../catalogs/text/time-slices.ts';
import { MultiStringSearch } from '../../facade/output/multi-string-search.ts';
import { Redactor } from '../../facade/output/redactor.ts';
import { cpuMs } from '../bench/growth.ts';
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
    () => {
      const redactor = new Redactor();
      for (let line = 0; line < 200; line += 1) redactor.register(randomBytes(48).toString('base64'));
      for (const text of [' '.repeat(MAX_INPUT_BYTES), randomBytes(MAX_INPUT_BYTES * 0.75).toString('base64')]) {
        const began = cpuMs();
        expect(redactor.touches(text)).toBe(false);
        expect(redactor.redact(text).count).toBe(0);
        expect(cpuMs() - began).toBeLessThan(1_000);
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
          for (let next = search.next(text, 0); next !== undefined; next = search.next(text, next.end))
            found.push(`${next.start} ${next.end}`);
          const pattern = new RegExp([...forms].sort((one, other) => other.length - one.length).join('|'), 'g');
          expect(found).toEqual(
            [...text.matchAll(pattern)].map(({ index, 0: { length } }) => `${index} ${index + length}`),
          );
        },
      ),
    );
  });

  it('leaves no registered secret in any text, whatever its characters mean in a pattern', () => {
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
