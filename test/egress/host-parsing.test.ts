/** Tests the parsers of hosts, domains and addresses: results are canonical, and unclear spellings are refused. */
import { readFileSync } from 'node:fs';
import { isIP } from 'node:net';
import path from 'node:path';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { Allowlist } from '../../adapters/egress/allowlist.ts';
import { isPublicAddress } from '../../adapters/egress/public-address.ts';
import { parseDomain } from '../../catalogs/readers/domains.ts';
import { formatAuthority, parseAuthority, parseHost } from '../../catalogs/readers/hosts.ts';
import { verifies } from '../verifies.ts';

const CASES = parse(readFileSync(path.join(import.meta.dirname, 'host-cases.yaml'), 'utf8')) as {
  readonly [key in 'hosts' | 'notDomains']: [string, string][];
} & { readonly [key in 'denied' | 'allowed']: [string, string, boolean][] } & {
  readonly [key in 'notHosts' | 'notAuthorities' | 'publicAddresses' | 'otherAddresses']: string[];
};

const target = (text: string): NonNullable<ReturnType<typeof parseAuthority>> => {
  const found = parseAuthority(text);
  if (found === undefined) throw new Error(`not an authority: ${text}`);
  return found;
};

describe('a host', () => {
  it.each(CASES.hosts)('is read from %s as %s', (text, host) => {
    expect(parseHost(text)?.host).toBe(host);
  });

  it.each([...CASES.notHosts, `${'a'.repeat(64)}.test`, `${'a.'.repeat(130)}test`])('is refused in %j', (text) => {
    expect(parseHost(text)).toBeUndefined();
  });

  it('has one canonical spelling, however it was written', () => {
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
          // A URL parser reads the same host, so check and dial agree.
          expect(new URL(`http://${shown}/`).hostname).toBe(shown);
        },
      ),
    );
  });
});

describe('a port', () => {
  it.each(CASES.notAuthorities)('is refused in %j', (text) => {
    expect(parseAuthority(text)).toBeUndefined();
  });

  it('has a default if the caller gives one', () => {
    expect(parseAuthority('a.test', 80)?.port).toBe(80);
    expect(parseAuthority('a.test:', 80)).toBeUndefined();
    expect(formatAuthority(target('[::1]:8080'))).toBe('[::1]:8080');
  });
});

describe('denied domains', () => {
  it.each(CASES.denied)('with %s denied below example.org, allow %s: %s', (denied, text, expected) => {
    expect(new Allowlist(['*.example.org', '*.example.org:8443'], [], [denied]).allows(target(text))).toBe(expected);
  });

  it('apply to an address embedded in another, in requests and in answers of name servers', () => {
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
    // An address in an unknown form is never dialled, denied or not.
    expect(list.admits(target('a.example.org:443'), '2001::5db8:d822')).toBe(false);
  });

  it('apply to the addresses of an allowed name', () => {
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

  it('of a rule apply to the addresses of an allowed name too' + verifies('TR-51'), () => {
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
  it.each(CASES.allowed)('with the entry %s, include %s: %s', (domain, text, expected) => {
    expect(new Allowlist([domain]).allows(target(text))).toBe(expected);
  });

  it.each(CASES.notDomains)('are refused with the reason: %j', (text, word) => {
    const entry = parseDomain(text);
    expect('fault' in entry ? entry.fault : '').toContain(word);
    expect(() => new Allowlist([text])).toThrow();
  });

  it('match names only at the boundary of a label', () => {
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
  it.each(CASES.publicAddresses)('include public ones: %s', (address) => {
    expect(isPublicAddress(address)).toBe(true);
  });

  it.each(CASES.otherAddresses)('include others: %s', (address) => {
    expect(isPublicAddress(address)).toBe(false);
  });

  it('that are not public are dialled only if the list names them with the port', () => {
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
