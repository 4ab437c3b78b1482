/** Connects the proxy to a target. It resolves the name once, checks all addresses, and dials only these. */
import { lookup as systemLookup } from 'node:dns/promises';
import { connect, isIP, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Authority } from '../../catalogs/readers/hosts.ts';
import type { Allowlist } from './allowlist.ts';

/** Returns the addresses of a name. Rejects, or resolves to an empty list, if it has none. */
export type Lookup = (name: string) => Promise<readonly string[]>;

/**
 * The limit of simultaneous system lookups. Each one blocks one of four threads, which files and cryptography use too.
 * Slow name servers must not block all of them.
 */
const MAX_LOOKUPS = 2;
let lookups = 0;
const waiting: (() => void)[] = [];

/** Resolves a name as other programs of this machine do. This process resolves at most two names at once. */
export const lookupBySystem: Lookup = async (name) => {
  if (lookups < MAX_LOOKUPS) lookups += 1;
  else await new Promise<void>((resolve) => waiting.push(resolve));
  try {
    return (await systemLookup(name, { all: true, verbatim: true })).map(({ address }) => address);
  } finally {
    const next = waiting.shift();
    if (next === undefined) lookups -= 1;
    else next();
  }
};

/** The result of an attempt to dial. */
export type DialResult =
  | { readonly socket: Socket }
  | { readonly failure: 'private-address' | 'unresolved' | 'unreachable' };

/** Options of a dial. Times are in milliseconds. */
export interface DialOptions {
  readonly allowlist: Allowlist;
  readonly lookup: Lookup;
  /** The limit for the lookup of the name, and again for the connection. */
  readonly connectMs: number;
  /** Called with every socket immediately, so that closing the proxy also ends sockets that still connect. */
  readonly onSocket: (socket: Socket) => void;
}

/**
 * Connects to a target that the allowlist allows. If one of its addresses may not be dialled, all are refused, because
 * a name server that mixes in private addresses is suspect. No name is resolved a second time (DNS rebinding).
 */
export async function dial(target: Authority, options: DialOptions): Promise<DialResult> {
  const addresses = target.kind === 'name' ? await findAddresses(target.host, options) : [target.host];
  if (addresses.length === 0) return { failure: 'unresolved' };
  if (!addresses.every((address) => options.allowlist.admits(target, address))) return { failure: 'private-address' };
  return openSocket(target, addresses, options);
}

async function findAddresses(name: string, { lookup, connectMs }: DialOptions): Promise<readonly string[]> {
  const late = new AbortController();
  try {
    return await Promise.race([lookup(name), sleep(connectMs, [], { signal: late.signal, ref: false })]);
  } catch {
    return [];
  } finally {
    late.abort();
  }
}

function openSocket(
  target: Authority,
  addresses: readonly string[],
  { connectMs, onSocket }: DialOptions,
): Promise<DialResult> {
  const checked = addresses.map((address) => ({ address, family: isIP(address) }));
  const socket = connect({
    host: target.host,
    port: target.port,
    allowHalfOpen: true,
    autoSelectFamily: true,
    lookup: (_name, _options, done) => done(null, checked),
  });
  onSocket(socket);
  return new Promise((resolve) => {
    const fail = (): void => {
      socket.destroy();
      resolve({ failure: 'unreachable' });
    };
    const timer = setTimeout(fail, connectMs);
    socket.once('close', () => clearTimeout(timer)).once('error', fail);
    socket.once('connect', () => {
      clearTimeout(timer);
      socket.off('error', fail).setNoDelay(true);
      resolve({ socket });
    });
  });
}
