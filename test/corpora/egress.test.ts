/** Tests the egress of a sandbox with the recorded attacks. Each case has the expected answer. */

import { connect } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, describe, expect, it } from 'vitest';
import { Allowlist } from '../../adapters/egress/allowlist.ts';
import { PROXY_LIMITS } from '../../adapters/egress/egress-proxy.ts';
import { parseAuthority } from '../../catalogs/readers/hosts.ts';
import { askPage, askTunnel, NOWHERE, openProxy, type ProxyBench } from '../egress/proxy-bench.ts';
import { runJailed } from '../egress/sandboxed-program.ts';
import { verifies } from '../verifies.ts';
import { readCases, readCorpus, requireKnown } from './corpus.ts';

interface EgressCase {
  readonly id: string;
  readonly kind: 'CONNECT' | 'HTTP' | 'RESOLVE' | 'REDIRECT' | 'DIRECT' | 'SLOW';
  readonly request: string & Readonly<Record<string, string>>;
  readonly resolve: readonly string[] | null;
  readonly expected: 'allow' | 'deny' | 'unreachable' | 'timeout';
  readonly note: string;
}

const FILE = 'attacks/egress_cases.json';
const cases = readCases<EgressCase>(FILE, ['kind', 'request', 'resolve', 'expected', 'note']);
requireKnown(FILE, cases, { field: 'kind', known: ['CONNECT', 'HTTP', 'RESOLVE', 'REDIRECT', 'DIRECT', 'SLOW'] });
requireKnown(FILE, cases, { field: 'expected', known: ['allow', 'deny', 'unreachable', 'timeout'] });
const { allowlist } = readCorpus(FILE) as { readonly allowlist: readonly string[] };
if (!Array.isArray(allowlist)) throw new Error(`${FILE}: no allowlist`);
const of = (...kinds: readonly EgressCase['kind'][]): readonly EgressCase[] =>
  cases.filter(({ kind }) => kinds.includes(kind));

/** Matches a refusal by a rule. A connection that passes the rules fails at the name server, which knows no name. */
function isDenied({ status, refusal }: { readonly status: number; readonly refusal?: string }): boolean {
  return refusal !== 'unresolved' && refusal !== 'unreachable' && status !== 200;
}

const benches: ProxyBench[] = [];
afterAll(async () => Promise.all(benches.map((bench) => bench.close())));

async function proxy(...given: Parameters<typeof openProxy>): Promise<string> {
  const bench = await openProxy(...given);
  benches.push(bench);
  return bench.socket;
}

describe('egress cases', () => {
  it.each(of('CONNECT'))('$id CONNECT $note: $expected' + verifies('PF-03'), async ({ request, expected }) => {
    const verdict = await askTunnel(await proxy(allowlist, { lookup: NOWHERE }), request);
    expect(isDenied(verdict)).toBe(expected === 'deny');
  });

  it.each(of('HTTP'))('$id HTTP $note: $expected' + verifies('PF-03'), async ({ request, expected }) => {
    const verdict = await askPage(
      await proxy(allowlist, { lookup: NOWHERE }),
      request.target ?? '',
      `Host: ${request.host}\r\n`,
    );
    expect(isDenied(verdict)).toBe(expected === 'deny');
  });

  it.each(of('RESOLVE'))('$id RESOLVE $note: $expected' + verifies('PF-03'), async ({ request, resolve, expected }) => {
    const target = parseAuthority(`${request.host}:443`);
    const addresses = resolve ?? [];
    expect(target !== undefined && addresses.every((address) => new Allowlist(allowlist).admits(target, address))).toBe(
      expected === 'allow',
    );
    // The proxy would really connect to a public address.
    if (expected === 'deny')
      expect(await askTunnel(await proxy(allowlist, { lookup: async () => addresses }), `${request.host}:443`)).toEqual(
        { status: 403, refusal: 'private-address' },
      );
  });

  it.each(of('REDIRECT'))('$id REDIRECT $note: $expected' + verifies('PF-03'), async ({ request, expected }) => {
    const socket = await proxy(allowlist, { lookup: NOWHERE });
    expect(isDenied(await askPage(socket, request.from ?? '', ''))).toBe(false);
    expect(isDenied(await askPage(socket, request.to ?? '', ''))).toBe(expected === 'deny');
  });

  it.each(of('DIRECT'))('$id DIRECT $note: $expected' + verifies('PF-03'), async ({ request, expected }) => {
    const [, host = '', port = ''] = /^(.*):(\d+)$/.exec(request.dial ?? '') ?? [];
    const place =
      request.abstract === undefined ? { host, port: Number(port) } : { path: `\0${request.abstract.slice(1)}` };
    const inner =
      `require('node:net').connect(${JSON.stringify(place)}).on('connect', () => ` +
      `console.log('reached')).on('error', () => console.log('unreachable'))`;
    const { out } = await runJailed(
      `process.stdout.write(require('node:child_process').execFileSync(process.execPath, ['-e', ` +
        `${JSON.stringify(inner)}], { env: {} }))`,
      allowlist,
    );
    expect(out.trim()).toBe(expected);
  });

  it.each(of('SLOW'))('$id SLOW $note: $expected' + verifies('PF-03'), async ({ request, expected }) => {
    const bound = Math.max(PROXY_LIMITS.headersMs, PROXY_LIMITS.idleMs);
    expect(bound).toBeLessThan(Number(request.slowloris_s) * 1000);
    // A shorter form of the attack: single bytes do not keep a request open.
    const client = connect(await proxy(allowlist, { lookup: NOWHERE, limits: { headersMs: 300 } })).on(
      'error',
      () => undefined,
    );
    const closed = new Promise<string>((resolve) => client.once('close', () => resolve('timeout')));
    for (const letter of 'CONNECT allowed.test:443 HTTP/1.1\r\nX-Slow: ') {
      if (client.writable) client.write(letter);
      await sleep(40);
    }
    expect(await closed).toBe(expected);
  });
});
