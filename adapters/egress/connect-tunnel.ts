/** Judges the first bytes of a CONNECT tunnel and passes the rest; hands tunnels that carry plain HTTP back to the proxy. */

import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { type Authority, parseHost } from '../../catalogs/readers/hosts.ts';
import type { ByteMeter } from './byte-meter.ts';
import { readClientHello } from './client-hello.ts';

/** A ClientHello with post-quantum keys takes 2 kB; the rest is room for what nobody sends. */
const MAX_HELLO_BYTES = 64 * 1024;
/** As long as a request line can be that the proxy accepts. */
const MAX_LINE_BYTES = 16 * 1024;
const HTTP_PORT = 80;
const TLS_PORT = 443;
/** TAB, LF, CR and SP: some HTTP servers skip them before a request. */
const BLANKS: readonly number[] = [9, 10, 13, 32];

/** Both ends of a tunnel. */
export interface Tunnel {
  readonly client: Duplex;
  readonly upstream: Socket;
  readonly target: Authority;
  readonly meter: ByteMeter;
  readonly onBlocked: (reason: 'other-name' | 'malformed' | 'budget') => void;
  /** Called with the bytes read so far when the client speaks HTTP. The tunnel no longer listens to either end then. */
  readonly onHttp: (head: Buffer) => void;
}

/** Passes bytes both ways until an end closes, the budget is spent, or the first bytes are refused. `head`: what came with the request. */
export function openTunnel(tunnel: Tunnel, head: Buffer): void {
  const { client, upstream } = tunnel;
  const end = (): void => {
    client.destroy();
    upstream.destroy();
  };
  for (const side of [client, upstream]) side.on('error', end).on('close', end);
  const stopDown = pass({ from: upstream, to: client, direction: 'down' }, tunnel, end);
  let greeting: Buffer = head;
  const judge = (): void => {
    const verdict = judgeGreeting(greeting, tunnel.target);
    if (verdict === 'more') return;
    client.off('data', collect).off('end', judgeEnd).pause();
    if (verdict === 'pass' && tunnel.meter.spend('up', greeting.length)) {
      upstream.write(greeting);
      return void pass({ from: client, to: upstream, direction: 'up' }, tunnel, end);
    }
    // A server that speaks first does not speak HTTP.
    if (verdict === 'http' && upstream.bytesRead === 0) {
      stopDown();
      for (const side of [client, upstream]) side.off('error', end).off('close', end);
      return tunnel.onHttp(greeting);
    }
    tunnel.onBlocked(verdict === 'pass' ? 'budget' : verdict === 'http' ? 'malformed' : verdict);
    end();
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

/** What the first bytes of a tunnel are; `more` where they do not show it yet. */
export type Greeting = 'more' | 'pass' | 'http' | 'other-name' | 'malformed';

/**
 * Judges the first bytes of a client. Port 443 carries TLS only, with the name of the target. Port 80 carries HTTP, or TLS
 * with that name. Other ports, which the owner's list names one by one, also carry other protocols.
 */
export function judgeGreeting(greeting: Buffer, target: Authority): Greeting {
  const hello = readClientHello(greeting);
  if (hello.kind === 'more') return greeting.length > MAX_HELLO_BYTES ? 'other-name' : 'more';
  if (hello.kind === 'broken') return 'other-name';
  if (hello.kind === 'other')
    return target.port === TLS_PORT ? 'malformed' : target.port === HTTP_PORT ? 'http' : judgeText(greeting);
  // Without a name the server at the checked address answers with its own certificate: nobody else is reached by that.
  if (hello.name === undefined) return 'pass';
  return parseHost(hello.name)?.host === target.host ? 'pass' : 'other-name';
}

/**
 * Tells HTTP from other protocols by the first line. In doubt it is HTTP, whose strict parser then refuses it: HTTP/2 without
 * TLS, HTTP/0.9 with a URL, blank lines in front (also the PROXY protocol, version 2), the PROXY protocol of version 1.
 */
function judgeText(greeting: Buffer): 'more' | 'pass' | 'http' | 'malformed' {
  if (BLANKS.includes(greeting[0] ?? 0)) return 'http';
  const end = greeting.indexOf(10);
  const line = greeting.toString('latin1', 0, Math.min(end < 0 ? greeting.length : end, MAX_LINE_BYTES));
  if (/^PROXY |http\/|:\/\//i.test(line)) return 'http';
  // A short first word, then a blank or nothing yet. In binary protocols something else follows.
  if (!/^[!-~]{1,64}(?:[\t\v\f\r ]|$)/.test(line)) return 'pass';
  if (line.length === MAX_LINE_BYTES) return 'malformed';
  return end < 0 ? 'more' : 'pass';
}

/** Pipes one way and counts it. Returns what ends that. */
function pass(
  way: { readonly from: Duplex; readonly to: Duplex; readonly direction: 'up' | 'down' },
  { meter, onBlocked }: Tunnel,
  end: () => void,
): () => void {
  const count = (chunk: Buffer): void => {
    if (meter.spend(way.direction, chunk.length)) return;
    onBlocked('budget');
    end();
  };
  way.from.on('data', count);
  way.from.pipe(way.to);
  return () => way.from.off('data', count).unpipe(way.to);
}
