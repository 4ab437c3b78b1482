/** Tests the preload for Node programs in a real child process, with every client of Node, over HTTP and TLS. */
import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createSecureServer } from 'node:http2';
import type { Server } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { BlockedAttempt } from '../../adapters/egress/blocked-attempts.ts';
import { openEgress } from '../../adapters/egress/open-egress.ts';
import { verifies } from '../verifies.ts';
import { makeCertificate } from './certificate.ts';
import { serveHttp } from './proxy-bench.ts';

const CLIENT = path.join(import.meta.dirname, '..', 'fixtures', 'egress-client.mjs');
const folder = mkdtempSync(path.join(tmpdir(), 'tollgate-preload-'));
const servers: Server[] = [];
const blocked: BlockedAttempt[] = [];
let said: Readonly<Record<string, string>> = {};

beforeAll(async () => {
  const { cert, key } = makeCertificate('secure.test');
  writeFileSync(path.join(folder, 'ca.pem'), cert);
  const plain = await serveHttp((request, response) =>
    request.url === '/away'
      ? response.writeHead(302, { location: 'http://169.254.169.254/' }).end()
      : response.end('plain'),
  );
  const secure = createSecureServer({ cert, key, allowHTTP1: true }, (request, response) => {
    let size = 0;
    request
      .on('data', (chunk: Buffer) => (size += chunk.length))
      .on('end', () => response.end(size === 0 ? 'secure' : String(size)));
  });
  await new Promise<void>((resolve) => secure.listen(0, '127.0.0.1', resolve));
  servers.push(plain.server, secure);
  const port = (secure.address() as { port: number }).port;
  const domains = [
    `plain.test:${plain.port}`,
    `none.test:${plain.port}`,
    `gone.test:${plain.port}`,
    `secure.test:${port}`,
    `0.0.0.1:${plain.port}`,
    `127.0.0.1:${plain.port}`,
    `127.0.0.1:${port}`,
  ];
  const lookup = async (name: string): Promise<readonly string[]> =>
    name === 'none.test' ? [] : name === 'gone.test' ? ['0.0.0.1'] : ['127.0.0.1'];
  const egress = await openEgress(
    { server: 'x', allowedDomains: domains, limits: { connectMs: 2000 } },
    { onBlocked: (one) => blocked.push(one), lookup },
  );
  // As in a sandbox, but with the paths of the host. In a sandbox, the files are mounted where the variables say.
  const [preload] = egress.mounts;
  const env = {
    ...egress.env,
    NO_PROXY: 'localhost,127.0.0.1,::1',
    NODE_OPTIONS: `--require ${preload?.from}`,
    TOLLGATE_EGRESS: egress.socket,
    NODE_EXTRA_CA_CERTS: path.join(folder, 'ca.pem'),
  };
  const { stdout } = await promisify(execFile)(process.execPath, [CLIENT, String(plain.port), String(port)], {
    env,
    timeout: 60_000,
  });
  said = JSON.parse(stdout) as Record<string, string>;
  await egress.close();
});

afterAll(() => {
  for (const server of servers) server.close();
  rmSync(folder, { recursive: true, force: true });
});

describe('a Node program with the preload', () => {
  it.each([
    ['fetch', 'plain'],
    ['fetch https', 'secure'],
    ['fetch post', '3000000'],
    ['http', 'plain'],
    ['https', 'secure'],
    ['https kept', 'secure'],
    ['net', 'plain'],
    ['net socket', 'plain'],
    ['tls', 'secure'],
    ['http2', 'secure'],
    ['worker', 'plain'],
    ['proxy variables', 'plain'],
    ['own loopback', 'own'],
  ])('reaches allowed hosts with %s' + verifies('PF-03'), (name, expected) => {
    expect(said[name]).toBe(expected);
  });

  it.each([
    ['denied fetch', 'evil.test:443'],
    ['denied http', 'evil.test:80'],
    ['denied address', '93.184.216.34:80'],
  ])('gets the refusal from %s', (name, target) => {
    expect(said[name]).toBe(`ECONNREFUSED: connect ECONNREFUSED ${target} (Tollgate: not-allowed)`);
  });

  it('is refused after a redirect to the metadata service', () => {
    expect(said.redirected).toContain('ECONNREFUSED 169.254.169.254:80 (Tollgate: not-allowed)');
    expect(blocked.map(({ host }) => host)).toContain('169.254.169.254');
  });

  it("gets Node's own error for names without an address, and an error for unreachable hosts", () => {
    expect(said['no address']).toMatch(/^ENOTFOUND: /);
    expect(said['dead end']).toMatch(/^ECONNREFUSED: .*\(Tollgate: unreachable\)$/);
  });
});
