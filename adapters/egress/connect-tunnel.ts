/**
 * Checks the first bytes of a CONNECT tunnel and passes the rest. Tunnels that carry plain HTTP go back to the proxy.
 */
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { type Authority, parseHost } from '../../catalogs/readers/hosts.ts';
import type { ByteMeter } from './byte-meter.ts';
import { readClientHello } from './client-hello.ts';

/** A ClientHello with post-quantum keys takes 2 kB, so this limit leaves ample room. */
const MAX_HELLO_BYTES = 64 * 1024;
/** The longest request line that the proxy accepts. */
const MAX_LINE_BYTES = 16 * 1024;
const HTTP_PORT = 80;
const TLS_PORT = 443;
/** TAB, LF, CR and SP: some HTTP servers skip them before a request. */
const BLANKS: readonly number[] = [9, 10, 13, 32];

/** The reason for blocking a tunnel. `pass`: its budget is spent. `http`: the server sent data before the request. */
const BLOCKED_AS = { pass: 'budget', http: 'malformed', 'other-name': 'other-name', malformed: 'malformed' } as const;

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

/**
 * Passes bytes both ways until an end closes, the budget is spent, or the first bytes are refused. `head`: bytes after
 * the request.
 */
export function openTunnel(tunnel: Tunnel, head: Buffer): void {
  const { client, upstream } = tunnel;
  const end = (): void => {
    client.destroy();
    upstream.destroy();
  };
  for (const side of [client, upstream]) side.on('error', end).on('close', end);
  const stopDown = pipeCounted({ from: upstream, to: client, direction: 'down' }, tunnel, end);
  let greeting: Buffer = head;
  const check = (): void => {
    const verdict = judgeGreeting(greeting, tunnel.target);
    if (verdict === 'more') return;
    client.off('data', collect).off('end', endUpstream).pause();
    if (verdict === 'pass' && tunnel.meter.spend('up', greeting.length)) {
      upstream.write(greeting);
      return void pipeCounted({ from: client, to: upstream, direction: 'up' }, tunnel, end);
    }
    // A server that sends first does not speak HTTP.
    if (verdict === 'http' && upstream.bytesRead === 0) {
      stopDown();
      for (const side of [client, upstream]) side.off('error', end).off('close', end);
      return tunnel.onHttp(greeting);
    }
    tunnel.onBlocked(BLOCKED_AS[verdict]);
    end();
  };
  const collect = (chunk: Buffer): void => {
    greeting = greeting.length === 0 ? chunk : Buffer.concat([greeting, chunk]);
    check();
  };
  const endUpstream = (): void => {
    // An incomplete greeting is not sent.
    upstream.end();
  };
  client.on('data', collect).on('end', endUpstream);
  if (head.length > 0) check();
}

/** The kind of a tunnel's first bytes. `more`: more bytes are needed to tell. */
export type Greeting = 'more' | 'pass' | 'http' | 'other-name' | 'malformed';

/**
 * Returns the kind of a client's first bytes. Port 443 carries TLS only, with the name of the target. Port 80 carries
 * HTTP, or TLS with that name. Other ports, which the owner's list names one by one, also carry other protocols.
 */
export function judgeGreeting(greeting: Buffer, target: Authority): Greeting {
  const hello = readClientHello(greeting);
  if (hello.kind === 'more') return greeting.length > MAX_HELLO_BYTES ? 'other-name' : 'more';
  if (hello.kind === 'broken') return 'other-name';
  if (hello.kind === 'other')
    return target.port === TLS_PORT ? 'malformed' : target.port === HTTP_PORT ? 'http' : judgeText(greeting);
  // Without a name, the server at the checked address answers with its own certificate. No other server is reached.
  if (hello.name === undefined) return 'pass';
  return parseHost(hello.name)?.host === target.host ? 'pass' : 'other-name';
}

/**
 * Tells HTTP from other protocols by the first line. Doubtful lines count as HTTP, and its strict parser refuses them:
 * HTTP/2 without TLS, HTTP/0.9 with a URL, leading blank lines, and the PROXY protocol (both versions).
 */
function judgeText(greeting: Buffer): 'more' | 'pass' | 'http' | 'malformed' {
  if (BLANKS.includes(greeting[0] ?? 0)) return 'http';
  const end = greeting.indexOf(10);
  const line = greeting.toString('latin1', 0, Math.min(end < 0 ? greeting.length : end, MAX_LINE_BYTES));
  if (/^PROXY |http\/|:\/\//i.test(line)) return 'http';
  // A text protocol starts with a short word and a blank. Binary protocols do not.
  if (!/^[!-~]{1,64}(?:[\t\v\f\r ]|$)/.test(line)) return 'pass';
  if (line.length === MAX_LINE_BYTES) return 'malformed';
  return end < 0 ? 'more' : 'pass';
}

/** Pipes one way and counts the bytes. Returns a function that stops it. */
function pipeCounted(
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
