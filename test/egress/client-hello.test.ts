/** Tests the reading of TLS ClientHellos, real ones of Node and hostile ones, and how a tunnel handles them. */

import { connect as connectNet, type Server } from 'node:net';
import { Duplex } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { connect, createServer } from 'node:tls';
import fc from 'fast-check';
import { afterEach, describe, expect, it } from 'vitest';
import { readClientHello } from '../../adapters/egress/client-hello.ts';
import { makeCertificate } from './certificate.ts';
import { openProxy, serveTcp, talk } from './proxy-bench.ts';

const closers: (() => unknown)[] = [];
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close();
});

/** Returns the ClientHello that Node sends to a server of this name. */
function greet(servername?: string): Promise<Buffer> {
  return new Promise((resolve) => {
    const wire = new Duplex({
      read: () => undefined,
      write: (chunk: Buffer, _encoding, done) => {
        resolve(chunk);
        done();
      },
    });
    connect({ socket: wire as never, ...(servername !== undefined && { servername }) }).on('error', () => undefined);
  });
}

/** Returns the same message in records of `size` bytes. */
function inRecords(hello: Buffer, size: number): Buffer {
  const message = hello.subarray(5);
  const parts: Buffer[] = [];
  for (let at = 0; at < message.length; at += size) {
    const piece = message.subarray(at, at + size);
    parts.push(Buffer.from([22, 3, 1, piece.length >> 8, piece.length & 255]), piece);
  }
  return Buffer.concat(parts);
}

describe('readClientHello', () => {
  it('returns the requested name, from one record or many', async () => {
    const hello = await greet('Some.Name.test');
    expect(readClientHello(hello)).toEqual({ kind: 'tls', name: 'Some.Name.test' });
    for (const size of [1, 3, 40, 200])
      expect(readClientHello(inRecords(hello, size))).toEqual({ kind: 'tls', name: 'Some.Name.test' });
    expect(readClientHello(Buffer.concat([hello, Buffer.from([20, 3, 3, 0, 1, 1])]))).toEqual({
      kind: 'tls',
      name: 'Some.Name.test',
    });
    expect(readClientHello(await greet())).toEqual({ kind: 'tls' });
  });

  it('asks for more while any part is missing', async () => {
    const hello = await greet('some.name.test');
    for (let length = 0; length < hello.length; length += 1)
      expect(readClientHello(hello.subarray(0, length)).kind).toBe('more');
  });

  it('reports other protocols and broken messages', async () => {
    const hello = await greet('some.name.test');
    expect(readClientHello(Buffer.from('GET / HTTP/1.1\r\n'))).toEqual({ kind: 'other' });
    expect(readClientHello(Buffer.from([22, 3, 1, 0, 4, 2, 0, 0, 0]))).toEqual({ kind: 'broken' });
    expect(readClientHello(Buffer.from([22, 9, 1, 0, 4, 1, 0, 0, 0]))).toEqual({ kind: 'broken' });
    const twice = Buffer.from(hello);
    // The list of ciphers claims to be longer than the message.
    twice.writeUInt16BE(0xffff, 5 + 4 + 34 + 1 + (hello[5 + 4 + 34] ?? 0));
    expect(readClientHello(twice)).toEqual({ kind: 'broken' });
  });

  it('never throws, for any bytes', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 300 }), (bytes) => {
        expect(['more', 'other', 'broken', 'tls']).toContain(readClientHello(Buffer.from([22, 3, 1, ...bytes])).kind);
      }),
    );
  });
});

describe('a tunnel', () => {
  async function tlsTarget(): Promise<{
    readonly port: number;
    readonly cert: string;
    readonly names: (string | false)[];
  }> {
    const { cert, key } = makeCertificate('secure.test');
    const names: (string | false)[] = [];
    const server: Server = createServer({ cert, key }, (socket) => {
      names.push((socket as unknown as { servername: string | false }).servername);
      socket.on('error', () => undefined).end('inside');
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    closers.push(() => server.close());
    return { port: (server.address() as { port: number }).port, cert, names };
  }

  async function through(servername: string | undefined): Promise<{
    readonly heard: string;
    readonly names: readonly (string | false)[];
    readonly reasons: readonly string[];
  }> {
    const { port, cert, names } = await tlsTarget();
    const bench = await openProxy([`secure.test:${port}`, `127.0.0.1:${port}`]);
    closers.push(() => bench.close());
    const { client } = await talk(bench.socket, `CONNECT secure.test:${port} HTTP/1.1\r\n\r\n`, '\r\n\r\n');
    client.removeAllListeners('data');
    const heard = await new Promise<string>((resolve) => {
      let text = '';
      const secure = connect({
        socket: client,
        ca: cert,
        host: 'secure.test',
        checkServerIdentity: () => undefined,
        ...(servername !== undefined && { servername }),
      });
      secure
        .on('data', (chunk: Buffer) => (text += chunk.toString()))
        .on('close', () => resolve(text))
        .on('error', () => undefined);
    });
    return { heard, names, reasons: bench.blocked.map(({ reason }) => reason) };
  }

  it('passes TLS to the name that it was opened for, and TLS without a name', async () => {
    expect(await through('secure.test')).toEqual({ heard: 'inside', names: ['secure.test'], reasons: [] });
    expect((await through(undefined)).heard).toBe('inside');
  });

  it('passes no TLS to another name to the target (domain fronting)', async () => {
    expect(await through('evil.test')).toEqual({ heard: '', names: [], reasons: ['other-name'] });
  });

  it('passes no broken or endless greeting to the target', async () => {
    const seen: Buffer[] = [];
    const { port, server } = await serveTcp((socket) => socket.on('data', (chunk: Buffer) => seen.push(chunk)));
    closers.push(() => server.close());
    const bench = await openProxy([`secure.test:${port}`, `127.0.0.1:${port}`]);
    closers.push(() => bench.close());
    const endless = Buffer.concat(
      Array.from({ length: 3000 }, () => Buffer.from([22, 3, 1, 0, 25, 1, 255, 255, 255, ...Buffer.alloc(21)])),
    );
    for (const bytes of [Buffer.from([22, 3, 1, 0, 4, 2, 0, 0, 0]), endless]) {
      const client = connectNet(bench.socket).on('error', () => undefined);
      client.write(`CONNECT secure.test:${port} HTTP/1.1\r\n\r\n`);
      await new Promise((resolve) => client.once('data', resolve));
      client.write(bytes);
      await new Promise((resolve) => client.once('close', resolve));
    }
    expect(seen).toEqual([]);
    expect(bench.blocked.map(({ reason }) => reason)).toContain('other-name');
  });

  it('passes no half greeting to the target when the client leaves', async () => {
    const seen: Buffer[] = [];
    const { port, server } = await serveTcp((socket) =>
      socket.on('data', (chunk: Buffer) => seen.push(chunk)).on('end', () => socket.end()),
    );
    closers.push(() => server.close());
    const bench = await openProxy([`secure.test:${port}`, `127.0.0.1:${port}`]);
    closers.push(() => bench.close());
    const { client } = await talk(bench.socket, `CONNECT secure.test:${port} HTTP/1.1\r\n\r\n`, '\r\n\r\n');
    client.end(Buffer.from([22, 3, 1, 1, 0, 1]));
    await new Promise((resolve) => client.once('close', resolve));
    await sleep(20);
    expect(seen).toEqual([]);
  });
});
