/**
 * Tests the fetch server, as functions and as a program. The tests of its limits have the names of the attacks on
 * them.
 * Covers: adapters/primitives/fetch.
 */

import { spawn } from 'node:child_process';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import path from 'node:path';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { probeAddress } from '../../adapters/primitives/fetch/address-probe.ts';
import type { FetchScope } from '../../adapters/primitives/fetch/fetch-client.ts';
import { answerFetchRequest, readFetchScope } from '../../adapters/primitives/fetch/fetch-server.ts';
import { callFetch, FETCH_TOOL } from '../../adapters/primitives/fetch/fetch-tool.ts';
import { textOfHtml } from '../../adapters/primitives/fetch/html-text.ts';
import { effectOf } from '../../facade/call/lowering/call-effect.ts';
import { FETCH_SEMANTICS } from '../../facade/cli/connect/connection-draft.ts';
import { inFull } from '../harness/full-tests.ts';
import { roundsOf } from '../harness/slices.ts';
import { verifies } from '../verifies.ts';

const SECRET = 'Bearer token-of-the-tracker';

let service: Server;
let origin: URL;
let seen: { method: string; url: string; headers: IncomingMessage['headers']; body: string }[] = [];

function answer(request: IncomingMessage, response: ServerResponse, body: string): void {
  const { url = '', method = '', headers } = request;
  seen.push({ method, url, headers, body });
  const [page = '', rest = ''] = url.slice(1).split('?');
  const redirect = (status: number, location: string): void => void response.writeHead(status, { location }).end();
  if (page === 'to') return redirect(302, decodeURIComponent(rest));
  if (page === 'loop') return redirect(302, '/loop');
  if (page === 'moved') return redirect(307, '/plain');
  if (page === 'endless') {
    const more = (): void =>
      void (response.write('x'.repeat(65_536)) ? setImmediate(more) : response.once('drain', more));
    response.writeHead(200, { 'content-type': 'text/plain' });
    response.on('error', () => undefined);
    return more();
  }
  if (page === 'silent') return;
  if (page === 'events')
    return void response
      .writeHead(200, { 'content-type': 'text/event-stream' })
      .write('data: {"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-06-18"}}\n\n');
  if (page === 'binary')
    return void response.writeHead(200, { 'content-type': 'image/png' }).end(Buffer.from([137, 80, 78, 71, 0, 1]));
  if (page === 'latin')
    return void response.writeHead(200, { 'content-type': 'text/plain; charset=iso-8859-1' }).end(Buffer.from([0xfc]));
  if (page === 'html')
    return void response
      .writeHead(200, { 'content-type': 'text/html; charset=utf-8' })
      .end(
        '<html><head><title>T &amp; U</title></head>' +
          '<body><script>evil()</script><h2>Head</h2><p>a<b>b</b></p></body></html>',
      );
  if (page === 'login')
    return void response
      .writeHead(401, { 'www-authenticate': 'Bearer resource_metadata="https://x.example/.well-known"' })
      .end();
  response
    .writeHead(page === 'missing' ? 404 : 200, { 'content-type': 'text/plain', 'set-cookie': 'session=1' })
    .end(page === 'empty' ? '' : 'plain');
}

beforeAll(async () => {
  service = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request
      .on('data', (chunk: Buffer) => chunks.push(chunk))
      .on('end', () => answer(request, response, Buffer.concat(chunks).toString()));
  });
  await new Promise<void>((resolve) => service.listen(0, '127.0.0.1', resolve));
  origin = new URL(`http://127.0.0.1:${(service.address() as AddressInfo).port}`);
});
afterAll(() => {
  service.closeAllConnections();
  service.close();
});

const scope = (more: Partial<FetchScope> = {}): FetchScope => ({
  origin,
  addresses: ['127.0.0.1'],
  credential: ['Authorization', SECRET],
  ...more,
});
const textOf = (result: Awaited<ReturnType<typeof callFetch>>): string => result.content?.[0]?.text ?? '';

async function call(
  args: object,
  more: Partial<FetchScope> = {},
): Promise<{ text: string; failed: boolean; sent: typeof seen }> {
  seen = [];
  const result = await callFetch(args, scope(more));
  return { text: textOf(result), failed: result.isError === true, sent: seen };
}

describe('the fetch server' + verifies('PF-12'), () => {
  it('sends a request with the credential to its service, and returns the response as text', async () => {
    const { text, sent } = await call({ path: '/plain?x=1', headers: { Accept: 'text/plain' } });
    expect(text).toBe('200 OK /plain?x=1\ncontent-type: text/plain\n\nplain');
    expect(sent).toMatchObject([
      { method: 'GET', url: '/plain?x=1', headers: { accept: 'text/plain', authorization: SECRET } },
    ]);
  });

  it('sends request bodies, and returns error responses of the service unchanged', async () => {
    const { sent } = await call({
      url: `${origin.origin}/made`,
      method: 'POST',
      headers: { 'Content-Type': 'application/json' },
      body: '{"a":"ü"}',
    });
    expect(sent).toMatchObject([
      { method: 'POST', body: '{"a":"ü"}', headers: { 'content-type': 'application/json' } },
    ]);
    expect((await call({ path: '/missing' })).text).toMatch(/^404 Not Found \/missing/);
    expect((await call({ path: '/empty', method: 'DELETE' })).text).toMatch(/\(no body\)$/);
  });

  it('follows redirects within its origin, for GET and HEAD only', async () => {
    expect((await call({ path: '/moved' })).text).toMatch(/^200 OK \/plain/);
    const written = await call({ path: '/moved', method: 'POST', body: 'once' });
    expect(written.text).toMatch(/^307 .*\ncontent-type|^307 Temporary Redirect \/moved\nlocation: \/plain/);
    expect(written.sent).toHaveLength(1);
  });

  it('reduces HTML pages to text, decodes charsets, and refuses binary responses', async () => {
    expect((await call({ path: '/html' })).text).toBe(
      '200 OK /html\ncontent-type: text/html; charset=utf-8\n\nT & U\n\n## Head\n\na b',
    );
    expect((await call({ path: '/latin' })).text).toMatch(/ü$/);
    expect((await call({ path: '/binary' })).text).toBe('NOT_TEXT: The response is 6 bytes of image/png, not text.');
  });

  it('never shows cookies of the service', async () => {
    expect((await call({ path: '/plain' })).text).not.toContain('session');
  });
});

const ATTACKS: readonly (readonly [string, () => object, RegExp])[] = [
  [
    'redirect-off-domain',
    () => ({ path: `/to?${encodeURIComponent('https://evil.example/x')}` }),
    /^REDIRECT_REFUSED: .*not evil\.example\.$/,
  ],
  [
    'redirect-to-another-port',
    () => ({ path: `/to?${encodeURIComponent('http://127.0.0.1:1/x')}` }),
    /^REDIRECT_REFUSED/,
  ],
  ['redirect-to-file', () => ({ path: `/to?${encodeURIComponent('file:///etc/passwd')}` }), /^REDIRECT_REFUSED/],
  [
    'redirect-with-userinfo',
    () => ({ path: `/to?${encodeURIComponent(`http://x@127.0.0.1:${origin.port}/`)}` }),
    /^REDIRECT_REFUSED/,
  ],
  ['redirect-loop', () => ({ path: '/loop' }), /^REDIRECT_REFUSED: More than 5/],
  ['other-host', () => ({ url: 'https://evil.example/' }), /^OTHER_HOST/],
  ['scheme-relative-path', () => ({ path: '//evil.example/x' }), /^OTHER_HOST/],
  ['backslash-path', () => ({ path: '/\\evil.example/x' }), /^BAD_ADDRESS/],
  ['line-break-in-path', () => ({ path: '/x\r\nHost: evil.example' }), /^BAD_ADDRESS/],
  ['userinfo-url', () => ({ url: `http://user:pass@127.0.0.1:${origin.port}/` }), /^BAD_ADDRESS/],
  ['empty-userinfo-url', () => ({ url: `http://@127.0.0.1:${origin.port}/` }), /^BAD_ADDRESS/],
  ['decimal-address', () => ({ url: 'http://2130706433/' }), /^BAD_ADDRESS/],
  ['other-scheme', () => ({ url: 'file:///etc/passwd' }), /^BAD_ADDRESS/],
  ['path-and-url', () => ({ path: '/', url: origin.origin }), /^BAD_ADDRESS/],
  ['no-address', () => ({}), /^BAD_ADDRESS/],
  ['crlf-in-header', () => ({ path: '/', headers: { Accept: 'a\r\nX-Evil: 1' } }), /^BAD_HEADER/],
  ['credential-header', () => ({ path: '/', headers: { Authorization: 'Bearer mine' } }), /^BAD_HEADER/],
  ['host-header', () => ({ path: '/', headers: { Host: 'evil.example' } }), /^BAD_HEADER/],
  ['cookie-header', () => ({ path: '/', headers: { Cookie: 'a=b' } }), /^BAD_HEADER/],
  ['header-of-another-kind', () => ({ path: '/', headers: { Accept: 1 } }), /^BAD_HEADER/],
  ['body-of-a-read', () => ({ path: '/', body: 'x' }), /^BAD_BODY/],
  ['huge-request-body', () => ({ path: '/', method: 'POST', body: 'x'.repeat(1_048_577) }), /^BAD_BODY/],
  ['method-of-another-case', () => ({ path: '/', method: 'delete' }), /^BAD_ADDRESS/],
  ['number-as-path', () => ({ path: 1 }), /^BAD_ADDRESS/],
];

describe('attacks on the fetch server' + verifies('PF-12'), () => {
  it.each(ATTACKS)('%s', async (_name, args, words) => {
    const { text, failed, sent } = await call(args());
    expect([failed, text]).toEqual([true, expect.stringMatching(words)]);
    // Requests were sent to the service itself only, if at all.
    expect(sent.every(({ headers }) => headers.host === origin.host)).toBe(true);
  });

  it('huge-body: cuts an endless response at 2 MiB', async () => {
    const { text } = await call({ path: '/endless' });
    expect(Buffer.byteLength(text)).toBeLessThan(2 * 1024 * 1024 + 300);
    expect(text).toMatch(/Only its first 2 MiB were read/);
  });

  it('silence: stops waiting for a service that never answers', async () => {
    expect((await call({ path: '/silent' }, { timeoutMs: 50 })).text).toMatch(/^TIMEOUT/);
  });

  it('private-address-literal: connects to this machine only if its address is allowed', async () => {
    expect((await call({ path: '/plain' }, { addresses: [] })).text).toMatch(/^PRIVATE_ADDRESS/);
  });

  it.each([['10.0.0.1'], ['169.254.169.254'], ['::ffff:127.0.0.1'], ['fd00::1']])(
    'dns-to-private-address: does not connect to a name that resolves to %s, even together with a public address',
    async (address) => {
      const named = new URL('http://tracker.example.org');
      for (const found of [[address], ['93.184.216.34', address]])
        expect((await call({ path: '/' }, { origin: named, addresses: [], lookup: async () => found })).text).toMatch(
          /^PRIVATE_ADDRESS/,
        );
    },
  );

  it('dns-rebinding: connects to the address that was checked', async () => {
    const answers = [['127.0.0.1'], ['10.0.0.1']];
    const named = new URL(`http://tracker.example.org:${origin.port}`);
    const { text, sent } = await call({ path: '/plain' }, { origin: named, lookup: async () => answers.shift() ?? [] });
    expect(text).toMatch(/^200 OK/);
    // A request that an earlier test cancelled may arrive only now.
    expect([sent.filter(({ url }) => url === '/plain').length, answers.length]).toEqual([1, 1]);
  });

  it('reports an unknown name and a closed port in its own words', async () => {
    const named = new URL('http://tracker.example.org');
    expect(
      (await call({ path: '/' }, { origin: named, lookup: async () => Promise.reject(new Error('secret resolver')) }))
        .text,
    ).toBe('UNREACHABLE: The host tracker.example.org has no IP address.');
    expect((await call({ path: '/' }, { origin: new URL('http://127.0.0.1:1') })).text).toBe(
      'UNREACHABLE: The service cannot be reached (ECONNREFUSED).',
    );
  });

  inFull('sends no request to another host, whatever the caller writes', async () => {
    const text = fc.oneof(
      fc.string(),
      fc.webUrl(),
      fc.constantFrom('//a', '/\\a', 'http:a', '\thttp://a', 'http://127.0.0.1:80@a/'),
    );
    await fc.assert(
      fc.asyncProperty(text, fc.boolean(), async (written, asPath) => {
        const { sent, failed } = await call(asPath ? { path: `/${written}` } : { url: written });
        return failed || sent.every(({ headers }) => headers.host === origin.host);
      }),
      { numRuns: roundsOf(60, 20) },
    );
  });
});

describe('the semantics of the fetch tool' + verifies('PF-12'), () => {
  it.each([
    [{}, 'read'],
    [{ method: 'GET' }, 'read'],
    [{ method: 'HEAD' }, 'read'],
    [{ method: 'POST' }, 'write'],
    [{ method: 'PUT' }, 'write'],
    [{ method: 'PATCH' }, 'write'],
    [{ method: 'DELETE' }, 'destructive'],
  ])('classifies %o as %s', (args, verb) => {
    expect(effectOf({ server: 'tracker', tool: 'fetch', semantics: FETCH_SEMANTICS, args }, '/work').verb).toBe(verb);
  });

  it('classify every method of the schema, so that none can pass as a read', () => {
    const { method } = FETCH_TOOL.inputSchema.properties as { method: { enum: string[] } };
    expect(Object.keys(FETCH_SEMANTICS.byArgument?.verbs ?? {}).sort()).toEqual([...method.enum].sort());
  });
});

describe('the text of an HTML page', () => {
  it.each([
    ['lists and links', '<ul><li>one</li><li><a href="/2">two</a></ul>', '- one\n- two (/2)'],
    ['tables', '<table><tr><td>a</td><td>b</td></tr></table>', '| a | b'],
    ['entities', '&lt;b&gt; &#65;&#x42; &nbsp;&unknown; &#xd800;', '<b> AB &unknown;'],
    ['comments and hidden elements', 'a<!-- b --><style>c</style><template>d</template>e', 'a e'],
    ['an element that is never closed', 'a<script>b', 'a'],
    ['no markup', 'a  b\n\n\n\nc', 'a b\n\nc'],
  ])('%s', (_name, html, text) => {
    expect(textOfHtml(html)).toBe(text);
  });

  inFull.each([['<!--'], ['<a href=a '], ['<a href="'], ['<a '], ['<script>'], ['<'], ['&'], ['</a'], ['<title>']])(
    'page-of-beginnings: takes linear time for a long page of %s',
    (piece) => {
      const html = piece.repeat(roundsOf(2_097_152, 524_288) / piece.length);
      expect(textOfHtml(html).length).toBeLessThanOrEqual(2 * html.length);
      expect(textOfHtml(`<a ${'x'.repeat(html.length)}`).length).toBeLessThanOrEqual(2 * html.length);
    },
  );

  it('contains no script tag, whatever the page contains', () => {
    fc.assert(
      fc.property(
        fc.array(fc.constantFrom('<', '>', 'script', '</', 'a', ' href="', '"', '<!--', '-->', '&amp;', 'x')),
        (parts) => !/<script>/.test(textOfHtml(parts.join(''))),
      ),
    );
  });
});

describe('the program of the fetch server', () => {
  const ask = (method: string, params: object = {}): Promise<object | undefined> =>
    answerFetchRequest({ id: 1, method, params: params as Record<string, unknown> }, scope());

  it('answers the handshake, lists its one tool, and reports errors', async () => {
    expect(await ask('initialize', { protocolVersion: '2025-06-18' })).toMatchObject({
      result: { protocolVersion: '2025-06-18', serverInfo: { name: 'tollgate-fetch' } },
    });
    expect(await ask('initialize', { protocolVersion: 'x' })).toMatchObject({
      result: { protocolVersion: '2025-11-25' },
    });
    expect(await ask('tools/list')).toMatchObject({ result: { tools: [{ name: 'fetch' }] } });
    expect(await ask('ping')).toMatchObject({ result: {} });
    expect(await ask('tools/call', { name: 'other' })).toMatchObject({ error: { code: -32602 } });
    expect(await ask('resources/list')).toMatchObject({ error: { code: -32601 } });
    expect(await answerFetchRequest({ method: 'notifications/initialized' }, scope())).toBeUndefined();
  });

  it('does not start without an origin, or with an origin that has a path', () => {
    for (const text of ['', 'tracker', 'https://a.example/path', 'https://u@a.example', 'ftp://a.example'])
      expect(() => readFetchScope(['--origin', text], {})).toThrow(/origin/);
    expect(
      readFetchScope(['--origin', 'https://a.example', '--address', '10.0.0.1'], {
        FETCH_HEADER: 'X-Key',
        FETCH_CREDENTIAL: 'v',
      }),
    ).toMatchObject({ addresses: ['10.0.0.1'], credential: ['X-Key', 'v'] });
  });

  it('answers each line of stdin with a line, and reports lines that are not JSON', async () => {
    const child = spawn(
      process.execPath,
      [
        path.join(import.meta.dirname, '..', '..', 'dist', 'adapters', 'primitives', 'fetch', 'fetch-server.js'),
        '--origin',
        origin.origin,
        '--address',
        '127.0.0.1',
      ],
      { stdio: ['pipe', 'pipe', 'inherit'] },
    );
    let out = '';
    child.stdout.on('data', (chunk: Buffer) => (out += chunk.toString()));
    child.stdin.end(
      'no json\n' +
        '{"jsonrpc":"2.0","id":7,"method":"tools/call",' +
        '"params":{"name":"fetch","arguments":{"path":"/plain"}}}\n',
    );
    await new Promise((resolve) => child.once('close', resolve));
    const [bad, good] = out
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as { id: unknown; error?: object; result?: { content: { text: string }[] } });
    expect([bad?.id, bad?.error]).toEqual([null, expect.objectContaining({ code: -32700 })]);
    expect(good?.result?.content[0]?.text).toMatch(/^200 OK \/plain/);
  });
});

describe('probing an address' + verifies('PF-12'), () => {
  const at = (page: string): string => `${origin.origin}/${page}`;

  it('distinguishes MCP servers, with and without sign-in, other services, no service, and private addresses', async () => {
    seen = [];
    expect(await probeAddress(at('events'), ['127.0.0.1'])).toEqual({ kind: 'mcp', login: false });
    expect(seen.every(({ headers }) => headers.authorization === undefined)).toBe(true);
    expect(await probeAddress(at('login'), ['127.0.0.1'])).toEqual({ kind: 'mcp', login: true });
    expect(await probeAddress(at('plain'), ['127.0.0.1'])).toEqual({ kind: 'web', status: 200 });
    expect(await probeAddress('http://127.0.0.1:1/', ['127.0.0.1'])).toMatchObject({ kind: 'unreachable' });
    expect(await probeAddress(at('plain'), [])).toEqual({ kind: 'private', addresses: ['127.0.0.1'] });
  });
});
