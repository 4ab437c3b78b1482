/** Tests what a request over HTTP costs beyond its call, in counts that do not depend on the machine. */
import { connect } from 'node:net';
import { promiseHooks } from 'node:v8';
import { afterEach, describe, expect, it } from 'vitest';
import { verifies } from '../verifies.ts';
import { ALICE, initialize, request } from './fake-facade.ts';
import { type HttpBench, listen } from './http-bench.ts';

const REQUESTS = 500;
const benches: HttpBench[] = [];
afterEach(async () => {
  await Promise.all(benches.splice(0).map(({ server }) => server.close()));
});

/** Sends the same request again and again on one connection, and resolves when all are answered. Makes one promise. */
function repeat(port: number, text: string, times: number): Promise<void> {
  return new Promise((resolve, reject) => {
    let left = times;
    let seen = '';
    const socket = connect(port, '127.0.0.1', () => socket.write(text));
    socket.on('error', reject);
    socket.on('data', (chunk) => {
      seen += chunk.toString();
      if (!seen.endsWith('}')) return;
      if (!seen.startsWith('HTTP/1.1 200')) reject(new Error(seen));
      seen = '';
      left -= 1;
      if (left > 0) socket.write(text);
      else resolve(void socket.destroy());
    });
  });
}

describe('a request over HTTP', () => {
  it('makes three promises, if its answer needs no wait' + verifies('FP-06'), async () => {
    const bench = await listen();
    benches.push(bench);
    const { port, session } = bench;
    const body = JSON.stringify(request(1, 'ping'));
    const text = [
      'POST /mcp HTTP/1.1',
      `Host: localhost:${port}`,
      'Authorization: Bearer alice-token',
      'Content-Type: application/json',
      `Mcp-Session-Id: ${await session()}`,
      `Content-Length: ${body.length}`,
      '',
      body,
    ].join('\r\n');
    let promises = 0;
    const stop = promiseHooks.onInit(() => (promises += 1));
    await repeat(port, text, REQUESTS);
    stop();
    // The few promises of the test itself are less than half of one for each request.
    expect(Math.round(promises / REQUESTS)).toBe(3);
  });

  it(
    'of a page has the same principal each time, because later stages cache by principal' + verifies('FP-06'),
    async () => {
      const origin = 'https://app.example';
      const bench = await listen({ listen: { origins: [origin] } });
      benches.push(bench);
      const { ask, facade } = bench;
      for (const spelled of [origin, 'HTTPS://APP.EXAMPLE'])
        expect((await ask({ headers: { origin: spelled }, body: initialize() })).status).toBe(200);
      const [first, second] = facade.opened.map(({ principal }) => principal);
      expect(first).toEqual({ ...ALICE, origin });
      expect(second).toBe(first);
    },
  );
});
