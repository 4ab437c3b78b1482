/** Tests the listener of the built console over HTTP: hosts, origins, cookies, and what an answer may contain. */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Allowlist } from '../../adapters/egress/allowlist.ts';
import { parseHost } from '../../catalogs/readers/hosts.ts';
import { verifies } from '../verifies.ts';
import { type ConsoleBench, type ConsoleSessionKeys, openConsoleBench } from './console-bench.ts';

let bench: ConsoleBench;
let session: ConsoleSessionKeys;
const others: { close(): void }[] = [];

beforeAll(async () => {
  bench = await openConsoleBench();
  session = await bench.signIn();
});

afterAll(async () => {
  for (const other of others) other.close();
  await bench.close();
});

describe('a request to the console', () => {
  it.each([
    ['another name that resolves here (DNS rebinding)', { host: 'attacker.example' }, 403],
    ['the right address with another port', { host: '127.0.0.1:1' }, 403],
    ['another origin', { origin: 'http://attacker.example' }, 403],
    ['a page of another port of this host', { origin: 'http://127.0.0.1:1' }, 403],
    ['a sandboxed frame', { origin: 'null' }, 403],
    ['a foreign page without an origin', { 'sec-fetch-site': 'cross-site' }, 403],
    ['a page of the same site on another port', { 'sec-fetch-site': 'same-site' }, 403],
  ])('is refused from %s' + verifies('AD-81'), async (_case, headers, status) => {
    for (const to of ['/', '/api/principals']) expect((await bench.ask(to, { headers, session })).status).toBe(status);
  });

  it('needs the cookie and the token of the page' + verifies('AD-80'), async () => {
    expect((await bench.ask('/api/principals', { session })).status).toBe(200);
    expect((await bench.ask('/api/principals')).status).toBe(401);
    expect((await bench.ask('/api/principals', { headers: { cookie: session.cookie } })).status).toBe(401);
    expect((await bench.ask('/api/principals', { headers: { 'x-tollgate-page': session.page } })).status).toBe(401);
  });

  it(
    'is refused with a second cookie of the same name, which another port may have set' + verifies('AD-80'),
    async () => {
      const name = session.cookie.split('=')[0];
      const cookie = `${session.cookie}; ${name}=planted`;
      expect((await bench.ask('/api/principals', { session, headers: { cookie } })).status).toBe(401);
    },
  );

  it('changes nothing as a form of another page (CSRF)' + verifies('AD-81'), async () => {
    const form = { 'content-type': 'application/x-www-form-urlencoded', cookie: session.cookie };
    for (const to of ['/api/run', '/api/sign-in', '/api/approve'])
      expect((await bench.ask(to, { method: 'POST', headers: form })).status).toBe(405);
    expect(
      (await bench.ask('/api/run', { method: 'POST', headers: { cookie: session.cookie }, body: {} })).status,
    ).toBe(401);
  });

  it('gets a policy that allows no foreign and no inline code' + verifies('AD-81'), async () => {
    const { headers } = await bench.ask('/');
    expect(headers['content-security-policy']).toMatch(/^default-src 'none'; script-src 'self'; style-src 'self';/);
    expect(headers['content-security-policy']).toMatch(/frame-ancestors 'none'/);
    expect(headers['x-content-type-options']).toBe('nosniff');
    expect(headers['cache-control']).toBe('no-store');
    const { text } = await bench.ask('/');
    expect(text).not.toMatch(/<script(?! src="\/)|<style|\son\w+=|https?:/);
  });

  it('gets a cookie that scripts cannot read and that other sites do not send' + verifies('AD-80'), async () => {
    const other = await openConsoleBench();
    try {
      const answer = await other.ask('/api/sign-in', { body: { code: other.code } });
      expect(String(answer.headers['set-cookie'])).toMatch(
        /^tollgate-\d+=[\w-]{43}; HttpOnly; SameSite=Strict; Path=\/api$/,
      );
      expect((await other.ask('/api/sign-in', { body: { code: other.code } })).status).toBe(401);
    } finally {
      await other.close();
    }
  });

  it.each([
    ['/api/nothing', {}, 404],
    ['/api/records', { method: 'DELETE' }, 404],
    ['/api/run', { body: { name: 'secret' } }, 400],
    ['/api/preview', { body: { name: 'suspend', parameters: { principal: 'agent', for: 'x; y' } } }, 400],
    ['/api/run', { body: [] }, 400],
    ['/api/run', { body: { name: 'explain', parameters: { id: 'x'.repeat(3_000_000) } } }, 413],
    ['/api/source?name=../../etc/passwd', {}, 400],
    ['/api/save', { body: { source: '/etc/passwd', text: '' } }, 400],
    ['/api/approve', { body: { id: 'x', binding: 'short', scope: 'call' } }, 400],
    ['/', { method: 'POST', body: {} }, 405],
  ])('is refused: %s %j' + verifies('AD-82'), async (to, options, status) => {
    expect((await bench.ask(to, { ...options, session })).status).toBe(status);
  });

  it('runs a command of the terminal, and says which' + verifies('AD-82'), async () => {
    const { text } = await bench.ask('/api/run', { session, body: { name: 'plans' } });
    expect(JSON.parse(text)).toMatchObject({ command: 'tollgate plan list', exit: 0, data: { plans: [] } });
  });
});

describe('serve --console', () => {
  it('opens the console besides the address of agents, and ends with it' + verifies('AD-82'), async () => {
    const { serving, output } = bench.start(['serve', '--port', '0', '--console', 'admin']);
    const [, url = '', code = ''] = await output(/Console: (http:\/\/127\.0\.0\.1:\d+\/)#([A-Z0-9-]+)/);
    const [, agents = ''] = await output(/listening on (http:\S+)/);
    expect(new URL(agents).port).not.toBe(new URL(url).port);
    const answer = await fetch(`${url}api/sign-in`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ code }),
    });
    expect(answer.status).toBe(200);
    const ended = new Promise((resolve) => serving.once('close', resolve));
    serving.kill('SIGTERM');
    expect(await ended).toBe(0);
    await expect(fetch(url)).rejects.toThrow();
  });
});

describe('the port of the console', () => {
  it('is refused by egress proxies, whatever the configuration allows' + verifies('AD-83'), async () => {
    const plain = createServer().listen(0, '127.0.0.1');
    others.push(plain);
    await new Promise((resolve) => plain.once('listening', resolve));
    const { port } = plain.address() as AddressInfo;
    const list = new Allowlist([`localhost:${bench.port}`, `127.0.0.1:${bench.port}`, `localhost:${port}`]);
    for (const name of ['localhost', '127.0.0.1']) {
      const host = parseHost(name);
      if (host === undefined) throw new Error(name);
      expect(list.allows({ ...host, port: bench.port })).toBe(false);
      expect(list.admits({ ...host, port: bench.port }, '127.0.0.1')).toBe(false);
      expect(list.admits({ ...host, port: bench.port }, '::ffff:127.0.0.1')).toBe(false);
    }
    const local = parseHost('localhost');
    expect(local !== undefined && list.allows({ ...local, port })).toBe(true);
  });
});
