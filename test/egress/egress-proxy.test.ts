/** Tests the proxy of a server over its real socket: what passes, what is refused and reported, limits and attacks. */
import { statSync } from 'node:fs';
import { connect, type Server } from 'node:net';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import fc from 'fast-check';
import { afterEach, describe, expect, it } from 'vitest';
import { type BlockedAttempt, BlockedAttempts } from '../../adapters/egress/blocked-attempts.ts';
import { lookupBySystem } from '../../adapters/egress/dial.ts';
import { openEgress } from '../../adapters/egress/open-egress.ts';
import { roundsOf } from '../harness/slices.ts';
import { verifies } from '../verifies.ts';
import { askPage, askTunnel, openProxy, type ProxyBench, serveHttp, serveTcp, talk, verdictOf } from './proxy-bench.ts';

const closers: (() => unknown)[] = [];
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close();
});

async function proxy(...given: Parameters<typeof openProxy>): Promise<ProxyBench> {
  const bench = await openProxy(...given);
  closers.push(() => bench.close());
  return bench;
}

function keep<T extends { readonly server: Server }>(one: T): T {
  closers.push(() => one.server.close());
  return one;
}

/** Starts a target that echoes its input, and a proxy that may reach it under a name. */
async function echo(
  limits: NonNullable<Parameters<typeof openProxy>[1]>['limits'] = {},
): Promise<ProxyBench & { readonly port: number }> {
  const { port } = keep(await serveTcp((socket) => socket.pipe(socket)));
  return { ...(await proxy([`echo.test:${port}`, `127.0.0.1:${port}`], { limits })), port };
}

describe('a tunnel', () => {
  it('carries bytes both ways, including those sent with the request' + verifies('PF-03'), async () => {
    const { socket, port, blocked } = await echo();
    const { text, client } = await talk(
      socket,
      `CONNECT ECHO.test.:${port} HTTP/1.1\r\nHost: echo.test:${port}\r\n\r\nearly\n`,
      'early',
    );
    expect(verdictOf(text).status).toBe(200);
    const more = new Promise((resolve) => client.once('data', (chunk: Buffer) => resolve(chunk.toString())));
    client.write('later');
    expect(await more).toBe('later');
    client.destroy();
    expect(blocked).toEqual([]);
  });

  it('passes on the end of one side, and the remaining bytes of the other', async () => {
    const { port } = keep(
      await serveTcp((socket) => socket.on('end', () => setTimeout(() => socket.end('after your end'), 20)).resume()),
    );
    const { socket } = await proxy([`half.test:${port}`, `127.0.0.1:${port}`]);
    const client = connect({ path: socket, allowHalfOpen: true });
    let heard = '';
    client
      .on('data', (chunk: Buffer) => (heard += chunk.toString()))
      .write(`CONNECT half.test:${port} HTTP/1.1\r\n\r\n`);
    while (!heard.includes('\r\n\r\n')) await sleep(5);
    client.end();
    await new Promise((resolve) => client.once('end', resolve));
    expect(heard).toContain('after your end');
  });

  it.each([
    ['another host', 'evil.test:443', '', 403, 'not-allowed'],
    ['another port', 'echo.test:22', '', 403, 'not-allowed'],
    ['no port', 'echo.test', '', 400, 'malformed'],
    ['a body', 'echo.test:443', 'Content-Length: 5\r\n', 400, 'malformed'],
    ['a chunked body', 'echo.test:443', 'Transfer-Encoding: chunked\r\n', 400, 'malformed'],
    ['a Host header with another host', 'echo.test:443', 'Host: evil.test\r\n', 403, 'other-name'],
    ['two Host headers', 'echo.test:443', 'Host: echo.test\r\nHost: evil.test\r\n', 403, 'other-name'],
    ['credentials', 'user:pw@echo.test:443', '', 400, 'malformed'],
    ['an address as a number', '2130706433:443', '', 400, 'malformed'],
    ['a zone id', '[fe80::1%25eth0]:443', '', 400, 'malformed'],
  ])('is refused for %s', async (_name, authority, headers, status, refusal) => {
    const { socket, blocked } = await proxy(['echo.test']);
    const verdict = await askTunnel(socket, authority, headers);
    expect(verdict.status).toBe(status);
    if (verdict.refusal !== undefined) expect(verdict.refusal).toBe(refusal);
    expect(blocked[0]).toMatchObject({ server: 'tested', reason: refusal, count: 1 });
  });

  it('reports names without an address and unreachable hosts, not as blocked attempts', async () => {
    const { server, port } = await serveTcp((socket) => socket.destroy());
    await new Promise((resolve) => server.close(resolve));
    const bench = await proxy([`gone.test:${port}`, `none.test:${port}`, `127.0.0.1:${port}`], {
      lookup: async (name) => (name === 'none.test' ? [] : ['127.0.0.1']),
    });
    expect(await askTunnel(bench.socket, `gone.test:${port}`)).toEqual({ status: 502, refusal: 'unreachable' });
    expect(await askTunnel(bench.socket, `none.test:${port}`)).toEqual({ status: 502, refusal: 'unresolved' });
    const failing = await proxy(['none.test'], { lookup: () => Promise.reject(new Error('ESERVFAIL')) });
    expect(await askTunnel(failing.socket, 'none.test:443')).toEqual({ status: 502, refusal: 'unresolved' });
    expect([...bench.blocked, ...failing.blocked]).toEqual([]);
  });

  it('gives up on a name server that does not answer in time', async () => {
    const { socket } = await proxy(['slow.test'], {
      lookup: () => new Promise(() => undefined),
      limits: { connectMs: 100 },
    });
    expect(await askTunnel(socket, 'slow.test:443')).toEqual({ status: 502, refusal: 'unresolved' });
  });

  it('asks the system for at most two names at once, so that its threads stay free', async () => {
    const names = Array.from({ length: 12 }, (_, at) => (at % 2 === 0 ? 'localhost' : `none-${at}.invalid`));
    const found = await Promise.all(names.map((name) => lookupBySystem(name).catch(() => [])));
    expect(found.map((one) => one.length > 0)).toEqual(names.map((name) => name === 'localhost'));
  });

  it('gives up on a host that does not answer in time', async () => {
    // 192.0.2.0/24 is for documentation: packets to it are dropped or refused.
    const { socket } = await proxy(['192.0.2.1:81'], { limits: { connectMs: 150 } });
    expect(await askTunnel(socket, '192.0.2.1:81')).toEqual({ status: 502, refusal: 'unreachable' });
  });
});

describe('attacks on name resolution', () => {
  it.each([
    ['127.0.0.1'],
    ['10.0.0.5'],
    ['169.254.169.254'],
    ['::1'],
    ['::ffff:10.0.0.1'],
    ['64:ff9b::7f00:1'],
    ['fd00:ec2::254'],
    ['0.0.0.0'],
  ])('an allowed name that leads to %s is refused', async (address) => {
    const { socket, blocked } = await proxy(['allowed.test'], { lookup: async () => [address] });
    expect(await askTunnel(socket, 'allowed.test:443')).toEqual({ status: 403, refusal: 'private-address' });
    expect(blocked).toEqual([
      { server: 'tested', reason: 'private-address', host: 'allowed.test', port: 443, count: 1 },
    ]);
  });

  it('one private address among public ones refuses all', async () => {
    const { socket } = await proxy(['allowed.test'], { lookup: async () => ['93.184.216.34', '10.0.0.5'] });
    expect((await askTunnel(socket, 'allowed.test:443')).refusal).toBe('private-address');
  });

  it('DNS rebinding: a name is resolved once per connection, and only that address is dialled', async () => {
    const { port } = keep(await serveTcp((socket) => socket.end('here')));
    let asked = 0;
    // The second answer would be refused, so a second lookup or another address would fail.
    const { socket } = await proxy([`twice.test:${port}`, `127.0.0.1:${port}`], {
      lookup: async () => (asked++ === 0 ? ['127.0.0.1'] : ['10.0.0.1']),
    });
    const { text } = await talk(socket, `CONNECT twice.test:${port} HTTP/1.1\r\n\r\n`);
    expect(text).toContain('here');
    expect(asked).toBe(1);
    expect((await askTunnel(socket, `twice.test:${port}`)).refusal).toBe('private-address');
  });
});

describe('plain HTTP', () => {
  async function page(): Promise<ProxyBench & { readonly port: number; readonly seen: string[][] }> {
    const seen: string[][] = [];
    const { port } = keep(
      await serveHttp((request, response) => {
        seen.push([`${request.method} ${request.url}`, ...request.rawHeaders]);
        let size = 0;
        request
          .on('data', (chunk: Buffer) => (size += chunk.length))
          .on('end', () =>
            response.writeHead(200, { 'x-told': 'yes', connection: 'x-hop', 'x-hop': '1' }).end(`heard ${size}`),
          );
      }),
    );
    return { ...(await proxy([`page.test:${port}`, `127.0.0.1:${port}`])), port, seen };
  }

  it('is forwarded with its path and headers, without the headers of the hop' + verifies('PF-03'), async () => {
    const { socket, port, seen } = await page();
    const { status, text } = await askPage(
      socket,
      `http://Page.test:${port}/a?b=%20c`,
      `Host: page.test:${port}\r\nX-Own: 1\r\nConnection: x-private\r\nX-Private: 2\r\nProxy-Authorization: Basic eDp5\r\n`,
    );
    expect(status).toBe(200);
    expect(text).toContain('heard 0');
    expect(text).toContain('x-told: yes');
    expect(text).not.toContain('x-hop: 1');
    expect(seen).toEqual([['GET /a?b=%20c', 'X-Own', '1', 'Host', `page.test:${port}`, 'Connection', 'close']]);
  });

  it.each([
    ['with a length', 'Content-Length: 5\r\n', 'hello'],
    ['in chunks', 'Transfer-Encoding: chunked\r\n', '5\r\nhello\r\n0\r\n\r\n'],
  ])('carries a body %s', async (_name, header, body) => {
    const { socket, port } = await page();
    const { text } = await talk(
      socket,
      `POST http://page.test:${port} HTTP/1.1\r\nHost: page.test:${port}\r\n${header}Connection: close\r\n\r\n${body}`,
    );
    expect(text).toContain('heard 5');
  });

  it.each([
    ['another host than that of the Host header', 'http://evil.test/', 'Host: page.test\r\n', 'not-allowed'],
    ['a Host header with another host', 'http://page.test/', 'Host: evil.test\r\n', 'other-name'],
    ['a Host header with another port', 'http://page.test/', 'Host: page.test:443\r\n', 'other-name'],
    ['a path alone', '/', 'Host: page.test\r\n', 'malformed'],
    ['another scheme', 'ftp://page.test/', 'Host: page.test\r\n', 'malformed'],
    ['https in clear', 'https://page.test/', 'Host: page.test\r\n', 'malformed'],
    ['credentials', 'http://user:pw@page.test/', 'Host: page.test\r\n', 'malformed'],
    ['a fragment', 'http://page.test#@evil.test/', 'Host: page.test\r\n', 'malformed'],
    ['an unusual port', 'http://page.test:22/', 'Host: page.test:22\r\n', 'not-allowed'],
  ])('is refused for %s', async (_name, target, headers, refusal) => {
    const { socket, blocked } = await proxy(['page.test']);
    const verdict = await askPage(socket, target, headers);
    expect([400, 403]).toContain(verdict.status);
    expect(blocked.map(({ reason }) => reason)).toEqual([refusal]);
  });

  it.each([
    [
      'two framings',
      'Content-Length: 4\r\nTransfer-Encoding: chunked\r\n',
      '0\r\n\r\nGET http://evil.test/ HTTP/1.1\r\n\r\n',
    ],
    ['two lengths', 'Content-Length: 0\r\nContent-Length: 44\r\n', 'GET http://evil.test/ HTTP/1.1\r\n\r\n'],
    ['a folded header', 'X-A: 1\r\n Transfer-Encoding: chunked\r\n', ''],
    ['a bare line feed', 'X-A: 1\nTransfer-Encoding: chunked\r\n', ''],
    ['a blank before the colon', 'Content-Length : 5\r\n', 'hello'],
  ])('never passes a second request to the target (request smuggling): %s', async (_name, headers, body) => {
    const { socket, port, seen } = await page();
    await talk(
      socket,
      `POST http://page.test:${port}/first HTTP/1.1\r\nHost: page.test:${port}\r\n${headers}Connection: close\r\n\r\n${body}`,
    );
    expect(seen.length).toBeLessThanOrEqual(1);
    expect(seen.flat().join()).not.toContain('evil');
  });

  it('is checked again after a redirect', async () => {
    const { port } = keep(
      await serveHttp((_request, response) => response.writeHead(302, { location: 'http://169.254.169.254/' }).end()),
    );
    const { socket } = await proxy([`page.test:${port}`, `127.0.0.1:${port}`]);
    const first = await askPage(socket, `http://page.test:${port}/`, `Host: page.test:${port}\r\n`);
    expect(first.text).toContain('location: http://169.254.169.254/');
    expect((await askPage(socket, 'http://169.254.169.254/', 'Host: 169.254.169.254\r\n')).refusal).toBe('not-allowed');
  });

  it('ends with 502 if the target breaks the protocol, and with a cut response if it stops', async () => {
    const { port } = keep(await serveTcp((socket) => socket.end('what?\r\n\r\n')));
    const { port: cut } = keep(
      await serveTcp((socket) =>
        socket.on('data', () =>
          socket.write('HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf', () => socket.destroy()),
        ),
      ),
    );
    const { socket } = await proxy([`page.test:${port}`, `cut.test:${cut}`, `127.0.0.1:${port}`, `127.0.0.1:${cut}`]);
    expect((await askPage(socket, `http://page.test:${port}/`, '')).status).toBe(502);
    expect((await askPage(socket, `http://cut.test:${cut}/`, '')).text).not.toContain('half'.repeat(2));
    expect((await askPage(socket, `http://private.test/`, '')).status).toBe(403);
  });

  it.each([
    ['status 000', 'HTTP/1.1 000 None\r\n\r\n'],
    ['status 999', 'HTTP/1.1 999 All\r\nContent-Length: 0\r\n\r\n'],
    ['a control in the reason', 'HTTP/1.1 200 O\u0001K\r\nContent-Length: 0\r\n\r\n'],
    ['a reason of bytes', 'HTTP/1.1 200 \u00ff\u00fe\r\nContent-Length: 0\r\n\r\n'],
    ['an upgrade', 'HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nbytes'],
    ['two lengths', 'HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab'],
    ['endless headers', `HTTP/1.1 200 OK\r\n${'X-A: b\r\n'.repeat(20_000)}\r\n`],
    ['a header of NUL', 'HTTP/1.1 200 OK\r\nX-A: a\u0000b\r\n\r\n'],
    ['an early hint', 'HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n'],
    ['nothing', ''],
  ])('ends only the one request after a hostile response: %s', async (_name, bytes) => {
    const { port } = keep(
      await serveTcp((socket) => socket.on('data', () => undefined).end(Buffer.from(bytes, 'latin1'))),
    );
    const { socket } = await proxy([`page.test:${port}`, `127.0.0.1:${port}`]);
    expect([0, 200, 502, 999]).toContain((await askPage(socket, `http://page.test:${port}/`, '')).status);
    expect((await askTunnel(socket, 'other.test:443')).refusal).toBe('not-allowed');
  });

  it('ends at most the one connection, for any bytes', async () => {
    const { socket, port } = await page();
    const piece = fc.oneof(
      fc.string({ unit: 'binary', maxLength: 20 }),
      fc.constantFrom(
        'CONNECT ',
        'GET ',
        'http://',
        `page.test:${port}`,
        ' HTTP/1.1\r\n',
        'Host: ',
        '\r\n',
        '\r\n\r\n',
        'Content-Length: 3\r\n',
        'Transfer-Encoding: chunked\r\n',
        '0\r\n\r\n',
        '\u0016\u0003\u0001',
      ),
    );
    await fc.assert(
      fc.asyncProperty(fc.array(piece, { maxLength: 8 }), async (pieces) => {
        const client = connect(socket)
          .on('error', () => undefined)
          .resume();
        await new Promise<void>((resolve) =>
          client
            .once('close', () => resolve())
            .write(Buffer.from(pieces.join(''), 'latin1'), () =>
              setTimeout(() => resolve(client.destroy() && undefined), 3),
            ),
        );
      }),
      { numRuns: roundsOf(300, 60) },
    );
    expect((await askTunnel(socket, 'other.test:443')).refusal).toBe('not-allowed');
  });

  it('is refused if the address may not be dialled', async () => {
    const { socket } = await proxy(['page.test'], { lookup: async () => ['10.0.0.1'] });
    expect(await askPage(socket, 'http://page.test/', '')).toMatchObject({ status: 403, refusal: 'private-address' });
  });
});

describe('limits', () => {
  it('stop the upload of a server at its budget, over all connections' + verifies('PF-03'), async () => {
    const { socket, port, blocked } = await echo({ bytes: { up: 2000, down: 1_000_000 } });
    const first = await talk(socket, `CONNECT echo.test:${port} HTTP/1.1\r\n\r\n${'x'.repeat(1500)}`, 'x'.repeat(1500));
    first.client.destroy();
    const second = await talk(socket, `CONNECT echo.test:${port} HTTP/1.1\r\n\r\n${'y'.repeat(1500)}`);
    expect(second.text).not.toContain('y');
    expect((await askTunnel(socket, `echo.test:${port}`)).refusal).toBe('budget');
    expect(blocked.map(({ reason }) => reason)).toEqual(['budget']);
  });

  it('stop the download of a server at its budget', async () => {
    const { port } = keep(await serveTcp((socket) => socket.write(Buffer.alloc(300_000, 'z'))));
    const { socket, blocked } = await proxy([`flood.test:${port}`, `127.0.0.1:${port}`], {
      limits: { bytes: { up: 1000, down: 100_000 } },
    });
    const { text } = await talk(socket, `CONNECT flood.test:${port} HTTP/1.1\r\n\r\n`);
    expect(text.length).toBeLessThan(200_000);
    expect(blocked.map(({ reason }) => reason)).toEqual(['budget']);
  });

  it('count headers too, so that many small requests use up the budget', async () => {
    const { port } = keep(await serveHttp((_request, response) => response.end('ok')));
    const { socket, blocked } = await proxy([`page.test:${port}`, `127.0.0.1:${port}`], {
      limits: { bytes: { up: 3000, down: 100_000 } },
    });
    const ask = (): ReturnType<typeof askPage> =>
      askPage(socket, `http://page.test:${port}/`, `X-Data: ${'d'.repeat(1400)}\r\n`);
    await ask();
    await ask();
    expect((await ask()).status).not.toBe(200);
    expect(blocked.some(({ reason }) => reason === 'budget')).toBe(true);
  });

  it('refuse connections over the maximum', async () => {
    const { socket, blocked } = await echo({ connections: 3 });
    const clients = Array.from({ length: 6 }, () => connect(socket).on('error', () => undefined));
    await expect.poll(() => clients.filter((client) => client.destroyed || client.readableEnded).length).toBe(3);
    expect(blocked.map(({ reason }) => reason)).toEqual(['connections']);
    for (const client of clients) client.destroy();
  });

  it('end a request that never ends, and an idle tunnel', async () => {
    const { socket, port } = await echo({ headersMs: 200, idleMs: 300 });
    const slow = await talk(socket, 'CONNECT echo.te');
    expect(verdictOf(slow.text).status).not.toBe(200);
    const idle = await talk(socket, `CONNECT echo.test:${port} HTTP/1.1\r\n\r\n`);
    expect(verdictOf(idle.text).status).toBe(200);
  });

  it('refuse headers over 16 KiB', async () => {
    const { socket, port } = await echo();
    expect((await askTunnel(socket, `echo.test:${port}`, `X-Big: ${'b'.repeat(20_000)}\r\n`)).status).toBe(400);
  });

  it('end with the proxy, which closes connections and reports counted attempts', async () => {
    const bench = await openProxy(['echo.test']);
    await askTunnel(bench.socket, 'evil.test:443');
    await askTunnel(bench.socket, 'evil.test:443');
    const open = talk(bench.socket, 'CONNECT');
    await sleep(30);
    await bench.close();
    await open;
    expect(bench.blocked.map(({ count }) => count)).toEqual([1, 1]);
  });
});

describe('reports', () => {
  it('combine equal attempts, and name at most 32 hosts per window', async () => {
    const seen: BlockedAttempt[] = [];
    const reports = new BlockedAttempts('s', (one) => seen.push(one), 40);
    for (let at = 0; at < 1000; at += 1) reports.note('not-allowed', { host: 'a.test', port: 443 });
    for (let at = 0; at < 1000; at += 1) reports.note('not-allowed', { host: `h${at}.test`, port: 443 });
    expect(seen).toHaveLength(33);
    expect(seen.filter(({ host }) => host === undefined)).toHaveLength(1);
    await expect
      .poll(() => seen.slice(33))
      .toEqual([
        { server: 's', reason: 'not-allowed', host: 'a.test', port: 443, count: 999 },
        { server: 's', reason: 'not-allowed', count: 968 },
      ]);
    expect(seen.reduce((sum, { count }) => sum + count, 0)).toBe(2000);
  });
});

describe('the network access of a server', () => {
  it('uses a folder that others can enter but not list, and removes it at the end', async () => {
    const egress = await openEgress(
      { server: 'x', allowedDomains: ['example.org'], owner: process.getuid?.() ?? 0 },
      { onBlocked: () => undefined },
    );
    const folder = path.dirname(egress.socket);
    expect(statSync(folder).mode & 0o777).toBe(0o711);
    expect(statSync(egress.socket).mode & 0o777).toBe(0o600);
    expect(egress.env).toMatchObject({
      HTTP_PROXY: 'http://127.0.0.1:3128',
      https_proxy: 'http://127.0.0.1:3128',
      NO_PROXY: 'localhost,127.0.0.1,::1',
    });
    expect(egress.env.NODE_OPTIONS).toContain(egress.mounts[0]?.to);
    await egress.close();
    expect(() => statSync(folder)).toThrow();
  });

  it('reaches the loopback of the host only if that is allowed', async () => {
    const egress = await openEgress(
      { server: 'x', allowedDomains: ['localhost:3000'] },
      { onBlocked: () => undefined },
    );
    expect(egress.env.NO_PROXY).toBe('');
    expect(statSync(egress.socket).mode & 0o777).toBe(0o666);
    await egress.close();
    await expect(
      openEgress({ server: 'x', allowedDomains: ['http://a.test'] }, { onBlocked: () => undefined }),
    ).rejects.toThrow('scheme');
  });
});
