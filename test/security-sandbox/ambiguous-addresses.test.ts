/** Attacks with addresses (finding K): curl, Python and WHATWG must read the same host as Tollgate, or it reads none. */
import { spawn, spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import path from 'node:path';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { signInUrl } from '../../adapters/oauth/token-endpoint.ts';
import { FetchError, readOrigin, requestOf } from '../../adapters/primitives/fetch/fetch-scope.ts';
import { parseHost } from '../../catalogs/readers/hosts.ts';
import { isConfidential, readUrl } from '../../catalogs/readers/urls.ts';
import { withProject } from '../config/project.ts';
import { callOf, policyOf } from '../engine/policy-fixture.ts';
import { PROPERTY_SEED, roundsOf } from '../harness/slices.ts';
import { installPrograms } from '../servers/system.ts';
import { verifies } from '../verifies.ts';

installPrograms(
  [
    ['curl', 'curl'],
    ['python3', 'python3'],
  ],
  () => undefined,
);

const { unreadable, embedded, parts } = parse(
  readFileSync(path.join(import.meta.dirname, 'ambiguous-addresses.yaml'), 'utf8'),
) as {
  readonly unreadable: Readonly<Record<string, string>>;
  readonly embedded: readonly string[];
  readonly parts: readonly string[];
};

/** Returns the hosts that Python's two parsers read in each URL; empty if they refuse it. */
function hostsInPython(urls: readonly string[]): readonly (readonly [split: string, request: string])[] {
  const code = `
import json, sys, urllib.parse, urllib.request
def attempt(read):
    try: return read() or ''
    except Exception: return ''
def hosts(url):
    return [attempt(lambda: urllib.parse.urlsplit(url).hostname),
            attempt(lambda: urllib.parse.urlsplit('//' + urllib.request.Request(url).host).hostname)]
print(json.dumps([hosts(url) for url in json.load(sys.stdin)]))`;
  const run = spawnSync('python3', ['-I', '-c', code], { input: JSON.stringify(urls), encoding: 'utf8' });
  if (run.status !== 0) throw new Error(run.stderr);
  return JSON.parse(run.stdout) as [string, string][];
}

/** Returns the host that curl requests from a local proxy for each URL; empty if it sends nothing. */
async function hostsInCurl(urls: readonly string[]): Promise<readonly string[]> {
  const requested = new Map<number, string>();
  const note = (host: string, header: string | string[] | undefined): void =>
    void requested.set(Number.parseInt(String(header), 10), host);
  const proxy = createServer((request, response) => {
    note(
      /^http:\/\/(\[[^\]]*\]|[^:/?#]*)/i.exec(request.url ?? '')?.[1] ?? `? ${request.url}`,
      request.headers['x-number'],
    );
    response.end();
  });
  proxy.on('connect', (request, socket) => {
    note(/^(\[[^\]]*\]|[^:]*):\d+$/.exec(request.url ?? '')?.[1] ?? `? ${request.url}`, request.headers['x-number']);
    socket.end('HTTP/1.1 403 No\r\n\r\n');
  });
  await new Promise<void>((resolve) => proxy.listen(0, '127.0.0.1', resolve));
  const { port } = proxy.address() as AddressInfo;
  const quote = (text: string): string =>
    `"${text.replace(/[\\"]/g, '\\$&').replaceAll('\t', '\\t').replaceAll('\n', '\\n').replaceAll('\r', '\\r')}"`;
  const options = urls.map((url, at) =>
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
  curl.stdin.end(options.join('\nnext\n'));
  await new Promise<void>((resolve, reject) => curl.once('error', reject).once('close', () => resolve()));
  await new Promise<void>((resolve) => proxy.close(() => resolve()));
  return urls.map((_, at) => requested.get(at) ?? '');
}

const canonical = (host: string): string | undefined =>
  parseHost(host.includes(':') && !host.startsWith('[') ? `[${host}]` : host)?.host;

/** Readable addresses with inserted parts. */
const mutated = fc
  .tuple(
    fc.constantFrom(
      'http://api.example.org/a/b?c=d#e',
      'https://api.example.org:8443/',
      'http://10.0.0.1',
      'http://[2001:db8::1]:80/x',
      'https://a.b',
    ),
    fc.array(fc.tuple(fc.nat(40), fc.constantFrom(...parts), fc.nat(2)), { maxLength: 4 }),
  )
  .map(([base, edits]) =>
    edits.reduce<string>((url, [at, part, drop]) => url.slice(0, at) + part + url.slice(at + drop), base),
  );

describe('an address that programs read differently (K)', () => {
  it.each(Object.entries(unreadable))('is unreadable: %s' + verifies('TR-50'), (_name, url) => {
    expect(readUrl(url)).toEqual({ scheme: '', host: '', address: '' });
  });

  it('matches no rule that allows, and every rule that denies or asks' + verifies('TR-50'), async () => {
    const allowing = await policyOf([
      { id: 'a', outcome: 'allow', when: { hosts: ['*'], schemes: ['http', 'https', 'file', 'javascript', 'data'] } },
    ]);
    const refusing = await policyOf([
      { id: 'open', outcome: 'allow', when: {} },
      { id: 'd', outcome: 'deny', when: { hosts: ['other.example'] } },
    ]);
    for (const url of Object.values(unreadable)) {
      expect([url, (await allowing.call(callOf({ urls: [url] }))).outcome]).toEqual([url, 'deny']);
      expect([url, (await refusing.call(callOf({ urls: [url] }))).outcome]).toEqual([url, 'deny']);
    }
  });

  it(
    'is refused at its place in the settings of a server, a policy or an issuer of sign-ins' + verifies('TR-50'),
    () => {
      withProject((project) => {
        for (const url of Object.values(unreadable)) {
          const text = JSON.stringify(url);
          const yaml = `version: 1
servers:
  far:
    url: ${text}
  signed:
    url: https://api.example.org/mcp
    oauth: {issuer: ${text}}
policies:
  - url: ${text}
`;
          const { problems } = project.load(yaml);
          expect([url, problems.map(({ file, line }) => `${file}:${line}`).sort()]).toEqual([
            url,
            ['tollgate.yaml:4', 'tollgate.yaml:7', 'tollgate.yaml:9'],
          ]);
        }
        expect(
          project.load(
            `version: 1
servers:
  far: {url: "https://api.example.org/mcp", oauth: {issuer: "https://login.example.org"}}
`,
          ).problems,
        ).toEqual([]);
      });
    },
  );

  it('is used neither for a sign-in nor by a fetch server' + verifies('TR-50'), () => {
    const origin = readOrigin('http://api.example.org');
    for (const url of Object.values(unreadable)) {
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

  it('exists: curl, Python and WHATWG disagree about some addresses of this test', async () => {
    const urls = Object.values(unreadable);
    const [curl, python] = [await hostsInCurl(urls), hostsInPython(urls)];
    const whatwg = urls.map((url) => (URL.canParse(url) ? new URL(url).hostname : ''));
    expect(
      urls.filter((_, at) => new Set([curl[at], python[at]?.[0], whatwg[at]].filter((host) => host !== '')).size > 1)
        .length,
    ).toBeGreaterThan(5);
  });

  it('never occurs among readable addresses: curl, Python and WHATWG read the same host' +
    verifies('TR-50'), async () => {
    const urls = [
      ...new Set([...embedded, ...fc.sample(mutated, { numRuns: roundsOf(20_000, 4_000), seed: PROPERTY_SEED })]),
    ].filter((url) => readUrl(url).host !== '' && /^https?:/i.test(url));
    // curl gets only some of them, because each needs a request to the proxy.
    expect(urls.length).toBeGreaterThan(roundsOf(500, 100));
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
    const some = urls.slice(0, roundsOf(400, 100));
    const curl = await hostsInCurl(some);
    for (const [at, url] of some.entries())
      expect([url, canonical(curl[at] ?? '')]).toEqual([url, canonical(readUrl(url).host)]);
  }, 60_000);
});

describe('an IPv6 address that contains an IPv4 address (K)', () => {
  it.each(embedded)('%s matches rules for the IPv4 address' + verifies('TR-51'), async (url) => {
    const policy = await policyOf([
      { id: 'open', outcome: 'allow', when: {} },
      { id: 'metadata', outcome: 'deny', when: { hosts: ['169.254.169.254'] } },
    ]);
    expect((await policy.call(callOf({ urls: [url] }))).reasons.map(({ id }) => id)).toEqual(['metadata']);
  });

  it('is refused in a rule that could never match it' + verifies('TR-51'), async () => {
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
  ])('of %s is not allowed by a rule about its host only' + verifies('TR-52'), async (url) => {
    expect(await outcomeOf({ hosts: ['api.example.org'] }, url)).toBe('deny');
    expect(await outcomeOf({ hosts: ['api.example.org'], schemes: [url.split(':', 1)[0]] }, url)).toBe('allow');
  });

  it(
    'http or https is allowed by such a rule, and a rule that denies a host denies every scheme' + verifies('TR-52'),
    async () => {
      expect([
        await outcomeOf({ hosts: ['api.example.org'] }, 'http://api.example.org/'),
        await outcomeOf({ hosts: ['api.example.org'] }, 'HTTPS://API.example.org/'),
      ]).toEqual(['allow', 'allow']);
      const refusing = await policyOf([
        { id: 'open', outcome: 'allow', when: {} },
        { id: 'd', outcome: 'deny', when: { hosts: ['api.example.org'] } },
      ]);
      expect((await refusing.call(callOf({ urls: ['gopher://api.example.org/'] }))).outcome).toBe('deny');
    },
  );

  it('in a URL pattern must be one of the schemes that the rule names' + verifies('TR-52'), async () => {
    const thrown = await policyOf([
      { id: 'a', outcome: 'allow', when: { urls: ['ftp://a.b/'], schemes: ['https'] } },
    ]).then(
      () => undefined,
      (error: unknown) => error,
    );
    expect(JSON.stringify({ ...(thrown as object) })).toContain('`schemes` does not contain ftp');
  });
});
