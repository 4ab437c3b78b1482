/** Tests the one reading of hosts, domains and addresses: what passes is canonical, and every odd spelling is refused. */
import { isIP } from 'node:net';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { Allowlist } from '../../adapters/egress/allowlist.ts';
import { isPublicAddress } from '../../adapters/egress/public-address.ts';
import { parseDomain } from '../../catalogs/readers/domains.ts';
import { formatAuthority, parseAuthority, parseHost } from '../../catalogs/readers/hosts.ts';
import { verifies } from '../verifies.ts';

const target = (text: string): NonNullable<ReturnType<typeof parseAuthority>> => {
  const found = parseAuthority(text);
  if (found === undefined) throw new Error(`not an authority: ${text}`);
  return found;
};

describe('a host', () => {
  it.each([
    ['Example.ORG', 'example.org'],
    ['example.org.', 'example.org'],
    ['a_b.example.org', 'a_b.example.org'],
    ['xn--bcher-kva.example', 'xn--bcher-kva.example'],
    ['127.0.0.1', '127.0.0.1'],
    ['[::1]', '::1'],
    ['[2001:DB8:0:0::1]', '2001:db8::1'],
    ['[::ffff:10.0.0.1]', '10.0.0.1'],
    ['[::FFFF:0:a00:1]', '10.0.0.1'],
    ['[::10.0.0.1]', '10.0.0.1'],
    ['[64:ff9b::10.0.0.1]', '10.0.0.1'],
    ['[2002:a00:1::7]', '10.0.0.1'],
    ['[::]', '::'],
    ['[64:ff9a::1]', '64:ff9a::1'],
  ])('%s is %s', (text, host) => {
    expect(parseHost(text)?.host).toBe(host);
  });

  it.each([
    '',
    '.',
    'a..b',
    '-a.test',
    'a-.test',
    'a.test..',
    ' a.test',
    'a.test\t',
    'a.test\0',
    'a%2etest',
    'a.test%00.b',
    'user@a.test',
    'a/b',
    'a\\b',
    'a?b',
    'a#b',
    '*.a.test',
    'ａ.test',
    'а.test',
    '\u202ea.test',
    'xn--a.test',
    'xn--.test',
    `${'a'.repeat(64)}.test`,
    `${'a.'.repeat(130)}test`,
    '0x7f.1',
    '127.1',
    '2130706433',
    '0177.0.0.1',
    '127.0.0.01',
    '1.2.3.4.5',
    '256.1.1.1',
    '1.2.3.0x4',
    'a.0x7f',
    '::1',
    '[::1',
    '[::1%lo]',
    '[::1%25lo]',
    '[1.2.3.4]',
    '[]',
    '[a]',
    '[2001::1]',
    '[2001:0:4136:e378::1]',
    '[64:ff9b:1::a00:1]',
    '[2001:db8::5efe:a00:1]',
  ])('%j is none', (text) => {
    expect(parseHost(text)).toBeUndefined();
  });

  it('keeps its one spelling, whatever it was written like', () => {
    fc.assert(
      fc.property(
        fc.oneof(
          fc.string({ unit: 'binary', maxLength: 40 }),
          fc.stringMatching(/^[a-zA-Z0-9.:[\]%_-]{1,20}$/),
          fc.domain(),
          fc.ipV4(),
          fc.ipV6().map((one) => `[${one}]`),
        ),
        (text) => {
          const host = parseHost(text);
          if (host === undefined) return;
          const shown = host.kind === 'ipv6' ? `[${host.host}]` : host.host;
          expect(parseHost(shown)).toEqual(host);
          expect(host.host).toBe(host.host.toLowerCase());
          expect(isIP(host.host) !== 0).toBe(host.kind !== 'name');
          // Whatever a URL parser would make of it is the same host: check and dial agree.
          expect(new URL(`http://${shown}/`).hostname).toBe(shown);
        },
      ),
    );
  });
});

describe('a port', () => {
  it.each([
    'a.test',
    'a.test:',
    'a.test:0',
    'a.test:65536',
    'a.test:+443',
    'a.test:-1',
    'a.test:0443',
    'a.test:443 ',
    'a.test: 443',
    'a.test:4e2',
    'a.test:443:443',
    'a.test:４４３',
    'a.test:443/',
    'a.test:999999',
  ])('%j is no authority', (text) => {
    expect(parseAuthority(text)).toBeUndefined();
  });

  it('is taken from the caller where it may be left out', () => {
    expect(parseAuthority('a.test', 80)?.port).toBe(80);
    expect(parseAuthority('a.test:', 80)).toBeUndefined();
    expect(formatAuthority(target('[::1]:8080'))).toBe('[::1]:8080');
  });
});

describe('denied domains', () => {
  it.each([
    ['secret.example.org', 'secret.example.org:443', false],
    ['secret.example.org', 'SECRET.example.org.:8443', false],
    ['secret.example.org', 'open.example.org:443', true],
    ['secret.example.org', 'a.secret.example.org:443', true],
    ['*.secret.example.org', 'a.b.secret.example.org:443', false],
    ['*.secret.example.org', 'secret.example.org:443', true],
    ['*.example.org', 'open.example.org:443', false],
    ['open.example.org:8443', 'open.example.org:8443', false],
    ['open.example.org:8443', 'open.example.org:443', true],
  ])('%s, of all below example.org: %s: %s', (denied, text, expected) => {
    expect(new Allowlist(['*.example.org', '*.example.org:8443'], [], [denied]).allows(target(text))).toBe(expected);
  });

  it('hold for an address within another, in the request and in the answer of a name server', () => {
    const list = new Allowlist(['*.example.org', '[::ffff:93.184.216.34]'], [], ['93.184.216.34:443', '10.0.0.5']);
    expect([list.allows(target('[::ffff:5db8:d822]:443')), list.allows(target('[64:ff9b::5db8:d822]:80'))]).toEqual([
      false,
      true,
    ]);
    expect(list.admits(target('a.example.org:443'), '::ffff:93.184.216.34')).toBe(false);
    expect(new Allowlist(['a.example.org', '10.0.0.5']).admits(target('a.example.org:443'), '::ffff:10.0.0.5')).toBe(
      true,
    );
    expect(new Allowlist(['a.example.org']).admits(target('a.example.org:443'), '::ffff:10.0.0.5')).toBe(false);
    // A form that nobody can read leads nowhere, denied or not.
    expect(list.admits(target('a.example.org:443'), '2001::5db8:d822')).toBe(false);
  });

  it('hold for the address that an allowed name leads to, public or named', () => {
    const list = new Allowlist(['example.org', 'intranet.test', '10.0.0.5'], [], ['93.184.216.34', '10.0.0.5:443']);
    expect([
      list.admits(target('example.org:443'), '93.184.216.34'),
      list.admits(target('example.org:443'), '93.184.216.35'),
    ]).toEqual([false, true]);
    expect([
      list.admits(target('intranet.test:443'), '10.0.0.5'),
      list.admits(target('intranet.test:80'), '10.0.0.5'),
    ]).toEqual([false, true]);
    expect(() => new Allowlist(['example.org'], [], ['*.org'])).toThrow('A denied domain');
  });

  it('of a rule hold for the address that an allowed name leads to, too' + verifies('TR-51'), () => {
    const list = new Allowlist(
      ['example.org', '10.0.0.5', '10.0.0.6'],
      ['93.184.216.34', '10.0.0.5', '10.0.0.6:80', '[2606:2800::1]'],
    );
    const admits = (text: string, address: string): boolean => list.admits(target(text), address);
    expect([
      admits('example.org:443', '93.184.216.34'),
      admits('example.org:443', '::ffff:93.184.216.34'),
      admits('example.org:443', '93.184.216.35'),
    ]).toEqual([false, false, true]);
    expect([
      admits('example.org:443', '10.0.0.5'),
      admits('example.org:443', '10.0.0.6'),
      admits('example.org:80', '10.0.0.6'),
    ]).toEqual([false, true, false]);
    expect(admits('example.org:443', '2606:2800::1')).toBe(false);
  });
});

describe('allowed domains', () => {
  it.each([
    ['example.org', 'example.org:443', true],
    ['example.org', 'EXAMPLE.org.:80', true],
    ['example.org', 'example.org:8443', false],
    ['example.org', 'a.example.org:443', false],
    ['example.org:8443', 'example.org:8443', true],
    ['example.org:8443', 'example.org:443', false],
    ['*.example.org', 'a.example.org:443', true],
    ['*.example.org', 'a.b.example.org:443', true],
    ['*.example.org', 'example.org:443', false],
    ['*.example.org', 'evilexample.org:443', false],
    ['*.example.org:8443', 'a.example.org:443', false],
    ['bücher.example', 'xn--bcher-kva.example:443', true],
    ['10.0.0.5:5432', '10.0.0.5:5432', true],
    ['[::1]:8080', '[0:0::1]:8080', true],
  ])('%s and %s: %s', (domain, text, expected) => {
    expect(new Allowlist([domain]).allows(target(text))).toBe(expected);
  });

  it.each([
    ['https://example.org', 'scheme'],
    ['example.org/path', 'path'],
    ['*', '*'],
    ['*.org', 'dot'],
    ['*.', 'not a host'],
    ['a.*.org', '*'],
    ['*.*.org', '*'],
    ['*.10.0.0.1', 'address'],
    ['::1', 'not a host'],
    ['example.org:', 'not a host'],
    ['example.org:99999', 'not a host'],
    ['user@example.org', 'not a host'],
    ['', 'not a host'],
    ['exa mple.org', 'not a host'],
    ['0x7f.1', 'not a host'],
  ])('%j is refused with what to write', (text, word) => {
    const entry = parseDomain(text);
    expect('fault' in entry ? entry.fault : '').toContain(word);
    expect(() => new Allowlist([text])).toThrow();
  });

  it('let a name in only where an entry ends its labels', () => {
    const label = fc.stringMatching(/^[a-z][a-z0-9]{0,8}$/);
    fc.assert(
      fc.property(fc.array(label, { minLength: 1, maxLength: 4 }), (labels) => {
        const host = labels.join('.');
        expect(new Allowlist(['*.example.org']).allows(target(`${host}.example.org:443`))).toBe(true);
        expect(new Allowlist(['*.example.org', 'example.org']).allows(target(`${host}:443`))).toBe(false);
        expect(new Allowlist(['*.example.org', 'example.org']).allows(target(`${host}example.org:443`))).toBe(false);
      }),
    );
  });
});

describe('addresses', () => {
  it.each(['93.184.216.34', '8.8.8.8', '2606:2800:220:1::1', '2a00:1450:4001::1'])('%s is public', (address) => {
    expect(isPublicAddress(address)).toBe(true);
  });

  it.each([
    '0.0.0.0',
    '10.1.2.3',
    '100.64.0.1',
    '100.127.255.255',
    '127.0.0.1',
    '127.8.8.8',
    '169.254.169.254',
    '172.16.0.1',
    '172.31.255.255',
    '192.0.0.1',
    '192.0.2.1',
    '192.168.1.1',
    '198.18.0.1',
    '198.51.100.7',
    '203.0.113.9',
    '224.0.0.1',
    '240.0.0.1',
    '255.255.255.255',
    '::',
    '::1',
    '::ffff:8.8.8.8',
    '::ffff:10.0.0.1',
    '::10.0.0.1',
    '64:ff9b::7f00:1',
    '64:ff9b:1::1',
    '100::1',
    '2001::1',
    '2001:db8::1',
    '2002:7f00:1::',
    '3fff::1',
    'fc00::1',
    'fd00:ec2::254',
    'fe80::1',
    'fec0::1',
    'ff02::1',
    'no address',
    '',
  ])('%s is not', (address) => {
    expect(isPublicAddress(address)).toBe(false);
  });

  it('that are not public are dialled only where the list names them, with the port', () => {
    const list = new Allowlist([
      'intranet.test',
      '10.0.0.5',
      '10.0.0.6:8080',
      '[fd00::7]',
      'localhost:3000',
      '*.intranet.test',
    ]);
    expect(list.admits(target('intranet.test:443'), '10.0.0.5')).toBe(true);
    expect(list.admits(target('intranet.test:443'), '10.0.0.7')).toBe(false);
    expect(list.admits(target('intranet.test:443'), '10.0.0.6')).toBe(false);
    expect(list.admits(target('intranet.test:443'), 'fd00:0::7')).toBe(true);
    expect(list.admits(target('intranet.test:443'), '127.0.0.1')).toBe(false);
    expect(list.admits(target('localhost:3000'), '127.0.0.1')).toBe(true);
    expect(list.admits(target('localhost:3000'), '::1')).toBe(true);
    expect(list.admits(target('localhost:3000'), '169.254.169.254')).toBe(false);
    expect(list.admits(target('intranet.test:443'), '93.184.216.34')).toBe(true);
    expect(list.namesLoopback).toBe(true);
    expect(new Allowlist(['example.org']).namesLoopback).toBe(false);
  });
});
