/** Owns the bytes of one CONNECT tunnel; refuses a TLS client that asks for another name than the tunnel was opened for. */
import type { Duplex } from 'node:stream';
import type { Socket } from 'node:net';
import { readHello } from './hello.ts';
import { parseHost } from '../../catalogs/hosts.ts';
import type { Target } from '../../catalogs/hosts.ts';
import type { Meter } from './meter.ts';

/** A ClientHello with post-quantum keys takes 2 kB; the rest is room for what nobody sends. */
const MAX_HELLO_BYTES = 64 * 1024;

/** Both ends of a tunnel. */
export interface Tunnel {
  readonly client: Duplex;
  readonly upstream: Socket;
  readonly target: Target;
  readonly meter: Meter;
  readonly onBlocked: (reason: 'other-name' | 'budget') => void;
}

/** Passes bytes both ways until an end closes, the budget is spent, or the client greets somebody else. `head`: what came with the request. */
export function openTunnel(tunnel: Tunnel, head: Buffer): void {
  const { client, upstream } = tunnel;
  const end = (): void => {
    client.destroy();
    upstream.destroy();
  };
  for (const side of [client, upstream]) side.on('error', end).on('close', end);
  pass({ from: upstream, to: client, direction: 'down' }, tunnel, end);
  let greeting: Buffer = head;
  const judge = (): void => {
    const verdict = judgeGreeting(greeting, tunnel.target);
    if (verdict === 'more') return;
    client.off('data', collect).off('end', judgeEnd).pause();
    if (verdict === 'other-name') {
      tunnel.onBlocked('other-name');
      return end();
    }
    if (!tunnel.meter.spend('up', greeting.length)) {
      tunnel.onBlocked('budget');
      return end();
    }
    if (greeting.length > 0) upstream.write(greeting);
    pass({ from: client, to: upstream, direction: 'up' }, tunnel, end);
  };
  const collect = (chunk: Buffer): void => {
    greeting = greeting.length === 0 ? chunk : Buffer.concat([greeting, chunk]);
    judge();
  };
  const judgeEnd = (): void => {
    // Half a greeting is none: nothing of it goes out.
    upstream.end();
  };
  client.on('data', collect).on('end', judgeEnd);
  if (head.length > 0) judge();
}

function judgeGreeting(greeting: Buffer, target: Target): 'more' | 'pass' | 'other-name' {
  const hello = readHello(greeting);
  if (hello.kind === 'more') return greeting.length > MAX_HELLO_BYTES ? 'other-name' : 'more';
  if (hello.kind === 'other') return 'pass';
  if (hello.kind === 'broken') return 'other-name';
  // Without a name the server at the checked address answers with its own certificate: nobody else is reached by that.
  if (hello.name === undefined) return 'pass';
  return parseHost(hello.name)?.host === target.host ? 'pass' : 'other-name';
}

function pass(way: { readonly from: Duplex; readonly to: Duplex; readonly direction: 'up' | 'down' }, { meter, onBlocked }: Tunnel, end: () => void): void {
  way.from.on('data', (chunk: Buffer) => {
    if (meter.spend(way.direction, chunk.length)) return;
    onBlocked('budget');
    end();
  });
  way.from.pipe(way.to);
}
