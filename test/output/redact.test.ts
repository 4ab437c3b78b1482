/** Tests facade/output/redact.ts: a registered secret never leaves, in any of its common spellings. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { Redactor } from '../../facade/output/redact.ts';
import { verifies } from '../verifies.ts';

describe('Redactor', () => {
  it('replaces a secret in plain, base64, base64url, percent-encoded and JSON form' + verifies('HA-02'), () => {
    const secret = 'p@ss "word"/+~ü';
    const redactor = new Redactor();
    expect(redactor.register(secret)).toBe(true);
    const base64 = Buffer.from(secret).toString('base64');
    for (const form of [secret, base64, Buffer.from(secret).toString('base64url'), encodeURIComponent(secret), JSON.stringify(secret)]) {
      const { value, count } = redactor.redact(`before ${form} after`);
      expect(value).toContain('[redacted]');
      expect(value).not.toContain(form.replaceAll('"', '').replaceAll('=', '').slice(2, -2));
      expect(count).toBe(1);
    }
  });

  it('refuses a value so short that it would tear ordinary text apart', () => {
    const redactor = new Redactor();
    expect(redactor.register('abc')).toBe(false);
    expect(redactor.redact('abc').value).toBe('abc');
    expect(redactor.touches('abc')).toBe(false);
  });

  it('leaves no registered secret in any text, whatever its characters mean to a pattern', () => {
    const secrets = fc.array(fc.string({ unit: 'binary', minLength: 6, maxLength: 20 }).filter((secret) => !'[redacted]'.includes(secret)), { minLength: 1, maxLength: 5 });
    fc.assert(fc.property(secrets, fc.array(fc.string(), { maxLength: 6 }), (values, around) => {
      const redactor = new Redactor();
      for (const value of values) redactor.register(value);
      const text = around.flatMap((part, index) => [part, values[index % values.length] ?? '']).join(' ');
      const { value } = redactor.redact(text);
      for (const secret of values) if (!secret.includes('redacted')) expect(value.replaceAll('[redacted]', '\u0000')).not.toContain(secret);
    }));
  });
});
