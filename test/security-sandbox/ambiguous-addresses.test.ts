/** Named attacks with addresses (finding K): Tollgate, curl, Python and WHATWG must read one host, or Tollgate reads none. */
import { spawn, spawnSync } from 'node:child_process';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { signInUrl } from '../../adapters/oauth/token-endpoint.ts';
import { FetchError, readOrigin, requestOf } from '../../adapters/primitives/fetch/fetch-scope.ts';
import { parseHost } from '../../catalogs/readers/hosts.ts';
import { isConfidential, readUrl } from '../../catalogs/readers/urls.ts';
import { withProject } from '../config/project.ts';
import { callOf, policyOf } from '../engine/policy-fixture.ts';
import { installPrograms } from '../servers/system.ts';
import { verifies } from '../verifies.ts';

installPrograms(
  [
    ['curl', 'curl'],
    ['python3', 'python3'],
  ],
  () => undefined,
);

/** Each is read as two hosts by two programs in use, or hides the host that is meant. */
const UNREADABLE: Readonly<Record<string, string>> = {
  'a backslash before an at sign': 'https://api.example.org\\@evil.example/',
  'a backslash before the metadata address': 'http://ok.example\\@169.254.169.254/',
  'a user that looks like a host': 'https://api.example.org@evil.example/',
  'an empty user': 'https://@evil.example/',
  'two at signs': 'https://a@api.example.org@evil.example/',
  'a password with a colon': 'https://api.example.org:443@evil.example/',
  'a backslash for slashes': 'https:\\\\evil.example/',
  'no slashes': 'https:evil.example/',
  'three slashes': 'https:///evil.example/',
  'a tab in the host': 'https://evil\t.example/',
  'a line break in the scheme': 'ht\ntps://evil.example/',
  'a blank before': ' https://evil.example/',
  'a blank after': 'https://evil.example/ ',
  'a NUL': 'https://evil.example\0.api.example.org/',
  'an encoded dot': 'https://evil%2eexample/',
  'an encoded slash in the host': 'https://evil.example%2f.api.example.org/',
  'wide letters': 'https://ｅvil.example/',
  'an ideographic full stop': 'https://evil。example/',
  'a Cyrillic letter': 'https://\u0430pi.example.org/',
  'a sharp s': 'https://faß.example/',
  'a soft hyphen': 'https://ev\u00adil.example/',
  'broken punycode': 'https://xn--a.example/',
  'a decimal address': 'http://2852039166/',
  'a hexadecimal address': 'http://0xa9fea9fe/',
  'an octal address': 'http://0251.0376.0251.0376/',
  'a short address': 'http://127.1/',
  'a mixed address': 'http://0x7f.1/',
  'a leading zero': 'http://127.0.0.01/',
  'a trailing dot after a name': 'http://evil.example./',
  'a trailing dot after an address': 'http://169.254.169.254./',
  'a zone': 'http://[fe80::1%25lo]/',
  Teredo: 'http://[2001::5db8:d822]/',
  'NAT64 with a prefix of the network': 'http://[64:ff9b:1::a9fe:a9fe]/',
  'an IPvFuture address': 'http://[v1.a9]/',
  'an empty port': 'http://evil.example:/',
  'port 0': 'http://evil.example:0/',
  'a port with a zero in front': 'http://evil.example:080/',
  'a port that is too large': 'http://evil.example:65616/',
  'a caret in the path': 'http://evil.example/^',
  'half an escape': 'http://evil.example/%4',
  'a file': 'file:///etc/passwd',
  'a script': 'javascript:alert(1)',
  data: 'data:text/html,x',
  'no host': 'http://?evil.example',
  'a port only': 'http://:80/',
};

/** All of these mean 169.254.169.254. */
const EMBEDDED = [
  'http://169.254.169.254/',
  'http://[::ffff:169.254.169.254]/',
  'http://[::FFFF:A9FE:A9FE]:80/',
  'http://[0:0:0:0:0:ffff:a9fe:a9fe]/',
  'http://[::169.254.169.254]/',
  'http://[::ffff:0:169.254.169.254]/',
  'http://[64:ff9b::169.254.169.254]/',
  'http://[2002:a9fe:a9fe::]/',
];

/** The host of each URL as Python's two readers see it; empty where they refuse it. */
function hostsInPython(urls: readonly string[]): readonly (readonly [split: string, request: string])[] {
  const code = `
import json, sys, urllib.parse, urllib.request
def attempt(read):
    try: return read() or ''
    except Exception: return ''
print(json.dumps([[attempt(lambda: urllib.parse.urlsplit(u).hostname), attempt(lambda: urllib.parse.urlsplit('//' + urllib.request.Request(u).host).hostname)] for u in json.load(sys.stdin)]))`;
  const run = spawnSync('python3', ['-I', '-c', code], { input: JSON.stringify(urls), encoding: 'utf8' });
  if (run.status !== 0) throw new Error(run.stderr);
  return JSON.parse(run.stdout) as [string, string][];
}

/** The host that curl asks a proxy on the loopback for, by URL; empty where curl sends nothing. No request leaves this machine. */
async function hostsInCurl(urls: readonly string[]): Promise<readonly string[]> {
  const asked = new Map<number, string>();
  const note = (host: string, header: string | string[] | undefined): void =>
    void asked.set(Number.parseInt(String(header), 10), host);
  const proxy = createServer((request, answer) => {
    note(
      /^http:\/\/(\[[^\]]*\]|[^:/?#]*)/i.exec(request.url ?? '')?.[1] ?? `? ${request.url}`,
      request.headers['x-number'],
    );
    answer.end();
  });
  proxy.on('connect', (request, socket) => {
    note(/^(\[[^\]]*\]|[^:]*):\d+$/.exec(request.url ?? '')?.[1] ?? `? ${request.url}`, request.headers['x-number']);
    socket.end('HTTP/1.1 403 No\r\n\r\n');
  });
  await new Promise<void>((resolve) => proxy.listen(0, '127.0.0.1', resolve));
  const { port } = proxy.address() as AddressInfo;
  const quote = (text: string): string =>
    `"${text.replace(/[\\"]/g, '\\$&').replaceAll('\t', '\\t').replaceAll('\n', '\\n').replaceAll('\r', '\\r')}"`;
  const parts = urls.map((url, at) =>
    [
      `url = ${quote(url)}`,
      `proxy = "http://127.0.0.1:${port}"`,
      `header = "X-Number: ${at}"`,
      `proxy-header = "X-Number: ${at}"`,
      'noproxy = ""',
      'globoff',
      'max-time = 5',
      'output = "/dev/null"',
      'proto = "=http,https"',
    ].join('\n'),
  );
  const curl = spawn('curl', ['-q', '-s', '-K', '-'], {
    stdio: ['pipe', 'ignore', 'ignore'],
    env: { PATH: process.env.PATH, LANG: 'C.UTF-8' },
  });
  curl.stdin.end(parts.join('\nnext\n'));
  await new Promise<void>((resolve, reject) => curl.once('error', reject).once('close', () => resolve()));
  await new Promise<void>((resolve) => proxy.close(() => resolve()));
  return urls.map((_, at) => asked.get(at) ?? '');
}

const canonical = (host: string): string | undefined =>
  parseHost(host.includes(':') && !host.startsWith('[') ? `[${host}]` : host)?.host;

/** Bases that are read, with what attackers put between their parts. */
const PIECES = [
  '\\',
  '@',
  '/',
  '//',
  '.',
  ':',
  '#',
  '?',
  '%2e',
  '%40',
  '%00',
  '\t',
  '\n',
  ' ',
  '。',
  'ß',
  '\u00ad',
  'ａ',
  '0x7f',
  '[',
  ']',
  '::1',
  '::ffff:',
  'xn--',
  '443',
  ';',
  '&',
  "'",
  '"',
  '|',
  '^',
  '`',
  '{',
  'evil.example',
  'api.example.org',
  '169.254.169.254',
  'http:',
  'A',
  '..',
  '%',
  '*',
  '!',
  '~',
  '$',
  '(',
  ',',
  '+',
  '=',
  '_',
  '-',
];
const mutated = fc
  .tuple(
    fc.constantFrom(
      'http://api.example.org/a/b?c=d#e',
      'https://api.example.org:8443/',
      'http://10.0.0.1',
      'http://[2001:db8::1]:80/x',
      'https://a.b',
    ),
    fc.array(fc.tuple(fc.nat(40), fc.constantFrom(...PIECES), fc.nat(2)), { maxLength: 4 }),
  )
  .map(([base, edits]) =>
    edits.reduce<string>((url, [at, piece, drop]) => url.slice(0, at) + piece + url.slice(at + drop), base),
  );

describe('an address that two programs may read differently (K)', () => {
  it.each(Object.entries(UNREADABLE))('is unreadable: %s' + verifies('TR-50'), (_name, url) => {
    expect(readUrl(url)).toEqual({ scheme: '', host: '', address: '' });
  });

  it('meets no rule that allows, and each rule that denies or asks' + verifies('TR-50'), async () => {
    const allowing = await policyOf([
      { id: 'a', outcome: 'allow', when: { hosts: ['*'], schemes: ['http', 'https', 'file', 'javascript', 'data'] } },
    ]);
    const refusing = await policyOf([
      { id: 'open', outcome: 'allow', when: {} },
      { id: 'd', outcome: 'deny', when: { hosts: ['other.example'] } },
    ]);
    for (const url of Object.values(UNREADABLE)) {
      expect([url, (await allowing.call(callOf({ urls: [url] }))).outcome]).toEqual([url, 'deny']);
      expect([url, (await refusing.call(callOf({ urls: [url] }))).outcome]).toEqual([url, 'deny']);
    }
  });

  it(
    'is refused wherever an owner writes one: server, policy, issuer of a sign-in; at its place' + verifies('TR-50'),
    () => {
      withProject((project) => {
        for (const url of Object.values(UNREADABLE)) {
          const text = JSON.stringify(url);
          const yaml = `version: 1\nservers:\n  far:\n    url: ${text}\n  signed:\n    url: https://api.example.org/mcp\n    oauth: {issuer: ${text}}\npolicies:\n  - url: ${text}\n`;
          const { problems } = project.load(yaml);
          expect([url, problems.map(({ file, line }) => `${file}:${line}`).sort()]).toEqual([
            url,
            ['tollgate.yaml:4', 'tollgate.yaml:7', 'tollgate.yaml:9'],
          ]);
        }
        expect(
          project.load(
            'version: 1\nservers:\n  far: {url: "https://api.example.org/mcp", oauth: {issuer: "https://login.example.org"}}\n',
          ).problems,
        ).toEqual([]);
      });
    },
  );

  it('is no address of a sign-in, whoever names it, and none that a fetch server opens' + verifies('TR-50'), () => {
    const origin = readOrigin('http://api.example.org');
    for (const url of Object.values(UNREADABLE)) {
      for (const secure of [url, url.replace(/^http:/i, 'https:')])
        expect([secure, isConfidential(secure)]).toEqual([secure, false]);
      expect(() => signInUrl({ name: 'far', url }), url).toThrow(expect.objectContaining({ code: 'LOGIN_FAILED' }));
      expect(() => readOrigin(url), url).toThrow(expect.objectContaining({ code: 'BAD_ADDRESS' }));
      expect(() => requestOf({ url }, origin), url).toThrow(FetchError);
    }
    expect([
      isConfidential('https://api.example.org/'),
      signInUrl({ name: 'far', url: 'https://api.example.org/' }).host,
      requestOf({ url: 'http://api.example.org/a' }, origin).url.href,
    ]).toEqual([true, 'api.example.org', 'http://api.example.org/a']);
  });

  it('the corpus holds addresses on which curl, Python and WHATWG disagree: the comparison can fail', async () => {
    const urls = Object.values(UNREADABLE);
    const [curl, python] = [await hostsInCurl(urls), hostsInPython(urls)];
    const whatwg = urls.map((url) => (URL.canParse(url) ? new URL(url).hostname : ''));
    expect(
      urls.filter((_, at) => new Set([curl[at], python[at]?.[0], whatwg[at]].filter((host) => host !== '')).size > 1)
        .length,
    ).toBeGreaterThan(5);
  });

  it('is the host that curl, Python and WHATWG see, whatever it was made of' + verifies('TR-50'), async () => {
    const urls = [
      ...new Set([
        ...EMBEDDED,
        ...fc.sample(mutated, { numRuns: 20_000, ...(process.env.CI === undefined ? {} : { seed: 20_261_122 }) }),
      ]),
    ].filter((url) => readUrl(url).host !== '' && /^https?:/i.test(url));
    // Every one of these is a claim. Curl gets a part of them: each is a request to the proxy.
    expect(urls.length).toBeGreaterThan(500);
    const python = hostsInPython(urls);
    for (const [at, url] of urls.entries()) {
      const host = canonical(readUrl(url).host);
      expect([url, canonical(new URL(url).hostname), ...(python[at] ?? []).map(canonical)]).toEqual([
        url,
        host,
        host,
        host,
      ]);
    }
    const some = urls.slice(0, 400);
    const curl = await hostsInCurl(some);
    for (const [at, url] of some.entries())
      expect([url, canonical(curl[at] ?? '')]).toEqual([url, canonical(readUrl(url).host)]);
  }, 60_000);
});

describe('an IPv6 address that holds an IPv4 address (K)', () => {
  it.each(EMBEDDED)('%s is that address to a rule' + verifies('TR-51'), async (url) => {
    const policy = await policyOf([
      { id: 'open', outcome: 'allow', when: {} },
      { id: 'metadata', outcome: 'deny', when: { hosts: ['169.254.169.254'] } },
    ]);
    expect((await policy.call(callOf({ urls: [url] }))).reasons.map(({ id }) => id)).toEqual(['metadata']);
  });

  it('a rule cannot be written with a form that no address is read as' + verifies('TR-51'), async () => {
    for (const [host, better] of [
      ['[::ffff:169.254.169.254]', 'write it as 169.254.169.254'],
      ['[2001:DB8::1]'.toLowerCase().replace('::', ':0::'), 'write it as [2001:db8::1]'],
      ['0x7f.1', 'can match no host'],
      ['2852039166', 'can match no host'],
    ] as const) {
      const thrown = await policyOf([{ id: 'd', outcome: 'deny', when: { hosts: [host] } }]).then(
        () => undefined,
        (error: unknown) => error,
      );
      expect(JSON.stringify(thrown instanceof Error ? [thrown.message, { ...thrown }] : undefined)).toContain(better);
    }
  });
});

describe('the scheme of an address (K)', () => {
  const outcomeOf = async (when: object, url: string): Promise<string> =>
    (await (await policyOf([{ id: 'a', outcome: 'allow', when }])).call(callOf({ urls: [url] }))).outcome;

  it.each([
    'file://api.example.org/etc/passwd',
    'javascript://api.example.org/%0aalert(1)',
    'gopher://api.example.org:70/_x',
    'ftp://api.example.org/',
    'ws://api.example.org/',
    'dict://api.example.org:11211/stat',
  ])('%s is not allowed by a rule about its host' + verifies('TR-52'), async (url) => {
    expect(await outcomeOf({ hosts: ['api.example.org'] }, url)).toBe('deny');
    expect(await outcomeOf({ hosts: ['api.example.org'], schemes: [url.split(':', 1)[0]] }, url)).toBe('allow');
  });

  it('http and https are, and a rule that denies a host denies it by every scheme' + verifies('TR-52'), async () => {
    expect([
      await outcomeOf({ hosts: ['api.example.org'] }, 'http://api.example.org/'),
      await outcomeOf({ hosts: ['api.example.org'] }, 'HTTPS://API.example.org/'),
    ]).toEqual(['allow', 'allow']);
    const refusing = await policyOf([
      { id: 'open', outcome: 'allow', when: {} },
      { id: 'd', outcome: 'deny', when: { hosts: ['api.example.org'] } },
    ]);
    expect((await refusing.call(callOf({ urls: ['gopher://api.example.org/'] }))).outcome).toBe('deny');
  });

  it('a URL pattern of another scheme than the rule names is refused at load' + verifies('TR-52'), async () => {
    const thrown = await policyOf([
      { id: 'a', outcome: 'allow', when: { urls: ['ftp://a.b/'], schemes: ['https'] } },
    ]).then(
      () => undefined,
      (error: unknown) => error,
    );
    expect(JSON.stringify({ ...(thrown as object) })).toContain('`schemes` does not contain ftp');
  });
});
