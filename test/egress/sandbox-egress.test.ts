/** Tests the network access of a real sandbox: through the preload, through the bridge, and in no other way. */

import { createServer, type Server } from 'node:net';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { verifies } from '../verifies.ts';
import { serveHttp } from './proxy-bench.ts';
import { runJailed } from './sandboxed-program.ts';

let port = 0;
const servers: Server[] = [];

beforeAll(async () => {
  const plain = await serveHttp((_request, response) => response.end('plain'));
  port = plain.port;
  servers.push(plain.server);
});

afterAll(() => {
  for (const server of servers) server.close();
});

const domains = (): readonly string[] => [`plain.test:${port}`, `127.0.0.1:${port}`];

/** Returns the code of a program that runs another Node program without the variables of the preload. */
const withoutPreload = (code: string): string =>
  `process.stdout.write(require('node:child_process')
    .execFileSync(process.execPath, ['-e', ${JSON.stringify(code)}], { env: {} }))`;

describe('a program in a sandbox', () => {
  it('reaches its allowed domains, and nothing else' + verifies('PF-03'), async () => {
    const { out, blocked } = await runJailed(
      `fetch('http://plain.test:${port}/')
        .then((one) => one.text())
        .then(console.log)
        .then(() => fetch('http://evil.test/'))
        .catch((error) => console.log(error.cause.message))`,
      domains(),
    );
    expect(out).toBe('plain\nconnect ECONNREFUSED evil.test:80 (Tollgate: not-allowed)\n');
    expect(blocked).toEqual([{ server: 'jailed', reason: 'not-allowed', host: 'evil.test', port: 80, count: 1 }]);
  });

  it('reaches them with the proxy variables alone', async () => {
    // Without the variable of the preload, Node behaves like other programs.
    const code = `
      const env = { ...process.env, NODE_OPTIONS: '', TOLLGATE_EGRESS: '' };
      const inner = "require('node:net').connect(3128, '127.0.0.1').on('data', (one) => process.stdout.write(one)).write('GET http://plain.test:${port}/ HTTP/1.0\\\\r\\\\n\\\\r\\\\n')";
      process.stdout.write(require('node:child_process').execFileSync(process.execPath, ['-e', inner], { env }));`;
    const { out, err } = await runJailed(code, domains());
    expect(err).toBe('');
    expect(out).toContain('plain');
  });

  it.each([
    ['an address', `require('node:net').connect(443, '93.184.216.34')`],
    ['the loopback of the host', `require('node:net').connect(PORT, '127.0.0.1')`],
    ['the metadata service', `require('node:net').connect(80, '169.254.169.254')`],
    ['a name server', `require('node:net').connect(53, '8.8.8.8')`],
    ['an abstract socket of the host', `require('node:net').connect('\\0tollgate-test')`],
  ])('without the preload reaches nothing: %s' + verifies('PF-03'), async (_name, code) => {
    const abstract = createServer(() => undefined).listen('\0tollgate-test');
    const inner = `${code.replace('PORT', String(port))}
      .on('connect', () => console.log('reached'))
      .on('error', (error) => console.log(error.code))`;
    const { out } = await runJailed(withoutPreload(inner), domains());
    abstract.close();
    expect(out).toMatch(/^E[A-Z]+\n$/);
  });

  it('without the preload sends no UDP, and resolves no name', async () => {
    const inner = `
      require('node:dns').lookup('example.org', (error) => console.log(error.code));
      require('node:dgram').createSocket('udp4').send('x', 53, '8.8.8.8', (error) => {
        console.log(error?.code ?? 'sent');
        process.exit();
      });`;
    const { out } = await runJailed(withoutPreload(inner), domains());
    expect(out).not.toContain('sent');
    expect(out).toContain('ENETUNREACH');
  });
});
