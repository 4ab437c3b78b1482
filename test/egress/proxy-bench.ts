/** Shared parts of the egress tests: a proxy on its own socket, raw requests, and targets on loopback. */
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer as createHttp, type RequestListener } from 'node:http';
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { Allowlist } from '../../adapters/egress/allowlist.ts';
import type { BlockedAttempt } from '../../adapters/egress/blocked-attempts.ts';
import type { Lookup } from '../../adapters/egress/dial.ts';
import { EgressProxy, type ProxyLimits } from '../../adapters/egress/egress-proxy.ts';

export const LOOPBACK: Lookup = async () => ['127.0.0.1'];
/** Finds no addresses. Allowed requests end as `unresolved`, and nothing leaves the machine. */
export const NOWHERE: Lookup = async () => [];

export interface ProxyBench {
  readonly socket: string;
  readonly blocked: BlockedAttempt[];
  close(): Promise<void>;
}

export async function openProxy(
  domains: readonly string[],
  more: { readonly lookup?: Lookup; readonly limits?: Partial<ProxyLimits> } = {},
): Promise<ProxyBench> {
  const folder = mkdtempSync(path.join(tmpdir(), 'tollgate-proxy-'));
  const blocked: BlockedAttempt[] = [];
  const proxy = new EgressProxy({
    server: 'tested',
    allowlist: new Allowlist(domains),
    onBlocked: (one) => blocked.push(one),
    lookup: LOOPBACK,
    ...more,
  });
  const socket = path.join(folder, 'p.sock');
  await proxy.listen(socket);
  return {
    socket,
    blocked,
    close: async () => {
      await proxy.close();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

/** Returns the answer until the other end closed, or until it contained `until`. */
export function talk(
  socket: string,
  text: string | Buffer,
  until?: string,
): Promise<{ readonly text: string; readonly client: Socket }> {
  return new Promise((resolve) => {
    const client = connect(socket);
    let heard = '';
    const finish = (): void => resolve({ text: heard, client });
    client.on('data', (chunk: Buffer) => {
      heard += chunk.toString('latin1');
      if (until !== undefined && heard.includes(until)) finish();
    });
    client.on('close', finish).on('error', finish);
    client.write(text);
  });
}

/** Returns the status of an answer, and the proxy's reason for a refusal. */
export function verdictOf(answer: string): { readonly status: number; readonly refusal?: string } {
  const refusal = /^x-tollgate-refusal: (.*)\r$/m.exec(answer)?.[1];
  return { status: Number(/^HTTP\/1\.1 (\d+)/.exec(answer)?.[1] ?? 0), ...(refusal !== undefined && { refusal }) };
}

/** Requests a tunnel. The text is sent as Latin-1, byte by byte. */
export async function askTunnel(
  socket: string,
  authority: string,
  headers = '',
): Promise<ReturnType<typeof verdictOf>> {
  const { text, client } = await talk(
    socket,
    Buffer.from(`CONNECT ${authority} HTTP/1.1\r\n${headers}\r\n`, 'utf8'),
    '\r\n\r\n',
  );
  client.destroy();
  return verdictOf(text);
}

/** Requests a page. */
export async function askPage(
  socket: string,
  target: string,
  headers: string,
): Promise<ReturnType<typeof verdictOf> & { readonly text: string }> {
  const { text, client } = await talk(socket, `GET ${target} HTTP/1.1\r\n${headers}Connection: close\r\n\r\n`);
  client.destroy();
  return { ...verdictOf(text), text };
}

/** Starts a server on loopback. Returns it with its port. */
export async function serveHttp(
  listener: RequestListener,
): Promise<{ readonly port: number; readonly server: Server }> {
  return listen(createHttp(listener));
}

export async function serveTcp(
  listener: (socket: Socket) => void,
): Promise<{ readonly port: number; readonly server: Server }> {
  return listen(
    createServer({ allowHalfOpen: true }, (socket) => {
      socket.on('error', () => undefined);
      listener(socket);
    }),
  );
}

async function listen<S extends Server>(server: S): Promise<{ readonly port: number; readonly server: S }> {
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return { port: (server.address() as AddressInfo).port, server };
}
