/** Tests the Host and Origin check with a table of values. */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { createOriginCheck, urlHost } from '../../facade/serve/http/origin-check.ts';
import { LISTEN } from './http-bench.ts';

type Values = readonly (string | null)[];

const cases = parse(readFileSync(path.join(import.meta.dirname, 'origin-cases.yaml'), 'utf8')) as Readonly<
  Record<'hostsAccepted' | 'hostsRefused' | 'originsAccepted' | 'originsRefused', Values>
>;
const gate = createOriginCheck(
  {
    ...LISTEN,
    hosts: ['Tollgate.local', 'proxy.example:443', '[fd00::1]', 'fd00::3'],
    origins: ['https://app.example', 'http://localhost:6274/', 'null', '*'],
  },
  7310,
);

describe('the check of Host (dns-rebinding)', () => {
  it.each(cases.hostsAccepted)('accepts %s', (host) => expect(gate.allowsHost(host ?? undefined)).toBe(true));
  it.each(cases.hostsRefused)('refuses %s', (host) => expect(gate.allowsHost(host ?? undefined)).toBe(false));
});

describe('the check of Origin (dns-rebinding)', () => {
  it.each(cases.originsAccepted)('accepts %s', (origin) => expect(gate.allowsOrigin(origin ?? undefined)).toBe(true));
  it.each(cases.originsRefused)('refuses %s', (origin) => expect(gate.allowsOrigin(origin ?? undefined)).toBe(false));
});

describe('the addresses of a listener', () => {
  it('need no port on port 80', () => {
    const plain = createOriginCheck(LISTEN, 80);
    expect(['localhost', 'localhost:80', '127.0.0.1'].map((host) => plain.allowsHost(host))).toEqual([
      true,
      true,
      true,
    ]);
    expect(
      ['http://localhost', 'http://localhost:80', 'http://localhost:81'].map((origin) => plain.allowsOrigin(origin)),
    ).toEqual([true, true, false]);
  });

  it('include the address that it listens on, except for a wildcard', () => {
    expect(createOriginCheck({ ...LISTEN, host: '192.168.1.5' }, 7310).allowsHost('192.168.1.5:7310')).toBe(true);
    expect(createOriginCheck({ ...LISTEN, host: 'fd00::2' }, 7310).allowsHost('[fd00::2]:7310')).toBe(true);
    expect(createOriginCheck({ ...LISTEN, host: '0.0.0.0' }, 7310).allowsHost('0.0.0.0:7310')).toBe(false);
  });

  it.each([
    ['127.0.0.1', '127.0.0.1'],
    ['::1', '[::1]'],
    ['[::1]', '[::1]'],
    ['0.0.0.0', '127.0.0.1'],
    ['::', '127.0.0.1'],
    ['tollgate.local', 'tollgate.local'],
  ])('have the form of a URL: %s becomes %s', (host, written) => {
    expect(urlHost(host)).toBe(written);
  });
});
