/** Tests the canonical address of a URL. A URL that programs may read differently has none. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { canonicalPath, portOf, readUrl } from '../../catalogs/readers/urls.ts';

describe('the canonical address', () => {
  it.each([
    ['https://a.b', 'https://a.b:443/'],
    ['HTTPS://A.B:443/x', 'https://a.b:443/x'],
    ['http://a.b:8080/x?y=1#z', 'http://a.b:8080/x'],
    ['https://a.b/x/../y/./z', 'https://a.b:443/y/z'],
    ['https://a.b/%7Ex/%e4', 'https://a.b:443/~x/%E4'],
    ['https://a.b/%2e%2E/x', 'https://a.b:443/x'],
    ['http://[::ffff:7f00:1]:81/', 'http://127.0.0.1:81/'],
    ['http://[::1]/', 'http://[::1]:80/'],
    ['ssh://Host/x', 'ssh://host:0/x'],
    ['wss://a.b', 'wss://a.b:443/'],
  ])('of %s is %s', (url, address) => {
    expect(readUrl(url).address).toBe(address);
  });

  it.each([
    '',
    'a.b',
    'https://user:pass@a.b/',
    'https://a.b./x',
    'http://0x7f.1/',
    'https://a.b\\x',
    'https://a.b:0/',
    'https://a.b:/',
    'https://a.b:080/',
    'https://a.b/%2',
    'https://a.b/ä',
    'https://[2001::1]/',
    'https://',
    'file:///etc/passwd',
    'data:text/html,x',
    'https://a.b/x%2fy',
    'https://a.b/x%5cy',
    'https://a.b//x',
    'https://a.b/%00',
    'https://a.b/%252e',
    'https://a.b/x/..;/y',
    'mailto:a@b',
  ])('does not exist for %s', (url) => {
    expect(readUrl(url).address).toBe('');
  });

  it.each([
    [65_000, 'https://a.b:443/'],
    [66_000, ''],
    [16_000_000, ''],
  ])('exists for %d characters after the host only below the limit', (count, address) => {
    expect(readUrl(`https://a.b/?${'x'.repeat(count)}`).address).toBe(address);
    expect(readUrl(`https://a.b/${'x'.repeat(count)}`).address.slice(0, 16)).toBe(address);
  });

  it('is missing for a path that programs read differently, but the host is known', () => {
    expect([readUrl('https://A.b//x'), readUrl('nothing')]).toEqual([
      { scheme: 'https', host: 'a.b', address: '' },
      { scheme: '', host: '', address: '' },
    ]);
  });

  it('is a URL with the same canonical address', () => {
    fc.assert(
      fc.property(fc.webUrl({ withQueryParameters: true, withFragments: true }), (url) => {
        const read = readUrl(url);
        if (read.address !== '') expect(readUrl(read.address)).toEqual(read);
      }),
    );
  });

  it('keeps a path that is canonical already', () => {
    fc.assert(
      fc.property(fc.webPath(), (path) => {
        expect(canonicalPath(canonicalPath(path))).toBe(canonicalPath(path));
      }),
    );
    expect([portOf('https'), portOf('ssh')]).toEqual([443, 0]);
  });
});
