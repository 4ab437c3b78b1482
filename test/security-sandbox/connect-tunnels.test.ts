/** Attacks with CONNECT tunnels (finding M): a tunnel may only carry requests for the host that it names. */
import { createServer } from 'node:http';
import { connect, type Server } from 'node:net';
import fc from 'fast-check';
import { afterEach, describe, expect, it } from 'vitest';
import { judgeGreeting } from '../../adapters/egress/connect-tunnel.ts';
import { type Authority, parseAuthority } from '../../catalogs/readers/hosts.ts';
import { openProxy, type ProxyBench, serveHttp, serveTcp, talk } from '../egress/proxy-bench.ts';
import { runJailed } from '../egress/sandboxed-program.ts';
import { installPrograms } from '../servers/system.ts';
import { verifies } from '../verifies.ts';

installPrograms([['curl', 'curl']], () => undefined);

const closers: (() => unknown)[] = [];
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close();
});

/** Opens a proxy and a target behind it, which records its input. Both page.test and evil.test have its address. */
async function openTarget(
  limits = { idleMs: 400, headersMs: 400 },
): Promise<ProxyBench & { readonly port: number; received: () => string }> {
  let received = '';
  const { server, port } = await serveTcp((socket) =>
    socket.on('data', (chunk: Buffer) => {
      received += chunk.toString('latin1');
      if (received.endsWith('\r\n\r\n')) socket.write('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok');
    }),
  );
  const bench = await openProxy([`page.test:${port}`, `127.0.0.1:${port}`], { limits });
  closers.push(
    () => server.close(),
    () => bench.close(),
  );
  return { ...bench, port, received: () => received };
}

const GET = (host: string, target = '/'): string => `GET ${target} HTTP/1.1\r\nHost: ${host}\r\n\r\n`;

/** Start of a POST request to page.test, with further header lines. */
const POST = (port: number, headers: string): string => `POST / HTTP/1.1\r\nHost: page.test:${port}\r\n${headers}`;

/** Attempts to reach evil.test, which has the same address and port, through a tunnel to page.test. */
const ATTACKS: Readonly<Record<string, (port: number) => string>> = {
  'another Host': (port) => GET(`evil.test:${port}`),
  'another Host in a second request': (port) => GET(`page.test:${port}`) + GET(`evil.test:${port}`),
  'another Host after a body in chunks': (port) =>
    POST(port, `Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n${GET('evil.test')}`),
  'another Host after a body with a length': (port) => POST(port, `Content-Length: 3\r\n\r\nabc${GET('evil.test')}`),
  'another Host after two framings': (port) =>
    POST(port, `Content-Length: 200\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n${GET('evil.test')}`),
  'another host in the absolute form': (port) => GET(`page.test:${port}`, `http://evil.test:${port}/`),
  'another port in the absolute form': () => GET('page.test', 'http://page.test:1/evil.test'),
  'two Host headers': (port) => `GET / HTTP/1.1\r\nHost: page.test:${port}\r\nhost: evil.test\r\n\r\n`,
  'a blank line before the request': () => `\r\n${GET('evil.test')}`,
  'a space before the request': () => ` ${GET('evil.test')}`,
  'an unknown method': () => GET('evil.test').replace('GET', 'hello'),
  'tabs instead of spaces': () => GET('evil.test').replace('GET / ', 'GET\t/\t'),
  'a version in lower case': () => GET('evil.test').replace('HTTP', 'http'),
  'line feeds only': () => GET('evil.test').replaceAll('\r', ''),
  'HTTP/0.9 with a URL': () => 'GET http://evil.test/\r\n',
  'HTTP/1.0 with another Host': () => GET('evil.test').replace('1.1', '1.0'),
  'HTTP/2 without TLS': () => 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\u0004\0\0\0\0\0evil.test',
  'an upgrade to HTTP/2': (port) =>
    `GET / HTTP/1.1\r\nHost: page.test:${port}\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n` +
    'HTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\nPRI * HTTP/2.0\r\n\r\nSM\r\n\r\nevil.test',
  'a tunnel inside the tunnel': (port) =>
    `CONNECT page.test:${port} HTTP/1.1\r\nHost: page.test:${port}\r\n\r\n${GET('evil.test')}`,
  'the PROXY protocol before the request': () => `PROXY TCP4 127.0.0.1 127.0.0.1 1 1\r\n${GET('evil.test')}`,
  'the binary PROXY protocol before the request': () =>
    `\r\n\r\n\0\r\nQUIT\n\u0021\u0011\0\u000c${'\0'.repeat(12)}${GET('evil.test')}`,
  'a very long request line': () => `GET /${'a'.repeat(20_000)} HTTP/1.1\r\nHost: evil.test\r\n\r\n`,
  'a folded Host': (port) => `GET / HTTP/1.1\r\nHost: page.test:${port}\r\n evil.test\r\n\r\n`,
  'a user in the Host': (port) => GET(`page.test:${port}@evil.test`),
};

describe('a CONNECT tunnel (M)', () => {
  it.each(Object.entries(ATTACKS))('does not reach another host with %s' + verifies('TR-58'), async (_name, attack) => {
    const { socket, port, blocked, received } = await openTarget();
    const { text } = await talk(
      socket,
      Buffer.from(`CONNECT page.test:${port} HTTP/1.1\r\n\r\n${attack(port)}`, 'latin1'),
    );
    expect(text).toMatch(/^HTTP\/1\.1 200 /);
    expect(received()).not.toContain('evil.test');
    // Upgrades are not refused: the proxy removes the header, and the server answers an ordinary request.
    expect(blocked.length > 0 || !received().toLowerCase().includes('upgrade')).toBe(true);
  });

  it(
    'refuses another host even if it arrives byte by byte, and tells the program why' + verifies('TR-58'),
    async () => {
      const { socket, port, blocked, received } = await openTarget({ idleMs: 20_000, headersMs: 20_000 });
      const response = await new Promise<string>((resolve) => {
        let text = '';
        const client = connect(socket)
          .setNoDelay(true)
          .on('data', (chunk: Buffer) => (text += chunk.toString()))
          .on('close', () => resolve(text))
          .on('error', () => undefined);
        client.write(`CONNECT page.test:${port} HTTP/1.1\r\n\r\n`);
        client.once('data', async () => {
          for (const letter of GET('evil.test'))
            await new Promise((next) => client.write(letter, () => setImmediate(next)));
        });
      });
      expect(response).toContain('x-tollgate-refusal: other-name');
      expect(received()).toBe('');
      expect(blocked).toMatchObject([{ reason: 'other-name', host: 'page.test', port, count: 1 }]);
    },
  );

  it(
    'does not let a lenient HTTP server see another host, for random combinations of requests' + verifies('TR-58'),
    async () => {
      const names = new Set<string>();
      const lenient = createServer(
        { insecureHTTPParser: true, requireHostHeader: false, keepAliveTimeout: 100 },
        (request, response) => {
          for (const name of [request.headers.host ?? '', request.url ?? '']) names.add(name);
          request.resume().on('error', () => undefined);
          response.end('ok');
        },
      );
      await new Promise<void>((resolve) => lenient.listen(0, '127.0.0.1', resolve));
      const port = (lenient.address() as { port: number }).port;
      const bench = await openProxy([`page.test:${port}`, `127.0.0.1:${port}`]);
      closers.push(
        () => lenient.close(),
        () => bench.close(),
      );
      const head = fc.constantFrom(
        `GET / HTTP/1.1\r\nHost: page.test:${port}\r\n`,
        `POST /a HTTP/1.1\r\nHost: page.test:${port}\r\n`,
        'GET / HTTP/1.1\r\nHost: evil.test\r\n',
        'GET http://evil.test/ HTTP/1.1\r\n',
        'foo\r\n',
        '',
      );
      const part = fc.constantFrom(
        'Host: evil.test\r\n',
        'Content-Length: 5\r\n',
        'Content-Length: 60\r\n',
        'Transfer-Encoding: chunked\r\n',
        'Transfer-Encoding: x, chunked\r\n',
        'Transfer-Encoding : chunked\r\n',
        'Upgrade: h2c\r\nConnection: upgrade\r\n',
        'Expect: 100-continue\r\n',
        '\r\n',
        '0\r\n\r\n',
        '5\r\nhello\r\n',
        '\n',
        ' ',
        '\0',
        '\u0016',
        'GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n',
        'Connection: close\r\n',
      );
      await fc.assert(
        fc.asyncProperty(
          fc.array(fc.tuple(head, fc.array(part, { maxLength: 5 })), { maxLength: 3 }),
          async (requests) => {
            const bytes = requests.map(([first, rest]) => first + rest.join('')).join('\r\n');
            const client = connect(bench.socket)
              .on('error', () => undefined)
              .resume();
            await new Promise<void>((resolve) =>
              client
                .once('close', () => resolve())
                .write(Buffer.from(`CONNECT page.test:${port} HTTP/1.1\r\n\r\n${bytes}`, 'latin1'), () =>
                  setTimeout(() => resolve(client.destroy() && undefined), 15),
                ),
            );
            expect([...names].filter((name) => name.includes('evil'))).toEqual([]);
          },
        ),
        { numRuns: 250 },
      );
      expect(names).toContain(`page.test:${port}`);
    },
  );

  it('opens a limited number of connections for many requests at once', async () => {
    const { server, port } = await serveTcp(() => undefined);
    const bench = await openProxy([`page.test:${port}`, `127.0.0.1:${port}`], {
      limits: { connections: 4, idleMs: 500 },
    });
    closers.push(
      () => server.close(),
      () => bench.close(),
    );
    let open = 0;
    (server as Server).on('connection', () => (open += 1));
    await talk(bench.socket, `CONNECT page.test:${port} HTTP/1.1\r\n\r\n${GET(`page.test:${port}`).repeat(40)}`);
    expect(open).toBe(4);
    expect(bench.blocked.map(({ reason }) => reason)).toContain('connections');
  });
});

describe('a CONNECT tunnel with allowed content', () => {
  it('passes requests for its own host in every form' + verifies('TR-58'), async () => {
    const requestsSeen: string[] = [];
    const { server, port } = await serveHttp((request, response) => {
      let size = 0;
      request
        .on('data', (chunk: Buffer) => (size += chunk.length))
        .on('end', () => {
          requestsSeen.push(`${request.method} ${request.url} ${request.headers.host} ${size}`);
          response.end('ok');
        });
    });
    const bench = await openProxy([`page.test:${port}`, `127.0.0.1:${port}`]);
    closers.push(
      () => server.close(),
      () => bench.close(),
    );
    const own = `page.test:${port}`;
    const requests = [
      GET(own, '/1'),
      GET(`PAGE.test.:${port}`, '/2'),
      GET(own, `http://${own}/3`),
      `OPTIONS * HTTP/1.1\r\nHost: ${own}\r\n\r\n`,
      `POST /5 HTTP/1.1\r\nHost: ${own}\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n`,
      'GET /6 HTTP/1.0\r\n\r\n',
    ];
    await talk(bench.socket, `CONNECT ${own} HTTP/1.1\r\n\r\n${requests.join('')}`);
    expect(requestsSeen.sort()).toEqual([
      `GET /1 ${own} 0`,
      `GET /2 ${own} 0`,
      `GET /3 ${own} 0`,
      `GET /6 ${own} 0`,
      `OPTIONS * ${own} 0`,
      `POST /5 ${own} 3`,
    ]);
    expect(bench.blocked).toEqual([]);
  });

  it.each([
    ['HTTP on port 443', 443, 'GET / HTTP/1.1\r\n', 'malformed'],
    ['SSH on port 443', 443, 'SSH-2.0-x\r\n', 'malformed'],
    ['zeros on port 443', 443, '\0\0\0\u0008', 'malformed'],
    ['SSH on port 80', 80, 'SSH-2.0-x\r\n', 'http'],
    ['zeros on port 80', 80, '\0\0\0\u0008', 'http'],
    ['PostgreSQL', 5432, '\0\0\0\u0008\u0004\u00d2\u0016\u002f', 'pass'],
    ['Redis', 6379, '*1\r\n$4\r\nPING\r\n', 'pass'],
    ['MongoDB', 27017, ':\0\0\0\u0001', 'pass'],
    ['SSH', 22, 'SSH-2.0-x\r\n', 'pass'],
    ['AMQP', 5672, 'AMQP\0\0\u0009\u0001', 'pass'],
    ['SMTP', 25, 'EHLO me\r\n', 'pass'],
    ['half a line', 8080, 'GET /', 'more'],
    ['HTTP', 8080, 'GET / HTTP/1.1\r\n', 'http'],
  ])('recognizes %s by its first bytes' + verifies('TR-58'), (_name, port, bytes, verdict) => {
    expect(judgeGreeting(Buffer.from(bytes, 'latin1'), parseAuthority(`page.test:${port}`) as Authority)).toBe(verdict);
  });
});

describe('real clients in a sandbox', () => {
  it('reach the host of the tunnel, and no other host at the same address' + verifies('TR-58'), async () => {
    const { server, port } = await serveHttp((request, response) => response.end(`<${request.headers.host}>`));
    closers.push(() => server.close());
    const code = `
      const http = require('node:http');
      const { spawnSync } = require('node:child_process');
      const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
      const target = { host: 'plain.test', port: ${port}, agent };
      const ask = (host) => new Promise((resolve) => {
        const onResponse = (response) => {
          let text = '';
          response.on('data', (chunk) => (text += chunk));
          response.on('end', () => resolve(response.statusCode + ' ' + text.trim()));
        };
        const headers = host === undefined ? {} : { host };
        http.get({ ...target, headers }, onResponse).on('error', (error) => resolve(error.code));
      });
      const options = ['-s', '-p', '-w', ' %{http_code}', 'http://plain.test:${port}/'];
      const curl = (...args) => spawnSync('curl', [...options, ...args], { encoding: 'utf8' }).stdout;
      (async () => {
        const answers = [await ask(), await ask(), await ask('evil.test')];
        answers.push(curl(), curl('-H', 'Host: evil.test'), curl('--http2-prior-knowledge'));
        console.log(JSON.stringify(answers));
        agent.destroy();
      })();`;
    const { out, blocked } = await runJailed(code, [`plain.test:${port}`, `127.0.0.1:${port}`]);
    const own = `<plain.test:${port}>`;
    const [first, second, other, curl, curlOther, http2] = JSON.parse(out) as string[];
    expect([first, second, curl]).toEqual([`200 ${own}`, `200 ${own}`, `${own} 200`]);
    expect([other, curlOther]).toEqual([expect.stringMatching(/^403 Tollgate:/), expect.stringMatching(/403$/)]);
    expect(http2).not.toContain('200');
    expect(blocked.map(({ reason }) => reason)).toContain('other-name');
  });
});
