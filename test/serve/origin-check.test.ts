/** Tests the Host and Origin check with a table of values. */
import { describe, expect, it } from 'vitest';
import { createOriginCheck, urlHost } from '../../facade/serve/http/origin-check.ts';
import { LISTEN } from './http-bench.ts';

const gate = createOriginCheck(
  {
    ...LISTEN,
    hosts: ['Tollgate.local', 'proxy.example:443', '[fd00::1]'],
    origins: ['https://app.example', 'http://localhost:6274/', 'null', '*'],
  },
  7310,
);

describe('the check of Host (dns-rebinding)', () => {
  it.each([
    ['localhost:7310', true],
    ['LOCALHOST:7310', true],
    ['127.0.0.1:7310', true],
    ['[::1]:7310', true],
    ['tollgate.local', true],
    ['tollgate.local:7310', true],
    ['proxy.example:443', true],
    ['[fd00::1]', true],
    ['[fd00::1]:7310', true],
    [undefined, false],
    ['', false],
    ['localhost', false],
    ['127.0.0.1', false],
    ['127.0.0.1:80', false],
    ['localhost:73100', false],
    ['localhost.:7310', false],
    ['localhost:7310.', false],
    ['localhost:07310', false],
    ['evil.example:7310', false],
    ['localhost.evil.example:7310', false],
    ['127.0.0.1.nip.io:7310', false],
    ['evil.example#localhost:7310', false],
    ['evil@localhost:7310', false],
    ['localhost:7310@evil.example', false],
    ['localhost:7310, evil.example', false],
    ['127.1:7310', false],
    ['0.0.0.0:7310', false],
    ['2130706433:7310', false],
    ['0x7f.1:7310', false],
    ['[::ffff:127.0.0.1]:7310', false],
    ['[::]:7310', false],
    ['proxy.example', false],
    ['proxy.example:7310', false],
    ['a.tollgate.local', false],
  ])('of %s returns %s', (host, admitted) => {
    expect(gate.allowsHost(host)).toBe(admitted);
  });
});

describe('the check of Origin (dns-rebinding)', () => {
  it.each([
    [undefined, true],
    ['http://localhost:7310', true],
    ['http://127.0.0.1:7310', true],
    ['http://[::1]:7310', true],
    ['https://app.example', true],
    ['HTTPS://APP.example', true],
    ['http://localhost:6274', true],
    ['null', false],
    ['*', false],
    ['', false],
    ['http://localhost', false],
    ['http://localhost:3000', false],
    ['https://localhost:7310', false],
    ['http://app.example', false],
    ['https://app.example:8443', false],
    ['https://app.example.evil.example', false],
    ['https://app.example, https://evil.example', false],
    ['http://evil.example', false],
    ['http://localhost:7310.evil.example', false],
    ['http://localhost:7310/', false],
    ['file://', false],
    ['chrome-extension://abc', false],
    ['http://0.0.0.0:7310', false],
    ['http://tollgate.local:7310', false],
  ])('of %s returns %s', (origin, admitted) => {
    expect(gate.allowsOrigin(origin)).toBe(admitted);
  });
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
